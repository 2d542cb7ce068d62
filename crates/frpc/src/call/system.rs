//! The kinds of wires.

/// The RPC system of a call, by its wire: the attribute `rpc.system.name` of OpenTelemetry's conventions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
}

impl RpcSystem {
    /// Returns the name, as in the conventions if they have one.
    pub fn name(self) -> &'static str {
        match self {
            Self::Frpc => "frpc",
            Self::Grpc => "grpc",
            Self::Connect => "connectrpc",
            Self::Twirp => "twirp",
            Self::JsonRpc => "jsonrpc",
        }
    }

    /// Returns the system of channels to a target, by its scheme.
    pub(crate) fn of_target(target: &str) -> Self {
        let scheme = target.split_once(':').map_or("", |(scheme, _)| scheme);
        match scheme.split('+').next() {
            Some("grpc" | "grpcs" | "grpc-web") => Self::Grpc,
            Some("http" | "https") => Self::Connect,
            Some("twirp") => Self::Twirp,
            Some("jsonrpc") => Self::JsonRpc,
            _ => Self::Frpc,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(RpcSystem::of_target(target).name(), name, "{target}");
        }
    }
}
