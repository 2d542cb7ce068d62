//! The client's side of health checks.

use std::time::Duration;

use frpc::{Channel, Code, Streaming, WatchHealth, client::RedialPauses};
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::time::sleep;

use crate::protos::grpc::health::v1::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_client::HealthClient,
};

/// Watches the health of servers by `grpc.health.v1.Health`, for [`ChannelBuilder::health`](frpc::ChannelBuilder::health).
///
/// A server without this service counts as healthy. After a failed watch, the server counts as unhealthy until another
/// watch, begun after a growing pause, reports otherwise.
///
/// ```
/// use frpc::Channel;
/// use frpc_services::HealthWatcher;
///
/// let builder = Channel::builder().health(HealthWatcher);
/// // let channel = builder.connect("dns:///orders.internal:7300").await?;
/// # let _ = builder;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HealthWatcher;

/// The watch of one server.
struct ServerWatch {
    client: HealthClient,
    service: String,
    changes: Option<Streaming<HealthCheckResponse>>,
    pauses: RedialPauses,
    is_over: bool,
}

impl WatchHealth for HealthWatcher {
    fn watch(&self, server: Channel, service: &str) -> BoxStream<'static, bool> {
        let (client, pauses) = (HealthClient::new(server), RedialPauses::new(FIRST_PAUSE));
        let watch = ServerWatch { client, service: service.to_owned(), changes: None, pauses, is_over: false };
        stream::unfold(watch, ServerWatch::next).boxed()
    }
}

impl ServerWatch {
    /// Returns the next change, or `None` once the server is known to have no health checks.
    async fn next(mut self) -> Option<(bool, Self)> {
        if self.is_over {
            return None;
        }
        let mut changes = match self.changes.take() {
            Some(changes) => changes,
            None => {
                sleep(self.pauses.next_pause()).await;
                let request = HealthCheckRequest { service: self.service.clone() };
                match self.client.watch(request).await {
                    Ok(response) => response.into_inner(),
                    Err(status) => return self.failed(status.code()),
                }
            }
        };
        match changes.message().await {
            Ok(Some(change)) => {
                self.pauses.after_use();
                self.changes = Some(changes);
                Some((change.status() == ServingStatus::Serving, self))
            }
            Ok(None) => self.failed(Code::Unavailable),
            Err(status) => self.failed(status.code()),
        }
    }

    fn failed(mut self, code: Code) -> Option<(bool, Self)> {
        self.is_over = code == Code::Unimplemented;
        self.pauses.after_failure();
        Some((self.is_over, self))
    }
}

/// The pause after the first failed watch.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
