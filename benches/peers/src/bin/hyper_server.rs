//! Answers every request with its body: the cost of HTTP in every stack based on hyper.
//!
//! Over HTTP/2, a response has the trailers of gRPC. Over HTTP/1.1, it has the content type of the request. `/rpc`
//! answers JSON-RPC's `sum`.

use std::convert::Infallible;
use std::error::Error;

use bytes::Bytes;
use http_body_util::combinators::WithTrailers;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use load::{Arguments, ServerArgs, process};
use peers::{http2, json_rpc};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ServerArgs { addr, sleep: _ } = ServerArgs::parse(Arguments::from_env())?;
    process::raise_open_files_limit()?;
    let listener = peers::listen(addr)?;
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut http = auto::Builder::new(TokioExecutor::new());
            http.http2()
                .initial_stream_window_size(http2::STREAM_WINDOW_LEN)
                .initial_connection_window_size(http2::CONNECTION_WINDOW_LEN)
                .max_frame_size(http2::FRAME_LEN_MAX);
            // A killed client is not an error of the server.
            let _ = http.serve_connection(TokioIo::new(socket), service_fn(echo)).await;
        });
    }
}

type Trailers = std::future::Ready<Option<Result<HeaderMap, Infallible>>>;
type Answer = Either<Full<Bytes>, WithTrailers<Full<Bytes>, Trailers>>;

async fn echo(request: Request<Incoming>) -> Result<Response<Answer>, hyper::Error> {
    let (head, body) = request.into_parts();
    let mut body = body.collect().await?.to_bytes();
    if head.uri.path() == "/rpc" {
        let mut out = Vec::new();
        if let Err(error) = json_rpc::answer(&body, &mut out) {
            out = error.to_string().into();
        }
        body = out.into();
    }
    let body = Full::new(body);
    let body = if head.version == Version::HTTP_2 {
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
        Either::Right(body.with_trailers(std::future::ready(Some(Ok(trailers)))))
    } else {
        Either::Left(body)
    };
    let mut response = Response::new(body);
    if let Some(of) = head.headers.get(CONTENT_TYPE) {
        response.headers_mut().insert(CONTENT_TYPE, of.clone());
    }
    Ok(response)
}
