//! The admin page in Chromium, and channelz as read by gRPC's own client. Its script is in `python/`.

use std::{path::Path, process::Stdio};

use foreign::protos::helloworld::{HelloRequest, greeter_client::GreeterClient};
use frpc::Code;
use serde_json::{Value, json};
use support::{foreign_browser, foreign_python};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{run, with_server};

#[test]
fn grpcs_client_for_channelz_lists_servers_sockets_and_channels() {
    let Some(python) = foreign_python() else { return };
    with_server(async |port| {
        // The second address refuses connections: nothing listens on a port that was given back.
        let refusing = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let target = format!("tcp://127.0.0.1:{port},tcp://{refusing}");
        let client = GreeterClient::connect(&*target).await.unwrap();
        client.say_hello(HelloRequest { name: "Ada".to_owned() }).await.unwrap();
        let refused = client.say_hello(HelloRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/channelz.py");
        let output = run(&python.join("python"), &[script, &port.to_string(), &target]).await.unwrap();
        assert!(output.contains("all went well"), "{output}");
    });
}

#[test]
fn the_admin_page_shows_a_stalled_stream_in_chromium() {
    let Some(program) = foreign_browser() else { return };
    with_server(async |port| {
        let client = GreeterClient::connect(format!("tcp://127.0.0.1:{port}")).await.unwrap();
        client.say_hello(HelloRequest::default()).await.unwrap_err();
        let mut stalled = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stalled.write_all(&endless_stream()).await.unwrap();
        // The answer has begun, and nothing reads the rest.
        stalled.read_exact(&mut [0; 64]).await.unwrap();

        let mut browser = Browser::start(&program).await;
        browser.open(&format!("http://127.0.0.1:{port}/admin")).await;
        // Other tests of the process have streams and errors, too.
        let peer = stalled.local_addr().unwrap();
        let row =
            format!("[...document.querySelectorAll('tr.blocked')].find((row) => row.innerText.includes('{peer}'))");
        let text = browser.wait_for(&format!("{row}?.innerText")).await;
        let (method, rest) = text.as_str().unwrap().split_once('\t').unwrap();
        assert_eq!(method, "grpc.testing.TestService/StreamingOutputCall");
        assert!(rest.ends_with(" s") && rest.contains("sends"), "{rest}");
        let failure =
            "[...document.querySelectorAll('#failures td')].some((cell) => cell.innerText === 'who is there?')";
        assert_eq!(browser.wait_for(failure).await, json!(true));
        for (width, height) in [(1440, 900), (390, 844)] {
            for theme in ["light", "dark"] {
                browser.look(width, height, theme).await;
                let overflow = "document.documentElement.scrollWidth > innerWidth";
                assert_eq!(browser.evaluate(overflow).await, json!(false), "{width} {theme}");
            }
        }
        let (light, dark) = (browser.background("light").await, browser.background("dark").await);
        assert_ne!(light, dark);

        drop(stalled);
        assert_eq!(browser.wait_for(&format!("!{row}")).await, json!(true));
        assert_eq!(browser.exceptions, [""; 0]);
    });
}

/// A request of Connect for more bytes than any buffer takes.
fn endless_stream() -> Vec<u8> {
    let sizes = vec![json!({ "size": 60_000 }); 2_000];
    let message = json!({ "responseParameters": sizes }).to_string();
    let mut request = format!(
        "POST /grpc.testing.TestService/StreamingOutputCall HTTP/1.1\r\nhost: localhost\r\nconnect-protocol-version: 1\r\n\
         content-type: application/connect+json\r\ncontent-length: {}\r\n\r\n\0",
        message.len() + 5
    )
    .into_bytes();
    request.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    request.extend(message.into_bytes());
    request
}

/// Chromium, driven by its DevTools protocol over pipes.
struct Browser {
    _process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    sent: u64,
    is_loaded: bool,
    /// Errors of the scripts of the page.
    exceptions: Vec<String>,
}

impl Browser {
    async fn start(program: &Path) -> Self {
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/chromium-pipes"));
        command.arg(program).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { _process: process, input, output, session: None, sent: 0, is_loaded: false, exceptions: Vec::new() }
    }

    /// Calls a method, and returns its result.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).await.unwrap();
        loop {
            let mut message = self.receive().await;
            if message["id"] == self.sent {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    /// Returns the next result or event.
    async fn receive(&mut self) -> Value {
        let mut text = Vec::new();
        self.output.read_until(0, &mut text).await.unwrap();
        let message: Value = serde_json::from_slice(text.strip_suffix(&[0]).expect("the browser ended")).unwrap();
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.exceptions.push(message["params"].to_string()),
            Some("Page.loadEventFired") => self.is_loaded = true,
            _ => {}
        }
        message
    }

    async fn open(&mut self, url: &str) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call("Target.attachToTarget", target).await;
        self.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        self.call("Runtime.enable", json!({})).await;
        self.call("Page.enable", json!({})).await;
        self.call("Page.navigate", json!({ "url": url })).await;
        while !self.is_loaded {
            self.receive().await;
        }
    }

    /// Evaluates an expression of the page, or what its promise resolves to.
    async fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", params).await;
        assert!(result["exceptionDetails"].is_null(), "{result}");
        result["result"]["value"].take()
    }

    /// Waits until an expression of the page is true, and returns its value.
    async fn wait_for(&mut self, expression: &str) -> Value {
        let promise = format!(
            "new Promise((resolve) => {{ \
                 const look = () => {{ const found = {expression}; if (found) resolve(found); }}; \
                 new MutationObserver(look).observe(document.body, {{ childList: true, subtree: true, attributes: true }}); \
                 look(); }})"
        );
        self.evaluate(&promise).await
    }

    async fn look(&mut self, width: u32, height: u32, theme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", size).await;
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.call("Emulation.setEmulatedMedia", media).await;
    }

    async fn background(&mut self, theme: &str) -> Value {
        self.look(1440, 900, theme).await;
        self.evaluate("getComputedStyle(document.body).backgroundColor").await
    }
}
