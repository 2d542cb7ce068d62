//! A web page to browse services and call their unary methods.
//!
//! The page is the single file `page.html` and loads nothing else. A header with the digest of its script allows
//! browsers to run this script and no other.

mod example;

use std::fmt::Write;

use bytes::Bytes;
use frpc::{Endpoint, Method, MethodKind};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
};

/// Renders the page for the services of a server.
pub(crate) fn render(endpoint: &Endpoint) -> (HeaderMap, Bytes) {
    let (before, after) = TEMPLATE.split_once("{services}").expect("the page has a place for services");
    let mut html = before.to_owned();
    let mut service = None;
    for method in endpoint.methods() {
        if service.replace(method.service) != Some(method.service) {
            put(&mut html, format_args!("<h2>{}</h2>\n", EscapedHtml(method.service)));
        }
        put_method(&mut html, method);
    }
    if service.is_none() {
        html.push_str("<p>This server has no services.</p>\n");
    }
    html.push_str(after);
    (headers(POLICY), html.into())
}

fn put_method(html: &mut String, method: &Method) {
    let name = EscapedHtml(method.name);
    let types = method.types.map(|types| format!("{} → {}", types.request.name, types.response.name));
    let types = types.unwrap_or_default();
    let types = EscapedHtml(&types);
    let stream = match method.kind {
        MethodKind::Unary => {
            let path = method.path();
            let example = method.types.map(|types| example::request(types.request)).unwrap_or_default();
            return put(
                html,
                format_args!(
                    "<details data-path=\"{}\"><summary>{name} <small>{types}</small></summary>\n\
                     <textarea spellcheck=\"false\" aria-label=\"Request\">\n{}</textarea>\n\
                     <button type=\"button\">Call</button>\n<pre></pre>\n</details>\n",
                    EscapedHtml(&path),
                    EscapedHtml(&example),
                ),
            );
        }
        MethodKind::ServerStreaming => "answers with a stream",
        MethodKind::ClientStreaming => "takes a stream",
        MethodKind::Bidirectional => "takes a stream and answers with one",
    };
    put(html, format_args!("<p class=\"stream\">{name} <small>{types}, {stream}</small></p>\n"));
}

fn put(html: &mut String, text: std::fmt::Arguments<'_>) {
    html.write_fmt(text).expect("memory takes all text");
}

/// Text escaped for HTML content and attributes.
pub(crate) struct EscapedHtml<'a>(pub(crate) &'a str);

impl std::fmt::Display for EscapedHtml<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// Returns the headers of a page with this content security policy.
pub(crate) fn headers(policy: &'static str) -> HeaderMap {
    let pairs: [(HeaderName, &'static str); 6] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    pairs.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
}

const TEMPLATE: &str = include_str!("page.html");

/// The content security policy, with the digests of the script and the style of the page.
const POLICY: &str = "default-src 'none'; script-src 'sha256-Xm1FRYWDqIX9MDwB5hizJbJ/HayjxY0MpUmpoa5q/J4='; style-src 'sha256-UZK3XJsVcIlw6gTMxNlGFaMLbCYeqSJesCI0RW1Mt/I='; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
pub(crate) mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use frpc::{Answer, Call, Service, Status};
    use sha2::{Digest, Sha256};

    use super::*;

    struct Hostile;

    impl Service for Hostile {
        const NAME: &'static str = "a.<script>alert(1)</script>";
        const METHODS: &'static [Method] = &[
            Method::unary(Self::NAME, "\"><img src=x onerror='alert(2)'>", 10),
            Method::bidirectional(Self::NAME, "&lt;Chat", 11),
        ];

        async fn call(&self, _: usize, _: Call) -> Result<Answer, Status> {
            Err(Status::unimplemented(""))
        }
    }

    /// Checks that a policy allows only the script and the style of a page, and that the page loads nothing else.
    pub(crate) fn check_page(html: &str, policy: &str) {
        for tag in ["script", "style"] {
            let (_, behind) = html.split_once(&format!("<{tag}>")).unwrap();
            let (content, behind) = behind.split_once(&format!("</{tag}>")).unwrap();
            assert!(!behind.contains(&format!("<{tag}")), "there is one {tag}");
            let digest = STANDARD.encode(Sha256::digest(content));
            assert!(policy.contains(&format!("{tag}-src 'sha256-{digest}';")), "the digest of the {tag} is {digest}");
        }
        for word in ["http:", "https:", "src=", "@import", "url(", "innerHTML", "eval(", " on"] {
            let found = html.lines().find(|line| line.contains(word) && line.contains('<'));
            assert_eq!(found, None, "{word}");
        }
    }

    #[test]
    fn the_policy_allows_only_the_script_of_the_page() {
        check_page(TEMPLATE, POLICY);
    }

    #[test]
    fn names_are_escaped() {
        let (_, html) = render(&Endpoint::new(Hostile).unwrap());
        let html = str::from_utf8(&html).unwrap();
        assert!(html.contains("<h2>a.&lt;script&gt;alert(1)&lt;/script&gt;</h2>"));
        assert!(html.contains("data-path=\"a.&lt;script&gt;alert(1)&lt;/script&gt;/&quot;&gt;&lt;img src=x onerror=&#39;alert(2)&#39;&gt;\""));
        assert!(html.contains("&amp;lt;Chat"));
        assert!(!html.contains("<img"));
        assert_eq!(html.matches("<script").count(), 1);
    }
}
