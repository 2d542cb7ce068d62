//! Connections to brokers.

use std::time::Duration;

use frisbee_pubsub::Client;

use crate::{
    connect::{normal, parse_time},
    failure::{CommandError, Result},
    tls::TlsOptions,
};

/// Connection options for brokers.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct BrokerOptions {
    /// The timeout for connecting.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_time, help_heading = "Connection")]
    connect_timeout: Duration,
    /// The first operation number of the broker, if it differs from the default.
    #[arg(long, value_name = "NUMBER", default_value_t = frisbee_pubsub::BASE, help_heading = "Connection")]
    base: u16,
    #[command(flatten)]
    tls: TlsOptions,
}

impl BrokerOptions {
    /// Connects to the broker at `address`.
    pub(crate) async fn connect(&self, address: &str) -> Result<Client> {
        let address = normal(address);
        if matches!(address.split_once("://"), Some(("nats" | "tls", _))) {
            return self.connect_to_nats(&address).await;
        }
        let mut frisbee = frpc::frisbee::Client::new(()).timeout(self.connect_timeout);
        if self.tls.is_given() {
            let tls = self.tls.config()?;
            frisbee = match self.tls.server_name() {
                Some(name) => frisbee.tls_with_name(tls, name),
                None => frisbee.tls(tls),
            };
        }
        let client = Client::builder().base(self.base).frisbee(frisbee).connect_max(self.connect_timeout);
        client.connect(&*address).await.map_err(|error| refused(&address, &error))
    }

    #[cfg(not(feature = "nats"))]
    async fn connect_to_nats(&self, _: &str) -> Result<Client> {
        Err(CommandError::left_out("nats", "NATS client"))
    }

    #[cfg(feature = "nats")]
    async fn connect_to_nats(&self, address: &str) -> Result<Client> {
        if self.tls.is_given() || self.tls.server_name().is_some() {
            return Err(CommandError::new("TLS settings for NATS belong in the address")
                .with_try("tls://HOST:PORT?roots=FILE&certificate=FILE&key=FILE"));
        }
        let connecting = tokio::time::timeout(self.connect_timeout, frisbee_pubsub_nats::connect(address));
        let late = |_| CommandError::new(format!("cannot connect to {address} within {:?}", self.connect_timeout));
        connecting.await.map_err(late)?.map_err(CommandError::new)
    }
}

fn refused(address: &str, error: &frisbee_pubsub::ConnectError) -> CommandError {
    use frisbee_pubsub::ConnectError;

    let failure = CommandError::new(error);
    match error {
        ConnectError::NoBroker => {
            failure.with_try("the address of a server with a broker, such as `frpc serve --echo`")
        }
        _ if address.parse::<u16>().is_ok() => failure.with_try(format!(":{address}, for a port on this machine")),
        ConnectError::Setting(_) => failure.with_try(ADDRESSES),
        _ if address.contains("://") && !address.starts_with("tcp://") => failure.with_try(ADDRESSES),
        _ => failure.with_try("`frpc serve --echo ADDRESS`, to start a test server with a broker"),
    }
}

/// The address formats of brokers, for advice.
const ADDRESSES: &str = "tcp://HOST:PORT, :PORT or unix:PATH for a broker on frisbee, nats://HOST:PORT for NATS";
