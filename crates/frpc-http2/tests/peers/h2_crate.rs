//! The crate `h2` as a peer, over a stream in memory: another implementation of HPACK and flow control.

use bytes::{Buf, Bytes, BytesMut};
use frpc_http2::{Connection, Event, Field, Header, Settings, StreamId};
use http::{HeaderMap, Request, Response, Version};
use support::in_virtual_time;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    time::Instant,
};

const CALLS: usize = 60;

fn content(call: usize) -> Vec<u8> {
    vec![u8::try_from(call).unwrap(); [0, 10, 70_000][call % 3]]
}

/// Fields of a call: some repeat, some are new in each call, so that tables fill and evict.
fn value(call: usize) -> String {
    format!("{call}-{}", "v".repeat(call * 11 % 300))
}

/// Passes all of `input`, writes all output, and reads. Returns `false` at the end of the peer.
async fn turn(
    connection: &mut Connection,
    socket: &mut DuplexStream,
    input: &mut BytesMut,
    handle: impl FnMut(&mut Connection, Event<'_>),
) -> bool {
    pass(connection, socket, input, handle).await && socket.read_buf(input).await.is_ok_and(|len| len > 0)
}

/// Passes all of `input` and then writes all output. Returns `false` at the end of the peer.
async fn pass(
    connection: &mut Connection,
    socket: &mut DuplexStream,
    input: &mut BytesMut,
    mut handle: impl FnMut(&mut Connection, Event<'_>),
) -> bool {
    loop {
        let received = connection.receive(input, Instant::now().into_std()).expect("h2 is honest");
        let consumed = received.consumed;
        let Some(event) = received.event else { break input.advance(consumed) };
        handle(connection, event);
        input.advance(consumed);
    }
    let mut output = Vec::new();
    while connection.take_output(&mut output) {
        if socket.write_all(&output).await.is_err() {
            return false;
        }
        output.clear();
    }
    true
}

#[test]
fn a_client_of_h2_is_served() {
    in_virtual_time(async {
        let (near, mut far) = duplex(10_000);
        let server = async {
            let mut connection = Connection::server(Settings::default(), Instant::now().into_std());
            let (mut input, mut bodies) =
                (BytesMut::new(), std::collections::HashMap::<StreamId, (String, Vec<u8>)>::new());
            let respond = |connection: &mut Connection, stream, value: &str, body: Vec<u8>| {
                let head = [
                    Field::new(":status", "200"),
                    Field::repeated("x-repeated", "r"),
                    Field::repeated("x-value", value),
                ];
                connection.send_head(stream, Header::fields(&head), false).unwrap();
                connection.send_data(stream, body.into(), false).unwrap();
                let trailers = [Field::repeated("grpc-status", "0"), Field::sensitive("x-secret", value)];
                connection.send_trailers(stream, Header::fields(&trailers)).unwrap();
            };
            while turn(&mut connection, &mut far, &mut input, |connection, event| match event {
                Event::Head { stream, head, end } => {
                    let value = String::from_utf8(head.get("x-value").unwrap().to_vec()).unwrap();
                    assert_eq!((head.method(), head.path()), (Some("POST"), Some("/path")));
                    if end {
                        respond(connection, stream, &value, Vec::new());
                    } else {
                        bodies.insert(stream, (value, Vec::new()));
                    }
                }
                Event::Data { stream, data, end } => {
                    connection.release(stream, data.len());
                    bodies.get_mut(&stream).unwrap().1.extend(data);
                    if end {
                        let (value, body) = bodies.remove(&stream).unwrap();
                        respond(connection, stream, &value, body);
                    }
                }
                Event::Reset { error, .. } => panic!("{error}"),
                _ => {}
            })
            .await
            {}
        };
        let client = async {
            let (client, connection) = h2::client::handshake(near).await.unwrap();
            let connection = tokio::spawn(connection);
            let calls = (0..CALLS).map(|call| {
                let client = client.clone();
                tokio::spawn(async move {
                    let request = Request::post("http://localhost/path").version(Version::HTTP_2);
                    let request = request.header("x-value", value(call)).header("x-fixed", "f").body(()).unwrap();
                    let mut client = client.ready().await.unwrap();
                    let (response, mut body) = client.send_request(request, false).unwrap();
                    body.send_data(content(call).into(), true).unwrap();
                    let response = response.await.unwrap();
                    assert_eq!(response.headers()["x-value"], value(call));
                    assert_eq!(response.headers()["x-repeated"], "r");
                    let mut body = response.into_body();
                    let mut received = Vec::new();
                    while let Some(data) = body.data().await {
                        let data = data.unwrap();
                        body.flow_control().release_capacity(data.len()).unwrap();
                        received.extend(data);
                    }
                    assert!(received == content(call));
                    let trailers = body.trailers().await.unwrap().unwrap();
                    assert_eq!(trailers["x-secret"], value(call));
                })
            });
            for call in calls.collect::<Vec<_>>() {
                call.await.unwrap();
            }
            drop(client);
            connection.await.unwrap().unwrap();
        };
        tokio::join!(server, client);
    });
}

#[test]
fn a_server_of_h2_is_called() {
    in_virtual_time(async {
        // This driver does not read while it writes, so that the stream has to hold a batch.
        let (mut near, far) = duplex(1 << 20);
        let server = tokio::spawn(async move {
            let mut connection = h2::server::handshake(far).await.unwrap();
            while let Some(request) = connection.accept().await {
                let (request, mut respond) = request.unwrap();
                tokio::spawn(async move {
                    let value = request.headers()["x-value"].clone();
                    let mut body = request.into_body();
                    let mut received = Vec::new();
                    while let Some(data) = body.data().await {
                        let data = data.unwrap();
                        body.flow_control().release_capacity(data.len()).unwrap();
                        received.extend(data);
                    }
                    let response = Response::builder().header("x-value", value.clone()).body(()).unwrap();
                    let mut stream = respond.send_response(response, false).unwrap();
                    stream.send_data(Bytes::from(received), false).unwrap();
                    stream.send_trailers(HeaderMap::from_iter([("x-end".parse().unwrap(), value)])).unwrap();
                });
            }
        });
        let mut connection = Connection::client(Settings::default(), Instant::now().into_std());
        let (mut input, mut calls) = (BytesMut::new(), std::collections::HashMap::new());
        let (mut opened, mut done) = (0, 0);
        while done < CALLS {
            while opened < CALLS && calls.len() < 20 {
                let value = value(opened);
                let fields = [
                    Field::new(":method", "POST"),
                    Field::new(":scheme", "http"),
                    Field::repeated(":path", "/path"),
                    Field::repeated(":authority", "localhost"),
                    Field::repeated("x-value", &value),
                ];
                let Ok(stream) = connection.open(Header::fields(&fields), false) else { break };
                connection.send_slice(stream, &content(opened), true).unwrap();
                calls.insert(stream, (opened, Vec::new()));
                opened += 1;
            }
            let is_open = pass(&mut connection, &mut near, &mut input, |connection, event| match event {
                Event::Head { stream, head, .. } => {
                    assert_eq!(head.get("x-value"), Some(value(calls[&stream].0).as_bytes()));
                }
                Event::Data { stream, data, .. } => {
                    connection.release(stream, data.len());
                    calls.get_mut(&stream).unwrap().1.extend_from_slice(data);
                }
                Event::Trailers { stream, trailers } => {
                    let (call, received) = calls.remove(&stream).unwrap();
                    assert!(received == content(call));
                    assert_eq!(trailers.get("x-end"), Some(value(call).as_bytes()));
                    done += 1;
                }
                Event::Reset { error, .. } => panic!("{error}"),
                _ => {}
            })
            .await;
            assert!(is_open);
            // Without a call under way, the server sends nothing more, and reading would never end.
            if !calls.is_empty() {
                assert!(near.read_buf(&mut input).await.unwrap() > 0);
            }
        }
        drop(near);
        server.abort();
    });
}
