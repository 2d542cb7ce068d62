//! Configurations of kubectl.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use frpc::{ClientTls, Pem};
use yaml_rust2::{Yaml, YamlLoader};

use crate::config::{ClusterConfig, invalid, read_limited};

impl ClusterConfig {
    /// Uses the service account in a pod. Elsewhere, uses the current context of the file in `KUBECONFIG`, or of
    /// `~/.kube/config`.
    ///
    /// # Errors
    ///
    /// If the configuration is missing, not valid, or needs something that this crate does not support.
    pub fn from_env() -> io::Result<Self> {
        match env::var_os("KUBERNETES_SERVICE_HOST") {
            Some(_) => Self::in_cluster(),
            None => Self::kubeconfig(path()?, None),
        }
    }

    /// Uses a context of a configuration of kubectl, or its current context.
    ///
    /// Supports tokens, files with tokens, and client certificates. Exec plugins, authentication providers, passwords,
    /// proxies and `insecure-skip-tls-verify` are errors.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is not valid, or needs something that is not supported.
    pub fn kubeconfig(path: impl AsRef<Path>, context: Option<&str>) -> io::Result<Self> {
        let path = path.as_ref();
        let text = read_limited(path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        parse(&text, folder, context).map_err(|error| invalid(format!("{}: {error}", path.display())))
    }
}

/// Returns the path of the user's configuration.
fn path() -> io::Result<PathBuf> {
    if let Some(paths) = env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
        let mut paths = env::split_paths(&paths);
        return match (paths.next(), paths.next()) {
            (Some(path), None) => Ok(path),
            _ => Err(invalid("KUBECONFIG names several files, which is not supported")),
        };
    }
    let home = env::home_dir().ok_or_else(|| invalid("the home directory is not known: set KUBECONFIG"))?;
    Ok(home.join(".kube/config"))
}

fn parse(text: &str, folder: &Path, context: Option<&str>) -> io::Result<ClusterConfig> {
    let documents = YamlLoader::load_from_str(text).map_err(|error| invalid(format!("not valid YAML: {error}")))?;
    let config = documents.into_iter().next().ok_or_else(|| invalid("the file is empty"))?;
    let context = context.or_else(|| text_in(&config, "current-context")).ok_or_else(|| {
        invalid("there is no current context: run `kubectl config use-context`, or pass the name of one")
    })?;
    let context = &entry(&config, "contexts", context)?["context"];
    let [cluster, user] = ["cluster", "user"].map(|kind| text_in(context, kind));
    let cluster = cluster.ok_or_else(|| invalid("the context has no cluster"))?;
    let cluster = &entry(&config, "clusters", cluster)?["cluster"];
    refuse(cluster, &["insecure-skip-tls-verify", "proxy-url"])?;
    let server = text_in(cluster, "server").ok_or_else(|| invalid("the cluster has no server"))?;

    let tls = match pem(cluster, "certificate-authority", folder)? {
        Some(roots) => Some(ClientTls::with_roots(roots).map_err(invalid)?),
        None => None,
    };
    let nobody = Yaml::Null;
    let user = match user {
        Some(user) => &entry(&config, "users", user)?["user"],
        None => &nobody,
    };
    refuse(user, &["exec", "auth-provider", "username", "password", "as", "as-groups", "as-uid"])?;
    let (certificates, key) = (pem(user, "client-certificate", folder)?, pem(user, "client-key", folder)?);
    let tls = match (tls, certificates, key) {
        (Some(tls), Some(certificates), Some(key)) => Some(tls.identity(certificates, key).map_err(invalid)?),
        (tls, None, None) => tls,
        (None, ..) => return Err(invalid("a client certificate needs the `certificate-authority` of the cluster")),
        (Some(_), ..) => return Err(invalid("a client certificate and its key belong together")),
    };
    let mut found = ClusterConfig::with_name(server, tls, text_in(cluster, "tls-server-name"))?;
    // As for kubectl, the file precedes the text.
    if let Some(file) = text_in(user, "tokenFile") {
        found = found.token_file(folder.join(file));
    } else if let Some(token) = text_in(user, "token") {
        found = found.token(token);
    }
    match text_in(context, "namespace") {
        Some(namespace) => found.namespace(namespace),
        None => Ok(found),
    }
}

/// Returns the entry with a name in one of the lists.
fn entry<'a>(config: &'a Yaml, list: &str, name: &str) -> io::Result<&'a Yaml> {
    let entries = config[list].as_vec().map_or(&[][..], Vec::as_slice);
    let found = entries.iter().find(|entry| text_in(entry, "name") == Some(name));
    found.ok_or_else(|| invalid(format!("{list} has no entry {name:?}")))
}

fn text_in<'a>(entry: &'a Yaml, key: &str) -> Option<&'a str> {
    entry[key].as_str().filter(|text| !text.is_empty())
}

fn refuse(entry: &Yaml, keys: &[&str]) -> io::Result<()> {
    let is_set = |key: &&&str| !matches!(entry[**key], Yaml::BadValue | Yaml::Null | Yaml::Boolean(false));
    match keys.iter().find(is_set) {
        Some(key) => Err(invalid(format!("`{key}` is not supported: use a token or a client certificate over TLS"))),
        None => Ok(()),
    }
}

/// Returns the content of `KEY-data`, or else the file `KEY`.
fn pem(entry: &Yaml, key: &str, folder: &Path) -> io::Result<Option<Pem>> {
    if let Some(data) = text_in(entry, &format!("{key}-data")) {
        let text = STANDARD.decode(data.trim()).map_err(|error| invalid(format!("{key}-data: {error}")))?;
        return Ok(Some(Pem::bytes(text)));
    }
    Ok(text_in(entry, key).map(|file| Pem::file(folder.join(file))))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use support::{Directory, Identity};

    use super::*;

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\ncontexts:\n- name: other\n  context: {{cluster: none}}\n\
             - name: here\n  context:\n    cluster: c\n    user: u\n    namespace: shop\nclusters:\n- name: c\n  cluster:\n    \
             {cluster}\nusers:\n- name: u\n  user:\n    {user}\n"
        )
    }

    #[tokio::test]
    async fn a_context_has_a_cluster_user_and_namespace() {
        let identity = Identity::new();
        let folder = Directory::new("kubeconfig");
        fs::write(folder.path().join("ca.pem"), read(identity.pem_file().path())).unwrap();
        fs::write(folder.path().join("token"), "from the file").unwrap();
        let [certificate, key] =
            [read(identity.pem_file().path()), read(identity.key_file().path())].map(|pem| STANDARD.encode(pem));
        let ca = "certificate-authority: ca.pem";
        for (cluster, user, token) in [
            (format!("server: https://10.0.0.1:6443\n    {ca}"), "token: secret".to_owned(), Some("Bearer secret")),
            (
                format!("server: https://10.0.0.1:6443\n    certificate-authority-data: {certificate}"),
                "token: secret\n    tokenFile: token".to_owned(),
                Some("Bearer from the file"),
            ),
            (
                format!("server: https://10.0.0.1:6443\n    {ca}\n    tls-server-name: kubernetes"),
                format!("client-certificate-data: {certificate}\n    client-key-data: {key}"),
                None,
            ),
        ] {
            let path = folder.path().join("config");
            fs::write(&path, config(&cluster, &user)).unwrap();
            let found = ClusterConfig::kubeconfig(&path, None).unwrap();
            assert_eq!((&*found.host, found.port, &*found.namespace), ("10.0.0.1", 6443, "shop"));
            let name = found.tls.as_ref().unwrap().1.to_str().into_owned();
            assert_eq!(name, if cluster.contains("tls-server-name") { "kubernetes" } else { "10.0.0.1" });
            assert_eq!(found.authorization().await.unwrap().as_deref(), token);
            let unknown = ClusterConfig::kubeconfig(&path, Some("elsewhere")).unwrap_err().to_string();
            assert!(unknown.contains("config: contexts has no entry \"elsewhere\""), "{unknown}");
            assert!(ClusterConfig::kubeconfig(&path, Some("other")).is_err());
        }
    }

    #[test]
    fn unsupported_and_malformed_configurations_say_why() {
        let server = "server: http://localhost:8001";
        for (text, why) in [
            (config(server, "exec: {command: aws}"), "`exec` is not supported"),
            (config(server, "username: ada"), "`username` is not supported"),
            (config("server: https://a\n    insecure-skip-tls-verify: true", "token: a"), "`insecure-skip-tls-verify`"),
            (config("server: https://a", "token: a"), "https needs authorities"),
            (config("other: 1", "token: a"), "the cluster has no server"),
            (config(server, "client-key-data: AAAA"), "a client certificate needs"),
            (config(server, "client-key-data: '!'"), "client-key-data: "),
            ("contexts: []".into(), "there is no current context"),
            ("current-context: a\ncontexts: 7".into(), "contexts has no entry \"a\""),
            ("a: [".into(), "not valid YAML"),
            (String::new(), "the file is empty"),
        ] {
            let error = parse(&text, Path::new("."), None).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(parse(&config(server, "token: a"), Path::new("."), None).is_ok(), "over plain HTTP, as kubectl proxy");
    }
}
