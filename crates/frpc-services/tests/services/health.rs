//! Health checks, over frisbee and in process.

use crate::either::{assert_status, connect, either_way};
use frpc::{BoxService, Code, Server, Status, Streaming};
use frpc_services::{
    Health,
    ServingStatus::{self, NotServing, ServiceUnknown, Serving},
    protos::grpc::health::v1::{
        HealthCheckRequest, HealthCheckResponse, HealthListRequest, health_client::HealthClient,
    },
};
use support::{
    DAY,
    calls::{TestServer, TestService},
    in_virtual_time,
};

fn services(health: &Health) -> Vec<BoxService> {
    vec![health.clone().into(), TestServer::new(TestService::default()).into()]
}

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

async fn check(client: &HealthClient, service: &str) -> Result<ServingStatus, Status> {
    client.check(about(service)).await.map(|response| response.get_ref().status())
}

async fn next(watch: &mut Streaming<HealthCheckResponse>) -> ServingStatus {
    watch.message().await.unwrap().unwrap().status()
}

#[test]
fn services_are_serving_until_set_otherwise() {
    either_way(|| {
        let health = Health::new();
        (services(&health), async move |channel| {
            let client = HealthClient::new(channel);
            for service in ["", "calls.Test", "grpc.health.v1.Health"] {
                assert_eq!(check(&client, service).await.unwrap(), Serving, "{service}");
            }
            health.set("calls.Test", NotServing);
            assert_eq!(check(&client, "calls.Test").await.unwrap(), NotServing);
            assert_eq!(check(&client, "").await.unwrap(), Serving);
        })
    });
}

#[test]
fn an_unknown_service_is_not_found() {
    either_way(|| {
        let health = Health::new();
        (services(&health), async move |channel| {
            let client = HealthClient::new(channel);
            assert_status(check(&client, "shop.Orders").await, Code::NotFound, "unknown service 'shop.Orders'");
            health.set("shop.Orders", Serving);
            assert_eq!(check(&client, "shop.Orders").await.unwrap(), Serving);
            health.clear("shop.Orders");
            assert_status(check(&client, "shop.Orders").await, Code::NotFound, "unknown service 'shop.Orders'");
        })
    });
}

#[test]
fn statuses_set_before_the_start_are_kept() {
    either_way(|| {
        let health = Health::new();
        health.set("calls.Test", NotServing);
        (services(&health), async move |channel| {
            assert_eq!(check(&HealthClient::new(channel), "calls.Test").await.unwrap(), NotServing);
        })
    });
}

#[test]
fn all_services_can_be_listed() {
    either_way(|| {
        let health = Health::new();
        (services(&health), async move |channel| {
            health.set("calls.Test", NotServing);
            let list = HealthClient::new(channel).list(HealthListRequest {}).await.unwrap().into_inner();
            let mut statuses: Vec<_> =
                list.statuses.iter().map(|(service, response)| (service.as_str(), response.status())).collect();
            statuses.sort_unstable();
            assert_eq!(statuses, [("", Serving), ("calls.Test", NotServing), ("grpc.health.v1.Health", Serving)]);
        })
    });
}

#[test]
fn watchers_get_the_status_and_every_change() {
    either_way(|| {
        let health = Health::new();
        (services(&health), async move |channel| {
            let client = HealthClient::new(channel);
            let mut watch = client.watch(about("calls.Test")).await.unwrap().into_inner();
            assert_eq!(next(&mut watch).await, Serving);
            // The watcher is not told about other services, nor about unchanged statuses.
            health.set("shop.Orders", NotServing);
            health.set("calls.Test", Serving);
            health.set("calls.Test", NotServing);
            assert_eq!(next(&mut watch).await, NotServing);
            health.clear("calls.Test");
            assert_eq!(next(&mut watch).await, ServiceUnknown);
        })
    });
}

#[test]
fn an_unknown_service_can_be_watched() {
    either_way(|| {
        let health = Health::new();
        (services(&health), async move |channel| {
            let client = HealthClient::new(channel);
            let mut watch = client.watch(about("shop.Orders")).await.unwrap().into_inner();
            assert_eq!(next(&mut watch).await, ServiceUnknown);
            health.set("shop.Orders", Serving);
            assert_eq!(next(&mut watch).await, Serving);
        })
    });
}

#[test]
fn after_a_shutdown_nothing_serves_and_watches_end() {
    either_way(|| {
        let health = Health::new();
        (services(&health), async move |channel| {
            let client = HealthClient::new(channel);
            let mut watch = client.watch(about("")).await.unwrap().into_inner();
            assert_eq!(next(&mut watch).await, Serving);
            health.shut_down();
            assert_eq!(next(&mut watch).await, NotServing);
            let end = "the server is shutting down: watch again after the restart";
            assert_status(watch.message().await, Code::Unavailable, end);
            for service in ["", "calls.Test"] {
                health.set(service, Serving);
                assert_eq!(check(&client, service).await.unwrap(), NotServing, "{service}");
            }
            let mut late = client.watch(about("shop.Orders")).await.unwrap().into_inner();
            assert_eq!(next(&mut late).await, ServiceUnknown);
            assert_status(late.message().await, Code::Unavailable, end);
        })
    });
}

#[test]
fn watchers_learn_of_a_server_shutdown() {
    in_virtual_time(async {
        let server = Server::builder().add_service(Health::new()).without_listener().unwrap();
        let client = HealthClient::new(connect(&server).await);
        let mut watch = client.watch(about("")).await.unwrap().into_inner();
        assert_eq!(next(&mut watch).await, Serving);
        let shutdown = tokio::spawn(server.shutdown(DAY));
        assert_eq!(next(&mut watch).await, NotServing);
        assert_status(
            watch.message().await,
            Code::Unavailable,
            "the server is shutting down: watch again after the restart",
        );
        assert_eq!(shutdown.await.unwrap(), 0, "no connection is cut");
    });
}

#[test]
fn a_status_shows_only_the_beginning_of_a_name() {
    either_way(|| {
        let health = Health::new();
        (services(&health), async move |channel| {
            let client = HealthClient::new(channel);
            let status = check(&client, &"x".repeat(4_000_000)).await.unwrap_err();
            assert_eq!(status.code(), Code::NotFound);
            assert!(status.message().len() < 300, "{}", status.message().len());
        })
    });
}
