"""Calls grpc.testing.TestService with grpcio: grpc_client.py PORT DESCRIPTORS."""

import sys

import grpc

from messages import INITIAL, METHODS, SERVICE, TRAILING, load

port, descriptors = sys.argv[1:3]
message = load(descriptors)
channel = grpc.insecure_channel(f"127.0.0.1:{port}", compression=grpc.Compression.Gzip)


def method(name):
    request, response, kind = METHODS[name]
    return getattr(channel, kind)(
        f"/{SERVICE}/{name}",
        request_serializer=message(request).SerializeToString,
        response_deserializer=message(response).FromString,
    )


def error_of(call):
    """Returns the code and the message of a call that fails."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError("the call did not fail")


def payload(len):
    return message("Payload")(body=bytes(len))


def wanting(*sizes):
    return message("StreamingOutputCallRequest")(response_parameters=[{"size": size} for size in sizes])


def lens(answers):
    return [len(answer.payload.body) for answer in answers]


empty, simple = message("Empty"), message("SimpleRequest")
assert method("EmptyCall")(empty()) == empty()
for size in (0, 1, 100_000):
    answer = method("UnaryCall")(simple(response_size=size, payload=payload(size)))
    assert len(answer.payload.body) == size

metadata = [(INITIAL, "one"), (TRAILING, bytes([1, 2, 3]))]
_, call = method("UnaryCall").with_call(simple(), metadata=metadata)
assert dict(call.initial_metadata())[INITIAL] == "one"
assert dict(call.trailing_metadata())[TRAILING] == bytes([1, 2, 3])

failure = {"code": grpc.StatusCode.NOT_FOUND.value[0], "message": "nobody ☺ here\n"}
expected = (grpc.StatusCode.NOT_FOUND, failure["message"])
assert error_of(lambda: method("UnaryCall")(simple(response_status=failure))) == expected
failing = message("StreamingOutputCallRequest")(response_status=failure)
assert error_of(lambda: list(method("FullDuplexCall")(iter([failing])))) == expected
late = message("StreamingOutputCallRequest")(response_parameters=[{"interval_us": 5_000_000}])
code, _ = error_of(lambda: list(method("StreamingOutputCall")(late, timeout=0.05)))
assert code == grpc.StatusCode.DEADLINE_EXCEEDED, code
code, _ = error_of(lambda: method("UnimplementedCall")(empty()))
assert code == grpc.StatusCode.UNIMPLEMENTED, code

assert lens(method("StreamingOutputCall")(wanting(1, 0, 70_000))) == [1, 0, 70_000]
pieces = (message("StreamingInputCallRequest")(payload=payload(size)) for size in (1, 0, 40_000))
assert method("StreamingInputCall")(pieces).aggregated_payload_size == 40_001
assert lens(method("FullDuplexCall")(wanting(size) for size in (1, 2, 3))) == [1, 2, 3]

# The caller takes one answer and leaves; the connection stays.
answers = method("FullDuplexCall")(wanting(1, 1, 1) for _ in range(10))
next(answers)
answers.cancel()
calls = [method("UnaryCall").future(simple(response_size=size)) for size in range(300)]
assert [len(call.result().payload.body) for call in calls] == list(range(300))
channel.close()
print("all went well")
