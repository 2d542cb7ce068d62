//! Socket options.

use std::{io, iter, net::SocketAddr, time::Duration};

use futures_util::stream::{FuturesUnordered, StreamExt};
#[cfg(not(target_family = "wasm"))]
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpStream, ToSocketAddrs, lookup_host},
    time::timeout,
};

use crate::InvalidSetting;

/// Options of TCP sockets, for clients and servers.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// Sends small packets immediately instead of collecting them into larger segments. Default true.
    pub nodelay: bool,
    /// The period of TCP keepalive probes. Default 3 minutes, like the Go implementation. `None` sends none.
    pub keepalive: Option<Duration>,
    /// The length of the kernel's queue of connections waiting to be accepted. Default 4096. The system may apply
    /// a lower limit.
    pub backlog: u32,
    /// Lets several servers share a TCP port if all of them set this option. Default false.
    ///
    /// Without it, a port in use is an error, even for engines with one listener per core.
    pub reuse_port: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { nodelay: true, keepalive: Some(Duration::from_secs(180)), backlog: 4096, reuse_port: false }
    }
}

impl SocketOptions {
    /// Connects over TCP to an address such as `"localhost:8080"`, and sets these options.
    ///
    /// Of several addresses, the next is tried when the one before has failed, or has not answered for 250 ms. IPv6 and
    /// IPv4 take turns. The first connection counts.
    ///
    /// # Errors
    ///
    /// If the address is invalid or the connection fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn connect(&self, address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let socket = connect_to_first(in_turns(lookup_host(address).await?)).await?;
        self.set(&socket)?;
        Ok(socket)
    }

    /// Sets these options on a connected socket.
    pub(super) fn set(&self, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(self.nodelay)?;
        #[cfg(not(target_family = "wasm"))]
        if let Some(time) = self.keepalive {
            // The system counts up to a maximum. Longer periods are cut to it.
            let time = time.min(KEEPALIVE_MAX);
            SockRef::from(socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(time))?;
        }
        Ok(())
    }

    /// Returns an error for the first option that no socket would accept.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        match self.keepalive {
            Some(period) if period < Duration::from_secs(1) => {
                let why = format!("of {period:?} is too short: the minimum is one second (None sends none)");
                Err(InvalidSetting::new("keepalive", why))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the addresses so that both families take turns, each in its order (RFC 8305). The family of the first begins.
fn in_turns(places: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut places = places.peekable();
    let is_first_v6 = places.peek().is_some_and(SocketAddr::is_ipv6);
    let (first, other): (Vec<_>, Vec<_>) = places.partition(|place| place.is_ipv6() == is_first_v6);
    let (mut first, mut other) = (first.into_iter(), other.into_iter());
    iter::from_fn(|| Some([first.next(), other.next()]))
        .take_while(|turn| *turn != [None, None])
        .flatten()
        .flatten()
        .collect()
}

/// Connects to all addresses, each some time after the one before. Returns the first connection.
async fn connect_to_first(places: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut places = places.into_iter();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut attempts = FuturesUnordered::new();
    loop {
        attempts.extend(places.next().map(TcpStream::connect));
        let ended = match places.len() {
            0 => attempts.next().await,
            _ => match timeout(ATTEMPT_DELAY, attempts.next()).await {
                Ok(ended) => ended,
                Err(_) => continue,
            },
        };
        match ended {
            Some(Ok(socket)) => return Ok(socket),
            Some(Err(error)) => failure = error,
            None => return Err(failure),
        }
    }
}

/// The time after which the next address is tried (RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// The longest keepalive period on Linux.
#[cfg(not(target_family = "wasm"))]
const KEEPALIVE_MAX: Duration = Duration::from_secs(32_767);

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[test]
    fn the_families_of_addresses_take_turns() {
        let places = |text: &str| -> Vec<SocketAddr> { text.split(' ').map(|place| place.parse().unwrap()).collect() };
        for (found, tried) in [
            ("[::1]:1 [::2]:1 [::3]:1 1.0.0.0:1 2.0.0.0:1", "[::1]:1 1.0.0.0:1 [::2]:1 2.0.0.0:1 [::3]:1"),
            ("1.0.0.0:1 [::1]:1 [::2]:1", "1.0.0.0:1 [::1]:1 [::2]:1"),
            ("1.0.0.0:1 2.0.0.0:1", "1.0.0.0:1 2.0.0.0:1"),
        ] {
            assert_eq!(in_turns(places(found).into_iter()), places(tried));
        }
        assert_eq!(in_turns(iter::empty()), []);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_silent_address_does_not_hold_back_the_next() {
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = silent.listen(1).unwrap();
        let place = silent.local_addr().unwrap();
        // Linux ignores further connections once the queue is full.
        let mut queued = Vec::new();
        while let Ok(socket) = timeout(ATTEMPT_DELAY, TcpStream::connect(place)).await {
            queued.push(socket.unwrap());
        }
        let heard = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let places = [place, heard.local_addr().unwrap()];
        let socket = timeout(ATTEMPT_DELAY * 40, SocketOptions::default().connect(&places[..])).await.unwrap().unwrap();
        assert_eq!(socket.peer_addr().unwrap(), places[1]);
    }

    #[tokio::test]
    async fn the_last_failure_is_the_error() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let error = SocketOptions::default().connect(&[closed, closed][..]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = SocketOptions::default().connect(&[][..]).await.unwrap_err();
        assert_eq!(error.to_string(), "the name has no address");
    }

    #[tokio::test]
    async fn connected_sockets_have_the_options() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for keepalive in [Some(Duration::from_secs(7)), Some(Duration::MAX), None] {
            let options = SocketOptions { keepalive, ..SocketOptions::default() };
            let socket = options.connect(address).await.unwrap();
            assert!(socket.nodelay().unwrap());
            assert_eq!(SockRef::from(&socket).keepalive().unwrap(), keepalive.is_some());
        }
    }
}
