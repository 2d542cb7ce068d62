//! A real API server, built by `tests/kubernetes/build.sh`. Without it, the recordings of [`replay`](crate::replay) stand
//! for it.

use std::{fs, io, time::Duration};

use bytes::Bytes;
use frpc::{ClientTls, Pem, fleet::Endpoints};
use frpc_kubernetes::{ClusterConfig, KubernetesResolver};
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use support::{Directory, KubeApiServer, in_real_time_within, localhost};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{Found, hasty, pods, zone};

#[test]
fn a_real_server_lists_watches_restarts_and_checks_permissions() {
    in_real_time_within(Duration::from_secs(240), async {
        let Some(server) = KubeApiServer::start().await else { return };
        // The server listens before it is ready.
        while !matches!(ask(&server, "GET", "/readyz", None).await, Ok((200, _))) {}
        make(&server, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
        for (name, numbers) in [("orders-a", 0..100), ("orders-b", 100..200), ("orders-c", 200..250)] {
            make(&server, SLICES, slice(name, numbers)).await;
        }
        // A Service of its own: the selector leaves it out.
        let mut other = slice("other", 300..301);
        other["metadata"]["labels"]["kubernetes.io/service-name"] = "other".into();
        make(&server, SLICES, other).await;

        // With an account that has no rights yet, as in a pod.
        let account = "/api/v1/namespaces/shop/serviceaccounts";
        make(&server, account, json!({"metadata": {"name": "client"}})).await;
        let token = make(&server, &format!("{account}/client/token"), json!({"spec": {}})).await;
        let folder = Directory::new("account");
        let token_file = folder.path().join("token");
        fs::write(&token_file, "not a token").unwrap();
        let roots = || ClientTls::with_roots(Pem::file(server.identity.pem_file().path())).unwrap();
        let config = ClusterConfig::new(&server.url(), roots()).unwrap().token_file(&token_file);
        let orders = |config| KubernetesResolver::new("kubernetes:///orders.shop:grpc", config, &hasty()).unwrap();
        let mut found = Found::by(&orders(&config));
        let error = found.error().await;
        assert!(error.contains("answered 401: Unauthorized"), "{error}");
        fs::write(&token_file, token["status"]["token"].as_str().unwrap()).unwrap();
        let error = found.error().await;
        let user = "User \"system:serviceaccount:shop:client\" cannot list resource \"endpointslices\"";
        assert!(error.contains("answered 403: ") && error.contains(user), "{error}");
        let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop";
        let rule =
            json!({"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]});
        make(&server, &format!("{rbac}/roles"), json!({"metadata": {"name": "client"}, "rules": [rule]})).await;
        let binding = json!({
            "metadata": {"name": "client"}, "subjects": [{"kind": "ServiceAccount", "name": "client"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "client"}
        });
        make(&server, &format!("{rbac}/rolebindings"), binding).await;
        found.until(Endpoints::new(pods(0..250))).await;

        // Changes arrive by the watch.
        let change = async {
            let deleted = ask(&server, "DELETE", &format!("{SLICES}/orders-a"), None).await.unwrap();
            assert_eq!(deleted.0, 200);
            let mut ending = slice("orders-c", 200..250);
            for endpoint in &mut ending["endpoints"].as_array_mut().unwrap()[..10] {
                endpoint["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
            }
            let put = ask(&server, "PUT", &format!("{SLICES}/orders-c"), Some(ending)).await.unwrap();
            assert_eq!(put.0, 200);
        };
        let now = Endpoints::new(pods((100..200).chain(210..250)));
        tokio::join!(change, found.until(now));

        // A server that restarts no longer has the old versions in its cache. Another client, by a configuration of
        // kubectl, starts then.
        let restarting = async {
            let server = server.restart().await;
            while !matches!(ask(&server, "GET", "/readyz", None).await, Ok((200, _))) {}
            make(&server, SLICES, slice("orders-d", 250..260)).await;
            server
        };
        let now = Endpoints::new(pods((100..200).chain(210..260)));
        let (server, ()) = tokio::join!(restarting, found.until(now.clone()));
        let file = folder.path().join("config");
        let authority = server.identity.pem_file();
        let text = format!(
            "current-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a, namespace: shop}}}}]\n\
             clusters: [{{name: a, cluster: {{server: '{}', certificate-authority: {}}}}}]\n\
             users: [{{name: a, user: {{token: {}}}}}]\n",
            server.url(),
            authority.path().display(),
            KubeApiServer::TOKEN,
        );
        fs::write(&file, text).unwrap();
        let config = ClusterConfig::kubeconfig(&file, None).unwrap();
        let resolver = KubernetesResolver::new("kubernetes:///orders:grpc", &config, &hasty()).unwrap();
        assert_eq!(Found::by(&resolver).next().await.unwrap(), now);
    });
}

fn slice(name: &str, numbers: std::ops::Range<u16>) -> Value {
    let endpoints: Vec<_> = numbers
        .map(|number| {
            let address = format!("10.1.{}.{}", number / 250, number % 250 + 1);
            json!({
                "addresses": [address], "conditions": {"ready": true}, "zone": zone(number),
                "targetRef": {"kind": "Pod", "namespace": "shop", "name": format!("orders-{number}")}
            })
        })
        .collect();
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "orders"}}, "addressType": "IPv4",
        "endpoints": endpoints, "ports": [{"name": "grpc", "port": 7300}]
    })
}

/// Creates an object.
async fn make(server: &KubeApiServer, path: &str, object: Value) -> Value {
    let (status, answer) = ask(server, "POST", path, Some(object)).await.unwrap();
    assert_eq!(status, 201, "{path}: {answer}");
    answer
}

/// Sends a request of the user who may do everything.
async fn ask(server: &KubeApiServer, method: &str, path: &str, body: Option<Value>) -> io::Result<(u16, Value)> {
    let socket = TcpStream::connect(("127.0.0.1", server.port())).await?;
    let tls = TlsConnector::from(std::sync::Arc::new(server.identity.client()));
    let stream = tls.connect(localhost(), socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {}", KubeApiServer::TOKEN))
        .body(Full::new(body))
        .unwrap();
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status().as_u16();
    let text = response.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    Ok((status, serde_json::from_slice(&text).unwrap_or_default()))
}

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
