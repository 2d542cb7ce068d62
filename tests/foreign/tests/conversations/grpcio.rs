//! The gRPC client of Python, whose script is in `python/`.

use support::{Directory, foreign_python};

use crate::{run, with_server, write_descriptors};

#[test]
fn grpcio_calls() {
    let Some(python) = foreign_python() else { return };
    with_server(async |port| {
        let directory = Directory::new("foreign");
        let descriptors = write_descriptors(&directory);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/grpc_client.py");
        let args = [script, &port.to_string(), descriptors.to_str().unwrap()];
        let output = run(&python.join("python"), &args).await.unwrap();
        assert!(output.contains("all went well"), "{output}");
    });
}
