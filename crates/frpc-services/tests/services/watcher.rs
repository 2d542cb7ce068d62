//! Channels to servers with health checks.

use std::sync::atomic::{AtomicBool, Ordering};

use frpc::{
    Address, Channel, Request, Response, Server, Status, Streaming,
    fleet::{FleetSettings, PickPolicy, ServiceConfig},
};
use frpc_services::{
    Health, HealthWatcher, ServingStatus,
    protos::grpc::health::v1::{
        HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
        health_server::{self, HealthServer},
    },
};
use futures_util::stream::{self, StreamExt};
use support::{
    SECOND,
    calls::{TestClient, TestServer, TestService, quiet, unused_address, words},
    in_virtual_time, settle,
};
use tokio::time::Instant;

struct Replica {
    service: TestService,
    health: Health,
    server: Server,
}

impl Replica {
    async fn start() -> Self {
        let (service, health) = (TestService::default(), Health::new());
        let server = Server::builder().config(quiet()).add_service(TestServer::new(service.clone()));
        let server = server.add_service(health.clone()).bind(&unused_address()).await.unwrap();
        Self { service, health, server }
    }

    fn set(&self, status: ServingStatus) {
        self.health.set("calls.Test", status);
    }

    /// Returns the number of calls since the last question.
    fn calls(&self) -> usize {
        self.service.log.take().len()
    }
}

async fn connect<'a>(addresses: impl IntoIterator<Item = &'a Address>) -> TestClient {
    let service_config = ServiceConfig { health_check: Some("calls.Test".to_owned()), ..ServiceConfig::default() };
    let fleet = FleetSettings { policy: PickPolicy::RoundRobin, service_config, ..FleetSettings::default() };
    let channel = Channel::builder().config(quiet()).fleet(fleet).health(HealthWatcher);
    TestClient::new(channel.connect(addresses.into_iter().cloned().collect::<Vec<_>>()).await.unwrap())
}

async fn say(client: &TestClient) -> Result<(), Status> {
    client.say(words("hi")).await.map(drop)
}

#[test]
fn servers_get_calls_while_they_are_healthy() {
    in_virtual_time(async {
        let [one, two] = [Replica::start().await, Replica::start().await];
        let client = connect([one.server.local_addr(), two.server.local_addr()]).await;
        settle().await;
        for (statuses, calls) in [
            ([ServingStatus::Serving, ServingStatus::Serving], [2, 2]),
            ([ServingStatus::Serving, ServingStatus::NotServing], [4, 0]),
            ([ServingStatus::Unknown, ServingStatus::Serving], [0, 4]),
            ([ServingStatus::Serving, ServingStatus::Serving], [2, 2]),
        ] {
            one.set(statuses[0]);
            two.set(statuses[1]);
            settle().await;
            for _ in 0..4 {
                say(&client).await.unwrap();
            }
            assert_eq!([one.calls(), two.calls()], calls, "{statuses:?}");
        }
    });
}

#[test]
fn calls_fail_while_no_server_is_healthy() {
    in_virtual_time(async {
        let one = Replica::start().await;
        let client = connect([one.server.local_addr()]).await;
        one.set(ServingStatus::NotServing);
        settle().await;
        let error = say(&client).await.unwrap_err().to_string();
        assert!(error.contains("does not serve"), "{error}");
        one.set(ServingStatus::Serving);
        settle().await;
        say(&client).await.unwrap();
    });
}

/// Health checks whose first watch fails.
#[derive(Default)]
struct FlakyHealth(AtomicBool);

impl health_server::Health for FlakyHealth {
    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        Err(Status::unimplemented("only watches"))
    }

    async fn list(&self, _: Request<HealthListRequest>) -> Result<Response<HealthListResponse>, Status> {
        Err(Status::unimplemented("only watches"))
    }

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Streaming<HealthCheckResponse>>, Status> {
        if !self.0.swap(true, Ordering::Relaxed) {
            return Err(Status::internal("flaky"));
        }
        let serving = HealthCheckResponse { status: ServingStatus::Serving.into() };
        Ok(Streaming::new(stream::iter([Ok(serving)]).chain(stream::pending())).into())
    }
}

#[test]
fn a_failed_watch_is_repeated_after_a_pause() {
    in_virtual_time(async {
        let server = Server::builder().config(quiet()).add_service(TestServer::new(TestService::default()));
        let server =
            server.add_service(HealthServer::new(FlakyHealth::default())).bind(&unused_address()).await.unwrap();
        let fleet = FleetSettings { wait_for_ready: true, ..FleetSettings::default() };
        let channel = Channel::builder().config(quiet()).fleet(fleet).health(HealthWatcher);
        let client = TestClient::new(channel.connect_lazy(server.local_addr()).unwrap());
        let start = Instant::now();
        say(&client).await.unwrap();
        let elapsed = start.elapsed();
        assert!(elapsed > SECOND / 2 && elapsed < 2 * SECOND, "{elapsed:?}");
    });
}

#[test]
fn servers_without_health_checks_are_healthy() {
    in_virtual_time(async {
        let server = Server::builder().config(quiet()).add_service(TestServer::new(TestService::default()));
        let server = server.bind(&unused_address()).await.unwrap();
        say(&connect([server.local_addr()]).await).await.unwrap();
    });
}
