//! gRPC's service `grpc.channelz.v1.Channelz`.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::SystemTime,
};

use bytes::Bytes;
use frpc::{
    Answer, Call, Method, Request, Response, Service, Status, frisbee,
    inspect::{self, ChannelView, EndpointPhase, EndpointView, ServerView},
    metrics::MethodMetrics,
    prost_types::Timestamp,
};

use crate::{
    AdminAccess,
    protos::grpc::channelz::v1::{
        Address, Channel, ChannelConnectivityState, ChannelData, ChannelRef, ChannelTrace, GetChannelRequest,
        GetChannelResponse, GetServerRequest, GetServerResponse, GetServerSocketsRequest, GetServerSocketsResponse,
        GetServersRequest, GetServersResponse, GetSocketRequest, GetSocketResponse, GetSubchannelRequest,
        GetSubchannelResponse, GetTopChannelsRequest, GetTopChannelsResponse, Security, Server, ServerData, ServerRef,
        Socket, SocketData, SocketRef, Subchannel, SubchannelRef,
        address::{OtherAddress, TcpIpAddress, UdsAddress},
        channel_connectivity_state::State,
        channelz_server::{self, ChannelzServer},
        security,
    },
};

/// gRPC's channelz service, for tools such as grpcdebug. Made by [`Admin::channelz`](crate::Admin::channelz).
///
/// Channels to several servers have a subchannel per server, with one socket for all its connections. A channel has the
/// counters of its target. Packets of frisbee connections count as messages.
#[derive(Clone, Debug)]
pub struct Channelz {
    access: AdminAccess,
    server: ChannelzServer<ProcessViews>,
}

impl Channelz {
    pub(crate) fn new(access: AdminAccess) -> Self {
        Self { access, server: ChannelzServer::new(ProcessViews) }
    }
}

impl Service for Channelz {
    const NAME: &'static str = <ChannelzServer<ProcessViews> as Service>::NAME;
    const METHODS: &'static [Method] = <ChannelzServer<ProcessViews> as Service>::METHODS;

    async fn call(&self, method: usize, call: Call) -> Result<Answer, Status> {
        self.access.check(call.head())?;
        self.server.call(method, call).await
    }
}

/// The servers and channels of this process.
#[derive(Clone, Copy, Debug)]
struct ProcessViews;

impl channelz_server::Channelz for ProcessViews {
    async fn get_top_channels(
        &self,
        request: Request<GetTopChannelsRequest>,
    ) -> Result<Response<GetTopChannelsResponse>, Status> {
        let GetTopChannelsRequest { start_channel_id, max_results } = request.into_inner();
        let channels = inspect::channels();
        let later = channels.iter().filter(|channel| id(channel.number()) >= start_channel_id);
        let (found, end) = page(later, max_results)?;
        Ok(GetTopChannelsResponse { channel: found.into_iter().map(channel).collect(), end }.into())
    }

    async fn get_servers(&self, request: Request<GetServersRequest>) -> Result<Response<GetServersResponse>, Status> {
        let GetServersRequest { start_server_id, max_results } = request.into_inner();
        let servers = inspect::servers();
        let later = servers.iter().filter(|server| id(server.number()) >= start_server_id);
        let (found, end) = page(later, max_results)?;
        Ok(GetServersResponse { server: found.into_iter().map(server).collect(), end }.into())
    }

    async fn get_server(&self, request: Request<GetServerRequest>) -> Result<Response<GetServerResponse>, Status> {
        let found = find_server(request.get_ref().server_id)?;
        Ok(GetServerResponse { server: Some(server(&found)) }.into())
    }

    async fn get_server_sockets(
        &self,
        request: Request<GetServerSocketsRequest>,
    ) -> Result<Response<GetServerSocketsResponse>, Status> {
        let GetServerSocketsRequest { server_id, start_socket_id, max_results } = request.into_inner();
        let server = find_server(server_id)?;
        let (_, start) = SocketId::parse(start_socket_id.max(0));
        let max = page_len(max_results)?;
        let mut found = server.observer().connections(start.saturating_sub(1), max + 1);
        let end = found.len() <= max;
        found.truncate(max);
        let socket_ref = found.into_iter().map(|info| {
            let name = format!("{} {}", info.protocol.unwrap_or("handshake"), info.peer);
            SocketRef { socket_id: SocketId::of(&server, info.number), name }
        });
        Ok(GetServerSocketsResponse { socket_ref: socket_ref.collect(), end }.into())
    }

    async fn get_channel(&self, request: Request<GetChannelRequest>) -> Result<Response<GetChannelResponse>, Status> {
        let found = find_channel(request.get_ref().channel_id)?;
        Ok(GetChannelResponse { channel: Some(channel(&found)) }.into())
    }

    async fn get_subchannel(
        &self,
        request: Request<GetSubchannelRequest>,
    ) -> Result<Response<GetSubchannelResponse>, Status> {
        let wanted = request.get_ref().subchannel_id;
        let channel = find_channel(wanted >> SUBCHANNEL_BITS)?;
        let endpoints = channel.endpoints();
        let found = endpoints.iter().enumerate().find(|(index, _)| SubchannelId::of(&channel, *index) == wanted);
        let (index, endpoint) = found.ok_or_else(|| missing("subchannel", wanted))?;
        let data = ChannelData {
            state: Some(connectivity(Some(endpoint.state))),
            target: endpoint.address.to_string(),
            ..ChannelData::default()
        };
        let name = endpoint_name(endpoint);
        let socket = endpoint_socket(&channel, index, endpoint);
        let subchannel = Subchannel {
            r#ref: Some(SubchannelRef { subchannel_id: wanted, name }),
            data: Some(data),
            socket_ref: socket.and_then(|socket| socket.r#ref).into_iter().collect(),
            ..Subchannel::default()
        };
        Ok(GetSubchannelResponse { subchannel: Some(subchannel) }.into())
    }

    async fn get_socket(&self, request: Request<GetSocketRequest>) -> Result<Response<GetSocketResponse>, Status> {
        let wanted = request.get_ref().socket_id;
        let (owner, number) = SocketId::parse(wanted);
        if let Ok(channel) = find_channel(owner) {
            let endpoints = channel.endpoints();
            let found =
                endpoints.iter().enumerate().find(|(index, _)| SocketId::of_endpoint(&channel, *index) == wanted);
            let socket = found.and_then(|(index, endpoint)| endpoint_socket(&channel, index, endpoint));
            return Ok(GetSocketResponse { socket: Some(socket.ok_or_else(|| missing("socket", wanted))?) }.into());
        }
        let server = find_server(owner)?;
        if let Some(listener) = number.checked_sub(LISTENERS_FROM).and_then(|index| usize::try_from(index).ok())
            && let Some(local) = server.observer().local_addrs().get(listener)
        {
            let socket = Socket {
                r#ref: Some(SocketRef { socket_id: wanted, name: local.to_string() }),
                local: Some(address(local)),
                ..Socket::default()
            };
            return Ok(GetSocketResponse { socket: Some(socket) }.into());
        }
        let found = server.observer().connections(number.saturating_sub(1), 1).pop();
        let info = found.filter(|info| info.number == number).ok_or_else(|| missing("socket", wanted))?;
        let mut data = SocketData::default();
        if let Some(connection) = &info.connection {
            let counters = connection.metrics().counters;
            (data.messages_sent, data.messages_received) = (id(counters.packets_out), id(counters.packets_in));
        }
        add_windows(&mut data, info.flow);
        let socket = Socket {
            r#ref: Some(SocketRef { socket_id: wanted, name: info.protocol.unwrap_or("handshake").to_owned() }),
            data: Some(data),
            security: security(info.is_secure),
            local: Some(address(&info.local)),
            remote: Some(address(&info.peer)),
            ..Socket::default()
        };
        Ok(GetSocketResponse { socket: Some(socket) }.into())
    }
}

/// Ids of connections: the number of the server or channel, then that of the connection or server of the channel.
struct SocketId;

impl SocketId {
    fn of(server: &ServerView, number: u64) -> i64 {
        id(server.number() << SOCKET_BITS | number & SOCKET_MASK)
    }

    /// Returns the id of the connections of a channel to a server.
    fn of_endpoint(channel: &ChannelView, index: usize) -> i64 {
        id(channel.number() << SOCKET_BITS | (index as u64 + 1) & SOCKET_MASK)
    }

    /// Returns the id of the server or channel, and the number of the connection.
    fn parse(socket: i64) -> (i64, u64) {
        (socket >> SOCKET_BITS, socket.unsigned_abs() & SOCKET_MASK)
    }
}

const SOCKET_BITS: u32 = 40;
const SOCKET_MASK: u64 = (1 << SOCKET_BITS) - 1;
/// The numbers of listening sockets, above the numbers of all connections.
const LISTENERS_FROM: u64 = SOCKET_MASK - 1023;

/// Ids of the servers of a channel: the number of the channel, then the position of the server plus one.
struct SubchannelId;

impl SubchannelId {
    fn of(channel: &ChannelView, index: usize) -> i64 {
        id(channel.number() << SUBCHANNEL_BITS | (index as u64 + 1) & ((1 << SUBCHANNEL_BITS) - 1))
    }
}

const SUBCHANNEL_BITS: u32 = 20;

fn find_server(wanted: i64) -> Result<ServerView, Status> {
    let found = inspect::servers().into_iter().find(|server| id(server.number()) == wanted);
    found.ok_or_else(|| missing("server", wanted))
}

fn find_channel(wanted: i64) -> Result<ChannelView, Status> {
    let found = inspect::channels().into_iter().find(|channel| id(channel.number()) == wanted);
    found.ok_or_else(|| missing("channel", wanted))
}

fn missing(kind: &str, id: i64) -> Status {
    Status::not_found(format!("no {kind} has the id {id}"))
}

fn server(server: &ServerView) -> Server {
    let counts = CallCounts::of(&server.methods());
    let addresses = server.observer().local_addrs();
    let listen_socket = addresses
        .iter()
        .zip(LISTENERS_FROM..)
        .map(|(address, number)| SocketRef { socket_id: SocketId::of(server, number), name: address.to_string() });
    let name = addresses.first().map(ToString::to_string).unwrap_or_default();
    Server {
        r#ref: Some(ServerRef { server_id: id(server.number()), name }),
        data: Some(ServerData {
            calls_started: counts.started,
            calls_succeeded: counts.succeeded,
            calls_failed: counts.failed,
            ..ServerData::default()
        }),
        listen_socket: listen_socket.collect(),
    }
}

fn channel(channel: &ChannelView) -> Channel {
    let (counts, endpoints) = (CallCounts::of(&channel.methods()), channel.endpoints());
    let subchannels = endpoints.iter().enumerate().map(|(index, endpoint)| SubchannelRef {
        subchannel_id: SubchannelId::of(channel, index),
        name: endpoint_name(endpoint),
    });
    // A channel is as ready as its best server.
    let best = endpoints.iter().map(|endpoint| endpoint.state).max_by_key(|state| match state {
        EndpointPhase::Ready => 3,
        EndpointPhase::Connecting => 2,
        _ => 1,
    });
    Channel {
        r#ref: Some(ChannelRef { channel_id: id(channel.number()), name: channel.target().to_owned() }),
        data: Some(ChannelData {
            state: Some(connectivity(best)),
            target: channel.target().to_owned(),
            trace: Some(ChannelTrace {
                creation_timestamp: Some(timestamp(channel.made())),
                ..ChannelTrace::default()
            }),
            calls_started: counts.started,
            calls_succeeded: counts.succeeded,
            calls_failed: counts.failed,
            last_call_started_timestamp: None,
        }),
        subchannel_ref: subchannels.collect(),
        ..Channel::default()
    }
}

/// Returns the connections to a server of a channel as one socket. `None` without a connection.
fn endpoint_socket(channel: &ChannelView, index: usize, endpoint: &EndpointView) -> Option<Socket> {
    if matches!(endpoint.state, EndpointPhase::Connecting | EndpointPhase::Failing) {
        return None;
    }
    let mut data = SocketData::default();
    if let Some(traffic) = endpoint.traffic {
        let counters = traffic.counters;
        (data.messages_sent, data.messages_received) = (id(counters.packets_out), id(counters.packets_in));
    }
    add_windows(&mut data, endpoint.flow);
    let name = endpoint.address.to_string();
    Some(Socket {
        r#ref: Some(SocketRef { socket_id: SocketId::of_endpoint(channel, index), name }),
        data: Some(data),
        security: security(endpoint.is_secure),
        // Transports do not report the address of this side. grpcdebug fails without one.
        local: Some(address(&UNSPECIFIED.into())),
        remote: Some(address(&endpoint_address(&endpoint.address).into())),
        remote_name: endpoint.address.to_string(),
    })
}

const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Returns the IP address and port of an endpoint. Without one, such as with a host name, they are zero: grpcdebug fails for
/// other kinds of addresses.
fn endpoint_address(address: &frisbee::Address) -> SocketAddr {
    let ip = match address {
        frisbee::Address::Tcp(address) => Some(*address),
        frisbee::Address::Url(url) => url.split_once("://").and_then(|(_, rest)| rest.split('/').next()?.parse().ok()),
        _ => None,
    };
    ip.unwrap_or(UNSPECIFIED)
}

fn add_windows(data: &mut SocketData, flow: Option<frisbee::FlowState>) {
    if let Some(flow) = flow {
        // The local window is the credit of this side for sending.
        data.local_flow_control_window = Some(id(flow.send_credit));
        data.remote_flow_control_window = Some(id(flow.receive_credit));
    }
}

fn security(is_secure: bool) -> Option<Security> {
    is_secure.then(|| Security { model: Some(security::Model::Tls(security::Tls::default())) })
}

fn endpoint_name(endpoint: &EndpointView) -> String {
    format!("{} ({})", endpoint.address, endpoint.state.name())
}

fn connectivity(state: Option<EndpointPhase>) -> ChannelConnectivityState {
    let state = match state {
        Some(EndpointPhase::Ready) => State::Ready,
        Some(EndpointPhase::Connecting) => State::Connecting,
        Some(_) => State::TransientFailure,
        None => State::Idle,
    };
    ChannelConnectivityState { state: state.into() }
}

/// The calls of several methods.
#[derive(Default)]
struct CallCounts {
    started: i64,
    succeeded: i64,
    failed: i64,
}

impl CallCounts {
    fn of(methods: &[MethodMetrics]) -> Self {
        methods.iter().fold(Self::default(), |counts, MethodMetrics { totals, .. }| Self {
            started: counts.started + id(totals.started),
            succeeded: counts.succeeded + id(totals.ended(0)),
            failed: counts.failed + id(totals.all_ended() - totals.ended(0)),
        })
    }
}

fn address(address: &frpc::Address) -> Address {
    use crate::protos::grpc::channelz::v1::address::Address as Kind;

    let kind = match address {
        frisbee::Address::Tcp(socket) => Kind::TcpipAddress(TcpIpAddress {
            ip_address: match socket.ip() {
                IpAddr::V4(ip) => Bytes::copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => Bytes::copy_from_slice(&ip.octets()),
            },
            port: socket.port().into(),
        }),
        frisbee::Address::Unix(path) => Kind::UdsAddress(UdsAddress { filename: path.display().to_string() }),
        other => Kind::OtherAddress(OtherAddress { name: other.to_string(), value: None }),
    };
    Address { address: Some(kind) }
}

fn timestamp(time: SystemTime) -> Timestamp {
    Timestamp::from(time)
}

/// Returns the first items up to the limit of a request, and `true` if there are no more.
fn page<T>(items: impl Iterator<Item = T>, max: i64) -> Result<(Vec<T>, bool), Status> {
    let (max, mut items) = (page_len(max)?, items.peekable());
    let found = items.by_ref().take(max).collect();
    Ok((found, items.peek().is_none()))
}

fn page_len(max: i64) -> Result<usize, Status> {
    match usize::try_from(max) {
        Ok(0) => Ok(PAGE_LEN),
        Ok(max) => Ok(max.min(PAGE_LEN)),
        Err(_) => Err(Status::invalid_argument("`max_results` is negative")),
    }
}

/// The maximum number of items in an answer.
const PAGE_LEN: usize = 100;

fn id(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
