//! A connection without a socket, for models of the code around it.

use std::{sync::Arc, time::Instant};

use bytes::Buf as _;

use super::{Connection, ConnectionShared, WriteStep};
use crate::{
    Address, Config,
    proto::{self, Role, Transmit},
};

/// A connection with the writes of a model.
pub struct ConnectionModel {
    shared: Arc<ConnectionShared>,
    batch: Transmit,
}

impl ConnectionModel {
    /// Creates a connection of a client. Nothing runs on the current runtime.
    pub fn new(config: Config) -> Self {
        let (config, now) = (Arc::new(config), Instant::now());
        let proto = proto::Connection::new(Role::Client, config.clone(), now);
        let [local, peer] =
            ["mem://local", "mem://peer"].map(|address| address.parse::<Address>().expect("it is valid"));
        Self {
            shared: Arc::new(ConnectionShared::new(proto, config, local, peer, None, now)),
            batch: Transmit::default(),
        }
    }

    /// Returns a handle of the connection.
    pub fn handle(&self) -> Connection {
        Connection::new(self.shared.clone())
    }

    /// Writes all of the outbox. Calls `writable` when the router would get [`Event::Writable`](crate::Event::Writable).
    pub fn write(&mut self, mut writable: impl FnMut()) {
        let mut written = 0;
        loop {
            match self.shared.next_batch(Instant::now(), written, &mut self.batch) {
                WriteStep::Batch => written = self.batch.remaining(),
                WriteStep::Writable => {
                    writable();
                    written = 0;
                }
                WriteStep::Nothing => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Poll};

    use loom::{future::block_on, model::Builder, thread};
    use tokio::runtime;

    use super::*;
    use crate::{CloseReason, Operation, Packet};

    /// Checks all orders with at most two switches of running threads.
    fn check(model: impl Fn() + Send + Sync + 'static) {
        let runtime = runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        let mut builder = Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(model);
    }

    /// Returns a connection with room for one packet in its outbox.
    fn narrow() -> ConnectionModel {
        ConnectionModel::new(Config { outbox_len_max: 1, ..Config::default() })
    }

    async fn send(connection: Connection) {
        let packet = Packet::new(1, Operation::new(20).unwrap(), vec![7; 20]);
        connection.send(packet).await.expect("the connection is open");
    }

    /// Writes as the driver does, until this number of packets is written.
    async fn drive(mut connection: ConnectionModel, packets: u64) {
        poll_fn(|cx| {
            loop {
                connection.write(|| {});
                let mut core = connection.shared.core();
                match core.proto.progress() {
                    (_, written) if written == packets => return Poll::Ready(()),
                    (queued, written) if queued > written => {}
                    _ => {
                        core.driver = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                }
            }
        })
        .await;
    }

    #[test]
    fn a_packet_wakes_the_driver_and_space_wakes_the_sender() {
        check(|| {
            let model = narrow();
            let handle = model.handle();
            let sender = thread::spawn(move || {
                block_on(async {
                    send(handle.clone()).await;
                    send(handle).await;
                });
            });
            block_on(drive(model, 2));
            sender.join().unwrap();
        });
    }

    #[test]
    fn all_senders_that_wait_for_space_get_it() {
        check(|| {
            let model = narrow();
            let handle = model.handle();
            block_on(send(handle.clone()));
            let senders = [handle.clone(), handle].map(|handle| thread::spawn(move || block_on(send(handle))));
            block_on(drive(model, 3));
            senders.map(|sender| sender.join().unwrap());
        });
    }

    #[test]
    fn a_task_that_waits_for_a_flush_or_the_end_is_woken() {
        check(|| {
            let mut model = narrow();
            let (flushing, closing) = (model.handle(), model.handle());
            block_on(send(flushing.clone()));
            let flush = thread::spawn(move || block_on(flushing.flush()));
            let closed = thread::spawn(move || block_on(closing.closed()));
            model.write(|| {});
            model.shared.finish(CloseReason::Local);
            model.write(|| {});
            model.shared.end(CloseReason::Local);
            let _ = flush.join().unwrap();
            assert!(matches!(closed.join().unwrap(), CloseReason::Local));
        });
    }
}
