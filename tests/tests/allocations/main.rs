//! Counts allocations: of a plain unary call on each side over TCP, including the strings in its messages, and of
//! messages designed to take as much memory as possible, on every wire.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod attacks;
mod http2;
mod idle;
mod memory;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use frpc::{Channel, Request, Response, Server, Status};
use futures_util::future::join_all;
use support::echo::{
    Text,
    echo_client::EchoClient,
    echo_server::{Echo, EchoServer},
};
use tokio::{
    runtime::{self, Runtime},
    sync::oneshot,
};

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_single_call_allocates_little() {
    check(1, false);
}

#[test]
fn one_of_ten_concurrent_calls_allocates_little() {
    check(10, false);
}

#[test]
fn a_call_after_a_reconnect_allocates_no_more() {
    let (first, later) = (check(1, false), check(1, true));
    assert!(later <= first + SPARE, "{later} allocations of the client for {CALLS} calls, {first} before a reconnect");
}

/// Makes calls with this number in flight, on a connection that is already warm. It is the first one of its channel, or
/// replaces a lost one. Returns the number of allocations of the client.
fn check(callers: usize, reconnects: bool) -> usize {
    let server = Counted::start();
    let runtime = current_thread();
    let channel = runtime.block_on(Channel::connect(server.addr)).unwrap();
    if reconnects {
        channel.connection().unwrap().close();
    }
    let client = EchoClient::new(channel);
    run(&runtime, &client, callers);

    let (on_client, on_server) = (COUNT.get(), server.count());
    run(&runtime, &client, callers);
    let (on_client, on_server) = (COUNT.get() - on_client, server.count() - on_server);
    assert!(on_client <= ON_CLIENT_MAX * CALLS + SPARE, "{on_client} allocations of the client for {CALLS} calls");
    assert!(on_server <= ON_SERVER_MAX * CALLS + SPARE, "{on_server} allocations of the server for {CALLS} calls");
    on_client
}

fn run(runtime: &Runtime, client: &EchoClient, callers: usize) {
    let callers = (0..callers).map(|_| {
        let client = client.clone();
        runtime.spawn(async move {
            for _ in 0..CALLS / callers {
                let request = Text { text: TEXT.to_owned() };
                let answer = client.echo(request).await.unwrap();
                assert_eq!(answer.get_ref().text, TEXT);
            }
        })
    });
    runtime.block_on(join_all(callers)).into_iter().for_each(Result::unwrap);
}

/// A server on its own thread. Both end on drop.
struct Counted {
    addr: SocketAddr,
    count: Arc<AtomicUsize>,
    _end: oneshot::Sender<()>,
}

impl Counted {
    fn start() -> Self {
        let (addr_sender, addr) = mpsc::channel();
        let (end, ended) = oneshot::channel::<()>();
        let count = Arc::new(AtomicUsize::new(0));
        let service = Service { count: count.clone() };
        thread::spawn(move || {
            current_thread().block_on(async {
                let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                let server = Server::builder().add_service(EchoServer::new(service)).bind(any_port).await.unwrap();
                addr_sender.send(server.local_addr().socket_addr().unwrap()).unwrap();
                let _ = ended.await;
            });
        });
        Self { addr: addr.recv().unwrap(), count, _end: end }
    }

    /// Returns the count of the server's thread at the arrival of its last call.
    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

struct Service {
    count: Arc<AtomicUsize>,
}

impl Echo for Service {
    async fn echo(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        self.count.store(COUNT.get(), Ordering::Relaxed);
        Ok(request.into_inner().into())
    }
}

fn current_thread() -> Runtime {
    runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    /// Bytes held by this thread, and the maximum so far.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counts the allocations and held bytes of each thread. Growing counts as an allocation, with old and new memory held
/// at the same time.
struct Counting;

// SAFETY: all memory comes from `System` and is returned to it with the same layout. Counting itself does not allocate,
// because the cells are constants without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        let live = LIVE.get() + layout.size().cast_signed();
        LIVE.set(live);
        PEAK.set(PEAK.get().max(live));
        // SAFETY: the caller upholds the requirements of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // Another thread may have allocated the memory, so the count may become negative.
        LIVE.set(LIVE.get() - layout.size().cast_signed());
        // SAFETY: `ptr` came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

const TEXT: &str = "thirty-two bytes of a plain text";
const CALLS: usize = 10_000;
/// The text of the request, its content and the text of the answer.
const ON_CLIENT_MAX: usize = 3;
/// The text of the request, reused in the answer, and the content of the answer.
const ON_SERVER_MAX: usize = 2;
/// Allowance for occasional allocations: new read buffers and the callers' tasks.
const SPARE: usize = CALLS / 100;
