//! TLS of the endpoints of channels, in a process of its own: calls of channelz would fill the list of slow calls.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use frpc::{Channel, Server};
use frpc_admin::{
    Admin, AdminAccess,
    protos::{
        frpc::admin::v1::{ProcessState, WatchRequest, admin_client::AdminClient},
        grpc::channelz::v1::{
            GetSocketRequest, GetSubchannelRequest, GetTopChannelsRequest, Security, address::Address,
            channelz_client::ChannelzClient, security,
        },
    },
};
use frpc_http::Http;
use frpc_jsonrpc::JsonRpc;
use support::{Identity, in_real_time};

async fn server(tls: Option<&Identity>) -> Server {
    let admin = Admin::new(AdminAccess::local());
    let builder = Server::builder().add_service(admin.channelz()).add_service(admin);
    let builder = builder.wire(Http::new().mount("/rpc", JsonRpc::new()));
    let builder = match tls {
        Some(identity) => builder.tls(identity.server()),
        None => builder,
    };
    builder.bind("tcp://127.0.0.1:0").await.unwrap()
}

async fn connect(target: &str, tls: Option<&Identity>) -> Channel {
    let builder = Channel::builder().transport(frpc_http::transport()).transport(frpc_websocket::transport());
    let builder = builder.transport(frpc_jsonrpc::transport());
    let builder = match tls {
        Some(identity) => builder.tls_with_name(identity.client(), "localhost"),
        None => builder,
    };
    builder.connect(target).await.unwrap()
}

#[test]
fn endpoints_over_tls_are_secure_on_every_wire() {
    in_real_time(async {
        let identity = Identity::new();
        let (plain, secured) = (server(None).await, server(Some(&identity)).await);
        let admin = connect(&plain.local_addr().to_string(), None).await;
        let schemes = [
            ("tcp", "tcp"),
            ("grpc", "grpcs"),
            ("http", "https"),
            ("ws", "wss"),
            ("jsonrpc+ws", "jsonrpc+wss"),
            ("jsonrpc+http", "jsonrpc+https"),
        ];
        for (without, with) in schemes {
            for (server, scheme, tls) in [(&plain, without, None), (&secured, with, Some(&identity))] {
                let path = if scheme.starts_with("jsonrpc") { "/rpc" } else { "" };
                let address = server.local_addr().socket_addr().unwrap();
                let one = format!("{scheme}://{address}{path}");
                // Channels to several servers view their endpoints in another way. The second server is not there.
                let several = format!("{one},{scheme}://127.0.0.1:1{path}");
                for target in [one, several] {
                    let channel = connect(&target, tls).await;
                    assert_eq!(is_secure_on_the_page(&admin, &target).await, tls.is_some(), "{target}");
                    let found = security_in_channelz(&admin, &target).await;
                    assert_eq!(found, tls.map(|_| security::Model::Tls(security::Tls::default())), "{target}");
                    drop(channel);
                }
            }
        }
    });
}

/// Returns the state of TLS of the first ready endpoint of a channel.
async fn is_secure_on_the_page(admin: &Channel, target: &str) -> bool {
    let ready = |state: ProcessState| {
        let channel = state.channels.into_iter().rfind(|channel| channel.target == target)?;
        channel.endpoints.into_iter().find(|endpoint| endpoint.state == "ready")
    };
    let states = AdminClient::new(admin.clone()).watch(WatchRequest { interval_ms: 100 }).await.unwrap();
    let mut states = states.into_inner();
    loop {
        let state = states.message().await.unwrap().expect("states do not end");
        if let Some(endpoint) = ready(state) {
            return endpoint.is_secure;
        }
    }
}

/// Returns the security of the first socket of a channel.
async fn security_in_channelz(admin: &Channel, target: &str) -> Option<security::Model> {
    let client = ChannelzClient::new(admin.clone());
    let channels = client.get_top_channels(GetTopChannelsRequest::default()).await.unwrap().into_inner().channel;
    let found = channels.into_iter().rfind(|channel| channel.data.as_ref().unwrap().target == target).unwrap();
    for subchannel in found.subchannel_ref {
        let request = GetSubchannelRequest { subchannel_id: subchannel.subchannel_id };
        let subchannel = client.get_subchannel(request).await.unwrap().into_inner().subchannel.unwrap();
        let [socket] = &subchannel.socket_ref[..] else { continue };
        let request = GetSocketRequest { socket_id: socket.socket_id, ..GetSocketRequest::default() };
        let found = client.get_socket(request).await.unwrap().into_inner().socket.unwrap();
        assert_eq!(found.r#ref.as_ref(), Some(socket));
        // grpcdebug needs both.
        let addresses = [found.local, found.remote].map(|address| address.unwrap().address.unwrap());
        assert!(addresses.iter().all(|address| matches!(address, Address::TcpipAddress(_))), "{addresses:?}");
        return found.security.and_then(|Security { model }| model);
    }
    panic!("no endpoint of {target} has a socket")
}
