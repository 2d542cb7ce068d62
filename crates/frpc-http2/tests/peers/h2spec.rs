//! h2spec, which judges servers of HTTP/2.

use std::process::Stdio;

use bytes::{Buf, BytesMut};
use frpc_http2::{Connection, Event, Field, Header, Settings};
use support::{SECOND, foreign_program, in_real_time_within};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    process::Command,
    time::Instant,
};

/// Answers each request after its end.
async fn serve(mut socket: TcpStream) -> std::io::Result<()> {
    let mut connection = Connection::server(Settings::default(), Instant::now().into_std());
    let (mut input, mut output) = (BytesMut::new(), Vec::new());
    loop {
        let mut result = Ok(());
        loop {
            let received = match connection.receive(&input, Instant::now().into_std()) {
                Ok(received) => received,
                Err(error) => break result = Err(error),
            };
            let consumed = received.consumed;
            let Some(event) = received.event else { break input.advance(consumed) };
            let answered = match event {
                Event::Head { stream, end, .. } => end.then_some(stream),
                Event::Data { stream, data, end } => {
                    connection.release(stream, data.len());
                    end.then_some(stream)
                }
                Event::Trailers { stream, .. } => Some(stream),
                _ => None,
            };
            if let Some(stream) = answered {
                let head = [Field::new(":status", "200"), Field::new("content-length", "5")];
                connection.send_head(stream, Header::fields(&head), false).expect("the stream is new");
                connection.send_slice(stream, b"hello", true).expect("the queue is empty");
            }
            input.advance(consumed);
        }
        while connection.take_output(&mut output) {
            socket.write_all(&output).await?;
            output.clear();
        }
        if result.is_err() || connection.is_done() {
            socket.shutdown().await?;
            // A socket closed with unread input would reset the connection, and the GOAWAY could be lost.
            while socket.read_buf(&mut input).await? > 0 {
                input.clear();
            }
            return Ok(());
        }
        if socket.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

#[test]
fn h2spec_finds_no_fault() {
    let Some(h2spec) = foreign_program("h2spec") else { return };
    in_real_time_within(300 * SECOND, async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket));
            }
        });
        let run =
            Command::new(h2spec).args(["-h", "127.0.0.1", "-p", &port, "-o", "60"]).stderr(Stdio::null()).output();
        let report = String::from_utf8(run.await.unwrap().stdout).unwrap();
        assert!(report.contains("\n145 tests, 145 passed, 0 skipped, 0 failed"), "{report}");
    });
}
