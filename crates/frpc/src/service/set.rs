//! Services of different types, called by index.

use std::future::Future;

use super::{boxed::BoxService, handle::Service, table::Target};
use crate::call::{
    exchange::{Answer, Call},
    status::Status,
};

/// Any number of services: `()`, `((), First)`, `(((), First), Option<Second>)` and so on.
pub trait ServiceSet: Send + Sync + 'static {
    /// The number of additions that it was made of.
    const SLOTS: usize;

    /// Has the method at a place handle a call.
    fn call(&self, target: Target, call: Call) -> impl Future<Output = Result<Answer, Status>> + Send;
}

impl ServiceSet for () {
    const SLOTS: usize = 0;

    async fn call(&self, _: Target, call: Call) -> Result<Answer, Status> {
        call.unknown()
    }
}

impl<S: ServiceSet, T: Service> ServiceSet for (S, T) {
    const SLOTS: usize = S::SLOTS + 1;

    async fn call(&self, target: Target, call: Call) -> Result<Answer, Status> {
        if usize::from(target.slot) == S::SLOTS {
            self.1.call(usize::from(target.method), call).await
        } else {
            self.0.call(target, call).await
        }
    }
}

impl<S: ServiceSet, T: Service> ServiceSet for (S, Option<T>) {
    const SLOTS: usize = S::SLOTS + 1;

    async fn call(&self, target: Target, call: Call) -> Result<Answer, Status> {
        match &self.1 {
            Some(service) if usize::from(target.slot) == S::SLOTS => {
                service.call(usize::from(target.method), call).await
            }
            _ => self.0.call(target, call).await,
        }
    }
}

impl<S: ServiceSet> ServiceSet for (S, Vec<BoxService>) {
    const SLOTS: usize = S::SLOTS + 1;

    async fn call(&self, target: Target, call: Call) -> Result<Answer, Status> {
        match self.1.get(usize::from(target.service)) {
            Some(service) if usize::from(target.slot) == S::SLOTS => {
                service.call(usize::from(target.method), call).await
            }
            _ => self.0.call(target, call).await,
        }
    }
}
