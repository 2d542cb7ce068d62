//! The JSON-RPC wire of a server: its functions, settings, and connections.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use frpc::{Drain, Endpoint, Head, ProtocolMatch, Raw, Wire, WirePeer};

use crate::{
    calls::{JsonRpcState, PeerCalls},
    connection,
    function::{Function, Functions},
    methods::MethodNames,
    settings::JsonRpcSettings,
};

/// JSON-RPC 2.0 as a wire of a [`Server`](frpc::Server), for its services and additional functions.
///
/// On TCP and Unix sockets, a connection is recognized as JSON-RPC if it starts with a brace, a bracket, or the header
/// `Content-Length`. Answers use the framing of the peer: concatenated values, lines, or bodies with a
/// `Content-Length`. `docs/json-rpc.md` describes our decisions where the specification is silent.
///
/// With the feature `http`, it is also a [`Mount`](https://docs.rs/frisbee-rpc-http/latest/frpc_http/trait.Mount.html)
/// for an HTTP path: `Http::new().mount("/rpc", json_rpc.clone())`.
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
/// - one incomplete message of [`message_len_max`](JsonRpcSettings::message_len_max),
/// - [`calls_max`](JsonRpcSettings::calls_max) calls with messages of [`calls_len_max`](JsonRpcSettings::calls_len_max),
/// - slightly more than [`answers_len_max`](JsonRpcSettings::answers_len_max) of unread answers, and
/// - [`subscriptions_max`](JsonRpcSettings::subscriptions_max) streams.
///
/// At these limits the connection is not read. While it has no room for calls, up to 256 KiB are read ahead to notice
/// its end.
///
/// If a peer sends more than that and then disconnects, its end is noticed within a second on TCP and Unix sockets
/// without TLS or io_uring. The kernel must have room for all bytes before the end.
#[derive(Clone, Default)]
pub struct JsonRpc {
    pub(crate) settings: Arc<JsonRpcSettings>,
    functions: Functions,
    /// Pairs of an alias and the name of its method.
    aliases: Arc<Vec<(String, String)>>,
    made: Arc<MethodCache>,
}

/// The method table of the last server to use this wire. Sharing a wire between servers is correct, but rebuilds the
/// table.
type MethodCache = Mutex<Option<(Endpoint, Arc<MethodNames>)>>;

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

    /// Replaces all settings.
    #[must_use]
    pub fn settings(self, settings: JsonRpcSettings) -> Self {
        Self { settings: Arc::new(settings.within_bounds()), ..self }
    }

    /// Returns the state shared by all calls of a server.
    fn site(&self, endpoint: Endpoint) -> JsonRpcState {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let methods = match &*made {
            Some((of, methods)) if of.is_same(&endpoint) => methods.clone(),
            _ => {
                let methods = Arc::new(MethodNames::new(&self.functions, &endpoint, &self.aliases));
                *made = Some((endpoint.clone(), methods.clone()));
                methods
            }
        };
        let time_default = endpoint.time_of(None);
        let of_server = endpoint.calls_max().and_then(|max| usize::try_from(max).ok());
        let calls_max = of_server.map_or(self.settings.calls_max, |max| max.min(self.settings.calls_max));
        JsonRpcState { settings: self.settings.clone(), methods, endpoint, calls_max, time_default }
    }

    /// Creates an empty set of calls. All of its calls have `head`.
    pub(crate) fn calls(&self, endpoint: Endpoint, head: Head, can_subscribe: bool, drain: Option<Drain>) -> PeerCalls {
        let context = self.functions.context(head).with_memory_budget(endpoint.memory_budget());
        PeerCalls::new(self.site(endpoint), context, can_subscribe, drain)
    }
}

impl Wire for JsonRpc {
    fn recognize(&self, first: &[u8], _alpn: Option<&[u8]>) -> ProtocolMatch {
        match first {
            [] => ProtocolMatch::More,
            [b'{' | b'[' | b' ' | b'\t' | b'\r' | b'\n', ..] => ProtocolMatch::Yes,
            // HTTP methods are upper-case, so a lower-case second letter tells `Content-Length` from `CONNECT`.
            [b'C' | b'c', b'o', ..] | [b'c'] => ProtocolMatch::by_prefix(&first[1..], b"ontent-"),
            [b'C'] => ProtocolMatch::More,
            _ => ProtocolMatch::No,
        }
    }

    fn name(&self) -> &'static str {
        "json-rpc"
    }

    async fn serve(&self, socket: Raw, endpoint: Endpoint, drain: Drain) {
        let mut head = Head::default();
        head.set_peer(&WirePeer::of(&socket));
        let calls = self.calls(endpoint, head, true, Some(drain.clone()));
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
