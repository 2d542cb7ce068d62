//! The bootstrap: the control planes and the identity of this client.

use std::{
    collections::BTreeMap,
    env, fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use frpc::{
    frisbee::Address,
    prost_types::{self, Struct, value::Kind},
};
use serde_json::{Map, Value};

use crate::{
    error::XdsError,
    protos::envoy::service::discovery::v3::{Locality, Node},
};

/// The settings with which a client finds its control plane, in the JSON format of gRPC.
///
/// | field | use |
/// |---|---|
/// | `xds_servers[]` | the control planes: `server_uri`, `channel_creds` (`insecure`, `tls`), and `server_features` with `ignore_resource_deletion`. The next one is used while the first cannot be reached and a resource is unknown |
/// | `node` | the identity of this client: `id`, `cluster`, `locality`, `metadata` |
/// | `certificate_providers` | names for files with certificates (`file_watcher`) |
/// | `client_default_listener_resource_name_template` | the name of the listener for a target, with `%s` for the service |
///
/// Federation (`authorities`) is not supported. Unknown fields are ignored.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    pub(crate) servers: Vec<ControlPlane>,
    pub(crate) node: Node,
    pub(crate) certificates: BTreeMap<String, CertificateFiles>,
    template: String,
}

/// One control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlPlane {
    pub(crate) address: PlaneAddress,
    /// The files for TLS, unless the connection is insecure.
    pub(crate) tls: Option<CertificateFiles>,
    /// Resources stay in use although this control plane removes them.
    pub(crate) ignores_removals: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlaneAddress {
    /// `HOST:PORT`.
    Host(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for PlaneAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Files with certificates in PEM. They are read again after changes, so `refresh_interval` has no use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    /// The authorities to trust. `None` for the authorities of the system.
    pub(crate) authorities: Option<PathBuf>,
    /// The own certificate and its private key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl Bootstrap {
    /// Reads the file named by the environment variable `GRPC_XDS_BOOTSTRAP`, or else the content of
    /// `GRPC_XDS_BOOTSTRAP_CONFIG`.
    ///
    /// # Errors
    ///
    /// Neither variable is set, the file cannot be read, or the bootstrap is invalid.
    pub fn from_env() -> Result<Self, XdsError> {
        let variable = |name| env::var(name).ok().filter(|value| !value.trim().is_empty());
        match (variable("GRPC_XDS_BOOTSTRAP"), variable("GRPC_XDS_BOOTSTRAP_CONFIG")) {
            (Some(path), _) => Self::from_file(path),
            (None, Some(text)) => Self::from_json(&text),
            (None, None) => Err(XdsError::NoBootstrap),
        }
    }

    /// Reads a file of at most [`BOOTSTRAP_LEN_MAX`] bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or the bootstrap is invalid.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, XdsError> {
        let path = path.as_ref();
        let text =
            read_limited(path, BOOTSTRAP_LEN_MAX).map_err(|error| XdsError::File { path: path.into(), error })?;
        let text = String::from_utf8(text).map_err(|_| invalid("", "is not UTF-8"))?;
        Self::from_json(&text)
    }

    /// Parses the JSON of a bootstrap.
    ///
    /// # Errors
    ///
    /// The text is no JSON, a field has an unusable value, or no control plane has supported credentials.
    pub fn from_json(text: &str) -> Result<Self, XdsError> {
        if text.len() > BOOTSTRAP_LEN_MAX {
            return Err(invalid("", &format!("{} bytes are more than {BOOTSTRAP_LEN_MAX}", text.len())));
        }
        let root: Value = serde_json::from_str(text).map_err(|error| invalid("", &error.to_string()))?;
        let Value::Object(root) = root else { return Err(invalid("", "expected an object")) };
        let servers = match root.get("xds_servers") {
            Some(Value::Array(servers)) if !servers.is_empty() => servers,
            _ => return Err(invalid("xds_servers", "must be a list of at least one control plane")),
        };
        let server = |(index, server): (usize, &Value)| read_server(&format!("xds_servers[{index}]"), server);
        let servers = servers.iter().enumerate().map(server).collect::<Result<Vec<_>, _>>()?;
        let node = object(&root, "node", "node")?.map_or_else(|| Ok(Node::default()), read_node)?;
        let mut certificates = BTreeMap::new();
        for (name, provider) in object(&root, "certificate_providers", "certificate_providers")?.into_iter().flatten() {
            let field = format!("certificate_providers.{name}");
            certificates.extend(read_provider(&field, provider)?.map(|files| (name.clone(), files)));
        }
        let template = text_of(&root, TEMPLATE, TEMPLATE)?.unwrap_or("%s").to_owned();
        Ok(Self { servers, node, certificates, template })
    }

    /// Returns the name of the listener for a service.
    pub(crate) fn listener_name(&self, service: &str) -> String {
        self.template.replace("%s", service)
    }
}

/// Reads a file of at most this length.
pub(crate) fn read_limited(path: &Path, len_max: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let len = File::open(path)?.take(len_max as u64 + 1).read_to_end(&mut content)?;
    if len > len_max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the file is longer than {len_max} bytes")));
    }
    Ok(content)
}

fn invalid(field: &str, why: &str) -> XdsError {
    XdsError::Bootstrap { field: field.to_owned(), why: why.to_owned() }
}

fn object<'a>(of: &'a Map<String, Value>, name: &str, field: &str) -> Result<Option<&'a Map<String, Value>>, XdsError> {
    match of.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(found)) => Ok(Some(found)),
        Some(_) => Err(invalid(field, "must be an object")),
    }
}

fn text_of<'a>(of: &'a Map<String, Value>, name: &str, field: &str) -> Result<Option<&'a str>, XdsError> {
    match of.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(field, "must be text")),
    }
}

fn read_server(field: &str, server: &Value) -> Result<ControlPlane, XdsError> {
    let Value::Object(server) = server else { return Err(invalid(field, "must be an object")) };
    let uri_field = format!("{field}.server_uri");
    let uri = text_of(server, "server_uri", &uri_field)?.unwrap_or_default();
    let address = read_address(uri).ok_or_else(|| {
        invalid(&uri_field, &format!("is {uri:?}: expected HOST:PORT, dns:///HOST:PORT or unix:PATH"))
    })?;
    let creds_field = format!("{field}.channel_creds");
    let Some(Value::Array(creds)) = server.get("channel_creds") else {
        return Err(invalid(&creds_field, "must be a list of credentials"));
    };
    for (index, one) in creds.iter().enumerate() {
        let Value::Object(one) = one else {
            return Err(invalid(&format!("{creds_field}[{index}]"), "must be an object"));
        };
        let config_field = format!("{creds_field}[{index}].config");
        let tls = match text_of(one, "type", &format!("{creds_field}[{index}].type"))? {
            Some("insecure") => None,
            Some("tls") => Some(match object(one, "config", &config_field)? {
                Some(config) => read_files(&config_field, config)?,
                None => CertificateFiles::default(),
            }),
            _ => continue,
        };
        let features = server.get("server_features").and_then(Value::as_array);
        let ignores_removals = features.is_some_and(|features| features.iter().any(|one| one == IGNORE_REMOVALS));
        return Ok(ControlPlane { address, tls, ignores_removals });
    }
    Err(invalid(&creds_field, "has no supported type: expected insecure or tls"))
}

fn read_address(uri: &str) -> Option<PlaneAddress> {
    if let Some(path) = uri.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return path.starts_with('/').then(|| PlaneAddress::Unix(path.into()));
    }
    let host = uri.strip_prefix("dns:///").or_else(|| uri.strip_prefix("dns:")).unwrap_or(uri);
    Address::split_host_port(host).ok().map(|_| PlaneAddress::Host(host.to_owned()))
}

fn read_provider(field: &str, provider: &Value) -> Result<Option<CertificateFiles>, XdsError> {
    let Value::Object(provider) = provider else { return Err(invalid(field, "must be an object")) };
    // A cluster that names a provider of another kind is refused.
    if text_of(provider, "plugin_name", &format!("{field}.plugin_name"))? != Some("file_watcher") {
        return Ok(None);
    }
    let field = format!("{field}.config");
    match object(provider, "config", &field)? {
        Some(config) => read_files(&field, config).map(Some),
        None => Err(invalid(&field, "is missing")),
    }
}

fn read_files(field: &str, config: &Map<String, Value>) -> Result<CertificateFiles, XdsError> {
    let path = |name: &str| text_of(config, name, &format!("{field}.{name}")).map(|path| path.map(PathBuf::from));
    let identity = match (path("certificate_file")?, path("private_key_file")?) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err(invalid(field, "needs both certificate_file and private_key_file")),
    };
    Ok(CertificateFiles { authorities: path("ca_certificate_file")?, identity })
}

fn read_node(node: &Map<String, Value>) -> Result<Node, XdsError> {
    let text =
        |name: &str| text_of(node, name, &format!("node.{name}")).map(|text| text.unwrap_or_default().to_owned());
    let locality = object(node, "locality", "node.locality")?.map(|locality| {
        let part = |name: &str| {
            text_of(locality, name, &format!("node.locality.{name}")).map(|text| text.unwrap_or_default().to_owned())
        };
        Ok::<_, XdsError>(Locality { region: part("region")?, zone: part("zone")?, sub_zone: part("sub_zone")? })
    });
    Ok(Node {
        id: text("id")?,
        cluster: text("cluster")?,
        metadata: object(node, "metadata", "node.metadata")?.map(to_struct),
        locality: locality.transpose()?,
        ..Node::default()
    })
}

/// Converts JSON. Its parser limits the nesting.
fn to_struct(object: &Map<String, Value>) -> Struct {
    Struct { fields: object.iter().map(|(name, value)| (name.clone(), to_value(value))).collect() }
}

fn to_value(value: &Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(value) => Kind::NumberValue(value.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => Kind::ListValue(prost_types::ListValue { values: items.iter().map(to_value).collect() }),
        Value::Object(object) => Kind::StructValue(to_struct(object)),
    };
    prost_types::Value { kind: Some(kind) }
}

/// The maximum length of a bootstrap in bytes.
pub const BOOTSTRAP_LEN_MAX: usize = 1 << 20;
/// The feature of control planes with gaps in their sets (gRFC A53).
const IGNORE_REMOVALS: &str = "ignore_resource_deletion";
const TEMPLATE: &str = "client_default_listener_resource_name_template";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WHOLE: &str = r#"{
        "xds_servers": [
            {"server_uri": "dns:///plane:18000", "channel_creds": [{"type": "google_default"}, {"type": "insecure"}], "server_features": ["xds_v3"]},
            {"server_uri": "unix:///run/plane", "channel_creds": [{"type": "tls", "config": {"ca_certificate_file": "/ca.pem"}}]}
        ],
        "node": {"id": "a", "cluster": "c", "locality": {"region": "r", "zone": "z", "sub_zone": "s"},
                 "metadata": {"list": [1, "two", null, true], "map": {"x": 1.5}}},
        "certificate_providers": {
            "mine": {"plugin_name": "file_watcher",
                     "config": {"certificate_file": "/c", "private_key_file": "/k", "refresh_interval": "0.5s"}},
            "other": {"plugin_name": "unknown"}
        },
        "client_default_listener_resource_name_template": "svc/%s",
        "authorities": {}
    }"#;

    #[test]
    fn all_fields_are_read() {
        let bootstrap = Bootstrap::from_json(WHOLE).unwrap();
        let plane =
            ControlPlane { address: PlaneAddress::Host("plane:18000".to_owned()), tls: None, ignores_removals: false };
        assert_eq!(bootstrap.servers[0], plane);
        assert_eq!(bootstrap.servers[1].address, PlaneAddress::Unix("/run/plane".into()));
        assert_eq!(bootstrap.servers[1].tls.as_ref().unwrap().authorities, Some("/ca.pem".into()));
        assert_eq!((&*bootstrap.node.id, &*bootstrap.node.cluster), ("a", "c"));
        assert_eq!(bootstrap.node.locality.as_ref().unwrap().sub_zone, "s");
        assert_eq!(bootstrap.node.metadata.as_ref().unwrap().fields.len(), 2);
        assert_eq!(bootstrap.certificates.len(), 1);
        assert_eq!(bootstrap.listener_name("orders"), "svc/orders");
    }

    #[test]
    fn errors_name_the_field() {
        let server = |server: &str| format!(r#"{{"xds_servers": [{server}]}}"#);
        for (text, field) in [
            ("[]".to_owned(), ""),
            ("{".to_owned(), ""),
            ("{}".to_owned(), "xds_servers"),
            (server("3"), "xds_servers[0]"),
            (server(r#"{"server_uri": "plane"}"#), "xds_servers[0].server_uri"),
            (server(r#"{"server_uri": "plane:+1"}"#), "xds_servers[0].server_uri"),
            (server(r#"{"server_uri": "plane:1"}"#), "xds_servers[0].channel_creds"),
            (
                server(r#"{"server_uri": "plane:1", "channel_creds": [{"type": "alts"}]}"#),
                "xds_servers[0].channel_creds",
            ),
            (WHOLE.replace("\"k\"", "3").replace("\"/k\"", "null"), "certificate_providers.mine.config"),
            (WHOLE.replace("\"id\": \"a\"", "\"id\": 1"), "node.id"),
        ] {
            match Bootstrap::from_json(&text) {
                Err(XdsError::Bootstrap { field: found, .. }) => assert_eq!(found, field, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(matches!(Bootstrap::from_file("/nothing/here"), Err(XdsError::File { .. })));
        let long = " ".repeat(BOOTSTRAP_LEN_MAX + 1);
        assert!(Bootstrap::from_json(&long).unwrap_err().to_string().contains("more than"));
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Bootstrap::from_json(&deep).is_err());
    }

    proptest! {
        #[test]
        fn damaged_text_never_panics(at in 0..WHOLE.len(), len in 0_usize..20, with in "[\\[\\]{}\",:0-9a-z.-]{0,4}") {
            let end = (at + len).min(WHOLE.len());
            let _ = Bootstrap::from_json(&format!("{}{with}{}", &WHOLE[..at], &WHOLE[end..]));
        }
    }
}
