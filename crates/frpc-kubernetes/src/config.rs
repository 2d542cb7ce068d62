//! The address of the API server, and the account of the client.

use std::{
    env, fmt, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use frpc::{ClientTls, Pem, TlsName};
use tokio_rustls::rustls::{ClientConfig, pki_types::ServerName};

use crate::target::is_label;

/// The API server of a cluster, and the account of the client.
///
/// | made by | for |
/// |---|---|
/// | [`in_cluster`](Self::in_cluster) | pods: the service account |
/// | `kubeconfig`, of the feature of this name | programs outside: the configuration of kubectl |
/// | `from_env`, of the same feature | both: the service account in a pod, or else the configuration of kubectl |
/// | [`new`](Self::new) | everything else |
///
/// Tokens in files are read again for each request, because Kubernetes replaces them every hour. Certificates in files
/// are read again as well.
#[derive(Clone)]
pub struct ClusterConfig {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The path before that of each request, without a slash at its end.
    pub(crate) path: String,
    /// `None` for plain HTTP.
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    token: Option<Token>,
    pub(crate) namespace: String,
}

#[derive(Clone)]
enum Token {
    Text(String),
    File(PathBuf),
}

impl ClusterConfig {
    /// Uses an API server, such as `https://10.0.0.1:6443`, with these authorities for its certificate.
    ///
    /// With `http://`, for a proxy on this machine such as `kubectl proxy`, the authorities are not used.
    ///
    /// # Errors
    ///
    /// If the URL or the authorities are not valid.
    pub fn new(server: &str, tls: ClientTls) -> io::Result<Self> {
        Self::with_name(server, Some(tls), None)
    }

    pub(crate) fn with_name(server: &str, tls: Option<ClientTls>, name: Option<&str>) -> io::Result<Self> {
        let invalid = |why: &str| invalid(format!("the API server {server:?}: {why}"));
        let (is_secure, rest) = match server.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(invalid("expected https://HOST:PORT")),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| invalid("the port is no number up to 65535"))?)
            }
            _ => (authority, if is_secure { 443 } else { 80 }),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'_');
        if host.is_empty() || !host.bytes().all(is_valid) {
            return Err(invalid("the host is not valid"));
        }
        if !path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#')) {
            return Err(invalid("the path is not valid"));
        }
        let tls = match (is_secure, tls) {
            (true, Some(tls)) => Some((tls.into(), TlsName::from(name.unwrap_or(host)).to_server_name()?)),
            (true, None) => return Err(invalid("https needs authorities for the certificate of the server")),
            (false, _) => None,
        };
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self { host: host.to_owned(), port, path, tls, token: None, namespace: "default".to_owned() })
    }

    /// Sends this token with each request.
    pub fn token(self, token: impl Into<String>) -> Self {
        Self { token: Some(Token::Text(token.into())), ..self }
    }

    /// Sends the token in this file with each request.
    pub fn token_file(self, path: impl Into<PathBuf>) -> Self {
        Self { token: Some(Token::File(path.into())), ..self }
    }

    /// Sets the namespace of targets without one. Default `default`.
    ///
    /// # Errors
    ///
    /// The name is not valid.
    pub fn namespace(self, namespace: impl Into<String>) -> io::Result<Self> {
        let namespace = namespace.into();
        match is_label(&namespace) {
            true => Ok(Self { namespace, ..self }),
            false => Err(invalid(format!("the namespace {namespace:?} is not valid in Kubernetes"))),
        }
    }

    /// Uses the service account of the pod, from the files that Kubernetes mounts, and the address in
    /// `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`.
    ///
    /// # Errors
    ///
    /// If the process does not run in a pod, or its service account is not mounted (`automountServiceAccountToken`).
    pub fn in_cluster() -> io::Result<Self> {
        let variable = |name: &str| {
            env::var(name).map_err(|_| invalid(format!("{name} is not set: this process does not run in a pod")))
        };
        let [host, port] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"].map(variable);
        Self::from_account(&host?, &port?, Path::new(ACCOUNT))
    }

    pub(crate) fn from_account(host: &str, port: &str, folder: &Path) -> io::Result<Self> {
        let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let roots = ClientTls::with_roots(Pem::file(folder.join("ca.crt"))).map_err(invalid)?;
        let namespace = read_limited(&folder.join("namespace"))?;
        let token = folder.join("token");
        read_limited(&token)?;
        Self::new(&format!("https://{authority}"), roots)?.token_file(token).namespace(namespace.trim())
    }

    /// Returns the value of the header `authorization`.
    pub(crate) async fn authorization(&self) -> io::Result<Option<String>> {
        let token = match &self.token {
            None => return Ok(None),
            Some(Token::Text(token)) => token.clone(),
            Some(Token::File(path)) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || read_limited(&path)).await.map_err(io::Error::other)??
            }
        };
        Ok(Some(format!("Bearer {}", token.trim())))
    }
}

/// Reads a small text file.
pub(crate) fn read_limited(path: &Path) -> io::Result<String> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut text = String::new();
    let len = fs::File::open(path).map_err(named)?.take(FILE_LEN_MAX + 1).read_to_string(&mut text).map_err(named)?;
    if len as u64 > FILE_LEN_MAX {
        return Err(invalid(format!("{}: the file is longer than {FILE_LEN_MAX} bytes", path.display())));
    }
    Ok(text)
}

pub(crate) fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl fmt::Debug for ClusterConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token.
        f.debug_struct("ClusterConfig").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// The folder of the service account in a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The maximum length of a configuration or token.
const FILE_LEN_MAX: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use support::{Directory, Identity};

    use super::*;

    fn certificate() -> String {
        fs::read_to_string(Identity::new().pem_file().path()).unwrap()
    }

    #[test]
    fn a_server_has_a_host_port_and_path() {
        let tls = || ClientTls::with_roots(Pem::bytes(certificate())).unwrap();
        for (server, host, port, path) in [
            ("https://10.0.0.1:6443", "10.0.0.1", 6443, ""),
            ("https://[fd00::1]/k8s/clusters/a/", "fd00::1", 443, "/k8s/clusters/a"),
            ("http://localhost", "localhost", 80, ""),
        ] {
            let found = ClusterConfig::new(server, tls()).unwrap();
            assert_eq!((&*found.host, found.port, &*found.path), (host, port, path), "{server}");
            assert_eq!(found.tls.is_some(), server.starts_with("https"));
        }
        for server in ["10.0.0.1:6443", "https://", "https://a:70000", "https://a b", "https://a/x y", "https://u@a"] {
            assert!(ClusterConfig::new(server, tls()).is_err(), "{server}");
        }
        assert!(ClusterConfig::new("http://a", tls()).unwrap().namespace("a/b").is_err());
    }

    #[tokio::test]
    async fn a_pod_uses_its_service_account_and_reads_its_token_again() {
        let folder = Directory::new("account");
        let missing = ClusterConfig::from_account("10.0.0.1", "443", folder.path()).unwrap_err();
        assert!(missing.to_string().contains("ca.crt"), "{missing}");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("ca.crt", &certificate());
        write("namespace", "shop\n");
        write("token", "first\n");
        let config = ClusterConfig::from_account("fd00::1", "443", folder.path()).unwrap();
        assert_eq!((&*config.host, config.port, &*config.namespace), ("fd00::1", 443, "shop"));
        assert_eq!(config.authorization().await.unwrap().unwrap(), "Bearer first");
        write("token", "second\n");
        assert_eq!(config.authorization().await.unwrap().unwrap(), "Bearer second");
        write("token", &"x".repeat(2_000_000));
        assert!(config.authorization().await.unwrap_err().to_string().contains("longer than"));
        assert!(!format!("{config:?}").contains("token"));
    }
}
