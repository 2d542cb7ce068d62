//! Keeps K calls in flight per client, verifies every answer, and prints one line of JSON.
//!
//! All servers of a protocol are measured with this client, which uses only hyper, so that the servers are comparable.
//!
//! `http_client ADDR --wire grpc|connect|connect-json|twirp --size N --clients C --concurrent K --seconds S --warmup W`
//!
//! gRPC uses one HTTP/2 connection per client. The other protocols use K HTTP/1.1 connections per client.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{self, http1};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use load::{Args, Arguments, Caller, process};
use peers::grpc;
use peers::http::JsonMessage;
use peers::http2;
use prost::Message;
use tokio::net::TcpStream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = Arguments::from_env();
    let wire = arguments.value_from_fn("--wire", Wire::parse)?;
    let args = Args::parse(arguments)?;
    process::raise_open_files_limit()?;
    let report = match wire {
        Wire::Grpc => load::run(&args, Http2Caller::connect).await?,
        wire => load::run(&args, async |addr| Http1Caller::connect(addr, wire).await).await?,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Wire {
    Grpc,
    Connect,
    ConnectJson,
    Twirp,
}

impl Wire {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "grpc" => Ok(Self::Grpc),
            "connect" => Ok(Self::Connect),
            "connect-json" => Ok(Self::ConnectJson),
            "twirp" => Ok(Self::Twirp),
            _ => Err(format!("no wire {text:?}: grpc, connect, connect-json or twirp")),
        }
    }

    fn request(self, authority: &str, message: &str) -> Request<Full<Bytes>> {
        let message = || grpc::Request { message: message.to_owned() };
        let request = Request::post(match self {
            Self::Grpc => format!("http://{authority}/BenchmarkService/Benchmark"),
            Self::Connect | Self::ConnectJson => "/BenchmarkService/Benchmark".to_owned(),
            Self::Twirp => "/twirp/BenchmarkService/Benchmark".to_owned(),
        });
        let (request, body) = match self {
            Self::Grpc => {
                let message = message();
                let len = message.encoded_len();
                let mut body = BytesMut::with_capacity(5 + len);
                body.put_u8(0);
                body.put_u32(u32::try_from(len).expect("messages are small"));
                message.encode(&mut body).expect("there is room");
                (request.header("content-type", "application/grpc").header("te", "trailers"), body.freeze())
            }
            Self::Connect => {
                let request = request.header("content-type", "application/proto").header("host", authority);
                (request.header("connect-protocol-version", "1"), message().encode_to_vec().into())
            }
            Self::Twirp => {
                let request = request.header("content-type", "application/protobuf").header("host", authority);
                (request, message().encode_to_vec().into())
            }
            Self::ConnectJson => {
                let message = JsonMessage { message: message().message };
                let body = serde_json::to_vec(&message).expect("it is text");
                (request.header("content-type", "application/json").header("host", authority), body.into())
            }
        };
        request.body(Full::new(body)).expect("the parts are valid")
    }

    /// Returns the message of an answer.
    async fn read(self, response: Response<Incoming>) -> io::Result<String> {
        let status = response.status();
        let body = response.into_body().collect().await.map_err(io::Error::other)?;
        if status != StatusCode::OK {
            return Err(io::Error::other(format!("{status}: {:?}", body.to_bytes())));
        }
        if self == Self::Grpc && body.trailers().is_none_or(|trailers| trailers["grpc-status"] != "0") {
            return Err(io::Error::other(format!("bad trailers: {:?}", body.trailers())));
        }
        let mut body = body.to_bytes();
        if self == Self::Grpc {
            if body.len() < 5 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            body.advance(5);
        }
        match self {
            Self::ConnectJson => Ok(serde_json::from_slice::<JsonMessage>(&body)?.message),
            _ => Ok(grpc::Response::decode(body)?.message),
        }
    }
}

async fn socket(addr: SocketAddr) -> io::Result<TokioIo<TcpStream>> {
    let socket = TcpStream::connect(addr).await?;
    socket.set_nodelay(true)?;
    Ok(TokioIo::new(socket))
}

#[derive(Clone)]
struct Http2Caller {
    sender: conn::http2::SendRequest<Full<Bytes>>,
    authority: String,
}

impl Http2Caller {
    async fn connect(addr: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let (sender, connection) = conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(http2::STREAM_WINDOW_LEN)
            .initial_connection_window_size(http2::CONNECTION_WINDOW_LEN)
            .max_frame_size(http2::FRAME_LEN_MAX)
            .handshake(socket(addr).await?)
            .await?;
        tokio::spawn(connection);
        Ok(Self { sender, authority: addr.to_string() })
    }
}

impl Caller for Http2Caller {
    type Message = String;
    type Error = io::Error;

    async fn call(&mut self, message: &String) -> io::Result<String> {
        let request = Wire::Grpc.request(&self.authority, message);
        let response = self.sender.send_request(request).await.map_err(io::Error::other)?;
        Wire::Grpc.read(response).await
    }
}

struct Http1Caller {
    addr: SocketAddr,
    wire: Wire,
    /// The connection of this clone. It makes one call after another.
    sender: Option<http1::SendRequest<Full<Bytes>>>,
}

impl Clone for Http1Caller {
    fn clone(&self) -> Self {
        Self { addr: self.addr, wire: self.wire, sender: None }
    }
}

impl Http1Caller {
    async fn connect(addr: SocketAddr, wire: Wire) -> Result<Self, Box<dyn Error>> {
        Ok(Self { addr, wire, sender: None })
    }

    async fn sender(&mut self) -> io::Result<&mut http1::SendRequest<Full<Bytes>>> {
        if self.sender.is_none() {
            let (sender, connection) = http1::handshake(socket(self.addr).await?).await.map_err(io::Error::other)?;
            tokio::spawn(connection);
            self.sender = Some(sender);
        }
        Ok(self.sender.as_mut().expect("it was just made"))
    }
}

impl Caller for Http1Caller {
    type Message = String;
    type Error = io::Error;

    async fn call(&mut self, message: &String) -> io::Result<String> {
        let wire = self.wire;
        let request = wire.request(&self.addr.to_string(), message);
        let sender = self.sender().await?;
        sender.ready().await.map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        wire.read(response).await
    }
}
