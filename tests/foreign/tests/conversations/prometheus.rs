//! The text of `/metrics`, read by the parsers of Prometheus. Their script is in `python/`.

use foreign::protos::helloworld::{HelloRequest, greeter_client::GreeterClient};
use frpc::Code;
use support::{foreign_program, foreign_python};

use crate::{run, with_server};

#[test]
fn prometheus_parses_the_metrics() {
    let Some(python) = foreign_python() else { return };
    with_server(async |port| {
        let client = GreeterClient::connect(format!("tcp://127.0.0.1:{port}")).await.unwrap();
        for name in ["Ada", "Grace", "a \"quoted\\name\""] {
            client.say_hello(HelloRequest { name: name.to_owned() }).await.unwrap();
        }
        let refused = client.say_hello(HelloRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/prometheus.py");
        let output = run(&python.join("python"), &[script, &port.to_string()]).await.unwrap();
        assert!(output.contains("all went well"), "{output}");
    });
}

#[test]
fn promlint_finds_no_problem_in_the_metrics() {
    let Some(promlint) = foreign_program("promlint") else { return };
    with_server(async |port| {
        let client = GreeterClient::connect(format!("tcp://127.0.0.1:{port}")).await.unwrap();
        client.say_hello(HelloRequest { name: "Ada".to_owned() }).await.unwrap();
        let output = run(&promlint, &[&format!("http://127.0.0.1:{port}/metrics")]).await.unwrap();
        assert_eq!(output, "no problems\n");
    });
}
