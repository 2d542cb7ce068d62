//! Lists in pages, as streams: methods with `page_token` and `next_page_token`, as Google's AIP-158 describes them.
//!
//! With `configure().pages(true)`, frisbee-rpc-build implements [`PagedRequest`] and [`PagedResponse`] for the messages
//! of such methods.
//!
//! ```
//! # mod library {
//! #     #[derive(Clone, Default)]
//! #     pub struct ListBooksRequest { pub page_size: i32, pub page_token: String }
//! #     #[derive(Clone, Default)]
//! #     pub struct ListBooksResponse { pub books: Vec<String>, pub next_page_token: String }
//! #     impl frpc::pages::PagedRequest for ListBooksRequest {
//! #         fn set_page_token(&mut self, token: String) { self.page_token = token; }
//! #     }
//! #     impl frpc::pages::PagedResponse for ListBooksResponse {
//! #         type Item = String;
//! #         fn next_page_token(&self) -> &str { &self.next_page_token }
//! #         fn items(&self) -> &[String] { &self.books }
//! #         fn into_items(self) -> Vec<String> { self.books }
//! #     }
//! #     pub struct LibraryClient;
//! #     impl LibraryClient {
//! #         pub async fn list_books(&self, request: ListBooksRequest) -> Result<frpc::Response<ListBooksResponse>, frpc::Status> {
//! #             let (book, next) = if request.page_token.is_empty() { ("Emma", "2") } else { ("Persuasion", "") };
//! #             Ok(ListBooksResponse { books: vec![book.to_owned()], next_page_token: next.to_owned() }.into())
//! #         }
//! #     }
//! # }
//! # use library::{LibraryClient, ListBooksRequest};
//! use std::pin::pin;
//!
//! use frpc::pages::{self, PageLimits};
//! use futures_util::TryStreamExt as _;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), frpc::Status> {
//! # let client = LibraryClient;
//! let request = ListBooksRequest { page_size: 100, ..Default::default() };
//! let mut books = pin!(pages::items(request, PageLimits::default(), |request| client.list_books(request)));
//! while let Some(book) = books.try_next().await? {
//!     println!("{book}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A stream is lazy: it asks for a page when it has no items left. It ends after the page without a token, or after the
//! first error.

use futures_core::Stream;
use futures_util::{TryStreamExt as _, stream};

use crate::call::{
    request::Response,
    status::{Code, Status},
};

/// A request for one page of a list.
pub trait PagedRequest: Clone {
    /// Sets the token of the page. An empty one is for the first page.
    fn set_page_token(&mut self, token: String);
}

/// One page of a list.
pub trait PagedResponse {
    /// The type of the items.
    type Item;

    /// Returns the token of the next page. Empty on the last page.
    fn next_page_token(&self) -> &str;

    /// Returns the items of the page.
    fn items(&self) -> &[Self::Item];

    /// Returns the items of the page, and consumes it.
    fn into_items(self) -> Vec<Self::Item>;
}

/// Limits on the pages of a stream, because a server decides how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageLimits {
    /// The maximum number of pages. The stream then fails with `ResourceExhausted`. Default: no limit.
    pub pages_max: Option<usize>,
    /// The maximum number of consecutive pages without items. The stream then fails with `Internal`. Default: 1,000.
    pub empty_pages_max: usize,
}

impl Default for PageLimits {
    fn default() -> Self {
        Self { pages_max: None, empty_pages_max: 1000 }
    }
}

/// Returns the items of all pages, from the page that `request` asks for. `call` makes the call for one page.
///
/// The stream fails with the status of a failed call. It also fails if the server repeats a token, because the list
/// would never end, and if it exceeds the limits.
pub fn items<Q, R, F>(
    request: Q,
    limits: PageLimits,
    call: impl FnMut(Q) -> F,
) -> impl Stream<Item = Result<R::Item, Status>>
where
    Q: PagedRequest,
    R: PagedResponse,
    F: Future<Output = Result<Response<R>, Status>>,
{
    let pages = pages(request, limits, call);
    pages.map_ok(|page| stream::iter(page.into_items().into_iter().map(Ok))).try_flatten()
}

/// Returns all pages, including pages without items. Everything else is as in [`items`].
pub fn pages<Q, R, F>(request: Q, limits: PageLimits, call: impl FnMut(Q) -> F) -> impl Stream<Item = Result<R, Status>>
where
    Q: PagedRequest,
    R: PagedResponse,
    F: Future<Output = Result<Response<R>, Status>>,
{
    let start = Some((PageCursor::new(request, limits), call));
    stream::try_unfold(start, async |cursor| {
        let Some((mut cursor, mut call)) = cursor else { return Ok(None) };
        let page = call(cursor.request()?).await?.into_inner();
        let is_last = page.next_page_token().is_empty();
        if !is_last {
            cursor.advance(&page)?;
        }
        Ok(Some((page, (!is_last).then_some((cursor, call)))))
    })
}

/// The position in a list.
struct PageCursor<Q> {
    request: Q,
    limits: PageLimits,
    /// The number of pages so far.
    pages: usize,
    /// The number of pages without items since the last item.
    empty_pages: usize,
    /// An earlier token. Each new one is compared with it, as in Brent's algorithm: it finds a cycle of any length
    /// without a memory of all tokens.
    saved: String,
    /// The number of pages after which the saved token is replaced.
    save_at: usize,
}

impl<Q: PagedRequest> PageCursor<Q> {
    fn new(request: Q, limits: PageLimits) -> Self {
        Self { request, limits, pages: 0, empty_pages: 0, saved: String::new(), save_at: 1 }
    }

    /// Returns the request for the next page.
    fn request(&mut self) -> Result<Q, Status> {
        if let Some(limit) = self.limits.pages_max.filter(|limit| self.pages >= *limit) {
            let message = format!("the list has more than {limit} pages: raise `pages_max`, or ask for larger pages");
            return Err(Status::new(Code::ResourceExhausted, message));
        }
        self.pages += 1;
        Ok(self.request.clone())
    }

    /// Moves on to the page after this one.
    fn advance<R: PagedResponse>(&mut self, page: &R) -> Result<(), Status> {
        let token = page.next_page_token();
        if token == self.saved {
            return Err(Status::internal("the server repeats a page token, so its list would never end"));
        }
        if self.pages == self.save_at {
            self.saved = token.to_owned();
            self.save_at = self.save_at.saturating_mul(2);
        }
        self.empty_pages = if page.items().is_empty() { self.empty_pages + 1 } else { 0 };
        if self.empty_pages > self.limits.empty_pages_max {
            let count = self.empty_pages;
            return Err(Status::internal(format!("the server answered with {count} empty pages in a row")));
        }
        self.request.set_page_token(token.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures_util::{FutureExt as _, StreamExt as _};

    use super::*;

    #[derive(Clone, Default)]
    struct ListRequest(String);

    #[derive(Debug)]
    struct ListPage(Vec<u32>, String);

    impl PagedRequest for ListRequest {
        fn set_page_token(&mut self, token: String) {
            self.0 = token;
        }
    }

    impl PagedResponse for ListPage {
        type Item = u32;

        fn next_page_token(&self) -> &str {
            &self.1
        }

        fn items(&self) -> &[u32] {
            &self.0
        }

        fn into_items(self) -> Vec<u32> {
            self.0
        }
    }

    /// Lists everything from a server, where `next` maps a token to the next one. Returns the items, the error, and the
    /// tokens of the requests.
    fn list(next: impl Fn(&str) -> Option<ListPage>, limits: PageLimits) -> (Vec<u32>, Option<Status>, Vec<String>) {
        let asked = RefCell::new(Vec::new());
        let all = items(ListRequest::default(), limits, async |request: ListRequest| {
            let page = next(&request.0).ok_or_else(|| Status::not_found("no such page"));
            asked.borrow_mut().push(request.0);
            page.map(Response::new)
        });
        let all: Vec<_> = all.collect().now_or_never().expect("nothing waits");
        let error = all.iter().find_map(|item| item.as_ref().err().cloned());
        (all.into_iter().flatten().collect(), error, asked.into_inner())
    }

    fn number(token: &str) -> u32 {
        token.parse().unwrap_or(0)
    }

    #[test]
    fn items_of_all_pages_come_in_order() {
        let pages = |token: &str| match token {
            "" => Some(ListPage(vec![1, 2], "b".to_owned())),
            "b" => Some(ListPage(vec![], "c".to_owned())),
            "c" => Some(ListPage(vec![3], String::new())),
            _ => None,
        };
        let (items, error, asked) = list(pages, PageLimits::default());
        assert_eq!((items, error.is_none(), asked.join(",")), (vec![1, 2, 3], true, ",b,c".to_owned()));
    }

    #[test]
    fn a_page_is_asked_for_when_it_is_needed() {
        let calls = RefCell::new(0);
        let mut all = Box::pin(items(ListRequest::default(), PageLimits::default(), async |request: ListRequest| {
            *calls.borrow_mut() += 1;
            Ok(Response::new(ListPage(vec![0, 1], (number(&request.0) + 1).to_string())))
        }));
        assert_eq!(*calls.borrow(), 0);
        for expected in [1, 1, 2, 2, 3] {
            all.next().now_or_never().unwrap().unwrap().unwrap();
            assert_eq!(*calls.borrow(), expected);
        }
    }

    #[test]
    fn an_error_ends_the_stream() {
        let (items, error, asked) = list(
            |token| (number(token) < 2).then(|| ListPage(vec![1], (number(token) + 1).to_string())),
            PageLimits::default(),
        );
        assert_eq!((items.len(), error.unwrap().code(), asked.len()), (2, Code::NotFound, 3));
    }

    #[test]
    fn repeated_tokens_end_the_stream() {
        for cycle in [1, 2, 3, 7, 100] {
            for start in [0, 1, 5, 64] {
                let next = |token: &str| {
                    let next = number(token) + 1;
                    let next = if next > start + cycle { start + 1 } else { next };
                    Some(ListPage(vec![1], next.to_string()))
                };
                let (_, error, asked) = list(next, PageLimits::default());
                assert_eq!(error.unwrap().message(), "the server repeats a page token, so its list would never end");
                assert!(asked.len() <= 4 * (start + cycle) as usize + 2, "{start} {cycle}: {}", asked.len());
            }
        }
    }

    #[test]
    fn pages_and_empty_pages_are_limited() {
        let endless =
            |items: Vec<u32>| move |token: &str| Some(ListPage(items.clone(), (number(token) + 1).to_string()));
        let (items, error, _) = list(endless(vec![1]), PageLimits { pages_max: Some(3), ..PageLimits::default() });
        let error = error.unwrap();
        assert_eq!((items.len(), error.code()), (3, Code::ResourceExhausted));
        let (_, error, asked) = list(endless(vec![]), PageLimits::default());
        assert_eq!(error.unwrap().message(), "the server answered with 1001 empty pages in a row");
        assert_eq!(asked.len(), 1001);
        let (items, error, _) = list(
            |_| Some(ListPage(vec![1], String::new())),
            PageLimits { pages_max: Some(1), ..PageLimits::default() },
        );
        assert_eq!((items, error.is_none()), (vec![1], true));
    }
}
