//! A service with a REST API.

#![allow(missing_docs, reason = "the schema has few comments")]

use frpc::{Code, Request, Response, Status, Streaming};

use crate::EventLog;

include!(concat!(env!("OUT_DIR"), "/rest/_includes.rs"));

use self::{
    google::api::HttpBody,
    library::v1::{
        ArchiveBookRequest, Book, CreateBookRequest, Everything, GetBookRequest, GetFileRequest, ListBooksRequest,
        ListBooksResponse, Page, PutFileRequest, ReadPagesRequest, UpdateBookRequest, library_server::Library,
    },
};

/// The OpenAPI document of the service.
pub const OPEN_API: &str = include_str!(concat!(env!("OUT_DIR"), "/rest/library.json"));

/// A library. Books named `none` and `never` are not found and never answered.
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    /// The ends of streams.
    pub events: EventLog,
}

fn book(name: String) -> Book {
    Book { name, title: "T".to_owned(), author: None }
}

impl Library for Shelf {
    async fn get_book(&self, request: Request<GetBookRequest>) -> Result<Response<Book>, Status> {
        let mut response = Response::new(book(String::new()));
        if let Some(value) = request.metadata().get("x-echo") {
            response.metadata_mut().insert("x-echo", value).unwrap();
            response.trailers_mut().insert("x-end", value).unwrap();
        }
        let name = request.into_inner().name;
        match &*name {
            "none" => {
                let detail = frpc::prost_types::Any::from_msg(&frpc::prost_types::Duration { seconds: 3, nanos: 0 });
                return Err(Status::with_error_details(Code::NotFound, "no such book", [detail.unwrap()]));
            }
            "never" => std::future::pending().await,
            _ => response.get_mut().name = name,
        }
        Ok(response)
    }

    async fn list_books(&self, request: Request<ListBooksRequest>) -> Result<Response<ListBooksResponse>, Status> {
        let request = request.into_inner();
        let numbers = 0..request.page_size;
        let books = numbers.map(|number| book(format!("{}/books/{number}", request.parent))).collect();
        Ok(ListBooksResponse { books }.into())
    }

    async fn create_book(&self, request: Request<CreateBookRequest>) -> Result<Response<Book>, Status> {
        let CreateBookRequest { parent, book, book_id } = request.into_inner();
        Ok(Book { name: format!("{parent}/books/{book_id}"), ..book.unwrap_or_default() }.into())
    }

    async fn update_book(&self, request: Request<UpdateBookRequest>) -> Result<Response<UpdateBookRequest>, Status> {
        Ok(request.into_inner().into())
    }

    async fn delete_book(&self, _: Request<GetBookRequest>) -> Result<Response<()>, Status> {
        Ok(().into())
    }

    async fn archive_book(&self, request: Request<ArchiveBookRequest>) -> Result<Response<Book>, Status> {
        let ArchiveBookRequest { name, reason } = request.into_inner();
        Ok(Book { title: reason, ..book(name) }.into())
    }

    async fn read_pages(&self, request: Request<ReadPagesRequest>) -> Result<Response<Streaming<Page>>, Status> {
        let ReadPagesRequest { name, fail_at } = request.into_inner();
        if name.contains("open") {
            let (sender, pages) = Streaming::channel(1);
            let events = self.events.clone();
            tokio::spawn(async move {
                while sender.send(Page { number: 1 }).await.is_ok() {}
                events.add("closed");
            });
            return Ok(pages.into());
        }
        let page = move |number| if number == fail_at { Err(Status::aborted("a page")) } else { Ok(Page { number }) };
        Ok(Streaming::new(futures_util::stream::iter((1..=3).map(page))).into())
    }

    async fn count_pages(&self, request: Request<Streaming<Page>>) -> Result<Response<Page>, Status> {
        let mut pages = request.into_inner();
        let mut sum = 0;
        while let Some(page) = pages.message().await? {
            sum += page.number;
        }
        Ok(Page { number: sum }.into())
    }

    async fn get_file(&self, request: Request<GetFileRequest>) -> Result<Response<HttpBody>, Status> {
        let data = request.into_inner().path.into_bytes();
        Ok(HttpBody { content_type: "text/html".to_owned(), data, extensions: Vec::new() }.into())
    }

    async fn put_file(&self, request: Request<PutFileRequest>) -> Result<Response<HttpBody>, Status> {
        request.into_inner().content.map(Response::new).ok_or_else(|| Status::invalid_argument("no content"))
    }

    async fn echo(&self, request: Request<Everything>) -> Result<Response<Everything>, Status> {
        Ok(request.into_inner().into())
    }

    async fn hidden(&self, _: Request<()>) -> Result<Response<()>, Status> {
        Ok(().into())
    }
}
