//! The tools that people call services with, which learn by reflection what there is.

use support::{foreign_packages, foreign_program};

use crate::{run, with_server};

#[test]
fn grpcurl_lists_describes_and_calls() {
    let Some(grpcurl) = foreign_program("grpcurl") else { return };
    with_server(async |port| {
        let at = format!("127.0.0.1:{port}");
        let ask = async |args: &[&str], behind: &[&str]| {
            run(&grpcurl, &[&["-plaintext"], args, &[at.as_str()], behind].concat()).await
        };
        let services = ask(&[], &["list"]).await.unwrap();
        let expected = [
            "frpc.admin.v1.Admin",
            "grpc.channelz.v1.Channelz",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
            "grpc.testing.TestService",
            "helloworld.Greeter",
        ];
        assert_eq!(services.lines().collect::<Vec<_>>(), expected);
        let described = ask(&[], &["describe", "helloworld.Greeter"]).await.unwrap();
        assert!(described.contains("rpc SayHello ( .helloworld.HelloRequest ) returns ( .helloworld.HelloReply );"));
        let described = ask(&[], &["describe", "grpc.testing.EchoStatus"]).await.unwrap();
        assert!(described.contains("string message = 2;"), "{described}");

        let hello = ask(&["-d", r#"{"name": "grpcurl"}"#], &["helloworld.Greeter/SayHello"]).await.unwrap();
        assert!(hello.contains(r#""message": "Hello grpcurl!""#), "{hello}");
        let failed = ask(&[], &["helloworld.Greeter/SayHello"]).await.unwrap_err();
        assert!(failed.contains("Code: InvalidArgument") && failed.contains("Message: who is there?"), "{failed}");
        let three = r#"{"response_parameters": [{"size": 1}, {"size": 2}, {"size": 3}]}"#;
        let stream = ask(&["-d", three], &["grpc.testing.TestService/StreamingOutputCall"]).await.unwrap();
        assert_eq!(stream.matches("\"body\"").count(), 3, "{stream}");
        let well =
            ask(&["-d", r#"{"service": "helloworld.Greeter"}"#], &["grpc.health.v1.Health/Check"]).await.unwrap();
        assert!(well.contains("\"SERVING\""), "{well}");
    });
}

#[test]
fn buf_calls_by_every_protocol() {
    let Some(packages) = foreign_packages() else { return };
    let buf = packages.join("node_modules/.bin/buf");
    with_server(async |port| {
        for protocol in ["grpc", "grpcweb", "connect"] {
            let ask = async |method: &str, message: &str| {
                let url = format!("http://127.0.0.1:{port}/{method}");
                run(&buf, &["curl", "--http2-prior-knowledge", "--protocol", protocol, "--data", message, &url]).await
            };
            let hello = ask("helloworld.Greeter/SayHello", r#"{"name": "buf"}"#).await.unwrap();
            assert!(hello.contains(r#""message": "Hello buf!""#), "{protocol}: {hello}");
            let failed = ask("helloworld.Greeter/SayHello", "{}").await.unwrap_err();
            assert!(failed.contains("invalid_argument") && failed.contains("who is there?"), "{protocol}: {failed}");
            let three = r#"{"response_parameters": [{"size": 1}, {"size": 2}, {"size": 3}]}"#;
            let stream = ask("grpc.testing.TestService/StreamingOutputCall", three).await.unwrap();
            assert_eq!(stream.matches("\"body\"").count(), 3, "{protocol}: {stream}");
        }
    });
}
