//! Compares datagrams with a byte stream, for docs/notes/datagrams.md: `datagrams [SECONDS]`.
//!
//! A thread echoes messages of 32 bytes over loopback, by UDP and by TCP. Its client has one message in flight, or 320.
//! A TCP read or write contains all available messages; a UDP one contains a single message. The last round sends
//! datagrams faster than the echo thread reads them.

use std::{
    error::Error,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

const LEN: usize = 32;
const MANY: usize = 320;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(1.0), |text| text.parse())?;
    let time = Duration::try_from_secs_f64(seconds)?;
    for under_way in [1, MANY] {
        let (tcp, udp) = (over_tcp(under_way, time)?, over_udp(under_way, time)?);
        println!("{under_way:4} under way: TCP {tcp:9.0}/s, UDP {udp:9.0}/s, ratio {:.2}", udp / tcp);
    }
    let (sent, answered) = flood(time)?;
    println!("without a limit: {sent:.0}/s sent, {:.0} % lost", 100.0 * (1.0 - answered / sent));
    Ok(())
}

/// Returns the messages per second echoed over TCP.
fn over_tcp(under_way: usize, time: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    client.set_nodelay(true)?;
    let (mut server, _) = listener.accept()?;
    server.set_nodelay(true)?;
    let echo = thread::spawn(move || -> io::Result<()> {
        let mut buffer = [0; LEN * MANY];
        loop {
            match server.read(&mut buffer)? {
                0 => return Ok(()),
                len => server.write_all(&buffer[..len])?,
            }
        }
    });
    let mut buffer = [0; LEN * MANY];
    client.write_all(&buffer[..LEN * under_way])?;
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed() < time {
        let len = client.read(&mut buffer)?;
        client.write_all(&buffer[..len])?;
        bytes += len;
    }
    let rate = (bytes / LEN) as f64 / start.elapsed().as_secs_f64();
    drop(client);
    // Messages in flight at the end of the client do not matter.
    let _ = echo.join().expect("an echo does not panic");
    Ok(rate)
}

/// Returns the messages per second echoed over UDP.
fn over_udp(under_way: usize, time: Duration) -> io::Result<f64> {
    let (client, echo) = udp_echo()?;
    let mut buffer = [0; LEN];
    for _ in 0..under_way {
        client.send(&buffer)?;
    }
    let (start, mut answered) = (Instant::now(), 0_u64);
    while start.elapsed() < time {
        match client.recv(&mut buffer) {
            Ok(_) => answered += 1,
            // A lost message is replaced by another.
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        client.send(&buffer)?;
    }
    let rate = answered as f64 / start.elapsed().as_secs_f64();
    end(&client, echo)?;
    Ok(rate)
}

/// Returns the messages per second of a client that never waits: sent, and echoed.
fn flood(time: Duration) -> io::Result<(f64, f64)> {
    let (client, echo) = udp_echo()?;
    let answers = client.try_clone()?;
    let counting = thread::spawn(move || {
        let (mut buffer, mut answered) = ([0; LEN], 0_u64);
        while answers.recv(&mut buffer).is_ok() {
            answered += 1;
        }
        answered
    });
    let (start, mut sent) = (Instant::now(), 0_u64);
    while start.elapsed() < time {
        client.send(&[0; LEN])?;
        sent += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    let answered = counting.join().expect("a counter does not panic");
    end(&client, echo)?;
    Ok((sent as f64 / seconds, answered as f64 / seconds))
}

/// Returns a socket, and the thread that echoes its datagrams until an empty one arrives.
fn udp_echo() -> io::Result<(UdpSocket, thread::JoinHandle<io::Result<()>>)> {
    let [client, server] = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    client.connect(server.local_addr()?)?;
    server.connect(client.local_addr()?)?;
    client.set_read_timeout(Some(Duration::from_millis(200)))?;
    let echo = thread::spawn(move || {
        let mut buffer = [0; LEN];
        loop {
            match server.recv(&mut buffer)? {
                0 => return Ok(()),
                len => server.send(&buffer[..len])?,
            };
        }
    });
    Ok((client, echo))
}

/// Ends an echo thread.
fn end(client: &UdpSocket, echo: thread::JoinHandle<io::Result<()>>) -> io::Result<()> {
    // The datagram may be dropped until the thread has read all earlier ones, so it is repeated.
    while !echo.is_finished() {
        client.send(&[]).or_else(|error| if echo.is_finished() { Ok(0) } else { Err(error) })?;
        thread::yield_now();
    }
    echo.join().expect("an echo does not panic")
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
