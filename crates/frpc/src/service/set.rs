//! Services of different types, called by index.

use std::future::Future;

use futures_util::future::Either;

use super::{boxed::BoxService, handle::Service, table::MethodPosition};
use crate::call::{
    exchange::{Answer, Call},
    method::Method,
    status::Status,
};

/// A list of services: `()`, `((), First)`, `(((), First), Option<Second>)` and so on.
pub trait ServiceSet: Send + Sync + 'static {
    /// The number of additions to the set.
    const SLOTS: usize;

    /// Passes all served methods to each service; see [`Service::served_with`].
    fn served_with(&self, methods: &[&'static Method]);

    /// Notifies all services that the server begins to shut down; see [`Service::shutting_down`].
    fn shutting_down(&self);

    /// Calls the method at this position.
    fn call(&self, target: MethodPosition, call: Call) -> impl Future<Output = Result<Answer, Status>> + Send;
}

impl ServiceSet for () {
    const SLOTS: usize = 0;

    fn served_with(&self, _: &[&'static Method]) {}

    fn shutting_down(&self) {}

    async fn call(&self, _: MethodPosition, call: Call) -> Result<Answer, Status> {
        call.unknown()
    }
}

// Not async functions: each level would store one more copy of the call in its state.

impl<S: ServiceSet, T: Service> ServiceSet for (S, T) {
    const SLOTS: usize = S::SLOTS + 1;

    fn served_with(&self, methods: &[&'static Method]) {
        self.0.served_with(methods);
        self.1.served_with(methods);
    }

    fn shutting_down(&self) {
        self.0.shutting_down();
        self.1.shutting_down();
    }

    fn call(&self, target: MethodPosition, call: Call) -> impl Future<Output = Result<Answer, Status>> + Send {
        if usize::from(target.slot) == S::SLOTS {
            Either::Left(self.1.call(usize::from(target.method), call))
        } else {
            Either::Right(self.0.call(target, call))
        }
    }
}

impl<S: ServiceSet, T: Service> ServiceSet for (S, Option<T>) {
    const SLOTS: usize = S::SLOTS + 1;

    fn served_with(&self, methods: &[&'static Method]) {
        self.0.served_with(methods);
        if let Some(service) = &self.1 {
            service.served_with(methods);
        }
    }

    fn shutting_down(&self) {
        self.0.shutting_down();
        if let Some(service) = &self.1 {
            service.shutting_down();
        }
    }

    fn call(&self, target: MethodPosition, call: Call) -> impl Future<Output = Result<Answer, Status>> + Send {
        match &self.1 {
            Some(service) if usize::from(target.slot) == S::SLOTS => {
                Either::Left(service.call(usize::from(target.method), call))
            }
            _ => Either::Right(self.0.call(target, call)),
        }
    }
}

impl<S: ServiceSet> ServiceSet for (S, Vec<BoxService>) {
    const SLOTS: usize = S::SLOTS + 1;

    fn served_with(&self, methods: &[&'static Method]) {
        self.0.served_with(methods);
        for service in &self.1 {
            service.served_with(methods);
        }
    }

    fn shutting_down(&self) {
        self.0.shutting_down();
        for service in &self.1 {
            service.shutting_down();
        }
    }

    fn call(&self, target: MethodPosition, call: Call) -> impl Future<Output = Result<Answer, Status>> + Send {
        match self.1.get(usize::from(target.service)) {
            Some(service) if usize::from(target.slot) == S::SLOTS => {
                Either::Left(service.call(usize::from(target.method), call))
            }
            _ => Either::Right(self.0.call(target, call)),
        }
    }
}
