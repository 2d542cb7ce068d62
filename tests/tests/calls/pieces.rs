//! Large messages next to small calls, between extended peers.

use frisbee::{Connection, Outcome, Packet, Router};
use frpc::{Channel, Server, Services};
use support::{
    EventLog,
    calls::{TestClient, TestServer, TestService, quiet, quiet_channel, words},
    in_virtual_time,
};
use tokio::io::duplex;

/// Has application packets, delivered in order.
struct InOrder;

impl Router for InOrder {
    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Nothing
    }
}

async fn attached(server: &Server) -> Channel {
    let (ours, theirs) = duplex(64 * 1024);
    server.attach(theirs);
    quiet_channel().attach(ours).await.unwrap()
}

/// Makes a small call, then a large and a small one concurrently. Returns the order of their answers.
async fn answered(client: &TestClient) -> Vec<String> {
    let log = EventLog::default();
    client.say(words("hi")).await.unwrap();
    let call = async |name: &str, text: &str| {
        assert!(client.say(words(text)).await.unwrap().into_inner().text == text);
        log.add(name);
    };
    let large = "x".repeat(1 << 20);
    tokio::join!(call("large", &large), call("small", "hi"));
    log.take()
}

#[test]
fn a_small_call_is_answered_before_an_earlier_large_one() {
    in_virtual_time(async {
        let service = TestServer::new(TestService::default());
        let server = Server::builder().config(quiet()).add_service(service).without_listener().unwrap();
        let client = TestClient::new(attached(&server).await);
        assert_eq!(answered(&client).await, ["small", "large"]);
    });
}

#[test]
fn answers_and_ordered_packets_stay_in_order() {
    in_virtual_time(async {
        let services = Services::new().add_service(TestServer::new(TestService::default())).over(InOrder);
        let server = frisbee::Server::builder(services).config(quiet()).without_listener();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let client = TestClient::new(quiet_channel().attach(ours).await.unwrap());
        answered(&client).await;
        let asked = server.connections()[0].metrics().counters;
        assert!(asked.pieces_in > 0, "a channel without a router has no packets");
        let answered = client.channel().connection().unwrap().metrics().counters;
        assert_eq!(answered.pieces_in, 0, "the server has some that stay in order");
    });
}
