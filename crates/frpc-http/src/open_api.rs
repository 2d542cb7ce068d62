//! An OpenAPI document, and a page that shows it.

use std::borrow::Cow;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};

use crate::{
    Mount, MountContext,
    serve::{EscapedHtml, page_headers},
    static_file::answer,
};

/// Serves the OpenAPI document of a REST API, as written by `frpc_build::configure().openapi("openapi.json")`.
///
/// ```
/// use frpc_http::{Http, OpenApiDocument, OpenApiPage};
///
/// # const DOCUMENT: &str = "{}";
/// // const DOCUMENT: &str = include_str!(concat!(env!("OUT_DIR"), "/openapi.json"));
/// let http = Http::new()
///     .rest()
///     .mount("/openapi.json", OpenApiDocument::new(DOCUMENT))
///     .mount("/docs", OpenApiPage::new("/openapi.json"));
/// # let _ = http;
/// ```
#[derive(Clone, Debug)]
pub struct OpenApiDocument {
    document: Bytes,
}

impl OpenApiDocument {
    /// Serves this JSON.
    pub fn new(document: impl Into<Bytes>) -> Self {
        Self { document: document.into() }
    }
}

impl Mount for OpenApiDocument {
    fn respond<'a>(&'a self, _: MountContext, request: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        answer(request.method(), headers.into_iter().collect(), self.document.clone())
    }
}

/// Shows an [`OpenApiDocument`] to people, with a form for each operation.
///
/// The page loads nothing but the document. Its requests have the rights of the visitor, like those of any page of the
/// same origin.
#[derive(Clone, Debug)]
pub struct OpenApiPage {
    html: Bytes,
}

impl OpenApiPage {
    /// Shows the document at this URL of the same origin.
    pub fn new(document: impl Into<Cow<'static, str>>) -> Self {
        let document = EscapedHtml(&document.into()).to_string();
        Self { html: TEMPLATE.replacen("{document}", &document, 1).into() }
    }
}

impl Mount for OpenApiPage {
    fn respond<'a>(&'a self, _: MountContext, request: Request<Bytes>) -> BoxFuture<'a, Response<Bytes>> {
        answer(request.method(), page_headers(POLICY), self.html.clone())
    }
}

const TEMPLATE: &str = include_str!("open_api.html");

/// The content security policy, with the digests of the script and the style of the page.
const POLICY: &str = "default-src 'none'; script-src 'sha256-yz8dqTgpHRi3qfcA/nGcOK0vS/Ct27O6XABsgjrQUaM='; style-src 'sha256-yo8sjgRDbqjVSbyPTMpRYeJuu9jTUhPZJMMCYpaSuyY='; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::check_page;

    #[test]
    fn the_policy_allows_only_the_script_of_the_page() {
        check_page(TEMPLATE, POLICY);
    }

    #[test]
    fn the_url_of_the_document_is_escaped() {
        let OpenApiPage { html } = OpenApiPage::new("/\"><script>");
        assert!(str::from_utf8(&html).unwrap().contains("data-document=\"/&quot;&gt;&lt;script&gt;\""));
    }
}
