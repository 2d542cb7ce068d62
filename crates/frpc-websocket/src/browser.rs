//! The WebSocket of the browser as the transport of a channel.

use std::{cell::Cell, io, rc::Rc, sync::Once, time::Duration};

use frpc::{ConnectError, ConnectSettings, Connected, Transport};
use futures_util::future::BoxFuture;
use js_sys::{ArrayBuffer, Math, Uint8Array};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::{mpsc, oneshot},
    time::sleep,
};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use wasm_bindgen_futures::spawn_local;
use web_sys::{BinaryType, Event, MessageEvent, WebSocket};

/// A [`Channel`](frpc::Channel) transport over the WebSocket of the browser, for the schemes `ws://` and `wss://`.
///
/// A browser sets the headers of the handshake itself, cookies and `Origin` included, and decides on certificates.
/// For a server of another origin, the server allows it with `Http::cors`.
#[derive(Clone, Debug, Default)]
pub struct Client(());

impl Client {
    /// Creates a client.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Transport for Client {
    fn schemes(&self) -> &[&str] {
        &["ws", "wss"]
    }

    fn connect(&self, url: String, settings: ConnectSettings) -> BoxFuture<'static, Result<Connected, ConnectError>> {
        Box::pin(async move {
            let stream = frpc::client::connect(&url, &settings, || open(url.clone())).await?;
            let stream = Box::new(stream);
            Ok(if url.starts_with("wss:") { Connected::FrisbeeOverTls(stream) } else { Connected::Frisbee(stream) })
        })
    }
}

/// Returns the transport of a channel over the WebSocket of the browser.
pub fn transport() -> Client {
    Client::new()
}

/// Adds [`transport`] to the defaults of the program: see [`frpc::register_transport`].
pub fn register() {
    frpc::register_transport(transport());
}

/// Opens a WebSocket. Dropping the future closes it.
async fn open(url: String) -> io::Result<DuplexStream> {
    static SEEDED: Once = Once::new();
    // Without a seed, all pages would pause for the same times before they reconnect.
    SEEDED.call_once(|| fastrand::seed(Math::random().to_bits()));
    let (opened, stream) = oneshot::channel();
    // A WebSocket stays in the task that created it. Other tasks use the stream.
    spawn_local(run(url, opened));
    stream.await.unwrap_or_else(|_| Err(io::ErrorKind::ConnectionAborted.into()))
}

async fn run(url: String, mut opened: oneshot::Sender<io::Result<DuplexStream>>) {
    let (socket, mut events) = match OpenSocket::new(&url) {
        Ok(new) => new,
        Err(error) => {
            let why = format!("the browser refuses the URL {url}: {error:?}");
            // Fails if the caller has given up, as do the calls below.
            let _ = opened.send(Err(io::Error::new(io::ErrorKind::InvalidInput, why)));
            return;
        }
    };
    let first = tokio::select! {
        event = events.recv() => event,
        () = opened.closed() => return,
    };
    if !matches!(first, Some(SocketEvent::Opened)) {
        let why = format!("the browser cannot open {url}; its console has the reason");
        let _ = opened.send(Err(io::Error::new(io::ErrorKind::ConnectionRefused, why)));
        return;
    }
    let (ours, theirs) = duplex(BUFFER_LEN);
    if opened.send(Ok(theirs)).is_ok() {
        copy(&socket, events, ours).await;
    }
}

/// Copies bytes in both directions until one side ends.
async fn copy(socket: &OpenSocket, mut events: mpsc::UnboundedReceiver<SocketEvent>, stream: DuplexStream) {
    let (mut from_program, mut to_program) = tokio::io::split(stream);
    let mut unwritten: &[u8];
    let mut received = Vec::new();
    let mut written = 0;
    let mut output = vec![0; BUFFER_LEN];
    loop {
        unwritten = &received[written..];
        let has_room = socket.web.buffered_amount() < OUTPUT_LEN_MAX;
        tokio::select! {
            event = events.recv(), if unwritten.is_empty() => match event {
                Some(SocketEvent::Received(bytes)) => {
                    socket.received_len.set(socket.received_len.get() - bytes.len());
                    (received, written) = (bytes, 0);
                }
                Some(SocketEvent::Opened) => {}
                Some(SocketEvent::Closed) | None => return,
            },
            len = to_program.write(unwritten), if !unwritten.is_empty() => match len {
                Ok(len) => written += len,
                Err(_) => return,
            },
            len = from_program.read(&mut output), if has_room => match len {
                Ok(0) | Err(_) => return,
                Ok(len) => {
                    if socket.web.send_with_u8_array(&output[..len]).is_err() {
                        return;
                    }
                }
            },
            // The browser reports no event when it has sent something.
            () = sleep(OUTPUT_PAUSE), if !has_room => {}
        }
    }
}

/// A WebSocket with its listeners. Closes on drop.
struct OpenSocket {
    web: WebSocket,
    /// The length of all received messages in the queue of events.
    received_len: Rc<Cell<usize>>,
    _listeners: (Listener<Event>, Listener<MessageEvent>, Listener<Event>),
}

type Listener<E> = Closure<dyn FnMut(E)>;

enum SocketEvent {
    Opened,
    Received(Vec<u8>),
    Closed,
}

impl OpenSocket {
    fn new(url: &str) -> Result<(Self, mpsc::UnboundedReceiver<SocketEvent>), JsValue> {
        let web = WebSocket::new_with_str(url, "frpc")?;
        web.set_binary_type(BinaryType::Arraybuffer);
        let (sender, events) = mpsc::unbounded_channel();
        let received_len = Rc::new(Cell::new(0));

        let opened = sender.clone();
        let on_open = Listener::<Event>::new(move |_| drop(opened.send(SocketEvent::Opened)));
        web.set_onopen(Some(on_open.as_ref().unchecked_ref()));

        let (messages, total, socket) = (sender.clone(), received_len.clone(), web.clone());
        let on_message = Listener::<MessageEvent>::new(move |message: MessageEvent| {
            let Ok(buffer) = message.data().dyn_into::<ArrayBuffer>() else {
                return refuse(&socket, TEXT_CODE, "expected binary messages, received text");
            };
            let bytes = Uint8Array::new(&buffer).to_vec();
            total.set(total.get() + bytes.len());
            if total.get() > INPUT_LEN_MAX {
                return refuse(&socket, OVERFLOW_CODE, "the page reads too slowly");
            }
            // Fails after the end of the task.
            let _ = messages.send(SocketEvent::Received(bytes));
        });
        web.set_onmessage(Some(on_message.as_ref().unchecked_ref()));

        // Browsers report an error and then the end. Node 20 omits the end of a failed handshake.
        let on_end = Listener::<Event>::new(move |_| drop(sender.send(SocketEvent::Closed)));
        web.set_onerror(Some(on_end.as_ref().unchecked_ref()));
        web.set_onclose(Some(on_end.as_ref().unchecked_ref()));
        let listeners = (on_open, on_message, on_end);
        Ok((Self { web, received_len, _listeners: listeners }, events))
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        // The listeners end with this value, so the browser must not call them.
        self.web.set_onopen(None);
        self.web.set_onmessage(None);
        self.web.set_onerror(None);
        self.web.set_onclose(None);
        // Fails only for an invalid code.
        let _ = self.web.close();
    }
}

/// Closes the WebSocket for a fault of the server. The task ends with the event of the close.
fn refuse(socket: &WebSocket, code: u16, reason: &str) {
    socket.set_onmessage(None);
    // Fails only for an invalid code.
    let _ = socket.close_with_code_and_reason(code, reason);
}

/// The length of the buffers between the WebSocket and the program, in each direction.
const BUFFER_LEN: usize = 64 * 1024;
/// The number of bytes passed to the browser and not yet sent, before this side waits.
const OUTPUT_LEN_MAX: u32 = 1024 * 1024;
/// The pause before this side looks again for room.
const OUTPUT_PAUSE: Duration = Duration::from_millis(10);
/// The total length of received messages before the program reads them. A browser cannot slow the server down.
const INPUT_LEN_MAX: usize = 64 * 1024 * 1024;
/// The close codes that pages may use start at 3000.
const TEXT_CODE: u16 = 3003;
const OVERFLOW_CODE: u16 = 3009;
