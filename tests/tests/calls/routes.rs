//! Channels whose resolver sends calls to several clusters.

use std::{io, sync::Arc};

use frpc::{
    Call, Channel, Code, Request, Server, Status,
    fleet::{CallRoute, Endpoint, Endpoints, MethodConfig, Refresh, Resolve, RetryPolicy, RouteCalls, Target},
};
use futures_util::stream::{BoxStream, StreamExt};
use support::{
    SECOND, assert_elapsed,
    calls::{TestClient, TestServer, TestService, ask, each_kind, quiet, quiet_channel, unused_address, words},
    in_virtual_time, settle,
};
use tokio::{sync::watch, time::Instant};

/// Sends each call to the cluster in its metadata, and others to `main`.
#[derive(Debug)]
struct ByHeader;

impl RouteCalls for ByHeader {
    fn route(&self, call: &Call) -> Result<CallRoute, Status> {
        let cluster = call.head().metadata().get("cluster").unwrap_or("main");
        if cluster == "nowhere" {
            return Err(Status::not_found("no route"));
        }
        let mut route = CallRoute::new(cluster);
        let retry = RetryPolicy { codes: [14].into_iter().collect(), ..RetryPolicy::default() };
        route.rules = Some(Arc::new(MethodConfig {
            timeout: (cluster == "slow").then_some(2 * SECOND),
            retry: (cluster == "main").then_some(retry),
            ..MethodConfig::default()
        }));
        Ok(route)
    }
}

struct Told(watch::Receiver<Endpoints>);

impl Resolve for Told {
    fn resolve(&self, _: Refresh) -> BoxStream<'static, io::Result<Endpoints>> {
        let told = self.0.clone();
        futures_util::stream::unfold((told, true), async |(mut told, is_first)| {
            if !is_first {
                told.changed().await.ok()?;
            }
            let found = told.borrow_and_update().clone();
            Some((Ok(found), (told, false)))
        })
        .boxed()
    }
}

/// A server, and the set with it alone.
async fn serve() -> (TestService, Server, Endpoints) {
    let (service, address) = (TestService::default(), unused_address());
    let server = Server::builder().config(quiet()).add_service(TestServer::new(service.clone()));
    let server = server.bind(&address).await.unwrap();
    (service, server, Endpoints::new([Endpoint::new(&address).unwrap()]))
}

fn routed(routes: &Arc<ByHeader>, clusters: &[(&str, Result<&Endpoints, &str>)]) -> Endpoints {
    let clusters = clusters.iter().map(|(name, found)| ((*name).into(), found.cloned().map_err(Into::into)));
    Endpoints::routed(routes.clone(), clusters)
}

async fn connect(told: watch::Receiver<Endpoints>) -> Channel {
    quiet_channel().connect(Target::resolved_by(Told(told))).await.unwrap()
}

async fn ask_in(client: &TestClient, cluster: &str, text: &str) -> Result<String, Status> {
    let mut request = Request::new(words(text));
    request.metadata_mut().insert("cluster", cluster).unwrap();
    client.say(request).await.map(|answer| answer.into_inner().text)
}

#[test]
fn calls_go_to_the_clusters_of_their_routes() {
    in_virtual_time(async {
        let (main, _main_server, main_found) = serve().await;
        let (slow, _slow_server, slow_found) = serve().await;
        let routes = Arc::new(ByHeader);
        let clusters = [("main", Ok(&main_found)), ("slow", Ok(&slow_found)), ("sick", Err("it is sick"))];
        let (tell, told) = watch::channel(routed(&routes, &clusters));
        let client = TestClient::new(connect(told).await);
        assert!(each_kind(&client, "hi").await.iter().all(Result::is_ok));
        assert_eq!(main.log.take().len(), 4);
        assert_eq!(ask_in(&client, "slow", "hi").await.unwrap(), "hi");
        assert_eq!((main.log.take().len(), slow.log.take().len()), (0, 1));
        for (cluster, code, why) in [
            ("sick", Code::Unavailable, "it is sick"),
            ("other", Code::Unavailable, "unknown cluster"),
            ("nowhere", Code::NotFound, "no route"),
        ] {
            let status = ask_in(&client, cluster, "hi").await.unwrap_err();
            assert!(status.code() == code && status.message().contains(why), "{status}");
        }
        // The timeout and the retries of a route hold for its calls only.
        let since = Instant::now();
        assert_eq!(ask_in(&client, "slow", "sleep 5").await.unwrap_err().code(), Code::DeadlineExceeded);
        assert_elapsed(since, 2 * SECOND);
        assert_eq!(ask(&client, "sleep 5").await.unwrap(), "sleep 5");
        main.log.take();
        assert!(ask_in(&client, "slow", "fail 14 no").await.is_err());
        assert!(ask(&client, "fail 14 no").await.is_err());
        assert!(
            main.log.take().len() > 1 && slow.log.take().iter().filter(|event| *event == "say fail 14 no").count() == 1
        );

        // The sick cluster recovers, another leaves, and the connection to the rest stays.
        tell.send_replace(routed(&routes, &[("main", Ok(&main_found)), ("sick", Ok(&slow_found))]));
        settle().await;
        assert_eq!(ask_in(&client, "sick", "hi").await.unwrap(), "hi");
        assert!(ask_in(&client, "slow", "hi").await.is_err());
        assert_eq!(ask(&client, "visit").await.unwrap(), "1");
        tell.send_replace(routed(&routes, &[("main", Ok(&main_found))]));
        settle().await;
        assert_eq!(ask(&client, "visit").await.unwrap(), "2", "it is the same connection");
        // A set without routes takes over.
        tell.send_replace(slow_found);
        settle().await;
        slow.log.take();
        ask_in(&client, "nowhere", "hi").await.unwrap();
        assert_eq!(slow.log.take(), ["say hi"]);
    });
}

#[test]
fn calls_wait_for_the_servers_of_a_new_cluster() {
    in_virtual_time(async {
        let (main, _main_server, found) = serve().await;
        let routes = Arc::new(ByHeader);
        let nothing = routed(&routes, &[("main", Err("it has no servers")), ("other", Ok(&found))]);
        let (tell, told) = watch::channel(nothing);
        let client = TestClient::new(connect(told).await);
        assert_eq!(ask(&client, "hi").await.unwrap_err().message(), "it has no servers");
        tell.send_replace(routed(&routes, &[("main", Ok(&found))]));
        settle().await;
        assert_eq!(ask(&client, "hi").await.unwrap(), "hi");
        assert_eq!(main.log.take(), ["say hi"]);
        // Without any cluster, connecting fails with the reason.
        let (_tell, told) = watch::channel(routed(&routes, &[("main", Err("it has no servers"))]));
        let error = quiet_channel().connect(Target::resolved_by(Told(told))).await.map(drop).unwrap_err();
        assert!(format!("{error:?}").contains("it has no servers"), "{error:?}");
    });
}
