//! Services of several proto files on one side. The methods of each file are numbered from the same operation.

use frpc::{BoxService, Channel, Code, Endpoint, Request, Response, Server, Services, Status, Streaming};
use support::{
    SECOND, ThreadLog,
    calls::{
        TestClient, TestServer, TestService, all, connect, connect_plainly, each_kind, only_connection, quiet,
        quiet_channel, words,
    },
    in_virtual_time,
    interop::{
        Service,
        schema::{Blob, Number, Series, Summary, Text, interop_client::InteropClient, interop_server::InteropServer},
    },
    settle,
};
use tokio::io::duplex;
use tracing::Level;

/// Serves both files, the first one with this service.
fn serve_both(service: &TestService) -> Server {
    let server = Server::builder().config(quiet()).add_service(TestServer::new(service.clone()));
    server.add_service(InteropServer::new(Service)).without_listener().unwrap()
}

/// Calls methods of each kind in both files. All but the last share operations.
async fn check_calls(channel: &Channel) {
    let (test, interop) = (TestClient::new(channel.clone()), InteropClient::new(channel.clone()));
    for (answer, expected) in each_kind(&test, "hi").await.into_iter().zip(["hi", "hi", "hi", "re: hi"]) {
        assert_eq!(answer.unwrap(), expected);
    }
    let blob = || Blob { data: b"hi".to_vec() };
    assert_eq!(interop.payload(blob()).await.unwrap().into_inner(), blob());
    let status = interop.fail(Text { text: "as told".into() }).await.unwrap_err();
    assert_eq!(status.message(), "as told");
    let mut numbers =
        interop.numbers(Series { start: 5, count: 1, fail_with: String::new() }).await.unwrap().into_inner();
    assert_eq!(numbers.message().await.unwrap(), Some(Number { value: 5 }));
    let sum = interop.total(Streaming::from_iter([Number { value: 5 }, Number { value: 6 }])).await.unwrap();
    assert_eq!(sum.into_inner(), Summary { sum: 11, count: 2 });
    // A call with more than a message uses another packet.
    let mut request = Request::new(words("hi"));
    request.set_timeout(7 * SECOND);
    assert_eq!(test.say(request).await.unwrap().into_inner(), words("hi"));
}

#[test]
fn extended_clients_call_the_methods_of_every_file() {
    in_virtual_time(async {
        let server = serve_both(&TestService::default());
        check_calls(connect(&server).await.channel()).await;
    });
}

#[test]
fn methods_of_every_file_work_in_process_and_by_number() {
    in_virtual_time(async {
        let services = || {
            let services = Services::new().add_service(TestServer::new(TestService::default()));
            services.add_services([BoxService::new(InteropServer::new(Service))])
        };
        check_calls(&Channel::in_process(services())).await;
        let endpoint = Endpoint::new(services()).unwrap();
        assert_eq!(endpoint.methods().count(), 4 + 8);
        assert!(endpoint.find_operation(10).is_none());
        assert_eq!(endpoint.find_operation(u16::MAX).unwrap().method().path(), "calls.Test/Chat");
    });
}

#[test]
fn a_server_calls_all_client_methods_of_every_file() {
    in_virtual_time(async {
        let server = Server::builder().config(quiet()).without_listener().unwrap();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let channel = quiet_channel().add_service(InteropServer::new(Service));
        let channel = channel.add_service(TestServer::new(TestService::default())).attach(ours).await.unwrap();
        check_calls(&Channel::over(&only_connection(&server).await).unwrap()).await;
        drop(channel);
    });
}

/// Checks that a call failed because its operation is ambiguous.
#[track_caller]
fn check_ambiguous<T: std::fmt::Debug>(answer: Result<T, Status>, operation: u16) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    let message = format!("operation {operation}, because it is shared by methods of calls.Test and interop.Interop");
    assert!(status.message().contains(&message) && status.message().contains("first_operation"), "{status}");
}

#[test]
fn ambiguous_operations_are_rejected_with_their_services() {
    in_virtual_time(async {
        let service = TestService::default();
        let server = serve_both(&service);
        let client = connect_plainly(&server).await;
        for (answer, operation) in each_kind(&client, "hi").await.into_iter().zip(10..) {
            check_ambiguous(answer, operation);
        }
        let interop = InteropClient::new(client.channel().clone());
        check_ambiguous(interop.payload(Blob::default()).await, 11);
        settle().await;
        assert!(service.log.take().is_empty());
        // Only one method has this operation.
        let talk: Response<_> = interop.talk(Streaming::from_iter([Text { text: "hi".into() }])).await.unwrap();
        assert_eq!(talk.into_inner().message().await.unwrap().unwrap().text, "re: hi");
    });
}

#[test]
fn ambiguous_operations_are_logged_once_on_a_plain_call() {
    in_virtual_time(async {
        let log = ThreadLog::hear(Level::WARN);
        let server = serve_both(&TestService::default());
        let client = connect(&server).await;
        assert_eq!(all(client.count(words("one, two")).await.unwrap()).await.unwrap(), ["one", "two"]);
        assert!(log.take().is_empty(), "peers that find methods by their paths have no trouble");
        let client = connect_plainly(&server).await;
        for (answer, operation) in each_kind(&client, "hi").await.into_iter().zip(10..) {
            check_ambiguous(answer, operation);
        }
        let told = log.take();
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].contains("methods of calls.Test and interop.Interop that share operations"), "{told:#?}");
        assert!(told[0].contains("operation=10 operations=4"), "{told:#?}");
    });
}
