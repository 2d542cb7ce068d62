#!/usr/bin/env python3
"""Adds two NumPy arrays on the server of the example `functions` and checks the sum. Usage: add_arrays.py HOST:PORT"""

import base64
import json
import socket
import sys

import numpy


def to_json(array):
    """Returns an array as JSON: its type, its shape, and its bytes in base64."""
    array = numpy.ascontiguousarray(array)
    data = base64.b64encode(array.data if array.size else b"").decode()
    return {"dtype": array.dtype.str, "shape": array.shape, "data": data}


def from_json(tensor):
    """Converts a JSON tensor to an array."""
    data = base64.b64decode(tensor["data"])
    return numpy.frombuffer(data, tensor["dtype"]).reshape(tensor["shape"])


class Client:
    """A JSON-RPC connection."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.lines = socket.create_connection((host, int(port)), timeout=10).makefile("rw", encoding="utf-8")
        self.calls = 0

    def call(self, method, **params):
        self.calls += 1
        request = {"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params}
        self.lines.write(json.dumps(request) + "\n")
        self.lines.flush()
        answer = json.loads(self.lines.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        return answer["result"]


def main():
    client = Client(sys.argv[1])
    a = numpy.arange(6, dtype="<f8").reshape(2, 3)
    b = numpy.full((2, 3), 0.5, dtype=">f8")
    total = from_json(client.call("add_arrays", a=to_json(a), b=to_json(b)))
    print(total)
    assert numpy.array_equal(total, a + b)
    try:
        client.call("add_arrays", a=to_json(a), b=to_json(b[:1]))
    except RuntimeError as error:
        print(error)
    else:
        raise AssertionError("arrays of different shapes were added")


main()
