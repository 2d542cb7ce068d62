//! The code of pages in `docs` that is no part of an example. Programs around it need clusters and collectors, so most of
//! it is compiled only.

use std::error::Error;

use frpc::{Channel, Server};

use crate::tests::pages::hello_world::{
    HelloReply, HelloRequest,
    greeter_client::GreeterClient,
    greeter_server::{Greeter, GreeterServer},
};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Generated from `proto/helloworld.proto`.
#[allow(missing_docs, unreachable_pub, reason = "generated code is public for any use")]
pub(super) mod hello_world {
    frpc::include_proto!("helloworld");
}

struct Host;

impl Greeter for Host {
    async fn say_hello(
        &self,
        request: frpc::Request<HelloRequest>,
    ) -> Result<frpc::Response<HelloReply>, frpc::Status> {
        Ok(HelloReply { message: format!("Hello {}!", request.into_inner().name) }.into())
    }
}

/// `docs/operating.md`.
mod operating {
    use super::*;

    #[tokio::test]
    async fn calls_are_counted_logged_and_shown() -> Outcome {
        // ANCHOR: prometheus
        use frpc_http::{Http, MetricsPage};

        let server = frpc::Server::builder().wire(Http::new().mount("/metrics", MetricsPage));
        // ANCHOR_END: prometheus
        let server = server.add_service(GreeterServer::new(Host)).bind("mem:page-of-operating").await?;
        let client = GreeterClient::new(Channel::connect("mem:page-of-operating").await?);
        client.say_hello(HelloRequest { name: "Ada".into() }).await?;
        // ANCHOR: count
        let say = server.metrics().method("helloworld.Greeter/SayHello");
        assert_eq!((say.started, say.in_flight()), (1, 0));
        // ANCHOR_END: count

        // ANCHOR: log
        use frpc::layers::{AccessLog, LogFormat};

        let log =
            AccessLog::to_writer(std::io::stdout()).format(LogFormat::Json).sampled(0.01).metadata(["user-agent"]);
        // ANCHOR_END: log
        drop(log);

        // ANCHOR: admin
        use frpc_admin::{Admin, AdminAccess};

        let admin = Admin::new(AdminAccess::local());
        let server = frpc::Server::builder()
            .wire(Http::new().mount("/admin", admin.page()))
            .add_service(admin.channelz())
            .add_service(admin);
        // ANCHOR_END: admin
        drop(server);

        // ANCHOR: spans
        use frpc::layers::{Trace, TraceSampling};

        let server = Server::builder().layer(Trace::new().sampling(TraceSampling::ParentOr(0.01)));
        let channel = Channel::builder().layer(Trace::for_channel());
        // ANCHOR_END: spans
        drop((server, channel));
        Ok(())
    }

    #[allow(dead_code, reason = "it needs a collector")]
    async fn exports() -> Outcome {
        // ANCHOR: otlp
        use frpc_opentelemetry::{OtlpMetrics, OtlpSettings};

        let metrics = OtlpMetrics::start(OtlpSettings::from_env()?)?;
        // At the end, with the last counts:
        if let Err(error) = metrics.shutdown().await {
            eprintln!("the last metrics are lost: {error}");
        }
        // ANCHOR_END: otlp
        Ok(())
    }

    #[allow(dead_code, reason = "it needs a collector")]
    fn exports_spans() -> Outcome {
        // ANCHOR: bridge
        use frpc::layers::Trace;
        use frpc_opentelemetry::{CurrentSpan, OtlpSettings, OtlpSpans, TraceBridge};
        use opentelemetry_sdk::trace::SdkTracerProvider;
        use tracing_subscriber::layer::SubscriberExt;

        let spans = OtlpSpans::start(&OtlpSettings::from_env()?)?;
        let bridge = TraceBridge::new(SdkTracerProvider::builder().with_batch_exporter(spans));
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(bridge.layer()))?;
        let server = Server::builder().layer(Trace::new());
        let channel = Channel::builder().layer(CurrentSpan).layer(Trace::for_channel());
        // Serve and call. At the end, send the last spans:
        bridge.provider().shutdown()?;
        // ANCHOR_END: bridge
        drop((server, channel));
        Ok(())
    }
}

/// `docs/fleet.md`.
mod fleet {
    use super::*;

    #[allow(dead_code, reason = "it needs a cluster")]
    async fn kubernetes() -> Outcome {
        // ANCHOR: kubernetes
        use frpc_kubernetes::{ClusterConfig, KubernetesResolvers};

        let kubernetes = KubernetesResolvers::new(ClusterConfig::from_env()?);
        let channel = Channel::builder()
            .resolver(kubernetes)
            .transport(frpc_http::transport())
            .connect("kubernetes+grpc:///orders.shop:grpc")
            .await?;
        // ANCHOR_END: kubernetes
        drop(channel);
        Ok(())
    }

    #[allow(dead_code, reason = "it needs a control plane")]
    async fn xds() -> Outcome {
        // ANCHOR: xds
        let xds = frpc_xds::XdsClient::from_env()?;
        let channel =
            Channel::builder().transport(frpc_http::transport()).resolver(xds).connect("xds:///orders").await?;
        // ANCHOR_END: xds
        drop(channel);
        Ok(())
    }
}

/// `docs/nats.md`.
#[allow(dead_code, reason = "it needs a NATS cluster")]
async fn nats() -> Outcome {
    // ANCHOR: nats_direct
    use frpc_nats::{Announcement, NatsCluster, NatsTransport};

    let cluster = NatsCluster::new("nats://one:4222,nats://two:4222,nats://three:4222");
    let server = Server::builder().add_service(GreeterServer::new(Host)).bind("tcp://10.0.0.1:7300").await?;
    let announcement =
        Announcement::builder("greeter", server.local_addr())?.zone("a").replicas(3).start(&cluster).await?;

    let nats = NatsTransport::new().cluster("production", cluster.clone());
    let channel = Channel::builder().resolver(nats.clone()).connect("nats+direct://production/greeter").await?;
    // ANCHOR_END: nats_direct
    drop((announcement, channel));

    // ANCHOR: nats_through
    use frpc_nats::NatsServer;

    let server = NatsServer::builder("greeter").serve(&cluster, GreeterServer::new(Host)).await?;
    let channel = Channel::builder().transport(nats).connect("nats://production/greeter").await?;
    // ANCHOR_END: nats_through
    drop((server, channel));
    Ok(())
}

/// `docs/grpc.md`, `docs/json-rpc.md` and `docs/functions.md`.
mod wires {
    use frpc_http::{Cors, Http};
    use frpc_jsonrpc::{Functions, JsonRpc, function};
    use frpc_services::{Health, Reflection};
    use serde::{Deserialize, Serialize};

    use super::*;

    // ANCHOR: sum
    /// Adds two numbers.
    #[function]
    async fn sum(a: i64, b: i64) -> i64 {
        a + b
    }
    // ANCHOR_END: sum

    /// The number of visits.
    #[derive(Default)]
    struct Visits(std::sync::atomic::AtomicU64);

    /// Counts its calls.
    #[function]
    fn visit(visits: &Visits) -> u64 {
        visits.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1
    }

    // ANCHOR: schema
    /// A place on earth.
    #[derive(Deserialize, Serialize, frpc_jsonrpc::Schema)]
    #[serde(rename_all = "camelCase")]
    struct Place {
        /// In degrees, north of the equator.
        latitude: f64,
        longitude: f64,
        display_name: Option<String>,
    }
    // ANCHOR_END: schema

    /// Returns the place itself.
    #[function]
    fn stay(place: Place) -> Place {
        place
    }

    #[tokio::test]
    async fn one_port_serves_every_wire() -> Outcome {
        let address = "tcp://127.0.0.1:0";
        // ANCHOR: grpc
        let server = frpc::Server::builder()
            .wire(frpc_http::Http::new())
            .add_service(GreeterServer::new(Host))
            .bind(address)
            .await?;
        // ANCHOR_END: grpc
        let address_of_server = server.local_addr().to_string().replace("tcp://", "grpc://");
        let address_of_server = &*address_of_server;
        // ANCHOR: client
        let channel = Channel::builder().transport(frpc_http::transport()).connect(address_of_server).await?;
        let greeter = GreeterClient::new(channel);
        // ANCHOR_END: client
        greeter.say_hello(HelloRequest { name: "Ada".into() }).await?;

        // ANCHOR: cors
        let cors = Cors::origins(["https://shop.example.com"])
            .allow_headers(["authorization"]) // metadata sent by scripts
            .expose_headers(["x-request-id"]); // metadata read by scripts
        let http = Http::new().cors(cors);
        // ANCHOR_END: cors

        // ANCHOR: health
        let health = Health::new();
        let server = Server::builder()
            .add_service(GreeterServer::new(Host))
            .add_service(health.clone())
            .add_service(Reflection::v1())
            .add_service(Reflection::v1alpha())
            .wire(http)
            .bind(address)
            .await?;
        // ANCHOR_END: health
        drop(server);

        // ANCHOR: functions
        let functions = Functions::new().state(Visits::default()).function(sum).function(visit);
        let rpc = JsonRpc::new().functions(functions.clone());
        let server = Server::builder()
            .add_services([functions.service(), Reflection::v1().into()]) // frisbee, gRPC, gRPC-Web, Connect, Twirp
            .wire(Http::new().mount("/rpc", rpc.clone())) // JSON-RPC by POST and over WebSocket
            .wire(rpc); // JSON-RPC over TCP
        // ANCHOR_END: functions
        drop(server.bind(address).await?);
        drop(JsonRpc::new().function(stay));

        // ANCHOR: json_rpc
        let json_rpc = JsonRpc::new().function(sum);
        let server = Server::builder()
            .add_service(GreeterServer::new(Host))
            .wire(Http::new().mount("/rpc", json_rpc.clone())) // POST and WebSocket
            .wire(json_rpc) // TCP
            .bind(address)
            .await?;
        // ANCHOR_END: json_rpc
        drop(server);
        Ok(())
    }

    #[allow(dead_code, reason = "it serves for ever")]
    async fn serves_functions() -> Outcome {
        // ANCHOR: serve
        let server = Server::builder().wire(JsonRpc::new().function(sum));
        server.serve("tcp://127.0.0.1:8545").await?;
        // ANCHOR_END: serve
        Ok(())
    }
}

/// `docs/contracts.md`.
mod contracts {
    use super::*;

    #[allow(dead_code, reason = "build scripts are compiled only")]
    fn build_scripts() -> Result<(), frpc_build::Error> {
        // ANCHOR: required_fields
        // build.rs
        frpc_build::configure().required_fields(true).compile_protos(&["proto/shop.proto"], &["proto"])?;
        // ANCHOR_END: required_fields

        // ANCHOR: field_masks
        // build.rs
        frpc_build::configure().field_masks(true).compile_protos(&["proto/library.proto"], &["proto"])?;
        // ANCHOR_END: field_masks

        // ANCHOR: pages
        // build.rs
        frpc_build::configure().pages(true).compile_protos(&["proto/library.proto"], &["proto"])?;
        // ANCHOR_END: pages

        // ANCHOR: validation
        // build.rs: no code for the options themselves
        frpc_build::configure()
            .extern_path(".buf.validate", "::frpc_validate::types")
            .compile_protos(&["proto/shop.proto"], &["proto"])?;
        // ANCHOR_END: validation
        Ok(())
    }

    mod errors {
        use frpc::Status;
        use frpc_types::BadRequest;

        // ANCHOR: errors
        #[derive(Debug, frpc_types::IntoStatus, frpc_types::FromStatus)]
        #[status(domain = "shop.example.com")]
        enum OrderError {
            #[status(NotFound, reason = "NO_ORDER", message = "there is no order {id}")]
            NoOrder {
                #[metadata]
                id: u64,
            },
            #[status(InvalidArgument, message = "the request is not valid")]
            Invalid(#[detail] BadRequest),
            #[status(transparent)]
            Other(Status),
        }
        // ANCHOR_END: errors

        #[test]
        fn errors_are_restored() {
            for error in [
                OrderError::NoOrder { id: 7 },
                OrderError::Invalid(BadRequest::default()),
                OrderError::Other(Status::aborted("again")),
            ] {
                let variant = std::mem::discriminant(&error);
                let restored = OrderError::try_from(Status::from(error)).unwrap();
                assert_eq!(std::mem::discriminant(&restored), variant, "{restored:?}");
            }
        }
    }

    #[tokio::test]
    async fn messages_are_validated() -> Outcome {
        let service = GreeterServer::new(Host);
        use super::hello_world as shop;
        // ANCHOR: layer
        let validation = frpc_validate::Validation::new([shop::FILE_DESCRIPTOR_SET])?;
        let server = Server::builder().layer(validation).add_service(service).bind("tcp://127.0.0.1:0").await?;
        // ANCHOR_END: layer
        drop(server);
        Ok(())
    }

    #[allow(dead_code, reason = "it writes a file")]
    fn records() -> Outcome {
        let service = GreeterServer::new(Host);
        // ANCHOR: recorder
        let recorder = frpc_record::Recorder::create("calls.frec")?;
        let server = Server::builder().layer(recorder.clone()).add_service(service);
        // ANCHOR_END: recorder
        drop((server, recorder));
        Ok(())
    }

    #[test]
    fn faults_have_rates() {
        // ANCHOR: faults
        use frpc::testing::{FaultInjector, FaultRates};

        let faults = FaultInjector::new(7)
            .rates(FaultRates { failed: 0.1, delayed: 0.5, ..FaultRates::default() })
            .rates_of("shop.Orders/Watch", FaultRates { cut: 1.0, cut_after: 3..=3, ..FaultRates::default() });
        // ANCHOR_END: faults
        drop(faults);
    }
}
