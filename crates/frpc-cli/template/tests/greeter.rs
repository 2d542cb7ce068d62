use frpc::{Channel, Code};

use CRATE::{
    GreeterService,
    greeter::{HelloRequest, greeter_client::GreeterClient, greeter_server::GreeterServer},
};

#[tokio::test]
async fn greets_by_name() {
    // In process: no socket and no port.
    let client = GreeterClient::new(Channel::in_process(GreeterServer::new(GreeterService)));
    let reply = client
        .say_hello(HelloRequest { name: "Ada".into() })
        .await
        .unwrap();
    assert_eq!(reply.into_inner().message, "Hello Ada!");
}

#[tokio::test]
async fn refuses_an_empty_name() {
    let client = GreeterClient::new(Channel::in_process(GreeterServer::new(GreeterService)));
    let status = client.say_hello(HelloRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn one_port_serves_frpc_and_grpc() {
    // Port 0 is a free port.
    let server = CRATE::serve("tcp://127.0.0.1:0").await.unwrap();
    let address = server.local_addr().to_string();
    for address in [address.replace("tcp://", "grpc://"), address] {
        let channel = Channel::builder()
            .transport(frpc_http::transport())
            .connect(&*address)
            .await
            .unwrap();
        let reply = GreeterClient::new(channel)
            .say_hello(HelloRequest { name: "Ada".into() })
            .await
            .unwrap();
        assert_eq!(reply.into_inner().message, "Hello Ada!");
    }
}
