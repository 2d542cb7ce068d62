//! The calls of a channel, in the protocol of its address.

use std::sync::Arc;

use frpc::{Answer, Call, Caller, ConnectError, ConnectSettings, Connected, Status, Transport, codec::Format};
use futures_util::future::BoxFuture;
use http::{HeaderMap, header};

use super::{
    caller::HttpCaller,
    connect,
    dial::Dialer,
    grpc,
    outgoing::Framing,
    pool::Pool,
    settings::Client,
    target::{Protocol, SCHEME_NAMES, Target},
    twirp,
};

struct Calls(Arc<HttpCaller>);

impl Caller for Calls {
    fn format(&self) -> Format {
        self.0.format()
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Answer, Status>> {
        match self.0.protocol() {
            Protocol::Grpc | Protocol::GrpcWeb => Box::pin(grpc::call(&self.0, call)),
            Protocol::Connect => Box::pin(connect::call(&self.0, call)),
            Protocol::Twirp => Box::pin(twirp::call(&self.0, call)),
        }
    }
}

impl Transport for Client {
    fn schemes(&self) -> &[&str] {
        &SCHEME_NAMES
    }

    fn connect(&self, url: String, connect: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        let settings = self.settings.clone();
        Box::pin(async move {
            let target = Target::parse(&url).map_err(ConnectError::Address)?;
            let dialer = Dialer::new(url, target, settings, connect).map_err(ConnectError::Address)?;
            let pool = Pool::connect(dialer).await?;
            let settings = &pool.dialer().settings;
            let framing = Framing { gzip_len_min: settings.gzip_len_min };
            let mut base = HeaderMap::new();
            if let Some(user_agent) = &settings.user_agent {
                base.insert(header::USER_AGENT, user_agent.clone());
            }
            let mut caller = HttpCaller { pool, framing, base };
            if matches!(caller.protocol(), Protocol::Grpc | Protocol::GrpcWeb) {
                let headers = grpc::base_headers(&caller);
                caller.base.extend(headers);
            }
            Ok(Connected::Calls(Arc::new(Calls(Arc::new(caller)))))
        })
    }
}

/// Has all channels of the process connect to the addresses of [`Client`] with default settings from now on.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// frpc_http::register();
/// let channel = frpc::Channel::connect("grpc://localhost:50051").await?;
/// // let greeter = GreeterClient::new(channel);
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
pub fn register() {
    frpc::register_transport(Client::new());
}
