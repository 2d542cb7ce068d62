//! Violations on every wire.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use bytes::Bytes;
use frpc::{
    Body, Call, Channel, Code, Head, MessageSettings, Method, Request, Response, Server, Status, Streaming,
    codec::{Format, MemoryBudget},
    prost::Message as _,
    prost_types::{FileDescriptorProto, FileDescriptorSet},
};
use frpc_http::{ClientSettings, Http};
use frpc_jsonrpc::JsonRpc;
use frpc_schema::FileEdition;
use frpc_types::{ErrorDetails, StatusExt};
use frpc_validate::{Validation, types::Violations};
use support::{
    contracts::required::{
        FILE_DESCRIPTOR_SET, Item, Parcel,
        parcels_client::ParcelsClient,
        parcels_server::{Parcels, ParcelsServer},
    },
    in_real_time,
};

struct Depot;

static SEND: Method = Method::unary("contracts.Parcels", "Send", 10);

impl Parcels for Depot {
    /// Returns the parcel. One to `echo` comes back with an invalid item.
    async fn send(&self, request: Request<Parcel>) -> Result<Response<Parcel>, Status> {
        let mut parcel = request.into_inner();
        if parcel.to == "echo" {
            parcel.items.push(Item { name: "X".to_owned() });
        }
        Ok(Response::new(parcel))
    }

    async fn send_all(&self, request: Request<Streaming<Parcel>>) -> Result<Response<Parcel>, Status> {
        let mut parcels = request.into_inner();
        let mut last = Parcel::default();
        while let Some(parcel) = parcels.message().await? {
            last = parcel;
        }
        Ok(Response::new(last))
    }
}

fn validation() -> Validation {
    Validation::new([FILE_DESCRIPTOR_SET]).unwrap()
}

fn parcel(from: &str, to: &str, items: &[&str]) -> Parcel {
    let items = items.iter().map(|name| Item { name: (*name).to_owned() }).collect();
    Parcel { from: from.to_owned(), to: to.to_owned(), items }
}

async fn check(channel: Channel, has_details: bool, scheme: &str) {
    let depot = ParcelsClient::new(channel);
    let valid = parcel("a", "b", &["x", "y"]);
    assert_eq!(depot.send(valid.clone()).await.unwrap().into_inner(), valid, "{scheme}");
    let status = depot.send(parcel("", "", &["x", "aX"])).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{scheme}: {status}");
    let text = "the request of contracts.Parcels/Send is invalid: must not return to its sender; ";
    assert!(status.message().starts_with(text), "{scheme}: {status}");
    assert!(status.message().contains("items[1].name: must not contain X"), "{scheme}: {status}");
    if !has_details {
        return;
    }
    let details = status.get_error_details();
    let fields: Vec<_> = details.bad_request().unwrap().field_violations.iter().map(|one| one.field.as_str()).collect();
    assert_eq!(fields, ["", "from", "items[1].name"], "{scheme}");
    let own = status.error_details().into_iter().find(|any| any.type_url.ends_with("/buf.validate.Violations"));
    let own = Violations::decode(&own.unwrap().value[..]).unwrap();
    let rules: Vec<_> = own.violations.iter().map(|one| one.rule_id()).collect();
    assert_eq!(rules, ["parcel.route", "string.min_len", "item.name"], "{scheme}");
}

#[test]
fn an_invalid_request_is_refused_with_details_on_every_wire() {
    in_real_time(async {
        let json = JsonRpc::new();
        let server = Server::builder().layer(validation()).add_service(ParcelsServer::new(Depot)).wire(json.clone());
        let server = server.wire(Http::new().mount("/rpc", json)).bind("tcp://127.0.0.1:0").await.unwrap();
        let address = server.local_addr().to_string();
        let address = address.trim_start_matches("tcp://");
        for (scheme, path) in [
            ("tcp", ""),
            ("grpc", ""),
            ("grpc-web+http", ""),
            ("http", ""),
            ("twirp+http", ""),
            ("ws", ""),
            ("jsonrpc+tcp", ""),
            ("jsonrpc+http", "/rpc"),
        ] {
            for format in [Format::Proto, Format::Json] {
                let settings = ClientSettings { format, ..ClientSettings::default() };
                let channel = Channel::builder().transport(frpc_http::Client::new().settings(settings));
                let channel = channel.transport(frpc_websocket::transport()).transport(frpc_jsonrpc::transport());
                let channel = channel.connect(format!("{scheme}://{address}{path}")).await.unwrap();
                // Twirp has no place for details.
                check(channel, !scheme.starts_with("twirp"), scheme).await;
            }
        }
    });
}

#[test]
fn each_message_of_a_stream_is_checked() {
    in_real_time(async {
        let server = Server::builder().layer(validation()).add_service(ParcelsServer::new(Depot));
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        let depot = ParcelsClient::connect(server.local_addr().clone()).await.unwrap();
        let valid = vec![parcel("a", "b", &[]), parcel("c", "d", &[])];
        assert_eq!(depot.send_all(Streaming::from_iter(valid.clone())).await.unwrap().into_inner(), valid[1]);
        let invalid = vec![parcel("a", "b", &[]), parcel("c", "c", &[])];
        let status = depot.send_all(Streaming::from_iter(invalid)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("must not return to its sender"), "{status}");
    });
}

#[test]
fn a_channel_checks_requests_and_responses() {
    in_real_time(async {
        let server = Server::builder().add_service(ParcelsServer::new(Depot)).bind("tcp://127.0.0.1:0").await.unwrap();
        let channel = Channel::connect(server.local_addr().clone()).await.unwrap();
        let depot = ParcelsClient::new(channel.layer(validation().responses(true)));
        let status = depot.send(parcel("", "b", &[])).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let status = depot.send(parcel("a", "echo", &[])).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        assert!(
            status.message().contains("the response of contracts.Parcels/Send is invalid: items[0].name"),
            "{status}"
        );
        assert_ne!(status.get_error_details(), ErrorDetails::new());
    });
}

#[test]
fn a_rule_that_does_not_compile_fails_at_the_start() {
    let (rule, broken) = (b"!this.contains('X')", b"!this.contains('X'(");
    let mut set = FILE_DESCRIPTOR_SET.to_vec();
    let start = set.windows(rule.len()).position(|window| window == rule).unwrap();
    set[start..start + broken.len()].copy_from_slice(broken);
    let error = Validation::new([&set[..]]).unwrap_err().to_string();
    assert!(error.starts_with("a rule of contracts.Item does not compile: "), "{error}");
    assert!(Validation::new([&set[..set.len() - 1]]).unwrap_err().to_string().contains("malformed"));
}

#[test]
fn rules_in_files_of_an_edition_are_checked() {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let is_own = |file: &FileDescriptorProto| file.package() == "contracts";
    let editions = set.file.iter().map(|file| is_own(file).then(|| FileEdition::new("2023", None)));
    let set = frpc_schema::with_editions(FILE_DESCRIPTOR_SET, editions);
    let validation = Validation::new([&set[..]]).unwrap();
    in_real_time(async {
        let depot = ParcelsClient::new(Channel::in_process(ParcelsServer::new(Depot)).layer(validation));
        let valid = parcel("a", "b", &["x"]);
        assert_eq!(depot.send(valid.clone()).await.unwrap().into_inner(), valid);
        let status = depot.send(parcel("a", "b", &["X"])).await.unwrap_err();
        assert!(status.message().ends_with("items[0].name: must not contain X"), "{status}");
    });
}

#[test]
fn a_mistake_in_any_set_is_an_error() {
    let file = |dependency: &str| FileDescriptorProto {
        name: Some("late.proto".to_owned()),
        dependency: vec![dependency.to_owned()],
        ..FileDescriptorProto::default()
    };
    let set = FileDescriptorSet { file: vec![file("absent.proto")] }.encode_to_vec();
    for sets in [[FILE_DESCRIPTOR_SET, &set], [&set, FILE_DESCRIPTOR_SET]] {
        let error = Validation::new(sets).unwrap_err().to_string();
        assert!(error.starts_with("the descriptors are malformed: ") && error.contains("absent.proto"), "{error}");
    }
}

/// A dynamic message takes hundreds of bytes for each of its messages, however short they are.
#[test]
fn messages_with_too_much_memory_are_refused_before_they_are_checked() {
    in_real_time(async {
        let budget = MemoryBudget::new(2 << 20);
        let settings = MessageSettings { message_memory_max: budget, ..MessageSettings::default() };
        let server = Server::builder().messages(settings).layer(validation()).add_service(ParcelsServer::new(Depot));
        let server = server.wire(Http::new()).bind("tcp://127.0.0.1:0").await.unwrap();
        for (scheme, format) in [("tcp", Format::Polyglot), ("grpc", Format::Proto), ("http", Format::Json)] {
            let settings = ClientSettings { format, ..ClientSettings::default() };
            let channel = Channel::builder().transport(frpc_http::Client::new().settings(settings));
            let address = server.local_addr().to_string().replacen("tcp", scheme, 1);
            let depot = ParcelsClient::new(channel.connect(address).await.unwrap());
            depot.send(parcel("a", "b", &["x"; 500])).await.unwrap();
            let status = depot.send(parcel("a", "b", &["x"; 4_000])).await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{scheme}: {status}");
            assert!(status.message().contains("see `message_memory_max`"), "{scheme}: {status}");
        }
    });
}

#[test]
fn deep_messages_are_refused() {
    // Groups of an unknown field.
    let content = vec![0x7b; 200_000];
    let channel = Channel::in_process(ParcelsServer::new(Depot)).layer(validation());
    in_real_time(async {
        let call = Call::new(&SEND, Format::Proto, Head::default(), Body::from(Bytes::from(content)));
        let status = channel.call(call).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    });
}

#[test]
fn a_long_message_reports_its_first_violation_only() {
    in_real_time(async {
        let server = Server::builder().layer(validation()).add_service(ParcelsServer::new(Depot));
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        let depot = ParcelsClient::connect(server.local_addr().clone()).await.unwrap();
        let status = depot.send(parcel("a", "b", &["X"; 20_000])).await.unwrap_err();
        assert_eq!(status.get_error_details().bad_request().unwrap().field_violations.len(), 1);
        let status = depot.send(parcel("a", "b", &["X"; 1_000])).await.unwrap_err();
        assert_eq!(status.get_error_details().bad_request().unwrap().field_violations.len(), 16);
    });
}
