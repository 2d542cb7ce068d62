//! A live view of a process with [frpc]: its calls, connections, streams and channels.
//!
//! [`Admin`] is a service for any wire, with a [page](Admin::page) for browsers and gRPC's [channelz](Admin::channelz) for
//! tools such as grpcdebug. The command `frpc top ADDRESS` shows the same in a terminal.
//!
//! ```
//! use frpc::Server;
//! use frpc_admin::{Admin, AdminAccess};
//! use frpc_http::Http;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let admin = Admin::new(AdminAccess::local());
//! let server = Server::builder()
//!     .wire(Http::new().mount("/admin", admin.page()))
//!     .add_service(admin.channelz())
//!     .add_service(admin);
//! # let server = server.bind("mem:admin").await?;
//! # Ok(())
//! # }
//! ```
//!
//! A server without these lines serves none of it. The services show the peers, methods and targets of the whole process, the
//! messages of failed calls, and metadata except [secrets](frpc::layers::looks_secret). [`AdminAccess`] decides which peers
//! may see them.
#![forbid(unsafe_code)]

mod access;
mod admin;
mod channelz;
mod page;
mod process;
pub mod protos;
mod sampler;

pub use access::AdminAccess;
pub use admin::Admin;
pub use channelz::Channelz;
pub use page::AdminPage;
