//! The service `grpc.health.v1.Health`.

use std::{collections::HashMap, sync::Arc};

use frpc::{Answer, Call, Method, Request, Response, Service, Status, Streaming};
use futures_util::stream;
use tokio::sync::watch;

pub use crate::protos::grpc::health::v1::health_check_response::ServingStatus;
use crate::{
    catalog::short,
    protos::grpc::health::v1::{
        HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
        health_server::{self, HealthServer},
    },
};

/// The service `grpc.health.v1.Health`, which tells whether a server and each of its services take calls. Clones share what they
/// tell: one is added to the server, another is kept to [change](Self::set) it.
///
/// The whole server, which has an empty name, and all services that it serves are [`Serving`](ServingStatus::Serving) until
/// something else is said. Any other service is not found until its status is set.
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
/// As soon as the server shuts down, everything is [`NotServing`](ServingStatus::NotServing), as [`shut_down`](Self::shut_down) says.
#[derive(Clone, Debug)]
pub struct Health {
    server: HealthServer<Statuses>,
    statuses: Arc<Statuses>,
}

impl Health {
    /// Makes the service.
    pub fn new() -> Self {
        let services = HashMap::from([(String::new(), ServingStatus::Serving)]);
        let statuses = Arc::new(Statuses(watch::Sender::new(State { services, is_over: false })));
        Self { server: HealthServer::from_arc(statuses.clone()), statuses }
    }

    /// Sets the status of a service by its full name, or that of the whole server, whose name is empty. Nothing can be set behind a
    /// [shutdown](Self::shut_down).
    pub fn set(&self, service: impl Into<String>, status: ServingStatus) {
        let service = service.into();
        self.statuses
            .0
            .send_if_modified(|state| !state.is_over && state.services.insert(service, status) != Some(status));
    }

    /// Forgets the status of a service, which is then not found.
    pub fn clear(&self, service: &str) {
        self.statuses.0.send_if_modified(|state| !state.is_over && state.services.remove(service).is_some());
    }

    /// Sets everything to [`NotServing`](ServingStatus::NotServing) for good. Those who watch are told, and their calls end, so
    /// that they do not hold up the shutdown of the server.
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
    const NAME: &'static str = <HealthServer<Statuses> as Service>::NAME;
    const METHODS: &'static [Method] = <HealthServer<Statuses> as Service>::METHODS;

    fn beside(&self, methods: &[&'static Method]) {
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

/// The status of each service. Those who watch look at all of it whenever anything changes, so that nothing is left behind of what a peer
/// asks for.
#[derive(Debug)]
struct Statuses(watch::Sender<State>);

#[derive(Debug)]
struct State {
    services: HashMap<String, ServingStatus>,
    /// Set for good by a shutdown.
    is_over: bool,
}

impl health_server::Health for Statuses {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match self.0.borrow().services.get(&service) {
            Some(&status) => Ok(response(status).into()),
            None => Err(Status::not_found(format!("there is no service '{}' here", short(&service)))),
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
        let watcher = Watcher { service: request.into_inner().service, changes: self.0.subscribe(), told: None };
        Ok(Streaming::new(stream::try_unfold(watcher, Watcher::next)).into())
    }
}

/// A call that watches one service.
struct Watcher {
    service: String,
    changes: watch::Receiver<State>,
    /// The one that its caller was told last.
    told: Option<ServingStatus>,
}

impl Watcher {
    /// Returns the next status that is another than the one before. What comes and goes in between is left out.
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
                return Err(Status::unavailable("the server shuts down: watch the next one"));
            }
        }
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
