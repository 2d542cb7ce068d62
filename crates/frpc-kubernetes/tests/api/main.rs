//! The resolver with API servers: scripted ones, recordings of a real one, and a real one.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod channel;
mod failures;
mod fake;
mod real;
mod replay;

use std::{io, time::Duration};

use frpc::fleet::{Endpoint, Endpoints, Refresh, Resolve};
use frpc_kubernetes::{KubernetesResolver, ResolverSettings};
use futures_util::{StreamExt, stream::BoxStream};

/// The sets that a resolver finds.
struct Found(BoxStream<'static, io::Result<Endpoints>>);

impl Found {
    fn by(resolver: &KubernetesResolver) -> Self {
        Self(resolver.resolve(Refresh::default()))
    }

    async fn next(&mut self) -> io::Result<Endpoints> {
        self.0.next().await.unwrap()
    }

    async fn error(&mut self) -> String {
        self.next().await.unwrap_err().to_string()
    }

    /// Waits until this set is found. Sets between two changes may be left out, and connections fail.
    async fn until(&mut self, expected: Endpoints) {
        while self.next().await.ok().as_ref() != Some(&expected) {}
    }
}

/// Settings without long pauses after failures.
fn hasty() -> ResolverSettings {
    ResolverSettings { retry_pause: Duration::from_millis(1), ..ResolverSettings::default() }
}

/// The endpoints of these pods, as `record.py` numbers them.
fn pods(numbers: impl IntoIterator<Item = u16>) -> Vec<Endpoint> {
    let endpoint = |number: u16| {
        let address = format!("tcp://10.1.{}.{}:7300", number / 250, number % 250 + 1);
        Endpoint::new(address).unwrap().zone(zone(number)).tls_name("orders.shop.svc")
    };
    numbers.into_iter().map(endpoint).collect()
}

fn zone(number: u16) -> &'static str {
    ["a", "b", "c"][usize::from(number % 3)]
}
