//! The stream to a control plane, and its replacement after a failure.

use std::{
    future::pending,
    sync::{Arc, Weak, atomic::Ordering},
    thread,
    time::Duration,
};

use frpc::{
    Channel, ChannelCallSettings, Config, ConnectError, ConnectRetry, Request, SocketOptions, Status, Streaming,
};
use frpc_http::{Client, ClientSettings};
use futures_util::stream;
use tokio::{
    select,
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::{
    bootstrap::{ControlPlane, PlaneAddress},
    client::ClientState,
    protocol::AdsState,
    protos::envoy::service::discovery::v3::{
        DiscoveryRequest, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
    },
    settings::XdsSettings,
};

/// Starts the stream of a client on the current runtime, unless it has one.
pub(crate) fn ensure(client: &Arc<ClientState>) {
    if client.has_stream.swap(true, Ordering::Relaxed) {
        return;
    }
    let following = follow(StreamNotifier(Arc::downgrade(client)));
    // Not under the lock: a runtime that shuts down drops the future here.
    let task = AbortOnDropHandle::new(tokio::spawn(following));
    let earlier = client.task().replace(task);
    drop(earlier);
}

/// Tells the channels of a client when its stream ends with its runtime. One of them starts it again.
struct StreamNotifier(Weak<ClientState>);

impl Drop for StreamNotifier {
    fn drop(&mut self) {
        if let Some(client) = self.0.upgrade() {
            client.lock().end_stream();
            client.has_stream.store(false, Ordering::Relaxed);
            // A panic would only happen again.
            client.change(|_| !thread::panicking());
        }
    }
}

/// Keeps a stream to a control plane until the client is dropped.
async fn follow(client: StreamNotifier) {
    let client = &client.0;
    let (mut server, mut failures) = (0, 0);
    loop {
        let Some((plane, settings)) = client.upgrade().map(|client| {
            let servers = &client.bootstrap.servers;
            // Another control plane might have other resources, so it is asked only while one is unknown.
            server = if client.lock().has_unknown() { server % servers.len() } else { 0 };
            (servers[server].clone(), client.settings.clone())
        }) else {
            return;
        };
        let mut has_answered = false;
        let outcome = follow_one(client, &plane, &settings, &mut has_answered).await;
        let Some(client) = client.upgrade() else { return };
        client.lock().end_stream();
        match outcome {
            Ok(()) => info!(server = %plane.address, "the control plane ended the stream"),
            Err(error) => {
                warn!(server = %plane.address, %error, "lost the control plane; the last resources stay in use")
            }
        }
        if has_answered {
            failures = 0;
        } else {
            server += 1;
        }
        let pause = settings.pause_after(failures);
        failures = failures.saturating_add(1);
        drop(client);
        sleep(pause).await;
    }
}

/// Opens a stream, and follows it until its end.
async fn follow_one(
    client: &Weak<ClientState>,
    plane: &ControlPlane,
    settings: &XdsSettings,
    has_answered: &mut bool,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let channel = connect(plane, settings).await?;
    let begin = |client: Arc<ClientState>| client.begin_stream(plane.ignores_removals);
    let Some((number, wake, timers)) = client.upgrade().map(begin) else { return Ok(()) };
    let requests = requests(client.clone(), number, wake, timers.clone());
    let service = AggregatedDiscoveryServiceClient::new(channel);
    let mut responses = service.stream_aggregated_resources(Request::new(requests)).await?.into_inner();
    loop {
        let expiry = client.upgrade().and_then(|client| client.lock().next_expiry());
        let is_late = async {
            match expiry {
                Some(expiry) => sleep_until(expiry).await,
                None => pending().await,
            }
        };
        let message = select! {
            message = responses.message() => Some(message?),
            () = is_late => None,
            () = timers.notified() => continue,
        };
        let Some(client) = client.upgrade() else { return Ok(()) };
        match message {
            None => client.change(|state| state.expire(Instant::now())),
            Some(None) => return Ok(()),
            Some(Some(response)) => {
                *has_answered = true;
                client.change(|state| state.respond(response));
                client.wake();
            }
        }
    }
}

/// Returns the requests of a stream, each when it is due. They are created when the connection takes them, so no queue can
/// grow.
fn requests(
    client: Weak<ClientState>,
    number: u64,
    wake: Arc<Notify>,
    timers: Arc<Notify>,
) -> Streaming<DiscoveryRequest> {
    let next = |state: &mut AdsState, number| (state.next_request(number, Instant::now()), state.next_pause_end());
    Streaming::new(stream::unfold((), move |()| {
        let (client, wake, timers) = (client.clone(), wake.clone(), timers.clone());
        async move {
            loop {
                let (request, pause_end) = next(&mut client.upgrade()?.lock(), number);
                if let Some(request) = request {
                    timers.notify_one();
                    return Some((Ok::<_, Status>(request), ()));
                }
                let pause = async {
                    match pause_end {
                        Some(end) => sleep_until(end).await,
                        None => pending().await,
                    }
                };
                select! {
                    () = wake.notified() => {}
                    () = pause => {}
                }
            }
        }
    }))
}

/// Connects to a control plane, with one attempt.
async fn connect(plane: &ControlPlane, settings: &XdsSettings) -> Result<Channel, ConnectError> {
    let keepalive = ClientSettings {
        keepalive_interval: settings.keepalive_interval,
        keepalive_timeout: settings.keepalive_timeout,
        keepalive_while_idle: true,
        ..ClientSettings::default()
    };
    let transport = Client::new().settings(keepalive);
    let scheme = if plane.tls.is_some() { "grpcs" } else { "grpc" };
    let (transport, target) = match &plane.address {
        PlaneAddress::Host(host) => (transport, format!("{scheme}://{host}")),
        #[cfg(unix)]
        PlaneAddress::Unix(path) => {
            let path = path.clone();
            (
                transport.connector(move || tokio::net::UnixStream::connect(path.clone())),
                format!("{scheme}://localhost"),
            )
        }
        #[cfg(not(unix))]
        PlaneAddress::Unix(path) => {
            let why = format!("{}: this system has no Unix sockets", path.display());
            return Err(ConnectError::Address(std::io::Error::new(std::io::ErrorKind::Unsupported, why)));
        }
    };
    let builder = Channel::builder()
        .transport(transport)
        .calls(ChannelCallSettings { metrics: false, ..ChannelCallSettings::default() })
        .config(Config { content_len_max: settings.response_len_max, ..Config::default() })
        // Probes find a dead host. The pings find dead processes and broken proxies.
        .sockets(SocketOptions { keepalive: Some(TCP_KEEPALIVE), ..SocketOptions::default() })
        .connect_timeout(settings.connect_timeout)
        .retry(ConnectRetry { attempts: 1, ..ConnectRetry::default() })
        // The answer to the first request may take any time.
        .timeout(STREAM_TIME_MAX);
    let builder = match &plane.tls {
        Some(files) => builder.tls(files.client_tls().map_err(ConnectError::Address)?),
        None => builder,
    };
    builder.connect(&*target).await
}

/// The time between TCP keepalive probes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// The maximum time until the first answer: practically none.
const STREAM_TIME_MAX: Duration = Duration::from_secs(u32::MAX as u64);

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use frpc::{
        Response, Server,
        fleet::{Refresh, ResolverFactory},
        prost::Message,
        prost_types::Any,
    };
    use frpc_http::Http;
    use futures_util::{FutureExt, StreamExt};
    use support::SECOND;
    use tokio::{runtime::Builder, time::timeout};

    use super::*;
    use crate::{
        Bootstrap, XdsClient,
        protos::{
            envoy::service::discovery::v3::{
                DiscoveryResponse,
                aggregated_discovery_service_server::{AggregatedDiscoveryService, AggregatedDiscoveryServiceServer},
            },
            frpc::xds::v3::{ApiListener, Listener},
        },
        resources::ResourceKind,
    };

    /// A control plane whose streams differ in the fault of their listener.
    #[derive(Default)]
    struct Plane(AtomicUsize);

    impl AggregatedDiscoveryService for Plane {
        async fn stream_aggregated_resources(
            &self,
            _: Request<Streaming<DiscoveryRequest>>,
        ) -> Result<Response<Streaming<DiscoveryResponse>>, Status> {
            let type_url = format!("stream {}", self.0.fetch_add(1, Ordering::Relaxed));
            let api_listener = Some(ApiListener { api_listener: Some(Any { type_url, value: Vec::new() }) });
            let value = Listener { name: "orders".to_owned(), api_listener }.encode_to_vec();
            let type_url = ResourceKind::Listener.type_url().to_owned();
            let resources = vec![Any { type_url: type_url.clone(), value }];
            let response = DiscoveryResponse { resources, type_url, ..DiscoveryResponse::default() };
            let responses = stream::iter([Ok(response)]).chain(stream::pending());
            Ok(Response::new(Streaming::new(responses)))
        }
    }

    #[test]
    fn a_channel_continues_the_stream_of_an_ended_runtime() {
        let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let serving = runtime();
        let plane = Server::builder().add_service(AggregatedDiscoveryServiceServer::new(Plane::default()));
        let plane = serving.block_on(plane.wire(Http::new()).bind("tcp://127.0.0.1:0")).unwrap();
        let bootstrap = format!(
            r#"{{"xds_servers": [{{"server_uri": "{}", "channel_creds": [{{"type": "insecure"}}]}}]}}"#,
            plane.local_addr().socket_addr().unwrap()
        );
        let client = XdsClient::new(Bootstrap::from_json(&bootstrap).unwrap(), XdsSettings::default());
        let endpoints = || client.resolver("xds:///orders").unwrap().resolve(Refresh::default());
        let (home, other, [mut first, mut second]) = (runtime(), runtime(), [endpoints(), endpoints()]);
        let fault = async |found: &mut futures_util::stream::BoxStream<'static, _>| {
            let found: Option<std::io::Result<frpc::fleet::Endpoints>> =
                timeout(10 * SECOND, found.next()).await.unwrap();
            found.unwrap().unwrap_err().to_string()
        };
        for (here, found) in [(&home, &mut first), (&other, &mut second)] {
            let why = here.block_on(fault(found));
            assert!(why.contains("stream 0"), "{why}");
        }
        let why = other.block_on(async {
            let mut next = Box::pin(fault(&mut second));
            assert!((&mut next).now_or_never().is_none());
            home.shutdown_background();
            next.await
        });
        assert!(why.contains("stream 1"), "{why}");
    }
}
