"""Walks through the servers and channels of a process with gRPC's own client for channelz: channelz.py PORT TARGET."""

import sys

import grpc
from grpc_channelz.v1 import channelz_pb2 as messages
from grpc_channelz.v1 import channelz_pb2_grpc as services

port, target = sys.argv[1:]
channelz = services.ChannelzStub(grpc.insecure_channel(f"127.0.0.1:{port}"))

servers = channelz.GetServers(messages.GetServersRequest())
assert servers.end
# Other tests of the process have servers, too.
[server] = [server for server in servers.server if server.ref.name == f"tcp://127.0.0.1:{port}"]
assert server.data.calls_started > server.data.calls_succeeded > 0 < server.data.calls_failed, server
same = channelz.GetServer(messages.GetServerRequest(server_id=server.ref.server_id)).server
assert same.ref == server.ref
[listener] = server.listen_socket
socket = channelz.GetSocket(messages.GetSocketRequest(socket_id=listener.socket_id)).socket
assert socket.local.tcpip_address.port == int(port), socket

# One by one, as a client that asks for pages does.
start, sockets = 0, []
while True:
    request = messages.GetServerSocketsRequest(server_id=server.ref.server_id, start_socket_id=start, max_results=1)
    page = channelz.GetServerSockets(request)
    sockets += page.socket_ref
    if page.end:
        break
    start = page.socket_ref[-1].socket_id + 1
assert len(sockets) == 2, sockets
for ref in sockets:
    socket = channelz.GetSocket(messages.GetSocketRequest(socket_id=ref.socket_id)).socket
    assert socket.remote.tcpip_address.ip_address == bytes([127, 0, 0, 1]), socket
frisbee = [socket for socket in sockets if socket.name.startswith("frisbee")]
socket = channelz.GetSocket(messages.GetSocketRequest(socket_id=frisbee[0].socket_id)).socket
assert socket.data.messages_received > 0 < socket.data.messages_sent, socket

channels = channelz.GetTopChannels(messages.GetTopChannelsRequest())
assert channels.end
[channel] = [channel for channel in channels.channel if channel.data.target == target]
assert channel.data.state.state == messages.ChannelConnectivityState.READY, channel
assert channel.data.calls_started == 2 and channel.data.calls_failed == 1, channel
states = set()
for ref in channel.subchannel_ref:
    subchannel = channelz.GetSubchannel(messages.GetSubchannelRequest(subchannel_id=ref.subchannel_id)).subchannel
    states.add(subchannel.data.state.state)
assert len(channel.subchannel_ref) == 2 and messages.ChannelConnectivityState.READY in states, channel

for request, call in [
    (messages.GetChannelRequest(channel_id=1 << 40), channelz.GetChannel),
    (messages.GetSubchannelRequest(subchannel_id=-7), channelz.GetSubchannel),
    (messages.GetServerRequest(server_id=0), channelz.GetServer),
    (messages.GetSocketRequest(socket_id=sockets[-1].socket_id + 1), channelz.GetSocket),
]:
    try:
        raise AssertionError(call(request))
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error

print("all went well")
