"""Answers every call of gRPC with its message, as bytes."""

from concurrent.futures import ThreadPoolExecutor

import grpc

import arguments

_, free = arguments.parse()
host, port = free.getsockname()
free.close()
server = grpc.server(ThreadPoolExecutor(max_workers=32))
echo = grpc.unary_unary_rpc_method_handler(lambda message, context: message)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("BenchmarkService", {"Benchmark": echo})])
server.add_insecure_port(f"{host}:{port}")
server.start()
arguments.announce(port)
server.wait_for_termination()
