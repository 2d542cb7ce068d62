//! A chat room: a server that sends each message to all people in the room, and three clients.

use std::{collections::HashSet, error::Error, sync::Mutex, time::Duration};

use frisbee::{Client, Connection, Event, Operation, Outcome, Packet, Router, Server};
use tokio::sync::mpsc;

const JOIN: Operation = Operation::new(20).unwrap();
const SAY: Operation = Operation::new(21).unwrap();

/// The connections of all people in the room.
#[derive(Default)]
struct Room {
    people: Mutex<HashSet<Connection>>,
}

impl Router for Room {
    async fn route(&self, packet: Packet, connection: &Connection) -> Outcome {
        match packet.operation {
            JOIN => {
                // Joining again does not change the name.
                let _ = connection.set_state(String::from_utf8_lossy(&packet.content).into_owned());
                self.people.lock().expect("never poisoned").insert(connection.clone());
                println!("broker: {:?} joins", packet.content);
                Outcome::Reply(packet)
            }
            SAY => {
                let people = self.people.lock().expect("never poisoned");
                // The packets share their content. A slow client misses this one.
                let heard = people.iter().filter(|person| person.try_send(packet.clone()).is_ok()).count();
                println!("broker: {:?} to {heard} people", packet.content);
                Outcome::Nothing
            }
            _ => Outcome::Nothing,
        }
    }

    fn event(&self, connection: &Connection, event: Event<'_>) {
        let Event::Closed(reason) = event else { return };
        self.people.lock().expect("never poisoned").remove(connection);
        let name = connection.state::<String>();
        println!("broker: {} leaves: {reason}", name.map_or("somebody", String::as_str));
    }
}

/// The receiving side of a client.
struct Person(mpsc::UnboundedSender<Packet>);

impl Router for Person {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        // Without a receiver, the messages are no longer needed.
        let _ = self.0.send(packet);
        Outcome::Nothing
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder(Room::default()).bind("tcp://127.0.0.1:0").await?;
    let mut room = Vec::new();
    for name in ["alice", "bob", "carol"] {
        let (sender, mut inbox) = mpsc::unbounded_channel();
        let connection = Client::new(Person(sender)).connect(server.local_addr()).await?;
        connection.send(Packet::new(0, JOIN, name)).await?;
        inbox.recv().await.ok_or("not let in")?;
        room.push((name, connection, inbox));
    }
    room[0].1.send(Packet::new(0, SAY, "hello from alice")).await?;
    for (name, _, inbox) in &mut room {
        let message = inbox.recv().await.ok_or("the broker is gone")?;
        println!("{name}: hears {:?}", message.content);
    }
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
