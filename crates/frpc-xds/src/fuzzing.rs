//! Entry points for fuzz targets, built with `--cfg fuzzing` only.

use std::{sync::Arc, time::Duration};

use frpc::{prost::Message, prost_types::Any};
use tokio::time::Instant;

use crate::{
    assembly::Assembly, bootstrap::Bootstrap, client::ClientState,
    protos::envoy::service::discovery::v3::DiscoveryResponse, resources::ResourceKind, settings::XdsSettings,
};

/// A channel to `xds:///orders` whose control plane sends anything.
pub struct HostilePlane {
    client: Arc<ClientState>,
    assembly: Assembly,
    now: Instant,
    stream: u64,
}

impl Default for HostilePlane {
    fn default() -> Self {
        let bootstrap = r#"{"xds_servers": [{"server_uri": "plane:1", "channel_creds": [{"type": "insecure"}]}]}"#;
        let bootstrap = Bootstrap::from_json(bootstrap).expect("it is valid");
        let client = Arc::new(ClientState::new(bootstrap, XdsSettings::default()));
        let assembly = Assembly::new(client.clone(), "orders".to_owned(), "grpc".to_owned());
        let mut plane = Self { client, assembly, now: Instant::now(), stream: 0 };
        plane.reconnect(false);
        plane
    }
}

impl HostilePlane {
    /// Sends one resource, and takes all requests that follow.
    pub fn send(&mut self, kind: u8, version: u8, resource: &[u8]) {
        let kind = ResourceKind::ALL[usize::from(kind) % ResourceKind::ALL.len()];
        let response = DiscoveryResponse {
            resources: vec![Any { type_url: kind.type_url().to_owned(), value: resource.to_vec() }],
            type_url: kind.type_url().to_owned(),
            version_info: version.to_string(),
            nonce: version.to_string(),
            ..DiscoveryResponse::default()
        };
        self.respond(response);
        assert_eq!(kind.read(resource), kind.read(resource));
    }

    /// Sends any response.
    pub fn send_any(&mut self, bytes: &[u8]) {
        if let Ok(response) = DiscoveryResponse::decode(bytes) {
            self.respond(response);
        }
    }

    fn respond(&mut self, response: DiscoveryResponse) {
        self.client.change(|state| state.respond(response));
        self.look();
    }

    /// Lets time pass.
    pub fn wait(&mut self, seconds: u8) {
        self.now += Duration::from_secs(seconds.into());
        let now = self.now;
        self.client.change(|state| state.expire(now));
        self.look();
    }

    /// Begins a new stream.
    pub fn reconnect(&mut self, ignores_removals: bool) {
        (self.stream, _, _) = self.client.begin_stream(ignores_removals);
        self.look();
    }

    fn look(&mut self) {
        let _ = self.assembly.update();
        let mut state = self.client.lock();
        for _ in 0..=ResourceKind::ALL.len() {
            let Some(request) = state.next_request(self.stream, self.now) else { return };
            assert!(ResourceKind::of_url(&request.type_url).is_some());
        }
        panic!("requests do not end");
    }
}
