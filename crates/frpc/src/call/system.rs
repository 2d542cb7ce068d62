//! The kinds of wires.

/// The RPC system of a call, by its wire: the attribute `rpc.system.name` of OpenTelemetry's conventions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RpcSystem {
    /// Frisbee, calls within a process, and custom wires.
    #[default]
    Frpc,
    /// gRPC and gRPC-Web.
    Grpc,
    /// Connect, and requests in plain JSON.
    Connect,
    /// Twirp.
    Twirp,
    /// JSON-RPC.
    JsonRpc,
    /// Messages of NATS.
    Nats,
    /// REST, by the paths in the annotations of methods.
    Rest,
}

impl RpcSystem {
    /// All systems, in the order of their numbers.
    pub(crate) const ALL: [Self; 7] =
        [Self::Frpc, Self::Grpc, Self::Connect, Self::Twirp, Self::JsonRpc, Self::Nats, Self::Rest];

    /// Returns the number of the system, below [`SYSTEMS_MAX`].
    #[inline]
    pub(crate) fn number(self) -> u16 {
        self as u16
    }

    /// Returns the name, as in the conventions if they have one.
    pub fn name(self) -> &'static str {
        match self {
            Self::Frpc => "frpc",
            Self::Grpc => "grpc",
            Self::Connect => "connectrpc",
            Self::Twirp => "twirp",
            Self::JsonRpc => "jsonrpc",
            Self::Nats => "nats",
            Self::Rest => "rest",
        }
    }

    /// Returns the system of channels to a target, by its scheme.
    pub(crate) fn of_target(target: &str) -> Self {
        let scheme = target.split_once(':').map_or("", |(scheme, _)| scheme);
        if scheme == "nats+direct" {
            return Self::Frpc;
        }
        match scheme.split('+').next() {
            Some("grpc" | "grpcs" | "grpc-web") => Self::Grpc,
            Some("http" | "https") => Self::Connect,
            Some("twirp") => Self::Twirp,
            Some("jsonrpc") => Self::JsonRpc,
            Some("nats") => Self::Nats,
            _ => Self::Frpc,
        }
    }
}

/// The room for systems in the numbers of methods; see [`CallMeter`](super::meter::CallMeter).
pub(crate) const SYSTEMS_MAX: u16 = 8;

const _: () = assert!(RpcSystem::ALL.len() <= SYSTEMS_MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions_in_the_list() {
        let numbers = RpcSystem::ALL.map(RpcSystem::number);
        assert_eq!(numbers.map(usize::from), std::array::from_fn(|position| position));
    }

    #[test]
    fn the_scheme_of_a_target_names_the_system() {
        for (target, name) in [
            ("tcp://a:1", "frpc"),
            ("dns:///a:1", "frpc"),
            ("in-process", "frpc"),
            ("grpcs://a", "grpc"),
            ("grpc://a:1,grpc://b:1", "grpc"),
            ("grpc-web+https://a", "grpc"),
            ("https://a/b", "connectrpc"),
            ("twirp+http://a", "twirp"),
            ("jsonrpc+tcp://a:1", "jsonrpc"),
            ("nats://a:4222/b", "nats"),
            ("nats+direct://a:4222/b", "frpc"),
        ] {
            assert_eq!(RpcSystem::of_target(target).name(), name, "{target}");
        }
    }
}
