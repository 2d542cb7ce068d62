"""Reads /metrics in both text formats with the parsers of prometheus_client: prometheus.py PORT.

The counters are of the process, so other tests may add to them.
"""

import sys
import urllib.request

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

port = sys.argv[1]


def families(accept, parse):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"accept": accept})
    with urllib.request.urlopen(request) as response:
        content_type = response.headers["content-type"]
        assert content_type.startswith(accept.split(";")[0]), content_type
        return {family.name: family for family in parse(response.read().decode())}


def check(found):
    duration = found["rpc_server_call_duration_seconds"]
    assert duration.type == "histogram", duration.type
    counts = {}
    for sample in duration.samples:
        if sample.name.endswith("_count"):
            labels = sample.labels
            counts[labels["rpc_system_name"], labels["rpc_method"], labels["rpc_status_code"]] = sample.value
    answered = counts["frpc", "helloworld.Greeter/SayHello", "OK"]
    refused = counts["frpc", "helloworld.Greeter/SayHello", "INVALID_ARGUMENT"]
    assert answered >= 3 and refused >= 1, counts
    # Buckets are cumulative, and the last one has all values.
    method = {"rpc_system_name": "frpc", "rpc_method": "helloworld.Greeter/SayHello", "rpc_status_code": "OK"}
    buckets = [
        sample.value
        for sample in duration.samples
        if sample.name.endswith("_bucket") and method.items() <= sample.labels.items()
    ]
    assert buckets == sorted(buckets) and buckets[-1] == answered, buckets
    started = found["grpc_server_call_started"]
    assert started.type == "counter" and any(
        sample.labels["grpc_method"] == "helloworld.Greeter/SayHello" and sample.value >= answered + refused
        for sample in started.samples
    ), started


check(families("text/plain", parser.text_string_to_metric_families))
check(families("application/openmetrics-text; version=1.0.0", openmetrics_parser.text_string_to_metric_families))
print("all went well")
