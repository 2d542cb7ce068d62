//! The text of a target.

use std::io;

/// A Service and a port of its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceTarget {
    /// The scheme of the addresses.
    pub(crate) wire: String,
    pub(crate) service: String,
    pub(crate) namespace: Option<String>,
    pub(crate) port: TargetPort,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetPort {
    /// The only port of the pods.
    Only,
    Number(u16),
    Named(String),
}

/// The schemes of targets, of which all but the first contain the scheme of the addresses.
pub(crate) const SCHEMES: [&str; 13] = [
    "kubernetes",
    "kubernetes+tcp",
    "kubernetes+grpc",
    "kubernetes+grpcs",
    "kubernetes+http",
    "kubernetes+https",
    "kubernetes+grpc-web+http",
    "kubernetes+grpc-web+https",
    "kubernetes+twirp+http",
    "kubernetes+twirp+https",
    "kubernetes+jsonrpc+tcp",
    "kubernetes+ws",
    "kubernetes+wss",
];

impl ServiceTarget {
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let invalid = |why: &str| {
            let text = format!("target {text:?}: {why}; expected kubernetes:///SERVICE.NAMESPACE:PORT");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| invalid("the scheme is missing"))?;
        if !SCHEMES.contains(&scheme) {
            return Err(invalid("the scheme is not known"));
        }
        let wire = scheme.split_once('+').map_or("tcp", |(_, wire)| wire).to_owned();
        let place = rest.strip_prefix('/').ok_or_else(|| invalid("three slashes come before the Service"))?;
        let (host, port) = match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        };
        let port = match port.map(|port| (port, port.parse())) {
            // The port of a URL has no sign.
            Some((text, Ok(_))) if text.starts_with('+') => return Err(invalid("the port has a sign")),
            None => TargetPort::Only,
            Some((_, Ok(0))) => return Err(invalid("port 0 does not exist")),
            Some((_, Ok(number))) => TargetPort::Number(number),
            Some((name, Err(_))) if is_label(name) && name.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                TargetPort::Named(name.to_owned())
            }
            Some(_) => return Err(invalid("the port is no number up to 65535 and no valid name")),
        };
        let mut parts = host.split('.');
        let (service, namespace, svc) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        if svc.is_some_and(|svc| svc != "svc") {
            return Err(invalid("the part after the namespace is not `svc`"));
        }
        if !is_label(service) || !namespace.is_none_or(is_label) || !parts.all(is_label) {
            return Err(invalid("a name is not valid in Kubernetes"));
        }
        Ok(Self { wire, service: service.to_owned(), namespace: namespace.map(str::to_owned), port })
    }
}

/// Returns whether a name is a label of DNS, which needs no escaping in a URL.
pub(crate) fn is_label(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(is_valid) && !name.starts_with('-') && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_service_namespace_port_and_wire() {
        let shop = Some("shop".to_owned());
        for (text, wire, namespace, port) in [
            ("kubernetes:///orders.shop:grpc", "tcp", shop.clone(), TargetPort::Named("grpc".into())),
            ("kubernetes:///orders.shop:7300", "tcp", shop.clone(), TargetPort::Number(7300)),
            ("kubernetes+grpcs:///orders.shop.svc", "grpcs", shop.clone(), TargetPort::Only),
            ("kubernetes+twirp+http:///orders.shop.svc.cluster.local:1", "twirp+http", shop, TargetPort::Number(1)),
            ("kubernetes:///orders:7-a", "tcp", None, TargetPort::Named("7-a".into())),
        ] {
            let found = ServiceTarget::parse(text).unwrap();
            assert_eq!(found, ServiceTarget { wire: wire.into(), service: "orders".into(), namespace, port }, "{text}");
        }
    }

    #[test]
    fn errors_name_the_wrong_part() {
        for (text, why) in [
            ("kubernetes://orders.shop:grpc", "three slashes"),
            ("kubernetes+smtp:///orders.shop:grpc", "scheme is not known"),
            ("kubernetes:///orders.shop:+80", "the port has a sign"),
            ("kubernetes:///orders.shop:70000", "the port is no number"),
            ("kubernetes:///orders.shop:", "the port is no number"),
            ("kubernetes:///orders.shop:0", "port 0"),
            ("kubernetes:///orders.shop:a:b", "the port is no number"),
            ("kubernetes:///orders.shop.pod:1", "not `svc`"),
            ("kubernetes:///orders..svc:1", "a name is not valid"),
            ("kubernetes:///Orders.shop:1", "a name is not valid"),
            ("kubernetes:///orders/../secrets:1", "not `svc`"),
            ("kubernetes:///orders/secrets:1", "a name is not valid"),
            ("kubernetes:///:1", "a name is not valid"),
            ("kubernetes:///orders,b.shop:1", "a name is not valid"),
        ] {
            let error = ServiceTarget::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
