//! The wire: what is served, its settings, and connections on the port of a server.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use frpc::{Drain, Endpoint, Head, Peer, Raw, Recognized, Wire};

use crate::{
    calls::{Calls, Site},
    connection,
    function::{Function, Functions},
    json::DEPTH_MAX,
    methods::Methods,
    settings::Settings,
};

/// JSON-RPC 2.0 as a wire of a [`Server`](frpc::Server): its services, and functions that are added here.
///
/// On TCP and Unix sockets, connections are told by their first byte, a brace, a bracket, or the header `Content-Length`. Each is
/// answered in the framing that its peer speaks: values one behind the other, lines, or bodies behind a `Content-Length`.
/// `docs/json-rpc.md` says what is decided where the specification is silent.
///
/// With the feature `http` it is also a [`Mount`](https://docs.rs/frpc-http/latest/frpc_http/trait.Mount.html) for a path of HTTP:
/// `Http::new().mount("/rpc", json_rpc.clone())`.
///
/// ```
/// use frpc::Server;
/// use frpc_jsonrpc::{Called, Context, Description, Function, JsonRpc};
/// use tokio::{io::{AsyncBufReadExt, AsyncWriteExt, BufReader}, net::TcpStream};
///
/// /// Gives back what it is called with.
/// struct Echo(Description);
///
/// impl Function for Echo {
///     fn description(&self) -> &Description {
///         &self.0
///     }
///
///     fn call(&self, params: Option<&str>, _: &Context, out: &mut Vec<u8>) -> Called {
///         out.extend_from_slice(params.unwrap_or("null").as_bytes());
///         Called::Written
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let echo = Echo(Description::new("echo"));
/// let server = Server::builder().wire(JsonRpc::new().function(echo)).bind("tcp://127.0.0.1:0").await?;
///
/// let address = server.local_addr().socket_addr().expect("it is TCP");
/// let mut socket = BufReader::new(TcpStream::connect(address).await?);
/// socket.write_all(br#"{"jsonrpc": "2.0", "method": "echo", "params": ["hello"], "id": 1}"#).await?;
/// let mut answer = String::new();
/// socket.read_line(&mut answer).await?;
/// assert_eq!(answer.trim(), r#"{"jsonrpc":"2.0","result":["hello"],"id":1}"#);
/// # Ok(())
/// # }
/// ```
///
/// # Limits
///
/// A peer can make a connection hold one message of [`message_len_max`](Self::message_len_max) that is being received,
/// [`calls_max`](Self::calls_max) calls with messages of [`calls_len_max`](Self::calls_len_max), a little more than
/// [`answers_len_max`](Self::answers_len_max) that it does not read, and [`subscriptions_max`](Self::subscriptions_max) streams. What is
/// above waits: the connection is not read. While calls have no room it is read 256 KiB further, so that its end is noticed.
#[derive(Clone, Default)]
pub struct JsonRpc {
    pub(crate) settings: Arc<Settings>,
    functions: Functions,
    /// Names, and the methods that they are for.
    aliases: Arc<Vec<(String, String)>>,
    made: Arc<Made>,
}

/// The methods by name, made for the server that served last. Others that have the same wire make their own again.
#[derive(Default)]
struct Made(Mutex<Option<(Endpoint, Arc<Methods>)>>);

impl JsonRpc {
    /// Serves the services of the server, with the limits that each setting names as its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function.
    ///
    /// # Panics
    ///
    /// If there is one of the same name.
    #[must_use]
    pub fn function(self, function: impl Function) -> Self {
        Self { functions: self.functions.function(function), made: Arc::default(), ..self }
    }

    /// Serves these functions, and no others that were added before.
    #[must_use]
    pub fn functions(self, functions: Functions) -> Self {
        Self { functions, made: Arc::default(), ..self }
    }

    /// Gives the functions a value of which they take a reference; see [`Functions::state`].
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Self {
        Self { functions: self.functions.state(state), ..self }
    }

    /// Gives a method another name: of a function, or of a method of a service such as `shop.Orders/Get`.
    ///
    /// Subscriptions by a name that ends in `_subscribe`, as Ethereum has them, are sent by the same name with `_subscription`, and end without a word.
    #[must_use]
    pub fn alias(mut self, name: impl Into<String>, method: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.aliases).push((name.into(), method.into()));
        Self { made: Arc::default(), ..self }
    }

    fn set(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(Arc::make_mut(&mut self.settings));
        self
    }

    /// Sets the length that a message may have, a whole batch included. Default 4 MiB. A longer one is answered with an error, and
    /// is the last of its connection, but over WebSocket. By POST and over WebSocket the limit of the wire of HTTP counts as well.
    #[must_use]
    pub fn message_len_max(self, len_max: usize) -> Self {
        self.set(|settings| settings.message_len_max = len_max)
    }

    /// Sets how deep objects and lists may be nested, the request itself included. Default 100, at most 127.
    #[must_use]
    pub fn depth_max(self, depth_max: u32) -> Self {
        self.set(|settings| settings.depth_max = depth_max.min(DEPTH_MAX))
    }

    /// Refuses params of services' methods with fields or enum names that the server does not know, with
    /// [`InvalidArgument`](frpc::Code::InvalidArgument) and the path of the first. Default off: they are ignored, and the first of each
    /// method is logged. Functions read their own params.
    #[must_use]
    pub fn strict_json(self, is_strict: bool) -> Self {
        self.set(|settings| settings.strict_json = is_strict)
    }

    /// Sets how many requests a batch may have. Default 100. A longer one is answered with one error, and none of it is executed.
    #[must_use]
    pub fn batch_len_max(self, len_max: usize) -> Self {
        self.set(|settings| settings.batch_len_max = len_max)
    }

    /// Sets the bytes that the answers of a batch may have together. Default 16 MiB. Those that do not fit are replaced by errors.
    #[must_use]
    pub fn batch_answers_len_max(self, len_max: usize) -> Self {
        self.set(|settings| settings.batch_answers_len_max = len_max)
    }

    /// Has the answers of a batch stand in the order of its requests. Default on; otherwise they stand as they come.
    #[must_use]
    pub fn batches_in_order(self, is_in_order: bool) -> Self {
        self.set(|settings| settings.batches_in_order = is_in_order)
    }

    /// Sets how many calls of a connection may be running. Default 256. Others wait, and the connection is not read meanwhile. A
    /// batch counts as the calls that it has: it waits until there is room for all, or until nothing else is running.
    #[must_use]
    pub fn calls_max(self, calls_max: usize) -> Self {
        self.set(|settings| settings.calls_max = calls_max.max(1))
    }

    /// Sets the bytes of the messages of running calls from which on others wait. Default 16 MiB.
    #[must_use]
    pub fn calls_len_max(self, len_max: usize) -> Self {
        self.set(|settings| settings.calls_len_max = len_max.max(1))
    }

    /// Sets how long a call may take. Default: as the server's [`Times`](frpc::Times) say. Then its caller gets [`DeadlineExceeded`](frpc::Code::DeadlineExceeded), and the call is dropped.
    #[must_use]
    pub fn call_time_max(self, time_max: impl Into<Option<Duration>>) -> Self {
        self.set(|settings| settings.call_time_max = time_max.into())
    }

    /// Sets how many subscriptions a connection may have. Default 64. Another is refused.
    #[must_use]
    pub fn subscriptions_max(self, subscriptions_max: usize) -> Self {
        self.set(|settings| settings.subscriptions_max = subscriptions_max)
    }

    /// Sets the bytes of answers and notifications that may wait for a peer to read them. Default 1 MiB. From then on its
    /// connection is not read, and its subscriptions make no messages.
    #[must_use]
    pub fn answers_len_max(self, len_max: usize) -> Self {
        self.set(|settings| settings.answers_len_max = len_max.max(1))
    }

    /// Sets how long a message may take to arrive, from its first byte on, and a connection until its first message is complete, blanks
    /// in front included. Default 30 s. Then it is answered with an error, and the connection is closed. Over HTTP, that wire has a
    /// setting of its own; on a WebSocket, whose handshake was a complete message, pings find peers that are gone.
    #[must_use]
    pub fn message_time_max(self, time_max: Duration) -> Self {
        self.set(|settings| settings.message_time_max = time_max)
    }

    /// Sets how long a connection may be without calls and subscriptions: it is closed once it was for this time, at the latest after
    /// twice as long. Default: for ever. For HTTP and WebSocket, that wire has settings of its own.
    #[must_use]
    pub fn idle_max(self, idle_max: impl Into<Option<Duration>>) -> Self {
        self.set(|settings| settings.idle_max = idle_max.into())
    }

    /// Sets how long a peer may take none of the bytes that are there for it. Default 60 s. Then the connection is closed, and its
    /// calls are dropped. For HTTP and WebSocket, that wire has a setting of its own.
    #[must_use]
    pub fn standstill_max(self, standstill_max: Duration) -> Self {
        self.set(|settings| settings.standstill_max = standstill_max)
    }

    /// Sets how long calls may run after their peer has closed its side of a TCP connection, as `nc` does at the end of its input.
    /// Default 30 s. A peer that is gone looks the same: then the connection is closed, and its calls are dropped.
    #[must_use]
    pub fn half_closed_max(self, half_closed_max: Duration) -> Self {
        self.set(|settings| settings.half_closed_max = half_closed_max)
    }

    /// Returns what the calls of a server share.
    fn site(&self, endpoint: Endpoint) -> Site {
        let mut made = self.made.0.lock().unwrap_or_else(PoisonError::into_inner);
        let methods = match &*made {
            Some((of, methods)) if of.is_same(&endpoint) => methods.clone(),
            _ => {
                let methods = Arc::new(Methods::new(&self.functions, &endpoint, &self.aliases));
                *made = Some((endpoint.clone(), methods.clone()));
                methods
            }
        };
        let time_default = endpoint.time_of(None);
        Site { settings: self.settings.clone(), methods, endpoint, time_default }
    }

    /// Begins without calls. Each of them will have this head.
    pub(crate) fn calls(&self, endpoint: Endpoint, head: Head, can_subscribe: bool) -> Calls {
        let context = self.functions.context(head).with_memory_budget(endpoint.memory_budget());
        Calls::new(self.site(endpoint), context, can_subscribe)
    }
}

impl Wire for JsonRpc {
    fn recognize(&self, first: &[u8], _alpn: Option<&[u8]>) -> Recognized {
        match first {
            [] => Recognized::More,
            [b'{' | b'[' | b' ' | b'\t' | b'\r' | b'\n', ..] => Recognized::Yes,
            // Methods of HTTP are written in upper case.
            [b'C' | b'c', b'o', ..] | [b'c'] => Recognized::by_prefix(&first[1..], b"ontent-"),
            [b'C'] => Recognized::More,
            _ => Recognized::No,
        }
    }

    async fn serve(&self, socket: Raw, endpoint: Endpoint, drain: Drain) {
        let mut head = Head::default();
        head.set_peer(&Peer::of(&socket));
        let calls = self.calls(endpoint, head, true);
        connection::serve(socket, calls, self.settings.clone(), drain).await;
    }
}

impl fmt::Debug for JsonRpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, functions, aliases, made: _ } = self;
        let mut debug = f.debug_struct("JsonRpc");
        debug
            .field("functions", functions)
            .field("aliases", aliases)
            .field("settings", settings)
            .finish_non_exhaustive()
    }
}
