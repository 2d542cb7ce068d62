//! REST: the same answers as grpc-gateway's, and OpenAPI documents that a validator accepts.

use std::{path::Path, process::Stdio};

use frpc::Server;
use frpc_http::Http;
use support::{
    Directory, foreign_packages, foreign_program, in_real_time_within,
    rest::{
        OPEN_API, Shelf,
        library::v1::{FILE_DESCRIPTOR_SET, library_server::LibraryServer},
    },
};
use tokio::{io::AsyncWriteExt, process::Command};

use crate::{LIMIT, port, run};

#[test]
fn answers_are_the_same_as_of_grpc_gateway() {
    let Some(gateway) = foreign_program("gateway") else { return };
    in_real_time_within(LIMIT, async {
        let server = Server::builder().wire(Http::new().rest()).add_service(LibraryServer::new(Shelf::default()));
        let server = server.bind("tcp://127.0.0.1:0").await.unwrap();
        let directory = Directory::new("rest");
        let descriptors = directory.path().join("descriptors");
        std::fs::write(&descriptors, FILE_DESCRIPTOR_SET).unwrap();
        let mut command = Command::new(gateway);
        command.arg(descriptors).arg(format!("127.0.0.1:{}", port(&server))).kill_on_drop(true);
        let mut judge = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = judge.stdin.take().unwrap();
        input.write_all(REQUESTS.as_bytes()).await.unwrap();
        drop(input);
        let output = judge.wait_with_output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let all = REQUESTS.lines().count();
        assert!(said.contains(&format!("{all} same, 0 different")), "{said}");
    });
}

/// Requests, one per line: method, target and body.
const REQUESTS: &str = r#"GET /v1/shelves/1/books/2 
GET /v1/shelves/a%20b/books/c%C3%A9 
GET /v1/books/7 
GET /v1/books/a%20b 
GET /v1/books/a+b 
GET /v1/books/none 
GET /v1/shelves/7/books?page_size=2 
GET /v1/shelves/7/books?pageSize=1 
GET /v1/shelves/7/books 
GET /v1/shelves/7/books?page_size=x 
GET /v1/shelves/7/books?page_size=1&page_size=2 
GET /v1/shelves/7/books?unknown=1 
POST /v1/shelves/7/books?book_id=8 {"title":"N"}
POST /v1/shelves/7/books?bookId=8&book.title=other {"title":"N","author":{"first_name":"A","surname":"B"}}
POST /v1/shelves/7/books?book_id=8&parent=other {}
POST /v1/shelves/7/books {"title":1}
POST /v1/shelves/7/books {"title"
PATCH /v1/shelves/1/books/2 {"title":"N"}
PATCH /v1/shelves/1/books/2 {"title":"N","author":{"first_name":"A","surname":"B"}}
PATCH /v1/shelves/1/books/2 {"name":"other","title":"N"}
DELETE /v1/shelves/1/books/2 
POST /v1/shelves/1/books/2:archive {"reason":"old"}
POST /v1/shelves/1/books/2:archive {"reason":"old","name":"other"}
POST /v1/shelves/1/books/2:archive {}
POST /v1/shelves/1/books/2:archive 
GET /v1/shelves/1/books/2/pages 
GET /v1/shelves/1/books/2/pages?fail_at=1 
GET /v1/shelves/1/books/2/pages?fail_at=3 
GET /v1/files/a/b/c.html 
GET /v1/files/a%20b 
GET /v1/echo/t/1,2,3 
GET /v1/echo/t/x 
GET /v1/echo?text=a+b%26&flag=true&numbers=1&numbers=-2 
GET /v1/echo?flag=1 
GET /v1/echo?flag=yes 
GET /v1/echo?big=-9223372036854775808&count=18446744073709551615 
GET /v1/echo?big=9223372036854775808 
GET /v1/echo?small=4294967296 
GET /v1/echo?ratio=1.5e3&share=0.5 
GET /v1/echo?ratio=NaN&share=-Infinity 
GET /v1/echo?data=aGk%3D 
GET /v1/echo?data=_-8%3D 
GET /v1/echo?color=RED&colors=2&colors=RED 
GET /v1/echo?color=GREEN 
GET /v1/echo?color=1 
GET /v1/echo?at=2026-01-02T03:04:05.5Z&span=1.5s 
GET /v1/echo?at=yesterday 
GET /v1/echo?mask=text,flag 
GET /v1/echo?wrapped=w&maybe= 
GET /v1/echo?value=%5B1%2C%7B%22a%22%3Anull%7D%5D 
GET /v1/echo?limits[a]=1&limits[b.c]=2 
GET /v1/echo?limits[a]=x 
GET /v1/echo?author.first_name=A&author.surname=B 
GET /v1/echo?author.firstName=A&author.last_name=B 
GET /v1/echo?inner.inner.author.first_name=A&inner.numbers=1&inner.numbers=2 
GET /v1/echo?author=A 
GET /v1/echo?text.a=A 
GET /v1/echo?left=a 
GET /v1/echo?left=a&right=1 
GET /v1/echo?words=x&words=y&words= 
POST /v1/echo {"text":"x","inner":{"flag":true},"limits":{"a":1},"at":"2026-01-02T03:04:05Z"}
POST /v1/echo?text=ignored {"flag":true}
POST /v1/echo {"big":"7","count":8,"data":"aGk","color":2}
POST /v1/echo {"color":"GREEN"}
POST /v1/echo []
POST /v1/echo {"text":"x"
POST /v1/echo 
PUT /v1/echo/x?flag=true&author.surname=B "A"
GET /v1/nothing 
GET /v1//books/7 
"#;

#[test]
fn the_document_is_valid_openapi() {
    let Some(packages) = foreign_packages() else { return };
    in_real_time_within(LIMIT, async {
        let directory = Directory::new("openapi");
        let document = directory.path().join("library.json");
        std::fs::write(&document, OPEN_API).unwrap();
        let script = packages.join("node/openapi.mjs");
        let said = run(Path::new("node"), &[script.to_str().unwrap(), document.to_str().unwrap()]).await;
        assert!(said.as_ref().is_ok_and(|said| said.contains("all went well")), "{said:?}");
    });
}
