//! The bytes exchanged between each broker and its publishers and subscribers.
//!
//! All subjects of a run have the same length, and so do all payloads. All deliveries of a broker therefore have the
//! same length and can be counted by their bytes, at very little cost for the load program.

use std::io;

use benches::Frame;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A protocol between brokers and their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Only frisbee frames, with the last two digits of the subject as the id.
    Floor,
    /// The protocol of our broker, as described in docs/pubsub.md.
    Frisbee,
    /// The text protocol of NATS.
    Nats,
    /// RESP2, the protocol of Redis.
    Redis,
}

/// The policy for messages to a subscriber that does not read, if the broker supports several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slow {
    /// The publisher waits for the subscriber.
    SetThePace,
    /// The subscriber misses messages.
    Miss,
}

impl Wire {
    /// Performs the handshake of a new connection, if the protocol has one.
    pub(crate) async fn greet(self, socket: &mut TcpStream) -> io::Result<()> {
        match self {
            Self::Nats => {
                read_line(socket).await?;
                socket.write_all(b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\nPING\r\n").await?;
                expect(socket, b"PONG\r\n").await
            }
            Self::Floor | Self::Frisbee | Self::Redis => Ok(()),
        }
    }

    /// Subscribes and waits for the confirmation. Returns the number used in deliveries, if the broker assigns one.
    pub(crate) async fn subscribe(
        self,
        socket: &mut TcpStream,
        pattern: &str,
        number: usize,
        slow: Slow,
    ) -> io::Result<u32> {
        match self {
            Self::Floor => {
                let frame = encoded(number_of(pattern), SUBSCRIBE, &[]);
                socket.write_all(&frame).await?;
                expect(socket, &frame).await?;
            }
            Self::Frisbee => {
                let policy = if slow == Slow::SetThePace { BLOCK } else { DROP_NEWEST };
                let content = [&[policy, 0, 0, 0, 0, 0][..], &short(pattern), &short("")].concat();
                socket.write_all(&encoded(1, BASE + 2, &content)).await?;
                let mut answer = read_frame(socket, BASE + 3).await?;
                answer.truncate(4);
                return answer
                    .try_into()
                    .map(u32::from_be_bytes)
                    .map_err(|_| io::Error::other("SUBSCRIBED is too short"));
            }
            Self::Nats => {
                socket.write_all(format!("SUB {pattern} {number}\r\nPING\r\n").as_bytes()).await?;
                expect(socket, b"PONG\r\n").await?;
            }
            Self::Redis => {
                let command = if pattern.contains('*') { "psubscribe" } else { "subscribe" };
                let words = format!("${}\r\n{command}\r\n${}\r\n{pattern}\r\n", command.len(), pattern.len());
                socket.write_all(format!("*2\r\n{words}").as_bytes()).await?;
                expect(socket, format!("*3\r\n{words}:{number}\r\n").as_bytes()).await?;
            }
        }
        Ok(0)
    }

    /// Encodes a publication as sent by a publisher.
    pub(crate) fn publication(self, subject: &str, payload: &[u8]) -> Vec<u8> {
        match self {
            Self::Floor => self.delivery(0, subject, payload),
            Self::Frisbee => encoded(0, BASE + 6, &[&[0][..], &short(subject), payload].concat()),
            Self::Nats => joined(&format!("PUB {subject} {}\r\n", payload.len()), payload),
            Self::Redis => {
                let words = format!("*3\r\n$7\r\npublish\r\n${}\r\n{subject}\r\n${}\r\n", subject.len(), payload.len());
                joined(&words, payload)
            }
        }
    }

    /// Encodes a publication as received by a subscriber.
    pub(crate) fn delivery(self, number: u32, subject: &str, payload: &[u8]) -> Vec<u8> {
        match self {
            Self::Floor => encoded(number_of(subject), MESSAGE, payload),
            Self::Frisbee => {
                let content = [&number.to_be_bytes()[..], &[0], &short(subject), payload].concat();
                encoded(0, BASE + 8, &content)
            }
            Self::Nats => joined(&format!("MSG {subject} 1 {}\r\n", payload.len()), payload),
            Self::Redis => {
                let words = format!("*3\r\n$7\r\nmessage\r\n${}\r\n{subject}\r\n${}\r\n", subject.len(), payload.len());
                joined(&words, payload)
            }
        }
    }

    /// Returns the number of bytes after the payload of a delivery.
    pub(crate) fn trailer_len(self) -> usize {
        match self {
            Self::Floor | Self::Frisbee => 0,
            Self::Nats | Self::Redis => 2,
        }
    }

    /// Reads one delivery of the length of `delivery`. Skips other messages of the broker.
    pub(crate) async fn read_delivery(self, socket: &mut TcpStream, delivery: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Frisbee => {
                let content = read_frame(socket, BASE + 8).await?;
                let frame = encoded(0, BASE + 8, &content);
                if frame.len() != delivery.len() {
                    return Err(io::Error::other(format!("a delivery has {} bytes", frame.len())));
                }
                delivery.copy_from_slice(&frame);
                Ok(())
            }
            _ => socket.read_exact(delivery).await.map(drop),
        }
    }

    /// Returns the pattern of an idle subscription. It never matches.
    pub(crate) fn idle_pattern(self, number: usize) -> String {
        match self {
            Self::Redis => format!("idle.{number:06}.*"),
            _ => format!("idle.{number:06}.*.>"),
        }
    }
}

fn number_of(subject: &str) -> u16 {
    subject.rsplit('.').next().and_then(|last| last.parse().ok()).unwrap_or_default()
}

/// Reads frames until one has this operation, and returns its content.
async fn read_frame(socket: &mut TcpStream, wanted: u16) -> io::Result<Vec<u8>> {
    loop {
        let mut frame = vec![0; HEADER_LEN];
        socket.read_exact(&mut frame).await?;
        let len = Frame::announced_len(&frame)?.unwrap_or_default();
        frame.resize(len, 0);
        socket.read_exact(&mut frame[HEADER_LEN..]).await?;
        let Some((Frame { operation, content, .. }, _)) = Frame::split_from(&frame)? else { continue };
        if operation == wanted {
            return Ok(content.to_vec());
        }
        // Reserved operations belong to the connection itself.
        if operation >= 10 {
            return Err(io::Error::other(format!("operation {operation}: {:?}", String::from_utf8_lossy(content))));
        }
    }
}

fn encoded(id: u16, operation: u16, content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    Frame { id, operation, content }.encode(&mut frame);
    frame
}

/// Encodes a text of at most 255 bytes, preceded by its length.
fn short(text: &str) -> Vec<u8> {
    let len = u8::try_from(text.len()).expect("subjects of a benchmark are short");
    [&[len], text.as_bytes()].concat()
}

fn joined(head: &str, payload: &[u8]) -> Vec<u8> {
    [head.as_bytes(), payload, b"\r\n"].concat()
}

async fn expect(socket: &mut TcpStream, expected: &[u8]) -> io::Result<()> {
    let mut heard = vec![0; expected.len()];
    socket.read_exact(&mut heard).await?;
    if heard == expected {
        return Ok(());
    }
    let (heard, expected) = (String::from_utf8_lossy(&heard), String::from_utf8_lossy(expected));
    Err(io::Error::other(format!("the broker says {heard:?} and not {expected:?}")))
}

async fn read_line(socket: &mut TcpStream) -> io::Result<()> {
    while socket.read_u8().await? != b'\n' {}
    Ok(())
}

const HEADER_LEN: usize = 10;

/// The operations of the floor.
const SUBSCRIBE: u16 = 20;
const MESSAGE: u16 = 21;

/// The first operation of our broker.
const BASE: u16 = 7000;
/// The policies of our broker.
const DROP_NEWEST: u8 = 0;
const BLOCK: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_ends_before_the_trailer_on_every_wire() {
        for wire in [Wire::Floor, Wire::Frisbee, Wire::Nats, Wire::Redis] {
            let delivery = wire.delivery(1, "bench.subject.07", b"payload");
            let end = delivery.len() - wire.trailer_len();
            assert_eq!(&delivery[end - 7..end], b"payload", "{wire:?}");
            assert_eq!(delivery.len(), wire.delivery(1, "bench.subject.42", b"another").len(), "{wire:?}");
        }
    }
}
