//! The service of each node.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use frpc::{Request, Response, Status, Streaming};
use futures_util::stream::try_unfold;
use support::calls::{Words, schema::test_server::Test, words};
use tokio::time::sleep;

use super::{
    defect::Defect,
    ledger::{HANDLER_FAILURE, Ledger},
    message::{Order, message, parse_message},
};

/// Executes orders, and checks the streams of requests.
#[derive(Clone)]
pub(super) struct OrderService {
    pub(super) ledger: Arc<Ledger>,
    pub(super) defect: Option<Defect>,
    /// The call of the last answer, for [`Defect::CrossesAnswers`].
    pub(super) last_call: Arc<AtomicU64>,
}

impl OrderService {
    fn read_order(&self, text: &str) -> Result<Order, Status> {
        let order = Order::parse(text).ok_or_else(|| {
            self.ledger.violate(format!("a handler got a changed request: {}", &text[..text.len().min(60)]));
            Status::invalid_argument("a changed request")
        })?;
        self.begin(order.call);
        Ok(order)
    }

    fn begin(&self, call: u64) {
        self.ledger.execute(call);
        match self.defect {
            Some(Defect::LeaksTasks) => drop(tokio::spawn(std::future::pending::<()>())),
            Some(Defect::LeaksMemory) => std::mem::forget(vec![1_u8; 4096]),
            _ => {}
        }
    }

    /// Returns the order in the metadata of a call with a stream of requests.
    fn order_of<T>(&self, request: &Request<T>) -> Result<Order, Status> {
        match request.metadata().get("order") {
            Some(text) => self.read_order(text),
            None => {
                self.ledger.violate("a call has lost its metadata".to_owned());
                Err(Status::invalid_argument("no metadata"))
            }
        }
    }

    /// Checks the next request of a stream.
    fn check(&self, order: &Order, expected: u64, text: &str) {
        if parse_message(text) != Some((order.call, expected)) {
            let got = &text[..text.len().min(40)];
            self.ledger.violate(format!("request {expected} of call {} is: {got}", order.call));
        }
    }

    fn end(order: &Order) -> Result<(), Status> {
        if order.fails { Err(Status::aborted(HANDLER_FAILURE)) } else { Ok(()) }
    }

    fn name_of_answer(&self, call: u64) -> u64 {
        let last = self.last_call.swap(call, Ordering::Relaxed);
        if self.defect == Some(Defect::CrossesAnswers) && call % 50 == 49 { last } else { call }
    }
}

impl Test for OrderService {
    async fn say(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        let order = self.read_order(&request.get_ref().text)?;
        if !order.pause.is_zero() {
            sleep(order.pause).await;
        }
        Self::end(&order)?;
        Ok(words(message(self.name_of_answer(order.call), 0, order.len)).into())
    }

    async fn count(&self, request: Request<Words>) -> Result<Response<Streaming<Words>>, Status> {
        let order = self.read_order(&request.get_ref().text)?;
        Ok(Streaming::new(try_unfold((order, 0), async |(order, position)| {
            if position == order.count {
                return Self::end(&order).map(|()| None);
            }
            if !order.pause.is_zero() {
                sleep(order.pause).await;
            }
            Ok(Some((words(message(order.call, position, order.len)), (order, position + 1))))
        }))
        .into())
    }

    async fn gather(&self, request: Request<Streaming<Words>>) -> Result<Response<Words>, Status> {
        let order = self.order_of(&request)?;
        let (mut requests, mut received) = (request.into_inner(), 0);
        while let Some(Words { text }) = requests.message().await? {
            self.check(&order, received, &text);
            received += 1;
            if !order.pause.is_zero() {
                sleep(order.pause).await;
            }
        }
        Self::end(&order)?;
        // The position is the number of requests: the caller compares it with its own.
        Ok(words(message(order.call, received, order.len)).into())
    }

    async fn chat(&self, request: Request<Streaming<Words>>) -> Result<Response<Streaming<Words>>, Status> {
        let order = self.order_of(&request)?;
        let state = (self.clone(), order, request.into_inner(), 0);
        Ok(Streaming::new(try_unfold(state, async |(service, order, mut requests, position)| {
            let Some(Words { text }) = requests.message().await? else {
                return Self::end(&order).map(|()| None);
            };
            service.check(&order, position, &text);
            if !order.pause.is_zero() {
                sleep(order.pause).await;
            }
            let answer = words(message(order.call, position, order.len));
            Ok(Some((answer, (service, order, requests, position + 1))))
        }))
        .into())
    }
}
