//! A client of all replicas of a service, found by a target. It calls until Ctrl-C and fails if a call has failed.
//!
//! Usage: `fleet_client TARGET`, such as `nats+direct://127.0.0.1:4222/warehouse` or `file:///etc/warehouse.json`. It serves
//! the admin page, with the state of each replica. `fleet/run.sh` starts it with three replicas.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    env,
    error::Error,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fleet::{GetStockRequest, warehouse_client::WarehouseClient};
use frpc::{Channel, Server, Status};
use frpc_admin::{Admin, AdminAccess};
use frpc_http::Http;
use tokio::{task::JoinSet, time::sleep};

/// Generated from `proto/fleet.proto`.
pub mod fleet {
    frpc::include_proto!("fleet");
}

/// The results of all calls so far.
#[derive(Default)]
struct CallResults {
    answers: BTreeMap<String, u64>,
    calls: u64,
    failed: u64,
}

impl CallResults {
    fn add(&mut self, answer: Result<String, Status>) {
        self.calls += 1;
        match answer {
            Ok(replica) => {
                let answers = self.answers.entry(replica);
                if let Entry::Vacant(new) = &answers {
                    println!("first answer of {}", new.key());
                }
                *answers.or_insert(0) += 1;
            }
            Err(status) => {
                self.failed += 1;
                println!("a call failed: {status}");
            }
        }
        if self.calls.is_multiple_of(1000) {
            println!("calls: {}, failed: {}", self.calls, self.failed);
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let target = env::args().nth(1).ok_or("fleet_client TARGET")?;
    // Before the channel, so that the page shows it from its first call.
    let admin = Admin::new(AdminAccess::local());
    let page = Server::builder()
        .wire(Http::new().mount("/admin", admin.page()))
        .add_service(admin.channelz())
        .add_service(admin)
        .bind("tcp://127.0.0.1:0")
        .await?;
    println!("admin page: {}/admin", page.local_addr().to_string().replace("tcp://", "http://"));

    let channel = Channel::builder().resolver(frpc_nats::transport()).timeout(Duration::from_secs(10));
    let client = WarehouseClient::new(channel.connect(&*target).await?);
    let (results, is_over) = (Arc::new(Mutex::new(CallResults::default())), Arc::new(AtomicBool::new(false)));
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        callers.spawn(call_until(client.clone(), results.clone(), is_over.clone()));
    }
    tokio::signal::ctrl_c().await?;
    is_over.store(true, Ordering::Relaxed);
    callers.join_all().await;

    let CallResults { answers, calls, failed } = &*results.lock().expect("no caller has panicked");
    println!("{calls} idempotent calls, {failed} failed; answers of each replica: {answers:?}");
    if *failed > 0 { Err("calls have failed".into()) } else { Ok(()) }
}

async fn call_until(client: WarehouseClient, results: Arc<Mutex<CallResults>>, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Relaxed) {
        let answer = client.get_stock(GetStockRequest { item: "lamp".to_owned() }).await;
        results.lock().expect("no caller has panicked").add(answer.map(|answer| answer.into_inner().replica));
        sleep(Duration::from_millis(1)).await;
    }
}
