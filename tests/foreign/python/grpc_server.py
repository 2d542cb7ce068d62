"""Serves grpc.testing.TestService with grpcio until it is killed: grpc_server.py DESCRIPTORS. Prints its address."""

import sys
import time
from concurrent import futures

import grpc

from messages import INITIAL, METHODS, SERVICE, TRAILING, load

message = load(sys.argv[1])
CODES = {code.value[0]: code for code in grpc.StatusCode}


def fail_as_told(request, context):
    if request.response_status.code:
        context.abort(CODES[request.response_status.code], request.response_status.message)


def echo_metadata(context):
    received = dict(context.invocation_metadata())
    if INITIAL in received:
        context.send_initial_metadata([(INITIAL, received[INITIAL])])
    if TRAILING in received:
        context.set_trailing_metadata([(TRAILING, received[TRAILING])])


def unary_call(request, context):
    echo_metadata(context)
    fail_as_told(request, context)
    return message("SimpleResponse")(payload={"body": bytes(request.response_size)})


def streaming_output_call(request, context):
    fail_as_told(request, context)
    for wanted in request.response_parameters:
        time.sleep(wanted.interval_us / 1e6)
        yield message("StreamingOutputCallResponse")(payload={"body": bytes(wanted.size)})


def streaming_input_call(requests, _):
    size = sum(len(request.payload.body) for request in requests)
    return message("StreamingInputCallResponse")(aggregated_payload_size=size)


def full_duplex_call(requests, context):
    echo_metadata(context)
    for request in requests:
        yield from streaming_output_call(request, context)


HANDLERS = {
    "EmptyCall": lambda request, _: request,
    "UnaryCall": unary_call,
    "StreamingOutputCall": streaming_output_call,
    "StreamingInputCall": streaming_input_call,
    "FullDuplexCall": full_duplex_call,
}


def handler(name):
    request, response, kind = METHODS[name]
    return getattr(grpc, f"{kind}_rpc_method_handler")(
        HANDLERS[name],
        request_deserializer=message(request).FromString,
        response_serializer=message(response).SerializeToString,
    )


server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), compression=grpc.Compression.Gzip)
server.add_generic_rpc_handlers(
    [grpc.method_handlers_generic_handler(SERVICE, {name: handler(name) for name in HANDLERS})]
)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(f"listening on 127.0.0.1:{port}", file=sys.stderr, flush=True)
server.wait_for_termination()
