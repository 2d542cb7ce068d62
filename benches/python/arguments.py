"""The arguments of a server, as all servers of the report have them."""

import argparse
import socket


def parse(*options):
    """Returns the arguments and a socket that listens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--sleep-us")
    for option in options:
        parser.add_argument(option)
    arguments = parser.parse_args()
    host, port = arguments.address.removeprefix("tcp://").split(":")
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port)))
    return arguments, listener


def announce(port):
    """Says where the server listens."""
    print(f"listening on 127.0.0.1:{port}", flush=True)
