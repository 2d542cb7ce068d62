//! The page of addresses: the schemes of all transports and resolvers.

use std::{collections::BTreeSet, fmt::Write as _};

use frpc::{ClientTls, Pem, ToTarget, Transport, fleet::ResolverFactory};
use frpc_kubernetes::{ClusterConfig, KubernetesResolvers};
use frpc_nats::NatsTransport;
use frpc_xds::{Bootstrap, XdsClient, XdsSettings};

use crate::pages::{heading, update};

/// An example of each scheme, and its meaning.
type Examples = &'static [(&'static str, &'static str)];

const FRISBEE: Examples = &[
    ("tcp://localhost:7300", "frisbee over TCP, with TLS if the channel has it"),
    ("localhost:7300", "the same"),
    ("unix:/run/app.sock", "frisbee over a Unix socket"),
    ("unix:@app", "frisbee over an abstract Unix socket of Linux"),
    ("mem:app", "frisbee within the process"),
];

const SEVERAL: Examples = &[
    ("tcp://10.0.0.1:7300,tcp://10.0.0.2:7300", "the servers of a list; also with other schemes"),
    ("dns:///orders.internal:7300", "the addresses of a name, over frisbee"),
    ("dns+grpc:///orders.internal:443", "the same over another wire: `dns+` and its scheme"),
    ("file:///etc/orders.json", "the servers in a file, read again after each change"),
];

const HTTP: Examples = &[
    ("grpc://localhost:7300", "gRPC"),
    ("grpcs://example.org:443", "gRPC with TLS"),
    ("http://localhost:7300", "Connect"),
    ("https://example.org:443", "Connect with TLS"),
    ("grpc-web+http://localhost:7300", "gRPC-Web"),
    ("grpc-web+https://example.org:443", "gRPC-Web with TLS"),
    ("twirp+http://localhost:7300", "Twirp"),
    ("twirp+https://example.org:443", "Twirp with TLS"),
];

const WEBSOCKET: Examples =
    &[("ws://localhost:7300", "frisbee over WebSocket"), ("wss://example.org:443", "the same with TLS")];

const JSON_RPC: Examples = &[
    ("jsonrpc+tcp://localhost:8545", "JSON-RPC over TCP"),
    ("jsonrpc+http://localhost:8545/rpc", "JSON-RPC over HTTP"),
    ("jsonrpc+https://example.org/rpc", "the same with TLS"),
    ("jsonrpc+ws://localhost:8545/rpc", "JSON-RPC over WebSocket"),
    ("jsonrpc+wss://example.org/rpc", "the same with TLS"),
];

const NATS: Examples = &[
    ("nats://cluster/orders", "calls through a NATS cluster"),
    ("nats+direct://cluster/orders", "direct calls to servers found in a NATS cluster"),
];

const KUBERNETES: Examples = &[
    ("kubernetes:///orders.shop:grpc", "the pods of a Service, over frisbee"),
    ("kubernetes+grpc:///orders.shop:grpc", "the same over another wire: `kubernetes+` and its scheme"),
];

const XDS: Examples = &[
    ("xds:///orders", "servers of an xDS control plane, over gRPC"),
    ("xds+grpc:///orders", "the same"),
    ("xds+tcp:///orders", "the same over frisbee"),
];

#[test]
fn the_page_of_addresses_matches_the_code() {
    let mut page = heading(
        "Addresses",
        "Each wire has a scheme. The package in the heading adds the schemes below it:\n\
         `Channel::builder().transport(frpc_http::transport())`, or `.resolver(..)` for sets of servers.\n\
         [Channels](../guide/channels.md#addresses) and [running a fleet](../fleet.md#targets) explain them.",
    );
    let bootstrap = r#"{"xds_servers": [{"server_uri": "localhost:1", "channel_creds": [{"type": "insecure"}]}]}"#;
    let xds = XdsClient::new(Bootstrap::from_json(bootstrap).unwrap(), XdsSettings::default());
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let tls = ClientTls::with_roots(Pem::bytes(certificate)).unwrap();
    let kubernetes = KubernetesResolvers::new(ClusterConfig::new("https://localhost:1", tls).unwrap());
    let nats = NatsTransport::new();
    let nats_schemes = [Transport::schemes(&nats), ResolverFactory::schemes(&nats)].concat();
    for (of, examples, schemes) in [
        ("frisbee-rpc, one server", FRISBEE, named(&["tcp", "unix", "mem"])),
        ("frisbee-rpc, several servers", SEVERAL, named(&["tcp", "dns", "dns+grpc", "file"])),
        ("frisbee-rpc-http", HTTP, named(frpc_http::transport().schemes())),
        ("frisbee-rpc-websocket", WEBSOCKET, named(frpc_websocket::transport().schemes())),
        ("frisbee-rpc-jsonrpc", JSON_RPC, named(frpc_jsonrpc::transport().schemes())),
        ("frisbee-rpc-nats", NATS, named(&nats_schemes)),
        ("frisbee-rpc-kubernetes", KUBERNETES, named(kubernetes.schemes())),
        ("frisbee-rpc-xds", XDS, named(xds.schemes())),
    ] {
        check(of, examples, &schemes);
        writeln!(page, "\n## {of}\n\n| address | wire |\n|---|---|").unwrap();
        for (address, meaning) in examples {
            writeln!(page, "| `{address}` | {meaning} |").unwrap();
        }
    }
    update(&[("docs/reference/addresses.md", &page)]);
}

fn named(schemes: &[&str]) -> Vec<String> {
    schemes.iter().map(|scheme| (*scheme).to_owned()).collect()
}

/// Checks that the examples are targets, and that each scheme has one.
fn check(of: &str, examples: Examples, schemes: &[String]) {
    let scheme = |address: &&str| address.split_once(':').map(|(scheme, _)| scheme.to_owned());
    for (address, _) in examples {
        assert!(address.to_target().is_ok(), "{of}: {address}");
    }
    let shown: BTreeSet<_> =
        examples.iter().filter_map(|(address, _)| scheme(address)).filter(|found| found != "localhost").collect();
    let open = |scheme: &str| scheme.starts_with("kubernetes+");
    let known: BTreeSet<_> =
        schemes.iter().filter(|scheme| !open(scheme) || *scheme == "kubernetes+grpc").cloned().collect();
    assert_eq!(shown, known, "{of}: schemes with an example, and schemes of the code");
}
