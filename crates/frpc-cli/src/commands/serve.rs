//! `frpc serve --echo`: a test server for clients.

use std::{future, time::Duration};

use frpc::{Config, Pem, Request, Response, ServeError, Server, ServerTls, Status, Streaming};
use frpc_admin::{Admin, AdminAccess};
use frpc_http::{Http, MetricsPage};
use frpc_services::{Health, Reflection};
use futures_util::{StreamExt, stream};
use serde_json::json;

use self::echo::{
    FailRequest, Inspection, Message, RepeatRequest,
    echo_server::{Echo, EchoServer},
};
use crate::{
    arguments::metadata_text,
    failure::{CommandError, Result},
    terminal::{OutputStyle, print_json, print_line},
};

/// Generated from `proto/echo.proto`.
#[allow(missing_docs, unreachable_pub, reason = "generated code is public for any use")]
mod echo {
    include!("../../generated/frpc.echo.v1.rs");
}

/// Serves an echo service for testing clients, on every wire, until Ctrl-C.
///
/// A single port serves frpc.echo.v1.Echo, the functions sum and greet, a broker for pub and sub, reflection, health
/// checks, /metrics for Prometheus, and for this machine the page /admin.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeCommand {
    /// Serves the echo service. This option is required.
    #[arg(long, required = true)]
    echo: bool,
    /// The address to listen on: tcp://HOST:PORT, :PORT on this machine, or unix:PATH.
    #[arg(default_value = "tcp://127.0.0.1:7300")]
    address: String,
    /// A PEM file with the TLS certificate.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<String>,
    /// A PEM file with the private key of the certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<String>,
    /// Disables reflection, for testing clients without it.
    #[arg(long)]
    no_reflection: bool,
    /// Speaks plain fRPC on tcp://, like servers in Go, for testing clients with it.
    #[arg(long)]
    plain: bool,
}

const EXAMPLES: &str = "Examples:
  frpc serve --echo
  frpc serve --echo :7300
  frpc serve --echo tcp://0.0.0.0:7300 --cert cert.pem --key key.pem
  frpc serve --echo unix:/tmp/echo.sock";

impl ServeCommand {
    pub(crate) async fn run(&self, is_json: bool) -> Result<()> {
        let reflection = || !self.no_reflection;
        let admin = Admin::new(AdminAccess::local());
        let http = || Http::new().mount("/metrics", MetricsPage).mount("/admin", admin.page());
        let server = Server::builder()
            .config(Config { extended: !self.plain, ..Config::default() })
            .add_service(EchoServer::new(EchoService))
            .add_service(Health::new())
            .add_service(admin.clone())
            .add_service(admin.channelz())
            .add_optional_service(reflection().then(Reflection::v1))
            .add_optional_service(reflection().then(Reflection::v1alpha));
        #[cfg(feature = "pubsub")]
        let server = server.router(frisbee_pubsub::Broker::new().router());
        #[cfg(not(feature = "jsonrpc"))]
        let server = server.wire(http());
        #[cfg(feature = "jsonrpc")]
        let server = {
            let json_rpc = frpc_jsonrpc::JsonRpc::new().functions(functions::all());
            let services = server.add_services([functions::all().service()]);
            services.wire(http().mount("/rpc", json_rpc.clone())).wire(json_rpc)
        };
        let server = match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) if cfg!(feature = "tls") => {
                server.tls(ServerTls::new(Pem::file(certificate), Pem::file(key)).map_err(CommandError::new)?)
            }
            (Some(_), _) => return Err(CommandError::left_out("tls", "TLS")),
            _ => server,
        };
        // A port alone listens on this machine only, consistent with the other commands.
        let address = match self.address.strip_prefix(':') {
            Some(port) => format!("tcp://127.0.0.1:{port}"),
            None => self.address.clone(),
        };
        let server = server.bind(&*address).await.map_err(|error| self.refused(error))?;
        let at = server.local_addr().to_string();
        // Keep serving if standard output was closed.
        let _ = if is_json { print_json(json!({ "listening": at })) } else { print_line(self.greeting(&at)) };
        ended().await;
        server.shutdown(Duration::from_secs(5)).await;
        Ok(())
    }

    fn refused(&self, error: ServeError) -> CommandError {
        let failure = CommandError::new(error);
        match self.address.parse::<u16>() {
            Ok(port) => failure.with_try(format!(":{port}, for a port on this machine")),
            Err(_) => failure.with_try("another port: tcp://127.0.0.1:0 takes one that is free"),
        }
    }

    /// Returns the startup message with the address and examples.
    fn greeting(&self, at: &str) -> String {
        let style = OutputStyle::of_stdout();
        let mut lines = vec![format!("listening on {}", style.bold(at))];
        if let Some(place) = at.strip_prefix("tcp://") {
            let s = if self.cert.is_some() { "s" } else { "" };
            let (tls, any) = if s.is_empty() { ("", "") } else { (" --tls -k", " -k") };
            let proto = if self.plain { " --proto echo.proto" } else { "" };
            lines.push(format!("\n{}", style.dim("try")));
            lines.push(format!("  frpc call {at} Say text=hello number=7{tls}{proto}"));
            lines.push(format!("  frpc call grpc{s}://{place} Repeat message.text=hi times=3{any}"));
            if cfg!(feature = "pubsub") {
                lines.push(format!("  frpc sub {at} 'orders.>'{tls}"));
            }
            if cfg!(feature = "jsonrpc") {
                let request = r#"{"jsonrpc": "2.0", "method": "sum", "params": [1, 2], "id": 1}"#;
                lines.push(format!("  curl{any} http{s}://{place}/rpc --json '{request}'"));
                if s.is_empty() {
                    lines.push(format!("  echo '{request}' | nc -N {}", place.replace(':', " ")));
                }
            }
        }
        lines.join("\n")
    }
}

/// Waits for Ctrl-C or for a termination signal.
async fn ended() {
    let interrupted = async {
        // On platforms without signals, serve until the process is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = interrupted => {}
        () = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signals) => drop(signals.recv().await),
        Err(_) => future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    future::pending().await
}

/// Functions for JSON-RPC.
#[cfg(feature = "jsonrpc")]
mod functions {
    use frpc_jsonrpc::{Functions, function};

    /// Returns all functions.
    pub(super) fn all() -> Functions {
        Functions::new().function(sum).function(greet)
    }

    /// Adds two numbers.
    #[function]
    fn sum(a: i64, b: i64) -> i64 {
        a.wrapping_add(b)
    }

    /// Returns a greeting.
    #[function]
    fn greet(#[default("world".to_owned())] name: String) -> String {
        format!("Hello, {name}!")
    }
}

struct EchoService;

impl Echo for EchoService {
    async fn say(&self, request: Request<Message>) -> std::result::Result<Response<Message>, Status> {
        Ok(request.into_inner().into())
    }

    async fn repeat(
        &self,
        request: Request<RepeatRequest>,
    ) -> std::result::Result<Response<Streaming<Message>>, Status> {
        let RepeatRequest { message, times, pause } = request.into_inner();
        let pause = Duration::from_millis(pause.into());
        let messages = stream::iter(0..times).then(move |index| {
            let message = message.clone().unwrap_or_default();
            async move {
                if index > 0 && !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                Ok(message)
            }
        });
        Ok(Streaming::new(messages).into())
    }

    async fn gather(&self, request: Request<Streaming<Message>>) -> std::result::Result<Response<Message>, Status> {
        let mut messages = request.into_inner();
        let mut gathered = Message::default();
        while let Some(message) = messages.message().await? {
            if !gathered.text.is_empty() && !message.text.is_empty() {
                gathered.text.push(' ');
            }
            if gathered.text.len() + message.text.len() > GATHERED_MAX {
                return Err(Status::resource_exhausted(format!("more than {GATHERED_MAX} bytes of text")));
            }
            gathered.text.push_str(&message.text);
            gathered.number = gathered.number.wrapping_add(message.number);
        }
        Ok(gathered.into())
    }

    async fn chat(
        &self,
        request: Request<Streaming<Message>>,
    ) -> std::result::Result<Response<Streaming<Message>>, Status> {
        Ok(request.into_inner().into())
    }

    async fn fail(&self, request: Request<FailRequest>) -> std::result::Result<Response<Message>, Status> {
        let FailRequest { code, text } = request.into_inner();
        match code {
            1..=16 => Err(Status::new(code.into(), text)),
            _ => Err(Status::invalid_argument(format!("the code {code} is not between 1 and 16"))),
        }
    }

    async fn inspect(&self, request: Request<Message>) -> std::result::Result<Response<Inspection>, Status> {
        let metadata = request.metadata().iter().map(|(name, value)| {
            let value = metadata_text(value);
            (name.to_owned(), value)
        });
        let left = request.timeout().map_or(0, |left| left.as_millis().try_into().unwrap_or(u64::MAX));
        let peer = request.peer_addr().map_or_else(String::new, |peer| peer.to_string());
        Ok(Inspection { metadata: metadata.collect(), peer, left }.into())
    }
}

/// The maximum length of the concatenated text of a `Gather` call.
const GATHERED_MAX: usize = 1024 * 1024;
