//! A live chart of the server's load and a chat, in a browser. Both are streams on the same WebSocket.
#![cfg(target_family = "wasm")]

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use frisbee_wasm::{sync::Notify, time::sleep};
use frpc::{Channel, Status, Streaming};
use futures_util::stream;
use protos::{Line, Sample, WatchRequest, board_client::BoardClient};
use wasm_bindgen::{JsCast, JsValue, closure::Closure, prelude::wasm_bindgen};
use wasm_bindgen_futures::spawn_local;
use web_sys::{Document, Element, Event, HtmlElement, HtmlInputElement};

/// Generated from `proto/browser.proto`.
pub mod protos {
    frpc::include_proto!("browser");
}

/// Starts the page.
#[wasm_bindgen(start)]
pub async fn start() -> Result<(), JsValue> {
    let page = Page::new()?;
    page.set_state("connecting");
    let channel = Channel::builder()
        .transport(frpc_websocket::transport())
        .connect_lazy(&*server()?)
        .map_err(|error| error.to_string())?;
    let board = BoardClient::new(channel);
    spawn_local(keep_watching(board.clone(), page.clone()));
    let unsaid = Arc::new(UnsaidLines::default());
    page.on_submit({
        let (page, unsaid) = (page.clone(), unsaid.clone());
        move || unsaid.push(page.take_line())
    })?;
    spawn_local(keep_chatting(board, page, unsaid));
    Ok(())
}

/// Returns the server of this page.
fn server() -> Result<String, JsValue> {
    let location = web_sys::window().ok_or("there is no window")?.location();
    let scheme = if location.protocol()? == "https:" { "wss" } else { "ws" };
    Ok(format!("{scheme}://{}/", location.host()?))
}

/// Restarts the stream of samples whenever it ends, for example because the server was restarted.
async fn keep_watching(board: BoardClient, page: Page) {
    let mut samples = VecDeque::new();
    let mut count = 0;
    loop {
        let ended: Result<(), Status> = async {
            let mut watched = board.watch(WatchRequest { interval_ms: INTERVAL_MS }).await?.into_inner();
            while let Some(sample) = watched.message().await? {
                page.set_state("ready");
                count += 1;
                samples.push_back(sample.busy);
                if samples.len() > SAMPLES_MAX {
                    samples.pop_front();
                }
                page.draw(&samples, &sample, count);
            }
            Ok(())
        }
        .await;
        page.set_state("connecting");
        page.note(&ended);
        sleep(PAUSE).await;
    }
}

/// Restarts the chat whenever it ends. Lines written while disconnected are sent afterwards.
async fn keep_chatting(board: BoardClient, page: Page, unsaid: Arc<UnsaidLines>) {
    loop {
        let ended: Result<(), Status> = async {
            let mut heard = board.join(unsaid.said()).await?.into_inner();
            while let Some(line) = heard.message().await? {
                page.show(&line);
            }
            Ok(())
        }
        .await;
        page.note(&ended);
        sleep(PAUSE).await;
    }
}

/// Lines on their way to the server.
#[derive(Default)]
struct UnsaidLines {
    lines: Mutex<VecDeque<Line>>,
    added: Notify,
}

impl UnsaidLines {
    fn push(&self, line: Line) {
        self.change(|lines| lines.push_back(line));
        self.added.notify_one();
    }

    fn change<T>(&self, change: impl FnOnce(&mut VecDeque<Line>) -> T) -> T {
        change(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns all lines as a stream that ends with its call.
    fn said(self: &Arc<Self>) -> Streaming<Line> {
        Streaming::new(stream::unfold((self.clone(), false), |(unsaid, mut is_sent)| async move {
            loop {
                // A line stays in the queue until the call asks for the next one: an ended call takes no more lines.
                let next = unsaid.change(|lines| {
                    if std::mem::take(&mut is_sent) {
                        lines.pop_front();
                    }
                    lines.front().cloned()
                });
                match next {
                    Some(line) => return Some((Ok(line), (unsaid, true))),
                    None => unsaid.added.notified().await,
                }
            }
        }))
    }
}

/// The elements of `index.html`.
#[derive(Clone)]
struct Page {
    document: Document,
    last_state: Rc<RefCell<&'static str>>,
}

impl Page {
    fn new() -> Result<Self, JsValue> {
        let document = web_sys::window().and_then(|window| window.document()).ok_or("there is no document")?;
        Ok(Self { document, last_state: Rc::default() })
    }

    fn element(&self, id: &str) -> Element {
        let found = self.document.get_element_by_id(id);
        found.unwrap_or_else(|| panic!("the page has no element {id}"))
    }

    fn input(&self, id: &str) -> HtmlInputElement {
        self.element(id).unchecked_into()
    }

    fn set_attribute(&self, id: &str, name: &str, value: &str) {
        // Fails only for an invalid name.
        let _ = self.element(id).set_attribute(name, value);
    }

    fn set_state(&self, state: &'static str) {
        if self.last_state.replace(state) != state {
            self.element("state").set_text_content(Some(state));
            self.set_attribute("state", "data-state", state);
        }
    }

    /// Shows the end of a stream next to the chart.
    fn note(&self, ended: &Result<(), Status>) {
        if let Err(status) = ended {
            self.set_attribute("state", "title", &status.to_string());
        }
    }

    /// Draws the curve. The newest sample is on the right.
    fn draw(&self, samples: &VecDeque<f64>, newest: &Sample, count: u32) {
        let oldest = SAMPLES_MAX - samples.len();
        let points =
            samples.iter().enumerate().map(|(index, busy)| format!("{} {:.1}", oldest + index, 100.0 * (1.0 - busy)));
        let curve = points.collect::<Vec<_>>().join("L");
        self.set_attribute("curve", "d", &format!("M{curve}"));
        self.set_attribute("area", "d", &format!("M{oldest} 100L{curve}V100Z"));
        let Sample { busy, people, lines } = newest;
        let text = format!("{:.0} % busy · {people} in the room · {lines} said", 100.0 * busy);
        self.element("figures").set_text_content(Some(&text));
        self.set_attribute("figures", "data-samples", &count.to_string());
    }

    fn show(&self, line: &Line) {
        let [item, name] = ["li", "b"].map(|tag| self.document.create_element(tag));
        let (Ok(item), Ok(name)) = (item, name) else { return };
        name.set_text_content(Some(&line.name));
        let lines = self.element("lines");
        // Text, so that no line can add elements to the page. These calls fail for a node above itself only.
        let _ = item.append_child(&name);
        let _ = item.append_child(&self.document.create_text_node(&line.text));
        let _ = lines.append_child(&item);
        lines.set_scroll_top(lines.scroll_height());
    }

    fn take_line(&self) -> Line {
        let (name, text) = (self.input("name").value(), self.input("text").value());
        self.input("text").set_value("");
        Line { name, text }
    }

    fn on_submit(&self, submitted: impl Fn() + 'static) -> Result<(), JsValue> {
        let listener = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
            event.prevent_default();
            submitted();
        });
        let form: HtmlElement = self.element("say").unchecked_into();
        form.add_event_listener_with_callback("submit", listener.as_ref().unchecked_ref())?;
        // The page needs it until its end.
        listener.forget();
        Ok(())
    }
}

const INTERVAL_MS: u32 = 200;
const SAMPLES_MAX: usize = 101;
const PAUSE: Duration = Duration::from_millis(500);
