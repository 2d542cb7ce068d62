"""Calls functions and services with clients of JSON-RPC: jsonrpc.py PORT."""

import json
import socket
import sys
import urllib.request

import numpy
from PIL import Image
from jsonrpcclient import Error, Ok, notification_json, parse, request, request_hex, request_json, request_uuid
from ucall.client import Client

PORT = int(sys.argv[1])


def over_http(text):
    head = {"content-type": "application/json"}
    post = urllib.request.Request(f"http://127.0.0.1:{PORT}/rpc", text.encode(), head)
    with urllib.request.urlopen(post) as answer:
        return answer.read().decode()


class Tcp:
    """Values without anything around them, each answered on a line."""

    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", PORT))
        self.lines = self.socket.makefile()

    def __call__(self, text):
        self.socket.sendall(text.encode())
        return self.lines.readline()


def jsonrpcclient(send):
    call = lambda *request: parse(json.loads(send(json.dumps(*request))))
    assert parse(json.loads(send(request_json("sum", (1, 2))))).result == 3
    assert call(request("sum", {"a": 40, "b": 2})).result == 42
    for ask in (request_hex, request_uuid):
        asked = ask("echo", ["☺"])
        assert call(asked) == Ok("☺", asked["id"])
    refused = call(request("sum", [1, "two"], id="words"))
    assert isinstance(refused, Error) and refused.code == -32602 and refused.id == "words", refused
    assert "`b`" in refused.message, refused
    assert call(request("nothing")).code == -32601
    missing = call(request("missing"))
    assert (missing.message, missing.data["code"]) == ("nobody is here", "not_found"), missing
    hello = call(request("helloworld.Greeter/SayHello", {"name": "jsonrpcclient"}))
    assert hello.result == {"message": "Hello jsonrpcclient!"}, hello
    answers = {answer.id: answer.result for answer in call([request("sum", [n, n], id=n) for n in range(10)])}
    assert answers == {n: 2 * n for n in range(10)}, answers


def notifications():
    tcp = Tcp()
    tcp.socket.sendall(notification_json("note", ["from jsonrpcclient"]).encode())
    assert over_http(notification_json("note", ["from urllib"])) == ""
    while not {"from jsonrpcclient", "from urllib"} <= set(json.loads(tcp(request_json("notes")))["result"]):
        pass


def ucall_over_http():
    client = Client(port=PORT)
    for _ in range(2):
        # All over one connection, which UCall itself closes.
        assert client.sum(1, 2).json == 3
        assert client.sum(a=40, b=2).json == 42
    assert client.echo(message="☺").json == "☺"
    refused = client.sum(1, "two")
    assert refused.data["error"]["code"] == -32602, refused.data
    try:
        refused.raise_for_status()
        raise AssertionError("it answered")
    except RuntimeError as error:
        assert "`b`" in str(error)
    # It packs arguments only by name.
    array = numpy.linspace(0, 1, 1000, dtype=numpy.float32).reshape(10, 100)
    assert (client.echo(message=array).numpy == array).all()
    assert client.echo(message=bytes(range(256))).bytes == bytes(range(256))
    image = Image.effect_noise((64, 32), 50)
    assert client.echo(message=image).image.tobytes() == image.tobytes()


def ucall_over_tcp():
    """Reads to the end of the connection, which UCall closes after each answer; here the client ends it first."""
    client = Client(port=PORT, use_http=False)
    client._send({"jsonrpc": "2.0", "method": "sum", "params": [1, 2]})
    client.sock.shutdown(socket.SHUT_WR)
    assert client._recv().json == 3


jsonrpcclient(over_http)
jsonrpcclient(Tcp())
notifications()
ucall_over_http()
ucall_over_tcp()
print("all went well")
