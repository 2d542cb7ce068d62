//! The calls of a channel, in the protocol of its address.

use std::sync::Arc;

use frpc::frisbee::ConnectionMetrics;
#[cfg(feature = "http2")]
use frpc::frisbee::{FlowState, FrameCounts};
use frpc::{
    Answer, Call, Caller, ConnectError, ConnectSettings, Connected, Status, Transport, client::CallTime, codec::Format,
};
use futures_util::future::BoxFuture;

#[cfg(feature = "http2")]
use super::grpc_unary;
use super::{
    caller::HttpCaller,
    connect,
    connection::HttpConnection,
    grpc,
    outgoing::EnvelopeEncoder,
    pool::ConnectionPool,
    settings::Client,
    target::{RpcProtocol, SCHEME_NAMES},
    twirp,
};

struct SharedHttpCaller(Arc<HttpCaller>);

impl Caller for SharedHttpCaller {
    fn format(&self) -> Format {
        self.0.format()
    }

    fn call_within(&self, call: Call, time: CallTime) -> BoxFuture<'_, Result<Answer, Status>> {
        #[cfg(feature = "http2")]
        if grpc_unary::takes(&self.0, &call) {
            return grpc_unary::call(&self.0, call, time);
        }
        self.call(call.with_time(time))
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        #[cfg(feature = "http2")]
        if grpc_unary::takes(&self.0, &call) {
            let time = call.time();
            return grpc_unary::call(&self.0, call, time);
        }
        match self.0.protocol() {
            RpcProtocol::Grpc | RpcProtocol::GrpcWeb => Box::pin(grpc::call(&self.0, call)),
            RpcProtocol::Connect => Box::pin(connect::call(&self.0, call)),
            RpcProtocol::Twirp => Box::pin(twirp::call(&self.0, call)),
        }
    }

    #[cfg(feature = "http2")]
    fn lost(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.pool.lost())
    }

    fn traffic(&self) -> Option<ConnectionMetrics> {
        Some(self.0.pool.sum(HttpConnection::add_traffic))
    }

    #[cfg(feature = "http2")]
    fn frames(&self) -> FrameCounts {
        self.0.pool.sum(HttpConnection::add_frames)
    }

    #[cfg(feature = "http2")]
    fn flow(&self) -> Option<FlowState> {
        // Connections of HTTP/1.1 have neither.
        Some(self.0.pool.sum(HttpConnection::add_flow)).filter(|flow| *flow != FlowState::default())
    }

    fn is_secure(&self) -> bool {
        self.0.pool.dialer().target.is_secure
    }
}

impl Transport for Client {
    fn schemes(&self) -> &[&str] {
        &*SCHEME_NAMES
    }

    fn connect(&self, url: String, connect: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        let client = self.clone();
        Box::pin(async move {
            let pool = ConnectionPool::connect(url, client, connect).await?;
            let framing = EnvelopeEncoder { gzip_len_min: pool.dialer().settings.gzip_len_min };
            let mut base = pool.base_headers();
            if matches!(pool.dialer().target.protocol, RpcProtocol::Grpc | RpcProtocol::GrpcWeb) {
                base.extend(grpc::base_headers(&pool));
            }
            let caller = HttpCaller::new(pool, framing, base);
            Ok(Connected::Calls(Arc::new(SharedHttpCaller(Arc::new(caller)))))
        })
    }
}

/// Returns the transport for channels over HTTP: gRPC, gRPC-Web, Connect and Twirp, with default settings.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use frpc::Channel;
///
/// let channel = Channel::builder().transport(frpc_http::transport()).connect("grpc://localhost:50051").await?;
/// // let greeter = GreeterClient::new(channel);
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
pub fn transport() -> Client {
    Client::new()
}

/// Adds [`transport`] to the default transports of the process; see [`frpc::register_transport`].
pub fn register() {
    frpc::register_transport(transport());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_call<'a, F>(_: fn(&'a Arc<HttpCaller>, Call) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_call_allocates_little_memory() {
        // The future is moved into a box. Large futures of many calls leave the CPU cache, which slows them down.
        let sizes = [size_of_call(grpc::call), size_of_call(connect::call), size_of_call(twirp::call)];
        assert!(sizes.iter().all(|size| *size <= 4224), "{sizes:?}");
    }
}
