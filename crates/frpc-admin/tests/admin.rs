//! The service and its channelz, in a process of their own: they show the whole process.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use frpc::{
    Answer, Body, Call, Channel, Code, Head, Method, Request, Server, Service, Status, Streaming,
    codec::Format,
    metrics::{MetricsSnapshot, TextFormat},
    prost_types::Any,
};
use frpc_admin::{
    Admin, AdminAccess,
    protos::{
        frpc::admin::v1::{
            FlowState, ProcessState, SetLogFilterRequest, StreamState, TrafficState, WatchRequest,
            admin_client::AdminClient,
        },
        grpc::channelz::v1::{
            GetServerSocketsRequest, GetServersRequest, GetSocketRequest, GetTopChannelsRequest,
            channelz_client::ChannelzClient,
        },
    },
};
use frpc_http::Http;
use futures_util::stream;
use support::{in_real_time, in_virtual_time};

static FAIL: Method = Method::unary("test.Test", "Fail", 10);
static WAIT: Method = Method::unary("test.Test", "Wait", 11);
static LIST: Method = Method::server_streaming("test.Test", "List", 12);

/// Fails, answers at its second poll, or streams without an end.
struct Test;

impl Service for Test {
    const NAME: &'static str = "test.Test";
    const METHODS: &'static [Method] = &[FAIL, WAIT, LIST];

    async fn call(&self, method: usize, call: Call) -> Result<Answer, Status> {
        match method {
            0 => {
                let detail = Any { type_url: "type.googleapis.com/test.Detail".to_owned(), value: Vec::new() };
                Err(Status::with_error_details(Code::NotFound, "no such order", [detail]))
            }
            1 => {
                tokio::task::yield_now().await;
                Ok(Answer::new(call.into_parts().1))
            }
            _ => {
                let message = Bytes::from(vec![b'x'; 64 << 10]);
                Ok(Answer::new(Body::Many(Streaming::new(stream::repeat_with(move || Ok(message.clone()))))))
            }
        }
    }
}

async fn server(admin: Admin) -> Server {
    let builder = Server::builder().add_service(Test).add_service(admin.channelz()).add_service(admin);
    builder.wire(Http::new()).bind("tcp://127.0.0.1:0").await.unwrap()
}

async fn connect(server: &Server, scheme: &str) -> Channel {
    frpc_http::register();
    let address = server.local_addr().to_string().replace("tcp", scheme);
    Channel::connect(&*address).await.unwrap()
}

/// Calls a method with encoded messages.
async fn call(channel: &Channel, method: &'static Method, metadata: &[(&str, &str)]) -> Result<Answer, Status> {
    let mut head = Head::default();
    for (name, value) in metadata {
        head.metadata_mut().insert(name, *value).unwrap();
    }
    channel.call(Call::new(method, Format::Proto, head, Body::from("a"))).await
}

/// Returns the first state of the process with a property.
async fn state_with(channel: &Channel, is_found: impl Fn(&ProcessState) -> bool) -> ProcessState {
    let states = AdminClient::new(channel.clone()).watch(WatchRequest { interval_ms: 100 }).await.unwrap();
    let mut states = states.into_inner();
    loop {
        let state = states.message().await.unwrap().expect("states do not end");
        if is_found(&state) {
            return state;
        }
    }
}

#[test]
fn a_stalled_stream_is_blocked_on_every_wire() {
    in_real_time(async {
        for scheme in ["tcp", "grpc"] {
            let server = server(Admin::new(AdminAccess::local())).await;
            let (channel, other) = (connect(&server, scheme).await, connect(&server, "tcp").await);
            let answer = call(&channel, &LIST, &[]).await.unwrap();
            // Another test of this process stalls a stream too, without a socket.
            let blocked = |state: &ProcessState| {
                let is_ours = |stream: &&StreamState| {
                    stream.is_outgoing
                        && stream.peer.starts_with("tcp://127.0.0.1:")
                        && stream.blocked.is_some_and(|time| time > 0.2)
                };
                state.streams.iter().find(is_ours).cloned()
            };
            let state = state_with(&other, |state| blocked(state).is_some()).await;
            let stream = blocked(&state).unwrap();
            assert_eq!(stream.method, "test.Test/List", "{scheme}: {stream:?}");
            assert!(stream.messages > 0 && stream.bytes == stream.messages << 16, "{scheme}: {stream:?}");
            if scheme == "grpc" {
                // The client may still be reading.
                let state = state_with(&other, |state| mirrored_flow(&server, state).is_some()).await;
                let flow = mirrored_flow(&server, &state).unwrap();
                check_flow_in_metrics(&server, &flow);
                check_windows_in_channelz(&server, other.clone(), &flow).await;
            }
            // The stream ends, and its record with it.
            drop(answer);
            state_with(&other, |state| blocked(state).is_none()).await;
            state_with(&other, |_| server.metrics().flow.streams == 0).await;
        }
    });
}

/// Returns the credit of a server for its only stream over HTTP/2, once both sides have the same.
fn mirrored_flow(server: &Server, state: &ProcessState) -> Option<FlowState> {
    let address = server.local_addr().to_string();
    let served = state.servers.iter().find(|server| server.addresses == [address.clone()])?;
    let ours = served.connections.iter().find(|connection| connection.protocol == "http")?.traffic.as_ref()?;
    let target = channel_target(server, "grpc");
    let channel = state.channels.iter().find(|channel| channel.target == target)?;
    let theirs = channel.endpoints[0].traffic.as_ref()?;
    assert_eq!((ours.streams, theirs.streams), (1, 1), "{ours:?} {theirs:?}");
    assert_eq!(theirs.queued, 0, "the request is sent");
    let (flow, theirs) = (ours.flow?, theirs.flow?);
    let is_mirrored = (flow.send_credit, flow.receive_credit) == (theirs.receive_credit, theirs.send_credit);
    (is_mirrored && ours.queued > 0).then_some(flow)
}

fn check_flow_in_metrics(server: &Server, flow: &FlowState) {
    let metrics = server.metrics().flow;
    assert_eq!((metrics.streams, metrics.send_credit), (1, flow.send_credit));
    let text = MetricsSnapshot::take().to_text(TextFormat::OpenMetrics);
    for line in [
        "frpc_server_connection_streams{network_protocol_name=\"_OTHER\"} ",
        "frpc_server_connection_credit_bytes{network_io_direction=\"transmit\"} ",
    ] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }
}

async fn check_windows_in_channelz(server: &Server, channel: Channel, flow: &FlowState) {
    let client = ChannelzClient::new(channel);
    let servers = client.get_servers(GetServersRequest::default()).await.unwrap().into_inner().server;
    let name = server.local_addr().to_string();
    let server_id = servers.iter().find_map(|server| server.r#ref.as_ref().filter(|server| server.name == name));
    let server_id = server_id.unwrap().server_id;
    let request = GetServerSocketsRequest { server_id, ..GetServerSocketsRequest::default() };
    let sockets = client.get_server_sockets(request).await.unwrap().into_inner().socket_ref;
    let mut windows = Vec::new();
    for socket in sockets {
        let request = GetSocketRequest { socket_id: socket.socket_id, ..GetSocketRequest::default() };
        let socket = client.get_socket(request).await.unwrap().into_inner().socket.unwrap();
        let data = socket.data.unwrap();
        if let (Some(local), Some(remote)) = (data.local_flow_control_window, data.remote_flow_control_window) {
            windows.push([local, remote].map(|window| u64::try_from(window).unwrap()));
        }
    }
    assert_eq!(windows, [[flow.send_credit, flow.receive_credit]], "only HTTP/2 has windows");
}

#[test]
fn calls_over_websockets_are_not_local() {
    in_real_time(async {
        let server = server(Admin::new(AdminAccess::local())).await;
        let address = server.local_addr().to_string().replace("tcp", "ws");
        // A page whose name leads to this machine has the same origin as the server.
        let channel = Channel::builder().transport(frpc_websocket::transport()).connect(&*address).await.unwrap();
        call(&channel, &WAIT, &[]).await.unwrap();
        let request = SetLogFilterRequest { filter: "off".to_owned() };
        let refused = AdminClient::new(channel).set_log_filter(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    });
}

#[test]
fn a_stalled_stream_is_shown_within_two_seconds() {
    in_virtual_time(async {
        let admin = Admin::new(AdminAccess::token("t"));
        let server = Server::builder().add_service(Test).add_service(admin).without_listener().unwrap();
        let attach = async || {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            server.attach(theirs);
            Channel::builder().attach(ours).await.unwrap()
        };
        let (channel, other) = (attach().await, attach().await);
        let mut request = Request::new(WatchRequest::default());
        request.metadata_mut().insert("authorization", "Bearer t").unwrap();
        // The page has the same interval.
        let mut states = AdminClient::new(other).watch(request).await.unwrap().into_inner();
        states.message().await.unwrap().unwrap();
        let begun = tokio::time::Instant::now();
        let _unread = call(&channel, &LIST, &[]).await.unwrap();
        loop {
            let state = states.message().await.unwrap().unwrap();
            if state.streams.iter().any(|stream| &*stream.method == "test.Test/List" && stream.blocked.is_some()) {
                break;
            }
        }
        assert!(begun.elapsed() <= Duration::from_secs(2), "{:?}", begun.elapsed());
    });
}

#[test]
fn failed_and_slow_calls_are_shown_without_secrets() {
    in_real_time(async {
        for scheme in ["tcp", "grpc"] {
            let server = server(Admin::new(AdminAccess::local())).await;
            let channel = connect(&server, scheme).await;
            let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
            let metadata = [("x-api-key", "hush"), ("x-tenant", scheme), ("traceparent", trace)];
            call(&channel, &FAIL, &metadata).await.unwrap_err();
            call(&channel, &WAIT, &metadata).await.unwrap();
            let state = state_with(&channel, |_| true).await;
            assert!(!format!("{state:?}").contains("hush"));
            let of_tenant = |call: &&frpc_admin::protos::frpc::admin::v1::CallState| {
                call.metadata.iter().any(|entry| entry.name == "x-tenant" && entry.value == scheme)
            };
            let failure = state.failures.iter().find(of_tenant).unwrap();
            assert_eq!((&*failure.code, &*failure.message), ("NOT_FOUND", "no such order"), "{scheme}");
            assert_eq!(failure.details, ["type.googleapis.com/test.Detail"]);
            assert_eq!(failure.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
            assert!(failure.metadata.iter().any(|entry| entry.name == "x-api-key" && entry.value == "***"));
            let mut of_tenant = state.slow.iter().filter(of_tenant);
            let slow = of_tenant.find(|call| call.method == "test.Test/Wait").unwrap();
            assert!(slow.first_wait.unwrap() <= slow.duration, "{scheme}: {slow:?}");
            // The same failure as seen by the channel of the test.
            let target = channel_target(&server, scheme);
            assert!(state.failures.iter().any(|call| call.target == target && call.code == "NOT_FOUND"), "{scheme}");
        }
    });
}

fn channel_target(server: &Server, scheme: &str) -> String {
    server.local_addr().to_string().replace("tcp", scheme)
}

#[test]
fn states_have_rates_connections_and_endpoints() {
    in_real_time(async {
        let server = server(Admin::new(AdminAccess::local())).await;
        let channel = connect(&server, "tcp").await;
        let admin = AdminClient::new(channel.clone());
        let mut states = admin.watch(WatchRequest { interval_ms: 100 }).await.unwrap().into_inner();
        let first = states.message().await.unwrap().unwrap();
        let address = server.local_addr().to_string();
        let of_server = |state: &ProcessState| {
            state.servers.iter().find(|server| server.addresses == [address.clone()]).cloned().unwrap()
        };
        assert!(of_server(&first).settings.contains("connections_max"), "{first:?}");
        call(&channel, &WAIT, &[]).await.unwrap();
        let second = loop {
            let state = states.message().await.unwrap().unwrap();
            let called =
                state.called.iter().find(|called| called.method == "test.Test/Wait" && called.target == address);
            if called.is_some_and(|called| called.rate > 0.0 && called.p99 >= called.p50 && called.p50 > 0.0) {
                break state;
            }
        };
        let server = of_server(&second);
        assert_eq!((&*server.settings, server.limits[0].used), ("", 1));
        let [connection] = &server.connections[..] else { panic!("{server:?}") };
        assert_eq!(connection.protocol, "frisbee");
        assert!(connection.traffic.as_ref().unwrap().bytes_received > 0);
        let channel = second.channels.iter().find(|channel| channel.target == address).unwrap();
        assert_eq!(channel.endpoints[0].state, "ready");
    });
}

#[test]
fn connections_and_endpoints_of_http2_have_their_frames() {
    in_real_time(async {
        let server = server(Admin::new(AdminAccess::local())).await;
        let (channel, other) = (connect(&server, "grpc").await, connect(&server, "tcp").await);
        call(&channel, &WAIT, &[]).await.unwrap();
        let headers = |traffic: &Option<TrafficState>| {
            let frames = &traffic.as_ref().unwrap().frames;
            frames.iter().find(|frame| frame.kind == "HEADERS").map(|frame| (frame.received, frame.sent))
        };
        let state = state_with(&other, |_| true).await;
        let address = server.local_addr().to_string();
        let served = state.servers.iter().find(|server| server.addresses == [address.clone()]).unwrap();
        let connections = served.connections.iter().map(|one| (&*one.protocol, headers(&one.traffic)));
        assert_eq!(connections.collect::<Vec<_>>(), [("http", Some((1, 2))), ("frisbee", None)]);
        let target = channel_target(&server, "grpc");
        let [endpoint] = &state.channels.iter().find(|channel| channel.target == target).unwrap().endpoints[..] else {
            panic!("{state:?}")
        };
        assert_eq!(headers(&endpoint.traffic), Some((2, 1)));
        assert!(endpoint.traffic.as_ref().unwrap().bytes_received > 0);
    });
}

#[test]
fn endpoints_have_the_latency_of_their_calls() {
    in_real_time(async {
        let server = server(Admin::new(AdminAccess::local())).await;
        // Nothing listens at the second address.
        let refusing = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let target = format!("{},tcp://{refusing}", server.local_addr());
        let channel = Channel::connect(&*target).await.unwrap();
        call(&channel, &WAIT, &[]).await.unwrap();
        let view = frpc::inspect::channels().into_iter().find(|channel| channel.target() == target).unwrap();
        let latency = view.endpoints().iter().find_map(|endpoint| endpoint.latency).unwrap();
        assert!(!latency.is_zero() && latency < Duration::from_secs(60), "{latency:?}");
    });
}

#[test]
fn metrics_have_the_connections_of_all_servers() {
    in_real_time(async {
        let server = server(Admin::new(AdminAccess::local())).await;
        let channel = connect(&server, "tcp").await;
        call(&channel, &WAIT, &[]).await.unwrap();
        let running = MetricsSnapshot::take();
        assert!(running.transport.connections >= 1 && running.transport.counters.bytes_in > 0, "{running:?}");
        let text = running.to_text(TextFormat::Prometheus);
        for line in [
            "frpc_server_connections ",
            "frpc_server_connections_failed_total{reason=\"protocol\"} ",
            "frpc_server_connection_io_bytes_total{network_io_direction=\"receive\",network_protocol_name=\"frisbee\"} ",
            "frpc_server_connection_packets_lost_total{reason=\"too_large\"} ",
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
        server.shutdown(Duration::ZERO).await;
        // Counters of ended servers remain.
        let ended = MetricsSnapshot::take().transport;
        assert!(ended.accepted >= running.transport.accepted, "{ended:?}");
        assert!(ended.counters.bytes_in >= running.transport.counters.bytes_in, "{ended:?}");
    });
}

#[test]
fn only_allowed_callers_reach_the_services() {
    in_real_time(async {
        let server = server(Admin::new(AdminAccess::token("s3cret"))).await;
        let unmounted = Server::builder().add_service(Test).wire(Http::new()).bind("tcp://127.0.0.1:0").await.unwrap();
        for scheme in ["tcp", "grpc", "http"] {
            let channel = connect(&server, scheme).await;
            let watch = |token: Option<&str>| {
                let mut request = Request::new(WatchRequest::default());
                if let Some(token) = token {
                    request.metadata_mut().insert("authorization", format!("Bearer {token}")).unwrap();
                }
                let channel = channel.clone();
                async move {
                    let mut states = AdminClient::new(channel).watch(request).await?.into_inner();
                    states.message().await
                }
            };
            assert_eq!(watch(None).await.unwrap_err().code(), Code::Unauthenticated, "{scheme}");
            assert_eq!(watch(Some("wrong")).await.unwrap_err().code(), Code::PermissionDenied, "{scheme}");
            assert!(watch(Some("s3cret")).await.unwrap().is_some(), "{scheme}");
            let servers = ChannelzClient::new(channel).get_servers(GetServersRequest::default()).await;
            assert_eq!(servers.unwrap_err().code(), Code::Unauthenticated, "{scheme}");

            let channel = connect(&unmounted, scheme).await;
            let states = AdminClient::new(channel).watch(WatchRequest::default()).await;
            let status = match states {
                Ok(states) => states.into_inner().message().await.unwrap_err(),
                Err(status) => status,
            };
            assert_eq!(status.code(), Code::Unimplemented, "{scheme}");
        }
    });
}

#[test]
fn the_number_of_watchers_is_limited() {
    in_real_time(async {
        let channel = Channel::in_process(Admin::new(AdminAccess::local()));
        let watch = async || {
            let mut states = AdminClient::new(channel.clone()).watch(WatchRequest::default()).await?.into_inner();
            states.message().await?;
            Ok::<_, Status>(states)
        };
        let mut watchers = Vec::new();
        for _ in 0..Admin::WATCHERS_MAX {
            watchers.push(watch().await.unwrap());
        }
        assert_eq!(watch().await.unwrap_err().code(), Code::ResourceExhausted);
        watchers.pop();
        watch().await.unwrap();
    });
}

#[test]
fn the_log_filter_is_changed_or_kept() {
    in_real_time(async {
        let set = Arc::new(Mutex::new(Vec::new()));
        let seen = set.clone();
        let admin = Admin::new(AdminAccess::local()).log_filter("info", move |filter| {
            if filter.contains('!') {
                return Err(format!("{filter} is no filter"));
            }
            seen.lock().unwrap().push(filter.to_owned());
            Ok(())
        });
        let channel = Channel::in_process(admin);
        let client = AdminClient::new(channel.clone());
        let change =
            async |filter: &str| client.set_log_filter(SetLogFilterRequest { filter: filter.to_owned() }).await;
        assert_eq!(change("debug").await.unwrap().into_inner().previous, "info");
        let refused = change("!").await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "! is no filter"));
        assert_eq!(change("warn").await.unwrap().into_inner().previous, "debug");
        assert_eq!(*set.lock().unwrap(), ["debug", "warn"]);
        let state = state_with(&channel, |_| true).await;
        assert_eq!(state.log_filter.as_deref(), Some("warn"));

        let without = AdminClient::new(Channel::in_process(Admin::new(AdminAccess::local())));
        let refused = without.set_log_filter(SetLogFilterRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
    });
}

#[test]
fn channelz_pages_are_bounded() {
    in_real_time(async {
        let server = server(Admin::new(AdminAccess::local())).await;
        let mut channels = Vec::new();
        for _ in 0..3 {
            channels.push(connect(&server, "tcp").await);
        }
        let client = ChannelzClient::new(channels[0].clone());
        let request = GetTopChannelsRequest { start_channel_id: 0, max_results: 2 };
        let page = client.get_top_channels(request).await.unwrap().into_inner();
        assert_eq!((page.channel.len(), page.end), (2, false));
        let refused = client.get_servers(GetServersRequest { max_results: -1, ..Default::default() }).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
        for server_id in [i64::MIN, -1, 0, i64::MAX] {
            let request = GetServerSocketsRequest { server_id, start_socket_id: i64::MAX, max_results: i64::MAX };
            assert_eq!(client.get_server_sockets(request).await.unwrap_err().code(), Code::NotFound);
        }
    });
}
