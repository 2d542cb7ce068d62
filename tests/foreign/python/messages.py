"""The messages of grpc.testing, from a set of descriptors in a file."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def load(path):
    """Returns a function from the name of a message to its class."""
    pool = descriptor_pool.DescriptorPool()
    with open(path, "rb") as file:
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(file.read())
    for file in descriptors.file:
        pool.Add(file)
    classes = {}

    def message(name):
        if name not in classes:
            found = pool.FindMessageTypeByName(f"grpc.testing.{name}")
            classes[name] = message_factory.GetMessageClass(found)
        return classes[name]

    return message


# Each method of grpc.testing.TestService: its request, its response, and which of them are streams.
METHODS = {
    "EmptyCall": ("Empty", "Empty", "unary_unary"),
    "UnaryCall": ("SimpleRequest", "SimpleResponse", "unary_unary"),
    "StreamingOutputCall": ("StreamingOutputCallRequest", "StreamingOutputCallResponse", "unary_stream"),
    "StreamingInputCall": ("StreamingInputCallRequest", "StreamingInputCallResponse", "stream_unary"),
    "FullDuplexCall": ("StreamingOutputCallRequest", "StreamingOutputCallResponse", "stream_stream"),
    "UnimplementedCall": ("Empty", "Empty", "unary_unary"),
}

SERVICE = "grpc.testing.TestService"
INITIAL = "x-grpc-test-echo-initial"
TRAILING = "x-grpc-test-echo-trailing-bin"
