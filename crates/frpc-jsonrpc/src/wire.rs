//! The JSON-RPC wire of a server: its functions, settings, and connections.

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

/// JSON-RPC 2.0 as a wire of a [`Server`](frpc::Server), for its services and additional functions.
///
/// On TCP and Unix sockets, a connection is recognized as JSON-RPC if it starts with a brace, a bracket, or the header
/// `Content-Length`. Answers use the framing of the peer: concatenated values, lines, or bodies with a
/// `Content-Length`. `docs/json-rpc.md` describes our decisions where the specification is silent.
///
/// With the feature `http`, it is also a [`Mount`](https://docs.rs/frpc-http/latest/frpc_http/trait.Mount.html) for an
/// HTTP path: `Http::new().mount("/rpc", json_rpc.clone())`.
///
/// ```
/// use frpc::Server;
/// use frpc_jsonrpc::{Called, Context, Description, Function, JsonRpc};
/// use tokio::{io::{AsyncBufReadExt, AsyncWriteExt, BufReader}, net::TcpStream};
///
/// /// Returns its params.
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
/// A peer can make a connection hold:
///
/// - one incomplete message of [`message_len_max`](Self::message_len_max),
/// - [`calls_max`](Self::calls_max) calls with messages of [`calls_len_max`](Self::calls_len_max),
/// - slightly more than [`answers_len_max`](Self::answers_len_max) of unread answers, and
/// - [`subscriptions_max`](Self::subscriptions_max) streams.
///
/// At these limits the connection is not read. While it has no room for calls, up to 256 KiB are read ahead to notice
/// its end.
///
/// The end of a peer that sent more than that is noticed within a second on TCP and Unix sockets without TLS or
/// io_uring, if the kernel has room for the bytes before the end.
#[derive(Clone, Default)]
pub struct JsonRpc {
    pub(crate) settings: Arc<Settings>,
    functions: Functions,
    /// Pairs of an alias and the name of its method.
    aliases: Arc<Vec<(String, String)>>,
    made: Arc<Made>,
}

/// The method table of the last server to use this wire. Sharing a wire between servers is correct, but rebuilds the
/// table.
#[derive(Default)]
struct Made(Mutex<Option<(Endpoint, Arc<Methods>)>>);

impl JsonRpc {
    /// Creates a wire for the server's services, with the default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function.
    ///
    /// # Panics
    ///
    /// Panics if there is already a function with this name.
    #[must_use]
    pub fn function(self, function: impl Function) -> Self {
        Self { functions: self.functions.function(function), made: Arc::default(), ..self }
    }

    /// Replaces all functions added so far.
    #[must_use]
    pub fn functions(self, functions: Functions) -> Self {
        Self { functions, made: Arc::default(), ..self }
    }

    /// Adds a value for functions with a parameter of type `&T`; see [`Functions::state`].
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Self {
        Self { functions: self.functions.state(state), ..self }
    }

    /// Adds an alias for a function, or for a method of a service such as `shop.Orders/Get`.
    ///
    /// An alias ending in `_subscribe` follows Ethereum's conventions: the name of its notifications ends in
    /// `_subscription`, and the end of a subscription is not announced.
    #[must_use]
    pub fn alias(mut self, name: impl Into<String>, method: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.aliases).push((name.into(), method.into()));
        Self { made: Arc::default(), ..self }
    }

    fn set(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(Arc::make_mut(&mut self.settings));
        self
    }

    /// Sets the maximum length of a message, or of a whole batch. Default: 4 MiB.
    ///
    /// A longer message is answered with an error and ends the connection, except over WebSocket. For POST requests and
    /// WebSocket, the limit of the HTTP wire applies too.
    #[must_use]
    pub fn message_len_max(self, len_max: usize) -> Self {
        self.set(|settings| settings.message_len_max = len_max)
    }

    /// Sets the maximum nesting depth of a message, including the request object. Default: 100, at most 127.
    #[must_use]
    pub fn depth_max(self, depth_max: u32) -> Self {
        self.set(|settings| settings.depth_max = depth_max.min(DEPTH_MAX))
    }

    /// Rejects params of service methods with unknown fields or enum values.
    ///
    /// The error is [`InvalidArgument`](frpc::Code::InvalidArgument) with the path of the first unknown name. By
    /// default unknown names are ignored, and the first one of each method is logged. Functions are not affected,
    /// because they parse their own params.
    #[must_use]
    pub fn strict_json(self, is_strict: bool) -> Self {
        self.set(|settings| settings.strict_json = is_strict)
    }

    /// Sets the maximum number of requests in a batch. Default: 100. A longer batch is answered with one error, and
    /// none of it is executed.
    #[must_use]
    pub fn batch_len_max(self, len_max: usize) -> Self {
        self.set(|settings| settings.batch_len_max = len_max)
    }

    /// Sets the maximum total length of the answers of a batch. Default: 16 MiB.
    ///
    /// Errors replace the answers above this limit. If it is exceeded before all calls of the batch were started, the
    /// others fail without being executed.
    #[must_use]
    pub fn batch_answers_len_max(self, len_max: usize) -> Self {
        self.set(|settings| settings.batch_answers_len_max = len_max)
    }

    /// Sets whether answers of a batch appear in the order of its requests. Default: `true`. Otherwise they appear in
    /// the order of completion.
    #[must_use]
    pub fn batches_in_order(self, is_in_order: bool) -> Self {
        self.set(|settings| settings.batches_in_order = is_in_order)
    }

    /// Sets the maximum number of calls in flight on a connection. Default: 256.
    ///
    /// At the limit, the connection is not read. A batch counts as its number of calls: it starts when there is room
    /// for all of them, or when no other call is in flight.
    #[must_use]
    pub fn calls_max(self, calls_max: usize) -> Self {
        self.set(|settings| settings.calls_max = calls_max.max(1))
    }

    /// Sets the maximum total length of the messages of calls in flight, above which no call is started. Default: 16
    /// MiB.
    #[must_use]
    pub fn calls_len_max(self, len_max: usize) -> Self {
        self.set(|settings| settings.calls_len_max = len_max.max(1))
    }

    /// Sets the maximum duration of a call. Default: the server's [`Times`](frpc::Times).
    ///
    /// On expiry the call is dropped, and its caller receives [`DeadlineExceeded`](frpc::Code::DeadlineExceeded).
    #[must_use]
    pub fn call_time_max(self, time_max: impl Into<Option<Duration>>) -> Self {
        self.set(|settings| settings.call_time_max = time_max.into())
    }

    /// Sets the maximum number of subscriptions of a connection. Default: 64. Further ones are refused.
    #[must_use]
    pub fn subscriptions_max(self, subscriptions_max: usize) -> Self {
        self.set(|settings| settings.subscriptions_max = subscriptions_max)
    }

    /// Sets the maximum length of unread answers and notifications. Default: 1 MiB. At the limit the connection is not
    /// read, and its subscriptions are not polled.
    #[must_use]
    pub fn answers_len_max(self, len_max: usize) -> Self {
        self.set(|settings| settings.answers_len_max = len_max.max(1))
    }

    /// Sets the maximum time for a message to arrive completely, counted from its first byte. Default: 30 s.
    ///
    /// It also limits the time from the start of a connection to the end of its first message. On expiry the peer
    /// receives an error, and the connection is closed. For POST requests, the HTTP wire has its own setting. On a
    /// WebSocket, pings detect dead peers instead: its handshake was a complete message.
    #[must_use]
    pub fn message_time_max(self, time_max: Duration) -> Self {
        self.set(|settings| settings.message_time_max = time_max)
    }

    /// Sets the maximum idle time of a connection without calls and subscriptions. Default: unlimited.
    ///
    /// The connection is closed after one to two times this duration. For HTTP and WebSocket, the HTTP wire has its own
    /// settings.
    #[must_use]
    pub fn idle_max(self, idle_max: impl Into<Option<Duration>>) -> Self {
        self.set(|settings| settings.idle_max = idle_max.into())
    }

    /// Sets the maximum time without write progress while answers are queued. Default: 60 s.
    ///
    /// Then the connection is closed, and its calls are dropped. For HTTP and WebSocket, the HTTP wire has its own
    /// setting.
    #[must_use]
    pub fn standstill_max(self, standstill_max: Duration) -> Self {
        self.set(|settings| settings.standstill_max = standstill_max)
    }

    /// Sets the maximum duration of calls after their peer has closed its side of a TCP connection. Default: 30 s.
    ///
    /// Some peers, such as `nc`, close their side after sending their input and still read the answers. A dead peer
    /// looks the same, so the connection is then closed and its calls are dropped.
    #[must_use]
    pub fn half_closed_max(self, half_closed_max: Duration) -> Self {
        self.set(|settings| settings.half_closed_max = half_closed_max)
    }

    /// Returns the state shared by all calls of a server.
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

    /// Creates an empty set of calls. All of its calls have `head`.
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
            // HTTP methods are upper-case, so a lower-case second letter tells `Content-Length` from `CONNECT`.
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
