"""Records what a real API server answers to lists and watches of EndpointSlices, for the tests of frisbee-rpc-kubernetes.

Usage: record.py URL TOKEN FOLDER [VERSION]

The server must be new: the namespace `shop` is created. A second run after a restart of the server, with the version of
the first list, records the answer to a version that is gone.
"""

import json
import pathlib
import ssl
import sys
import threading
import time
import urllib.request

url, token, folder = sys.argv[1:4]
folder = pathlib.Path(folder)
context = ssl._create_unverified_context()
slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
selector = "?labelSelector=kubernetes.io%2Fservice-name%3Dorders"


def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "User-Agent": "recorder"}
    request = urllib.request.Request(url + path, data, headers, method=method)
    return urllib.request.urlopen(request, context=context)


def pods(numbers, family="IPv4", ready=True):
    def pod(number):
        address = f"10.1.{number // 250}.{number % 250 + 1}" if family == "IPv4" else f"fd00::{number + 1:x}"
        zone = "abc"[number % 3]
        return {
            "addresses": [address],
            "conditions": {"ready": ready, "serving": True, "terminating": not ready},
            "nodeName": f"node-{number % 10}",
            "zone": zone,
            "targetRef": {"kind": "Pod", "namespace": "shop", "name": f"orders-{number}", "uid": f"uid-{number}"},
            "hints": {"forZones": [{"name": zone}]},
        }

    return [pod(number) for number in numbers]


def a_slice(name, endpoints, family="IPv4"):
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "orders"}},
        "addressType": family,
        "endpoints": endpoints,
        "ports": [{"name": "grpc", "port": 7300, "protocol": "TCP"}, {"name": "admin", "port": 9900}],
    }


if len(sys.argv) > 4:
    gone = ask("GET", f"{slices}{selector}&watch=1&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion={sys.argv[4]}")
    (folder / "gone.watch").write_bytes(gone.read())
    sys.exit()

ask("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
for name, numbers in [("orders-a", range(100)), ("orders-b", range(100, 200)), ("orders-c", range(200, 250))]:
    ask("POST", slices, a_slice(name, pods(numbers)))
page, continuation = 0, ""
while page == 0 or continuation:
    text = ask("GET", f"{slices}{selector}&limit=1" + (f"&continue={continuation}" if continuation else "")).read()
    page += 1
    (folder / f"page{page}.json").write_bytes(text)
    metadata = json.loads(text)["metadata"]
    continuation = metadata.get("continue", "")
version = metadata["resourceVersion"]


def change():
    time.sleep(1)
    # A deploy: a part terminates, new pods appear in a slice of their own and in IPv6, a slice goes.
    ask("PUT", f"{slices}/orders-c", a_slice("orders-c", pods(range(200, 240)) + pods(range(240, 250), ready=False)))
    ask("POST", slices, a_slice("orders-d", pods(range(250, 260))))
    ask("POST", slices, a_slice("orders-6", pods(range(250, 255), "IPv6"), "IPv6"))
    ask("DELETE", f"{slices}/orders-a")


threading.Thread(target=change).start()
watch = ask("GET", f"{slices}{selector}&watch=1&allowWatchBookmarks=true&timeoutSeconds=4&resourceVersion={version}")
(folder / "changes.watch").write_bytes(watch.read())
print(version)
