//! Passing the listeners of a server to the next process.

use std::io;

use tokio::time::sleep;
use tracing::{info, warn};

use super::{
    Server,
    accept::lock,
    shared::{ACCEPT_PAUSE_MAX, ServerShared},
};
use crate::{
    Handover,
    net::{NextProcess, SharedListener},
};

impl Server {
    /// Stops the previous process, then waits for the next one and passes it the listeners of this server.
    ///
    /// Returns once the next process serves and this server has stopped accepting. Call
    /// [`shutdown`](Self::shutdown) afterwards; no connection is refused. See [`Handover`].
    ///
    /// If a next process ends before it serves, this server stays in service and waits for another one. Failures are
    /// logged as warnings.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the handover socket. A next process that has received the listeners goes on with
    /// them.
    pub async fn hand_over(&self, mut handover: Handover) {
        handover.confirm().await;
        self.shared.set_removes_files(true);
        loop {
            let next = match handover.accept().await {
                Ok(next) => next,
                Err(error) => {
                    warn!(%error, "cannot accept the next process, trying again after a pause");
                    sleep(ACCEPT_PAUSE_MAX).await;
                    continue;
                }
            };
            match self.pass_to(&mut handover, next).await {
                Ok(()) => break,
                Err(error) => warn!(%error, "the next process has not taken over, and this server stays in service"),
            }
        }
        self.shared.stop_accepting_gently().await;
        info!("the next process has taken over");
    }

    async fn pass_to(&self, handover: &mut Handover, next: NextProcess) -> io::Result<()> {
        let listeners = self.shared.share_listeners()?;
        // The next process may confirm from here on, and owns the socket files then, also if this process ends first.
        self.shared.set_removes_files(false);
        let passed = handover.pass(next, listeners).await;
        if passed.is_err() {
            self.shared.set_removes_files(true);
        }
        passed
    }
}

impl ServerShared {
    fn share_listeners(&self) -> io::Result<Vec<SharedListener>> {
        let mut listeners = Vec::new();
        for place in &*lock(&self.listeners) {
            let Some(listener) = &*lock(&place.listener) else { continue };
            if let Some(descriptor) = listener.duplicate()? {
                let (name, has_file) = (place.name.clone(), listener.has_file());
                listeners.push(SharedListener { name, descriptor, has_file });
            }
        }
        Ok(listeners)
    }

    fn set_removes_files(&self, removes_files: bool) {
        for place in &*lock(&self.listeners) {
            if let Some(listener) = &mut *lock(&place.listener) {
                listener.set_removes_file(removes_files);
            }
        }
    }
}
