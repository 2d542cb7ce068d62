//! Counts the allocations of calls to a function without waiting, with the caller on the same thread.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use frpc::Server;
use frpc_jsonrpc::{JsonRpc, JsonRpcSettings, function};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex, split},
    runtime,
};

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    /// The bytes allocated minus the bytes freed by this thread.
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: all functions forward to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        TAKEN.set(TAKEN.get().wrapping_add(layout.size()));
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        TAKEN.set(TAKEN.get().wrapping_sub(layout.size()));
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[function]
async fn sum(a: i64, b: i64) -> i64 {
    a + b
}

#[function]
fn product(a: i64, b: i64) -> i64 {
    a * b
}

const CALLS: usize = 1000;

#[function]
fn length(text: String) -> usize {
    text.len()
}

#[function]
fn long() -> String {
    "x".repeat(1000)
}

/// The extra allocations while the buffers of a connection still grow.
const SPARE: usize = 100;

/// Returns the number of allocations for calls of a function, with this many calls per write.
fn count(method: &str, result: u8, at_once: usize) -> usize {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::builder().wire(JsonRpc::new().function(sum).function(product)).without_listener().unwrap();
        let (mut caller, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let requests = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":[1,2],"id":7}}"#).repeat(at_once);
        let expected = format!("{{\"jsonrpc\":\"2.0\",\"result\":{result},\"id\":7}}\n").repeat(at_once);
        let mut answers = vec![0; expected.len()];
        let mut before = 0;
        for round in 0..2 * CALLS / at_once {
            if round == CALLS / at_once {
                before = COUNT.get();
            }
            caller.write_all(requests.as_bytes()).await.unwrap();
            caller.read_exact(&mut answers).await.unwrap();
        }
        assert_eq!(answers, expected.as_bytes());
        COUNT.get() - before
    })
}

#[test]
fn a_ready_call_allocates_at_most_its_future() {
    for at_once in [1, 10, 100] {
        for (method, result, each) in [("product", 2, 0), ("sum", 3, 1)] {
            let count = count(method, result, at_once);
            println!("{method}, {at_once} at once: {count} for {CALLS} calls");
            assert!(
                count <= each * CALLS + SPARE,
                "{count} allocations for {CALLS} calls of {method}, {at_once} at once"
            );
        }
    }
}

#[test]
fn a_large_message_does_not_retain_memory() {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::builder().wire(JsonRpc::new().function(length)).without_listener().unwrap();
        let (mut caller, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let mut ask = async |len: usize| {
            let text = "x".repeat(len);
            let request = format!(r#"{{"jsonrpc":"2.0","method":"length","params":["{text}"],"id":7}}"#);
            caller.write_all(request.as_bytes()).await.unwrap();
            let expected = format!("{{\"jsonrpc\":\"2.0\",\"result\":{len},\"id\":7}}\n");
            let mut answer = vec![0; expected.len()];
            caller.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, expected.as_bytes());
        };
        ask(1).await;
        let before = TAKEN.get();
        ask(1_000_000).await;
        ask(1).await;
        let more = TAKEN.get().wrapping_sub(before);
        assert!(more < 100_000, "{more} bytes are kept");
    });
}

#[test]
fn unread_answers_use_bounded_memory() {
    const CALLS: usize = 20_000;
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let wire = JsonRpc::new()
            .function(long)
            .settings(JsonRpcSettings { answers_len_max: 50_000, ..JsonRpcSettings::default() });
        let server = Server::builder().wire(wire).without_listener().unwrap();
        let (caller, theirs) = duplex(10_000);
        server.attach(theirs);
        let (mut answers, mut requests) = split(caller);
        tokio::spawn(async move {
            for _ in 0..CALLS {
                requests.write_all(br#"{"jsonrpc":"2.0","method":"long","id":7}"#).await.unwrap();
            }
        });
        let mut some = [0; 1000];
        answers.read_exact(&mut some).await.unwrap();
        let before = TAKEN.get();
        for _ in 0..CALLS / 2 {
            answers.read_exact(&mut some).await.unwrap();
        }
        let more = TAKEN.get().wrapping_sub(before);
        // The growth. The difference is negative if the memory has shrunk.
        assert!(more.cast_signed() < 1_000_000, "{more} bytes are kept");
    });
}
