//! One proto file as gRPC and as REST, on one port, with a description for browsers.
//!
//! Usage: `rest [ADDRESS]`, until Ctrl-C, and `rest demo` for a server that calls itself.

use std::{collections::BTreeMap, env, error::Error, sync::Mutex, time::Duration};

use frpc::{Address, Request, Response, Server, Status, Streaming};
use frpc_http::{Http, OpenApiDocument, OpenApiPage};
use library::{
    Book, CreateBookRequest, GetBookRequest, ListBooksRequest,
    library_client::LibraryClient,
    library_server::{Library, LibraryServer},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Generated from `proto/library.proto`, with `rest(true)`.
pub mod library {
    frpc::include_proto!("library");
}

// ANCHOR: document
/// The description of the API, written by the build script.
const DOCUMENT: &str = include_str!(concat!(env!("OUT_DIR"), "/library.openapi.json"));
// ANCHOR_END: document

/// Books by name.
#[derive(Default)]
struct Shelves(Mutex<BTreeMap<String, Book>>);

impl Library for Shelves {
    async fn get_book(&self, request: Request<GetBookRequest>) -> Result<Response<Book>, Status> {
        let name = request.into_inner().name;
        let books = self.0.lock().map_err(|_| Status::internal("the shelves are broken"))?;
        let book = books.get(&name).cloned();
        book.map(Response::new).ok_or_else(|| Status::not_found(format!("there is no book {name}")))
    }

    async fn create_book(&self, request: Request<CreateBookRequest>) -> Result<Response<Book>, Status> {
        let CreateBookRequest { shelf, book_id, book } = request.into_inner();
        if book_id.is_empty() {
            return Err(Status::invalid_argument("the parameter `book_id` is missing"));
        }
        let name = format!("{shelf}/books/{book_id}");
        let book = Book { name: name.clone(), ..book.unwrap_or_default() };
        let mut books = self.0.lock().map_err(|_| Status::internal("the shelves are broken"))?;
        books.insert(name, book.clone());
        Ok(book.into())
    }

    async fn list_books(&self, request: Request<ListBooksRequest>) -> Result<Response<Streaming<Book>>, Status> {
        let start = format!("{}/", request.into_inner().shelf);
        let books = self.0.lock().map_err(|_| Status::internal("the shelves are broken"))?;
        let found: Vec<_> = books.values().filter(|book| book.name.starts_with(&start)).cloned().collect();
        Ok(Streaming::from_iter(found).into())
    }
}

async fn serve(address: &str) -> Result<Server, Box<dyn Error>> {
    // ANCHOR: serve
    let http = Http::new()
        .rest()
        .mount("/openapi.json", OpenApiDocument::new(DOCUMENT))
        .mount("/docs", OpenApiPage::new("/openapi.json"));
    Ok(Server::builder().wire(http).add_service(LibraryServer::new(Shelves::default())).bind(address).await?)
    // ANCHOR_END: serve
}

/// Makes a request as any HTTP client does, and returns the body.
async fn ask(address: &Address, line: &str, body: &str) -> Result<String, Box<dyn Error>> {
    let Address::Tcp(address) = address else { return Err("the server has no TCP port".into()) };
    let mut socket = TcpStream::connect(address).await?;
    let len = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {len}\r\nconnection: \
         close\r\n\r\n{body}"
    );
    socket.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    // Without the lengths of chunks, which are not JSON.
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok(body.lines().filter(|line| line.starts_with('{')).collect::<Vec<_>>().join("\n"))
}

async fn demo() -> Result<(), Box<dyn Error>> {
    let server = serve("tcp://127.0.0.1:0").await?;
    let address = server.local_addr();
    // REST writes, and gRPC reads.
    let dune = r#"{"title": "Dune", "year": 1965}"#;
    println!("REST: {}", ask(address, "POST /v1/shelves/1/books?book_id=dune", dune).await?);
    frpc_http::register();
    let client = LibraryClient::connect(address.to_string().replace("tcp://", "grpc://")).await?;
    let book = client.get_book(GetBookRequest { name: "shelves/1/books/dune".to_owned() }).await?.into_inner();
    println!("gRPC: {} of {}", book.title, book.year);
    println!("REST: {}", ask(address, "GET /v1/shelves/1/books/dune", "").await?);
    println!("REST: {}", ask(address, "GET /v1/shelves/1/books/none", "").await?);
    println!("REST: {}", ask(address, "GET /v1/shelves/1/books", "").await?);
    server.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let argument = env::args().nth(1).unwrap_or("tcp://127.0.0.1:8080".to_owned());
    if argument == "demo" {
        return demo().await;
    }
    let server = serve(&argument).await?;
    println!("listening on {}; open /docs, or try:", server.local_addr());
    let url = server.local_addr().to_string().replace("tcp://", "http://");
    println!(
        "  curl -H content-type:application/json -d '{{\"title\":\"Dune\"}}' '{url}/v1/shelves/1/books?book_id=dune'"
    );
    println!("  curl {url}/v1/shelves/1/books/dune");
    tokio::signal::ctrl_c().await?;
    server.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
