//! The suite for clients of Twirp, and a client that its generator wrote.

use std::path::Path;

use foreign::protos::twitch::twirp::example::{
    Hat, Size,
    haberdasher_server::{Haberdasher, HaberdasherServer},
};
use frpc::{Code, Request, Response, Server, Status};
use frpc_http::Http;
use support::{foreign_program, in_real_time_within};

use crate::{LIMIT, port, run};

#[test]
fn the_client_passes_every_twirp_case() {
    let Some(suite) = foreign_program("clientcompat") else { return };
    in_real_time_within(LIMIT, async {
        let said = run(Path::new(&suite), &["-client", env!("CARGO_BIN_EXE_twirp_client")]).await.unwrap();
        assert!(said.contains("PASSED with 0 failures, 21 successes"), "{said}");
    });
}

/// Makes hats of sizes that there are. Others choose the code of the error.
struct Shop;

impl Haberdasher for Shop {
    async fn make_hat(&self, request: Request<Size>) -> Result<Response<Hat>, Status> {
        let size = request.get_ref().inches;
        if size <= 0 {
            let mut status = Status::new(Code::from_number(-size), "\"no\" hat \u{fc}");
            status.metadata_mut().insert("argument", "inches")?;
            return Err(status);
        }
        let metadata = request.metadata();
        let name = match size {
            12 => {
                format!("shop {}, mark {:?}", metadata.get("x-shop").unwrap(), metadata.get_bin("x-mark-bin").unwrap())
            }
            len => "x".repeat(len.try_into().unwrap()),
        };
        Ok(Hat { size, color: "blue".to_owned(), name }.into())
    }
}

#[test]
fn a_generated_twirp_client_calls_our_server() {
    let Some(client) = foreign_program("twirp-client") else { return };
    in_real_time_within(LIMIT, async {
        let server = Server::builder().wire(Http::new()).add_service(HaberdasherServer::new(Shop));
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        let said = run(&client, &[&format!("http://127.0.0.1:{}", port(&server))]).await.unwrap();
        assert!(said.contains("39 passed, 0 failed"), "{said}");
    });
}
