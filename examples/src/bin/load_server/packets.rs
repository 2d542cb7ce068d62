//! The layer without RPC: every packet is its own reply.

use std::{io, time::Duration};

use frisbee::{Connection, Outcome, Packet, Router, Server};

use crate::{Options, work};

pub(crate) async fn bind(options: Options) -> io::Result<Server> {
    let Options { engine, dispatch, http: _, sleep, address } = options;
    Server::builder(Echo { sleep }).engine(engine).dispatch(dispatch).bind(address).await
}

struct Echo {
    sleep: Duration,
}

impl Router for Echo {
    async fn route(&self, packet: Packet, _: &Connection) -> Outcome {
        work(self.sleep).await;
        Outcome::Reply(packet)
    }
}
