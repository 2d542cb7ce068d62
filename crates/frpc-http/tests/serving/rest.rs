//! REST: the paths in the annotations of methods.

use frpc::{Answer, Call, Layer, MessageType, Method, Next, ServeError, Server, Service, Status};
use frpc_http::{Cors, Http, HttpSettings};
use http::StatusCode;
use support::{
    EventLog, in_virtual_time,
    rest::{
        Shelf,
        library::v1::{FILE_DESCRIPTOR_SET, library_server::LibraryServer},
    },
    settle,
};

use crate::{
    h2_caller::H2Caller,
    http1::{ask, split},
};

fn serve(http: Http) -> Server {
    Server::builder().wire(http.rest()).add_service(LibraryServer::new(Shelf::default())).without_listener().unwrap()
}

/// Returns the bytes of a request with headers, one per line.
fn request(method: &str, target: &str, headers: &str, body: &str) -> Vec<u8> {
    let (headers, len) = (headers.replace('\n', "\r\n"), body.len());
    let length = if body.is_empty() { String::new() } else { format!("content-length: {len}\r\n") };
    format!("{method} {target} HTTP/1.1\r\nhost: here\r\n{length}{headers}connection: close\r\n\r\n{body}").into_bytes()
}

/// Makes a request, and returns the status, the headers and the body.
async fn say(server: &Server, method: &str, target: &str, headers: &str, body: &str) -> (String, Vec<String>, String) {
    let (head, body) = split(&ask(server, request(method, target, headers, body)).await);
    let status = head[0].strip_prefix("HTTP/1.1 ").unwrap()[..3].to_owned();
    (status, head, String::from_utf8(body).unwrap())
}

const JSON: &str = "content-type: application/json\n";

async fn assert_says(server: &Server, line: &str, body: &str, expected: (&str, &str)) {
    let (method, target) = line.split_once(' ').unwrap();
    let headers = if body.is_empty() { "" } else { JSON };
    let (status, _, said) = say(server, method, target, headers, body).await;
    assert_eq!((&*status, &*said), expected, "{line}");
}

#[test]
fn requests_call_methods_with_their_fields() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let book = r#""title":"T""#;
        for (line, body, answer) in [
            ("GET /v1/shelves/1/books/2", "", format!(r#"{{"name":"shelves/1/books/2",{book}}}"#)),
            ("GET /v1/books/a%2Fb", "", format!(r#"{{"name":"a/b",{book}}}"#)),
            ("GET /v1/shelves/7/books?pageSize=1", "", format!(r#"[{{"name":"shelves/7/books/0",{book}}}]"#)),
            ("GET /v1/shelves/7/books", "", "[]".to_owned()),
            (
                "POST /v1/shelves/7/books?bookId=8",
                r#"{"title":"N"}"#,
                r#"{"name":"shelves/7/books/8","title":"N"}"#.to_owned(),
            ),
            (
                "PATCH /v1/shelves/1/books/2",
                r#"{"title":"N"}"#,
                r#"{"book":{"name":"shelves/1/books/2","title":"N"},"updateMask":"title"}"#.to_owned(),
            ),
            ("DELETE /v1/shelves/1/books/2", "", "{}".to_owned()),
            (
                "POST /v1/shelves/1/books/2:archive",
                r#"{"reason":"old"}"#,
                r#"{"name":"shelves/1/books/2","title":"old"}"#.to_owned(),
            ),
            ("POST /v1/shelves/1/books/2:archive", "", r#"{"name":"shelves/1/books/2"}"#.to_owned()),
            ("GET /v1/files/a/b.html", "", "a/b.html".to_owned()),
            ("REPORT /v1/echo?text=x", "", r#"{"text":"x"}"#.to_owned()),
            ("POST /v1/pages:count", r#"{"number":1} {"number":2}{"number":39}"#, r#"{"number":42}"#.to_owned()),
        ] {
            assert_says(&server, line, body, ("200", &answer)).await;
        }
    });
}

#[test]
fn parameters_reach_fields_of_all_kinds() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let query = "flag=true&big=-9223372036854775808&count=18446744073709551615&ratio=1.5&share=-Infinity&data=aGk&color=RED&colors=2&colors=RED&at=2026-01-02T03:04:05.5Z&span=1.5s&mask=a_b,c&wrapped=w&value=%5B1%5D&limits[a]=1&inner.author.first_name=A&maybe=&small=7&right=5&words=x&words=y";
        let answer = r#"{"text":"t","numbers":[1,2],"flag":true,"big":"-9223372036854775808","count":"18446744073709551615","ratio":1.5,"share":"-Infinity","data":"aGk=","color":"RED","colors":["BLUE","RED"],"at":"2026-01-02T03:04:05.500Z","span":"1.500s","mask":"aB,c","wrapped":"w","value":[1],"limits":{"a":1},"inner":{"author":{"firstName":"A"}},"maybe":"","small":7,"right":5,"words":["x","y"]}"#;
        assert_says(&server, &format!("GET /v1/echo/t/1,2?{query}"), "", ("200", answer)).await;
    });
}

#[test]
fn errors_are_statuses_with_details() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let detail = r#"[{"@type":"type.googleapis.com/google.protobuf.Duration","value":"3s"}]"#;
        let none = format!(r#"{{"code":5,"message":"no such book","details":{detail}}}"#);
        assert_says(&server, "GET /v1/books/none", "", ("404", &none)).await;
        for (target, message) in [
            ("/v1/echo?small=x", r#"the parameter `small`: \"x\" is not a uint32"#),
            ("/v1/books/%ff%", "the path has an invalid percent-encoding"),
            ("/v1/files/../secret", "the path has a segment `.` or `..`"),
            (
                "/v1/echo?left=a&right=1",
                "cannot decode the request of library.v1.Library/Echo: library.v1.Everything.right: another member of the same oneof is set already",
            ),
        ] {
            let (status, head, said) = say(&server, "GET", target, "", "").await;
            assert_eq!(status, "400", "{target}");
            assert!(head.contains(&"content-type: application/json".to_owned()), "{head:?}");
            assert!(said.starts_with(&format!(r#"{{"code":3,"message":"{message}"#)), "{said}");
        }
        let (status, head, said) = say(&server, "PUT", "/v1/books/7", "", "").await;
        assert_eq!((&*status, &*said), ("405", r#"{"code":12,"message":"PUT is not allowed for this path: use GET"}"#));
        assert!(head.contains(&"allow: GET".to_owned()), "{head:?}");
        let (status, _, said) = say(&server, "POST", "/v1/echo", "content-type: text/plain\n", "{}").await;
        assert_eq!(status, "400");
        assert_eq!(said, r#"{"code":3,"message":"unexpected content type \"text/plain\": expected application/json"}"#);
        for path in ["/v1/nothing", "/v1/books/", "/v1//books/7", "/v1/books/7/"] {
            let (status, _, said) = say(&server, "GET", path, "", "").await;
            assert_eq!((&*status, &*said), ("404", r#"{"code":5,"message":"no method has this path"}"#), "{path}");
        }
        let long = format!("/v1/books/{}", "a".repeat(20_000));
        assert_eq!(say(&server, "GET", &long, "", "").await.0, "431");
        let large = format!(r#"{{"text":"{}"}}"#, "a".repeat(5 << 20));
        assert_eq!(say(&server, "POST", "/v1/echo", JSON, &large).await.0, "429");
    });
}

#[test]
fn strict_servers_refuse_unknown_fields() {
    in_virtual_time(async {
        let server = serve(Http::new().settings(HttpSettings { strict_json: true, ..HttpSettings::default() }));
        assert_eq!(say(&server, "GET", "/v1/echo?no=1", "", "").await.0, "400");
        assert_eq!(say(&server, "POST", "/v1/echo", JSON, r#"{"no":1}"#).await.0, "400");
        assert_eq!(say(&server, "GET", "/v1/echo?text=1", "", "").await.0, "200");
    });
}

#[test]
fn headers_are_metadata_and_timeouts() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let (status, head, _) = say(&server, "GET", "/v1/books/7", "x-echo: 5\n", "").await;
        assert_eq!(status, "200");
        assert!(["x-echo: 5", "trailer-x-end: 5"].iter().all(|line| head.contains(&(*line).to_owned())), "{head:?}");
        for header in ["connect-timeout-ms: 50", "grpc-timeout: 50m"] {
            let (status, _, said) = say(&server, "GET", "/v1/books/never", &format!("{header}\n"), "").await;
            assert_eq!(status, "504", "{said}");
        }
        assert_eq!(say(&server, "GET", "/v1/books/7", "grpc-timeout: 5x\n", "").await.0, "400");
        let (_, head, body) = say(&server, "HEAD", "/v1/books/7", "", "").await;
        assert_eq!((&*body, head.contains(&"content-length: 24".to_owned())), ("", true), "{head:?}");
        let metadata = format!("x-large: {}\n", "a".repeat(10_000));
        assert_eq!(say(&server, "GET", "/v1/books/7", &metadata, "").await.0, "429");
    });
}

#[test]
fn bodies_of_any_type_are_passed_through() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let (status, head, said) = say(&server, "GET", "/v1/files/x.html", "", "").await;
        assert_eq!((&*status, &*said), ("200", "x.html"));
        assert!(head.contains(&"content-type: text/html".to_owned()), "{head:?}");
        let (status, head, said) = say(&server, "PUT", "/v1/files/x", "content-type: a/b\n", "hello \"").await;
        assert_eq!((&*status, &*said), ("200", "hello \""));
        assert!(head.contains(&"content-type: a/b".to_owned()), "{head:?}");
    });
}

#[test]
fn a_response_stream_is_lines_or_events() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let pages = "/v1/shelves/1/books/2/pages";
        let (status, head, said) = say(&server, "GET", pages, "", "").await;
        let lines = "{\"result\":{\"number\":1}}\n{\"result\":{\"number\":2}}\n";
        assert_eq!((&*status, said), ("200", format!("{lines}{{\"result\":{{\"number\":3}}}}\n")));
        assert!(head.contains(&"content-type: application/x-ndjson".to_owned()), "{head:?}");
        let (status, _, said) = say(&server, "GET", &format!("{pages}?fail_at=3"), "", "").await;
        let error = r#"{"code":10,"message":"a page"}"#;
        assert_eq!((&*status, said), ("200", format!("{lines}{{\"error\":{error}}}\n")));
        // An error before the first message has its HTTP status.
        let (status, _, said) = say(&server, "GET", &format!("{pages}?fail_at=1"), "", "").await;
        assert_eq!((&*status, &*said), ("409", error));

        let events = "accept: application/json;q=0.5, Text/Event-Stream\n";
        let (status, head, said) = say(&server, "GET", &format!("{pages}?fail_at=2"), events, "").await;
        assert_eq!((&*status, said), ("200", format!("data: {{\"number\":1}}\n\nevent: error\ndata: {error}\n\n")));
        assert!(
            ["content-type: text/event-stream", "cache-control: no-cache"]
                .iter()
                .all(|line| head.contains(&(*line).to_owned()))
        );
        let (_, _, said) = say(&server, "GET", pages, events, "").await;
        assert!(said.ends_with("data: {\"number\":3}\n\nevent: end\ndata: {}\n\n"), "{said}");
    });
}

#[test]
fn invalid_request_streams_fail_the_call() {
    in_virtual_time(async {
        let server = serve(Http::new());
        for (body, answer) in [
            ("", r#"{}"#),
            (r#"{"number":1},"#, "the body is not a sequence of JSON objects"),
            (r#"{"number":1} {"number"#, "the body ends within a JSON object"),
            (r#"{"number":1} {"number":"x"}"#, "library.v1.Page.number"),
            ("[1]", "the body is not a sequence of JSON objects"),
        ] {
            let (_, _, said) = say(&server, "POST", "/v1/pages:count", JSON, body).await;
            assert!(said.contains(answer), "{body}: {said}");
        }
        let large = format!(r#"{{"number":{}}}"#, " ".repeat(5 << 20));
        assert_eq!(say(&server, "POST", "/v1/pages:count", JSON, &large).await.0, "429");
    });
}

#[test]
fn http2_serves_the_same_paths() {
    in_virtual_time(async {
        let shelf = Shelf::default();
        let server = Server::builder()
            .wire(Http::new().rest())
            .add_service(LibraryServer::new(shelf.clone()))
            .without_listener();
        let server = server.unwrap();
        let mut caller = H2Caller::connect(&server).await;
        let get = |path: &str| http::Request::get(format!("http://here{path}")).body(()).unwrap();
        let reply = caller.ask(get("/v1/books/7"), "").await;
        assert_eq!((reply.status, &reply.body[..]), (StatusCode::OK, &br#"{"name":"7","title":"T"}"#[..]));
        let reply = caller.ask(get("/v1/shelves/1/books/2/pages"), "").await;
        assert_eq!(reply.body.iter().filter(|byte| **byte == b'\n').count(), 3);
        // The end of a caller ends the handler.
        let mut open = caller.open(get("/v1/shelves/1/books/open/pages")).await;
        open.sending.send_data("".into(), true).unwrap();
        let mut response = open.response.await.unwrap();
        let first = response.body_mut().data().await.unwrap().unwrap();
        assert!(first.starts_with(b"{\"result\":{\"number\":1}}\n"), "{first:?}");
        drop((response, open.sending));
        settle().await;
        assert_eq!(shelf.events.take(), ["closed"]);
    });
}

#[test]
fn rpc_protocols_keep_their_paths() {
    in_virtual_time(async {
        let server = serve(Http::new());
        let name = r#"{"name":"7"}"#;
        let answer = r#"{"name":"7","title":"T"}"#;
        assert_says(&server, "POST /library.v1.Library/GetBook", name, ("200", answer)).await;
        assert_says(&server, "POST /twirp/library.v1.Library/GetBook", name, ("200", answer)).await;
        let off =
            Server::builder().wire(Http::new()).add_service(LibraryServer::new(Shelf::default())).without_listener();
        assert_eq!(say(&off.unwrap(), "GET", "/v1/books/7", "", "").await.0, "404");
    });
}

#[test]
fn layers_and_mounts_see_rest() {
    in_virtual_time(async {
        #[derive(Clone)]
        struct Named(EventLog);
        impl Layer for Named {
            async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
                self.0.add(format!("{} by {}", call.method(), call.system().name()));
                next.run(call).await
            }
        }
        let events = EventLog::default();
        let server = Server::builder()
            .wire(Http::new().rest().mount("/v1/books/mounted", frpc_http::MetricsPage))
            .add_service(LibraryServer::new(Shelf::default()))
            .layer(Named(events.clone()))
            .without_listener()
            .unwrap();
        assert_eq!(say(&server, "GET", "/v1/books/7", "", "").await.0, "200");
        assert_eq!(events.take(), ["library.v1.Library/GetBook by rest"]);
        assert_eq!(say(&server, "GET", "/v1/books/mounted", "", "").await.0, "200");
        assert!(events.take().is_empty());
    });
}

#[test]
fn browsers_may_use_all_methods() {
    in_virtual_time(async {
        let server = serve(Http::new().cors(Cors::any_origin()));
        let headers = "origin: http://a\naccess-control-request-method: DELETE\n";
        let (status, head, _) = say(&server, "OPTIONS", "/v1/books/7", headers, "").await;
        assert_eq!(status, "204");
        assert!(head.contains(&"access-control-allow-methods: GET, POST, PUT, PATCH, DELETE".to_owned()), "{head:?}");
        let (_, head, _) = say(&server, "GET", "/v1/books/7", "origin: http://a\n", "").await;
        assert!(head.contains(&"access-control-allow-origin: *".to_owned()), "{head:?}");
    });
}

#[test]
fn a_server_with_colliding_paths_does_not_start() {
    /// A second service with the paths of the first.
    struct Copy;
    impl Service for Copy {
        const NAME: &'static str = "library.v2.Library";
        const METHODS: &'static [Method] =
            &[Method::unary("library.v2.Library", "GetBook", 10).with_types(&COPY, &COPY)];
        async fn call(&self, _: usize, call: Call) -> Result<Answer, Status> {
            call.unknown()
        }
    }
    static COPY: MessageType = MessageType::new("library.v2.Book", 0, &OTHER);
    static OTHER: [u8; FILE_DESCRIPTOR_SET.len()] = {
        // The same file with another version of its name and package.
        let mut other = [0; FILE_DESCRIPTOR_SET.len()];
        let mut at = 0;
        while at < other.len() {
            let is_version = at > 8 && FILE_DESCRIPTOR_SET[at - 1] == b'v' && FILE_DESCRIPTOR_SET[at - 2] == b'.';
            let is_name = at > 8
                && FILE_DESCRIPTOR_SET[at - 1] == b'y'
                && FILE_DESCRIPTOR_SET[at] == b'.'
                && FILE_DESCRIPTOR_SET[at + 1] == b'p';
            other[at] = if is_version {
                b'2'
            } else if is_name {
                b'_'
            } else {
                FILE_DESCRIPTOR_SET[at]
            };
            at += 1;
        }
        other
    };
    in_virtual_time(async {
        let server = Server::builder()
            .wire(Http::new().rest())
            .add_service(LibraryServer::new(Shelf::default()))
            .add_service(Copy)
            .without_listener();
        let Err(ServeError::Wire(error)) = server else { panic!("the server started") };
        let [method, path] = ["Library/GetBook", "`/v1/{name=shelves/*/books/*}`"];
        let expected = format!(
            "library.v1.{method} and library.v2.{method} have the same HTTP method and path: GET {path} and {path}\n--> \
             library_proto\n--> library.proto the other one"
        );
        assert!(error.to_string().starts_with(&expected), "{error}");
    });
}
