//! Test doubles: mocks of services, servers in memory, and faults.
//!
//! # Mocks
//!
//! `frpc_build::configure().mocks(true)` generates a mock of each service, such as `MockGreeter`. Its methods
//! `expect_…` return an [`Expectation`]: the requests, the number of calls, and the answer.
//!
//! ```
//! # mod echo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/generated/echo.rs")); }
//! use echo::{Words, echo_client::EchoClient, echo_mock::MockEcho};
//! use frpc::{Code, Status};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Status> {
//! let mock = MockEcho::new();
//! let words = |text: &str| Words { text: text.to_owned() };
//! mock.expect_say().with(words("hello")).times(1).answering(words("hi"));
//! mock.expect_say().failing(Status::not_found("no such word"));
//!
//! let client = EchoClient::new(mock.channel());
//! assert_eq!(client.say(words("hello")).await?.into_inner(), words("hi"));
//! assert_eq!(client.say(words("bye")).await.unwrap_err().code(), Code::NotFound);
//! mock.verify();
//! # Ok(())
//! # }
//! ```
//!
//! # Servers in memory
//!
//! [`Channel::in_process`](crate::Channel::in_process) calls services directly. [`MemoryServer`] is a complete server:
//! its channels use the wire of frisbee, without a socket. Both respect virtual time.
//!
//! # Faults
//!
//! The layer [`FaultInjector`] delays, fails, loses and cuts calls. A seed decides which ones.

mod faults;
mod mock;
mod server;

pub use faults::{FaultCounts, FaultInjector, FaultRates};
pub use mock::{CallCount, Expectation, MockService, Sequence};
pub use server::MemoryServer;
