//! The service `grpc.health.v1.Health`.

use std::{collections::HashMap, sync::Arc};

use frpc::{Answer, Call, Method, Request, Response, Service, Status, Streaming, shown};
use futures_util::stream;
use tokio::sync::watch;

pub use crate::protos::grpc::health::v1::health_check_response::ServingStatus;
use crate::protos::grpc::health::v1::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
    health_server::{self, HealthServer},
};

/// The health check service `grpc.health.v1.Health`, with the status of a server and each of its services.
///
/// Clones share their state: add one to the server and keep another to [change](Self::set) statuses. The server as a
/// whole has an empty name. It and all its services are initially [`Serving`](ServingStatus::Serving). Other services
/// are unknown until their status is set.
///
/// ```
/// use frpc::Server;
/// use frpc_services::{Health, ServingStatus};
///
/// let health = Health::new();
/// let server = Server::builder().add_service(health.clone());
/// health.set("shop.Orders", ServingStatus::NotServing);
/// # let _ = server;
/// ```
///
/// When the server shuts down, all statuses become [`NotServing`](ServingStatus::NotServing), as with
/// [`shut_down`](Self::shut_down).
#[derive(Clone, Debug)]
pub struct Health {
    server: HealthServer<ServiceStatuses>,
    statuses: Arc<ServiceStatuses>,
}

impl Health {
    /// Creates the service.
    pub fn new() -> Self {
        let services = HashMap::from([(String::new(), ServingStatus::Serving)]);
        let statuses = Arc::new(ServiceStatuses(watch::Sender::new(HealthState { services, is_over: false })));
        Self { server: HealthServer::from_arc(statuses.clone()), statuses }
    }

    /// Sets the status of a service by its full name, or of the whole server by an empty name.
    ///
    /// After a [shutdown](Self::shut_down), it has no effect.
    pub fn set(&self, service: impl Into<String>, status: ServingStatus) {
        let service = service.into();
        self.statuses
            .0
            .send_if_modified(|state| !state.is_over && state.services.insert(service, status) != Some(status));
    }

    /// Removes the status of a service. Checks then report it as unknown.
    pub fn clear(&self, service: &str) {
        self.statuses.0.send_if_modified(|state| !state.is_over && state.services.remove(service).is_some());
    }

    /// Sets all statuses to [`NotServing`](ServingStatus::NotServing) permanently.
    ///
    /// Watchers receive the new status and their calls end, so that they do not delay the shutdown of the server.
    pub fn shut_down(&self) {
        self.statuses.0.send_modify(|state| {
            state.is_over = true;
            state.services.values_mut().for_each(|status| *status = ServingStatus::NotServing);
        });
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl Service for Health {
    const NAME: &'static str = <HealthServer<ServiceStatuses> as Service>::NAME;
    const METHODS: &'static [Method] = <HealthServer<ServiceStatuses> as Service>::METHODS;

    fn served_with(&self, methods: &[&'static Method]) {
        self.statuses.0.send_modify(|state| {
            for method in methods {
                state.services.entry(method.service.to_owned()).or_insert(ServingStatus::Serving);
            }
        });
    }

    fn shutting_down(&self) {
        self.shut_down();
    }

    async fn call(&self, method: usize, call: Call) -> Result<Answer, Status> {
        self.server.call(method, call).await
    }
}

/// The status of each service. All watchers share one channel and look up their service after each change, so no state
/// is kept for requested names.
#[derive(Debug)]
struct ServiceStatuses(watch::Sender<HealthState>);

#[derive(Debug)]
struct HealthState {
    services: HashMap<String, ServingStatus>,
    /// `true` after a shutdown, permanently.
    is_over: bool,
}

impl health_server::Health for ServiceStatuses {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match self.0.borrow().services.get(&service) {
            Some(&status) => Ok(response(status).into()),
            None => Err(Status::not_found(format!("unknown service '{}'", shown(&service)))),
        }
    }

    async fn list(&self, _: Request<HealthListRequest>) -> Result<Response<HealthListResponse>, Status> {
        let services = &self.0.borrow().services;
        let statuses = services.iter().map(|(service, &status)| (service.clone(), response(status))).collect();
        Ok(HealthListResponse { statuses }.into())
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Streaming<HealthCheckResponse>>, Status> {
        let watcher = StatusWatcher { service: request.into_inner().service, changes: self.0.subscribe(), told: None };
        Ok(Streaming::new(stream::try_unfold(watcher, StatusWatcher::next)).into())
    }
}

/// A call watching one service.
struct StatusWatcher {
    service: String,
    changes: watch::Receiver<HealthState>,
    /// The status last sent to the caller.
    told: Option<ServingStatus>,
}

impl StatusWatcher {
    /// Returns the next status that differs from the previous one. Intermediate changes may be skipped.
    async fn next(mut self) -> Result<Option<(HealthCheckResponse, Self)>, Status> {
        loop {
            let (status, is_over) = {
                let state = self.changes.borrow_and_update();
                let known = state.services.get(&self.service);
                (known.copied().unwrap_or(ServingStatus::ServiceUnknown), state.is_over)
            };
            if self.told != Some(status) {
                self.told = Some(status);
                return Ok(Some((response(status), self)));
            }
            if is_over || self.changes.changed().await.is_err() {
                return Err(Status::unavailable("the server is shutting down: watch again after the restart"));
            }
        }
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
