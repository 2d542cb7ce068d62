//! Requests to the API server.

use std::{fmt::Write as _, io, time::Duration};

use bytes::{Bytes, BytesMut};
use frpc::{ByteStream, frisbee::clock::TIME_MAX, shown};
use http_body_util::{BodyExt, Empty};
use hyper::{Request, StatusCode, Version, body::Incoming, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::TlsConnector;

use crate::{
    config::ClusterConfig,
    events::{EventLines, WatchEvent, invalid, parse},
    settings::ResolverSettings,
    slices::{ApiObject, SliceList},
};

/// The failure of a request.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// The version or page is no longer known to the server (410). A new list is needed.
    Gone,
    /// Another answer of the server than the one asked for.
    Refused(io::Error),
    /// The connection, or the bytes of the answer.
    Failed(io::Error),
}

impl From<io::Error> for ApiError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Asks the API server for the slices of one Service, with a connection for each request.
#[derive(Clone, Debug)]
pub(crate) struct SliceApi {
    config: ClusterConfig,
    /// The path and query of all requests.
    path: String,
    answer_len_max: usize,
    /// The maximum number of JSON objects in a page of the list or in an event.
    objects_max: usize,
    answer_max: Duration,
    watch_max: Duration,
}

impl SliceApi {
    pub(crate) fn new(config: ClusterConfig, namespace: &str, service: &str, settings: &ResolverSettings) -> Self {
        // The names are labels of DNS.
        let path = format!(
            "{}/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io%2F\
             service-name%3D{service}",
            config.path
        );
        let ResolverSettings { answer_len_max, answer_max, watch_max, endpoints_max, .. } = *settings;
        let [answer_max, watch_max] = [answer_max, watch_max].map(|time| time.min(TIME_MAX));
        let objects_max = endpoints_max.saturating_mul(OBJECTS_OF_ENDPOINT).max(OBJECTS_MIN);
        Self { config, path, answer_len_max, objects_max, answer_max, watch_max }
    }

    /// Returns a page of the list. The first has no continuation.
    pub(crate) async fn list(&self, continuation: &str) -> Result<SliceList, ApiError> {
        let mut path = format!("{}&limit={PAGE_LEN}", self.path);
        if !continuation.is_empty() {
            path += "&continue=";
            for byte in continuation.bytes() {
                let _ = match byte.is_ascii_alphanumeric() {
                    true => path.write_char(byte.into()),
                    false => write!(path, "%{byte:02X}"),
                };
            }
        }
        let mut answer = self.get(&path).await?;
        let text = answer.read_all(self.answer_len_max, self.answer_max).await?;
        Ok(parse("the list", &text, self.objects_max)?)
    }

    /// Starts to watch for changes after a version.
    pub(crate) async fn watch(&self, version: &str) -> Result<SliceWatch, ApiError> {
        // The server may be that of many clients, whose watches should not end together.
        let seconds = (self.watch_max / 2 + self.watch_max.mul_f64(fastrand::f64() / 2.0)).as_secs().max(1);
        let path = format!(
            "{}&watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}",
            self.path
        );
        let since = Instant::now();
        let answer = self.get(&path).await?;
        let until = since + Duration::from_secs(seconds) + self.answer_max;
        Ok(SliceWatch { answer, lines: EventLines::new(self.answer_len_max, self.objects_max), since, until })
    }

    async fn get(&self, path: &str) -> Result<Answer, ApiError> {
        let asking = timeout(self.answer_max, self.ask(path)).await;
        let (status, mut answer) =
            asking.unwrap_or_else(|_| Err(timed_out(format!("no answer within {:?}", self.answer_max))))?;
        match status {
            StatusCode::OK => return Ok(answer),
            StatusCode::GONE => return Err(ApiError::Gone),
            _ => {}
        }
        // The Status of the server says more. It may be missing, for example from a proxy.
        let text = answer.read_all(STATUS_LEN_MAX, self.answer_max).await.unwrap_or_default();
        let message = serde_json::from_slice::<ApiObject>(&text).map(|status| status.message).unwrap_or_default();
        Err(ApiError::Refused(refusal(status.as_u16(), &message)))
    }

    async fn ask(&self, path: &str) -> io::Result<(StatusCode, Answer)> {
        let authorization = self.config.authorization().await?;
        let socket = TcpStream::connect((&*self.config.host, self.config.port)).await?;
        socket.set_nodelay(true)?;
        let stream: Box<dyn ByteStream> = match &self.config.tls {
            Some((tls, name)) => Box::new(TlsConnector::from(tls.clone()).connect(name.clone(), socket).await?),
            None => Box::new(socket),
        };
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_LEN_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let connection = OwnTask(tokio::spawn(async move {
            // The body reports errors.
            let _ = connection.await;
        }));
        let host = match self.config.host.contains(':') {
            true => format!("[{}]:{}", self.config.host, self.config.port),
            false => format!("{}:{}", self.config.host, self.config.port),
        };
        let mut request = Request::get(path)
            .version(Version::HTTP_11)
            .header(header::HOST, host)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("frpc-kubernetes/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| invalid(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        Ok((response.status(), Answer { body: response.into_body(), _connection: connection }))
    }
}

/// The content of an answer.
#[derive(Debug)]
struct Answer {
    body: Incoming,
    _connection: OwnTask,
}

impl Answer {
    async fn next_part(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(part) = frame.map_err(io::Error::other)?.into_data() {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }

    /// Reads the whole content. Each part must arrive within `silence_max`, and all of them within `CONTENT_TIMES_MAX` times
    /// that.
    async fn read_all(&mut self, len_max: usize, silence_max: Duration) -> io::Result<BytesMut> {
        let mut all = BytesMut::new();
        let late = |_| timed_out("the answer did not end in time".to_owned());
        let reading = async {
            while let Some(part) = timeout(silence_max, self.next_part()).await.map_err(late)?? {
                if all.len() + part.len() > len_max {
                    return Err(invalid(format!("the answer is longer than {len_max} bytes")));
                }
                all.extend_from_slice(&part);
            }
            Ok(all)
        };
        timeout(silence_max.saturating_mul(CONTENT_TIMES_MAX), reading).await.map_err(late)?
    }
}

/// A watch that continues.
#[derive(Debug)]
pub(crate) struct SliceWatch {
    answer: Answer,
    lines: EventLines,
    pub(crate) since: Instant,
    until: Instant,
}

impl SliceWatch {
    /// Waits for events and returns all that have arrived, or `None` at the end of the watch.
    ///
    /// Cancel safe.
    pub(crate) async fn next_events(&mut self) -> Result<Option<Vec<ApiChange>>, ApiError> {
        let mut changes = Vec::new();
        loop {
            while let Some(event) = self.lines.next_event()? {
                changes.push(ApiChange::of(event)?);
            }
            if !changes.is_empty() {
                return Ok(Some(changes));
            }
            let part = timeout_at(self.until, self.answer.next_part()).await;
            match part.map_err(|_| timed_out("the watch did not end in time".to_owned()))?? {
                Some(part) => self.lines.push(&part),
                None => return Ok(None),
            }
        }
    }
}

/// A change of the slices.
#[derive(Debug)]
pub(crate) enum ApiChange {
    Set(ApiObject),
    Removed(ApiObject),
    /// Only the version of the object counts.
    Bookmark(ApiObject),
}

impl ApiChange {
    fn of(event: WatchEvent) -> Result<Self, ApiError> {
        let WatchEvent { kind, object } = event;
        match &*kind {
            "ADDED" | "MODIFIED" | "DELETED" if object.metadata.name.is_empty() => {
                Err(invalid("an event of the watch has no name".to_owned()).into())
            }
            "ADDED" | "MODIFIED" => Ok(Self::Set(object)),
            "DELETED" => Ok(Self::Removed(object)),
            "BOOKMARK" => Ok(Self::Bookmark(object)),
            "ERROR" if object.code == StatusCode::GONE.as_u16() => Err(ApiError::Gone),
            "ERROR" => Err(ApiError::Refused(refusal(object.code, &object.message))),
            _ => Err(invalid(format!("the watch has an event of the unknown type \"{}\"", shown(kind))).into()),
        }
    }
}

fn refusal(code: u16, message: &str) -> io::Error {
    let kind = match code {
        401 | 403 => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    let advice = match code {
        401 => "; the token or the client certificate is not valid",
        403 => "; the account needs the verbs list and watch for endpointslices in discovery.k8s.io",
        _ => "",
    };
    io::Error::new(kind, format!("the API server answered {code}: {}{advice}", shown(message)))
}

fn timed_out(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// A task that ends with its owner.
#[derive(Debug)]
struct OwnTask(JoinHandle<()>);

impl Drop for OwnTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The number of slices in a page of a list.
pub(crate) const PAGE_LEN: usize = 50;
/// The JSON objects for each of the allowed endpoints. An endpoint has about five, and its slice a few.
const OBJECTS_OF_ENDPOINT: usize = 25;
/// The allowed JSON objects for a Service with few endpoints.
const OBJECTS_MIN: usize = 250_000;
/// The maximum length of the head of an answer.
const HEAD_LEN_MAX: usize = 64 * 1024;
/// The maximum length of a Status that is read.
const STATUS_LEN_MAX: usize = 64 * 1024;
/// The maximum time for the content of an answer, in units of the maximum time for its head.
const CONTENT_TIMES_MAX: u32 = 6;
