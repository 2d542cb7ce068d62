//! Channels as shown in the list of all channels.

use std::sync::{Arc, Weak};

use frisbee::{Address, FrameCounts};

use super::ChannelTransport;
use crate::{
    client::caller::Caller,
    fleet::{server::ServerCaller, set::Fleet},
    inspect::{ChannelSource, EndpointHistory, EndpointPhase, EndpointView},
    wire::frisbee::calling::reconnecting::FrisbeeCaller,
};

/// The transport of a channel, not kept open.
pub(super) enum ListedTransport {
    Frisbee(Weak<FrisbeeCaller>, Address),
    Other(Weak<dyn Caller>, Address),
    Many(Weak<Fleet>),
}

impl ListedTransport {
    /// Lists a transport. One to a single server needs its address.
    pub(super) fn new(transport: &ChannelTransport, server: Option<Address>) -> Self {
        let server = server.unwrap_or(Address::Unnamed);
        match transport {
            ChannelTransport::One(ServerCaller::Frisbee(caller)) => Self::Frisbee(Arc::downgrade(caller), server),
            ChannelTransport::One(ServerCaller::Other(caller)) => Self::Other(Arc::downgrade(caller), server),
            ChannelTransport::Many(fleet) => Self::Many(Arc::downgrade(fleet)),
        }
    }
}

impl ChannelSource for ListedTransport {
    fn is_open(&self) -> bool {
        match self {
            Self::Frisbee(caller, _) => caller.strong_count() > 0,
            Self::Other(caller, _) => caller.strong_count() > 0,
            Self::Many(fleet) => fleet.strong_count() > 0,
        }
    }

    fn endpoints(&self) -> Vec<EndpointView> {
        match self {
            Self::Frisbee(caller, address) => {
                let Some(caller) = caller.upgrade() else { return Vec::new() };
                let is_open = caller.current().connection.close_reason().is_none();
                let state = if is_open { EndpointPhase::Ready } else { EndpointPhase::Connecting };
                let caller = ServerCaller::Frisbee(caller);
                let (traffic, is_secure) = (caller.traffic(), is_open && caller.is_secure());
                vec![EndpointView { traffic, is_secure, ..single(address, state) }]
            }
            Self::Other(caller, address) => {
                let Some(caller) = caller.upgrade() else { return Vec::new() };
                let (traffic, frames, flow) = (caller.traffic(), caller.frames(), caller.flow());
                let is_secure = caller.is_secure();
                vec![EndpointView { traffic, frames, flow, is_secure, ..single(address, EndpointPhase::Ready) }]
            }
            Self::Many(fleet) => fleet.upgrade().map(|fleet| fleet.endpoints()).unwrap_or_default(),
        }
    }
}

/// Returns the only server of a channel. Its calls are in the counters of the target.
fn single(address: &Address, state: EndpointPhase) -> EndpointView {
    EndpointView {
        address: address.clone(),
        zone: None,
        weight: 1,
        state,
        in_flight: 0,
        latency: None,
        failures: 0,
        ejections: 0,
        history: EndpointHistory::default(),
        traffic: None,
        frames: FrameCounts::default(),
        flow: None,
        is_secure: false,
    }
}
