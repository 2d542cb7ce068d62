//! Lists in pages, with generated messages.

use awkward::masks::{
    Book, ListBooksRequest, ListBooksResponse, ListNumbersResponse, ListShelvesRequest, ListShelvesResponse,
    library_client::LibraryClient,
    library_server::{Library, LibraryServer},
};
use frpc::{
    Channel, Request, Response, Status,
    pages::{self, PageLimits},
};
use futures_util::TryStreamExt as _;

struct Shelf;

impl Library for Shelf {
    async fn list_books(&self, request: Request<ListBooksRequest>) -> Result<Response<ListBooksResponse>, Status> {
        let ListBooksRequest { page_size, page_token } = request.into_inner();
        let start: i32 =
            if page_token.is_empty() { 0 } else { page_token.parse().map_err(|_| Status::not_found("page"))? };
        let end = (start + page_size).min(5);
        let books = (start..end).map(|number| Book { title: number.to_string(), ..Book::default() });
        let next_page_token = if end < 5 { end.to_string() } else { String::new() };
        Ok(ListBooksResponse { books: books.collect(), next_page_token, unreachable: Vec::new() }.into())
    }

    async fn list_numbers(&self, _: Request<ListBooksRequest>) -> Result<Response<ListNumbersResponse>, Status> {
        Err(Status::unimplemented("not paged"))
    }

    async fn list_shelves(
        &self,
        request: Request<ListShelvesRequest>,
    ) -> Result<Response<ListShelvesResponse>, Status> {
        let next_page_token = request.into_inner().page_token.is_none().then(|| "last".to_owned());
        Ok(ListShelvesResponse { next_page_token, names: vec!["A".to_owned()] }.into())
    }
}

#[tokio::test]
async fn generated_lists_are_streams() {
    let client = LibraryClient::new(Channel::in_process(LibraryServer::new(Shelf)));
    // ANCHOR: items
    let request = ListBooksRequest { page_size: 2, ..ListBooksRequest::default() };
    let books = pages::items(request.clone(), PageLimits::default(), |request| client.list_books(request));
    // ANCHOR_END: items
    let titles: Vec<_> = books.map_ok(|book| book.title).try_collect().await.unwrap();
    assert_eq!(titles, ["0", "1", "2", "3", "4"]);
    let sizes = pages::pages(request, PageLimits::default(), |request| client.list_books(request));
    let sizes: Vec<_> = sizes.map_ok(|page| page.books.len()).try_collect().await.unwrap();
    assert_eq!(sizes, [2, 2, 1]);
    let shelves =
        pages::items(ListShelvesRequest::default(), PageLimits::default(), |request| client.list_shelves(request));
    assert_eq!(shelves.try_collect::<Vec<_>>().await.unwrap(), ["A", "A"]);
}
