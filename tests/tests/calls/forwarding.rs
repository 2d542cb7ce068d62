//! Routers in front of other routers pass on everything that is not their own.

use std::{
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use frisbee::{
    Arrivals, Client, CloseReason, Config, Connection, Event, GoAway, HandlerTable, Operation, OutboxLimit, Outcome,
    Packet, PeerProtocol, RefusalReason, RefusedPacket, Router, RouterInfo, SendOrder, Stream, WhenFull,
};
use frisbee_pubsub::Broker;
use frpc::Services;
use support::{
    EventLog, SECOND,
    calls::{OWN, TestServer, TestService, encoded, own_packet, peer, plain, quiet, quiet_channel},
    frames::{frame, stream_frame},
    in_virtual_time, settle,
};
use tokio::io::duplex;

/// Notes what it is asked and told.
#[derive(Clone, Default)]
struct Probe(EventLog);

impl Router for Probe {
    fn describe(&self) -> Result<RouterInfo, Box<dyn Error + Send + Sync>> {
        self.0.add("describe");
        Ok(RouterInfo { leaves: true, send_order: SendOrder::Relaxed, ..RouterInfo::default() }.with_part("probe", "1"))
    }

    fn event(&self, _: &Connection, event: Event<'_>) {
        self.0.add(format!("{event:?}").split('(').next().unwrap());
    }

    fn intercept(&self, packets: &mut Arrivals<'_>, _: &Connection) {
        let taken =
            std::iter::from_fn(|| packets.next_if(|packet| packet.content != "route" && packet.content != "fill"))
                .count();
        self.0.add(format!("intercept {taken}"));
    }

    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        self.0.add("route");
        if packet.content == "fill" {
            connection.set_outbox(OutboxLimit { len_max: 1, when_full: WhenFull::Refuse });
            connection.try_send(packet.clone()).unwrap();
            connection.try_send(packet).unwrap_err();
        }
        Outcome::Nothing
    }

    fn refuse(&self, refused: RefusedPacket, _: &Connection) -> Outcome {
        self.0.add("refuse");
        Outcome::Reply(Packet::new(refused.id, refused.operation, "refused"))
    }

    fn awaited(&self, _: &Connection) -> usize {
        self.0.add("awaited");
        3
    }

    fn packet_timeout(&self, _: &Packet, _: &Connection) -> Option<Duration> {
        self.0.add("packet_timeout");
        Some(5 * SECOND)
    }

    async fn stream(&self, _: Stream, refusal: Option<RefusalReason>, _: &Connection) {
        self.0.add(format!("stream {refusal:?}"));
    }
}

/// Keeps what it has to refuse.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Option<RefusedPacket>>>);

impl Router for Keeper {
    async fn route(&self, _: Packet, _: &Connection) -> Outcome {
        Outcome::Nothing
    }

    fn refuse(&self, refused: RefusedPacket, _: &Connection) -> Outcome {
        *self.0.lock().unwrap() = Some(refused);
        Outcome::Nothing
    }
}

/// Puts every question and every event to a router in front of a probe, and checks what the probe hears.
fn check<R: Router>(wrap: impl FnOnce(Probe) -> R) {
    in_virtual_time(async {
        let (ours, theirs) = duplex(10_000);
        let config = Config { accept_backlog: 2, content_len_max: 1000, extended: false, ..quiet() };
        let keeper = Keeper::default();
        let server = frisbee::Server::builder(keeper.clone()).config(config).without_listener();
        server.attach(theirs);
        let client = Client::new(()).config(plain()).attach(ours).await.unwrap();
        client.send(Packet::new(9, OWN, vec![b'x'; 2000])).await.unwrap();
        let streams = [(); 2].map(|()| client.open_stream().unwrap());
        for stream in &streams {
            stream.send("no call").await.unwrap();
        }
        settle().await;
        let connection = server.connections().remove(0);
        let refused = keeper.0.lock().unwrap().expect("its content is too large");
        let (peer, why, reason) = (PeerProtocol::Plain, GoAway { code: 0, text: "".into() }, CloseReason::Local);

        let probe = Probe::default();
        let router = wrap(probe.clone());
        let info = router.describe().unwrap();
        assert_eq!((info.leaves, info.send_order), (true, SendOrder::Relaxed));
        assert!(info.parts.contains(&("probe", "1".into())));
        router.event(&connection, Event::Opened);
        router.event(&connection, Event::Recognized(&peer));
        router.event(&connection, Event::Received);
        router.event(&connection, Event::Writable);
        router.event(&connection, Event::GoingAway(&why));
        router.event(&connection, Event::Withdrawn(own_packet(7, "").name()));
        let mut packets = ["first", "second", "route", "third"].map(|content| own_packet(7, content)).into();
        router.intercept(&mut Arrivals::new(&mut packets, &connection), &connection);
        assert_eq!(packets.len(), 2);
        assert_eq!(router.route(own_packet(7, "mine"), &connection).await, Outcome::Nothing);
        assert_eq!(router.refuse(refused, &connection), Outcome::Reply(own_packet(9, "refused")));
        assert_eq!(router.awaited(&connection), 3);
        assert_eq!(router.packet_timeout(&own_packet(7, "mine"), &connection), Some(5 * SECOND));
        for refusal in [None, Some(RefusalReason::Draining)] {
            router.stream(connection.accept_stream().await.unwrap(), refusal, &connection).await;
        }
        router.event(&connection, Event::Closed(&reason));
        let heard = [
            "describe",
            "Opened",
            "Recognized",
            "Received",
            "Writable",
            "GoingAway",
            "Withdrawn",
            "intercept 2",
            "route",
            "refuse",
            "awaited",
            "packet_timeout",
            "stream None",
            "stream Some(Draining)",
            "Closed",
        ];
        assert_eq!(probe.0.take(), heard);
    });
}

#[test]
fn every_router_forwards_unknown_packets_and_events() {
    let services = || Services::new().add_service(TestServer::new(TestService::default()));
    check(|probe| probe);
    check(Arc::new);
    check(HandlerTable::over);
    check(|probe| HandlerTable::over(probe).on(Operation::new(2000).unwrap(), async |_: Packet| {}));
    check(|probe| Broker::new().over(probe));
    check(|probe| services().over(probe));
    check(|probe| HandlerTable::over(services().over(Broker::new().over(Arc::new(probe)))));
    check(|probe| Broker::new().over(services().over(probe)));
}

#[test]
fn a_channel_forwards_everything_but_calls() {
    in_virtual_time(async {
        let (ours, mut peer) = peer();
        let probe = Probe::default();
        let builder = quiet_channel().router(probe.clone());
        let (channel, ()) = tokio::join!(builder.attach(ours), peer.answer_opening());
        let own = |content| frame(7, OWN.number(), encoded(content));
        peer.say_all(["first", "second"].map(own)).await;
        settle().await;
        peer.say_all([frame(7, OWN.number(), b"route"), stream_frame(2, "no call"), frame(7, OWN.number(), b"fill")])
            .await;
        settle().await;
        drop(channel);
        peer.hear_out().await;
        drop(peer);
        settle().await;
        let heard = probe.0.take();
        let kinds = [
            "describe",
            "Opened",
            "Recognized",
            "Received",
            "Writable",
            "intercept 2",
            "route",
            "stream None",
            "Closed",
        ];
        for kind in kinds {
            assert!(heard.iter().any(|line| line == kind), "{kind} is not in {heard:?}");
        }
    });
}
