//! Runs the same test over frisbee and in process.

use frpc::{BoxService, Channel, Code, Server, Services, Status};
use support::in_virtual_time;
use tokio::io::duplex;

/// Creates services and a test, and runs the test with a channel to the services: in process, then over frisbee.
pub(crate) fn either_way<T, F>(make: impl Fn() -> (Vec<BoxService>, T))
where
    T: FnOnce(Channel) -> F,
    F: Future<Output = ()>,
{
    in_virtual_time(async {
        let (services, test) = make();
        test(Channel::in_process(Services::new().add_services(services))).await;
    });
    in_virtual_time(async {
        let (services, test) = make();
        let server = Server::builder().add_services(services).without_listener().unwrap();
        test(connect(&server).await).await;
    });
}

/// Connects to a server in memory.
pub(crate) async fn connect(server: &Server) -> Channel {
    let (theirs, ours) = duplex(64 * 1024);
    server.attach(theirs);
    Channel::builder().attach(ours).await.unwrap()
}

/// Asserts that a call failed with this code and message.
#[track_caller]
pub(crate) fn assert_status<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, message: &str) {
    let status = result.unwrap_err();
    assert_eq!((status.code(), status.message()), (code, message));
}
