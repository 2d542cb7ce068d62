//! The server under test: `connectconformance --conf config/everything.yaml --mode server -- conformance_server`.

use frpc_http::{Http, HttpSettings};
use std::error::Error;

use conformance::{
    protos::{ServerCompatRequest, ServerCompatResponse, conformance_service_server::ConformanceServiceServer},
    read,
    service::Conformance,
    write,
};
use frpc::{Address, Pem, Server, ServerTls};
use tokio::io::{stdin, stdout};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let request: ServerCompatRequest = read(&mut stdin()).await?.ok_or("the suite says nothing")?;
    let mut http = Http::new();
    if request.message_receive_limit > 0 {
        let message_len_max = request.message_receive_limit.try_into()?;
        http = http.settings(HttpSettings { message_len_max, ..HttpSettings::default() });
    }
    let mut server = Server::builder().add_service(ConformanceServiceServer::new(Conformance)).wire(http);
    let mut pem_cert = Vec::new();
    if request.use_tls {
        let creds = request.server_creds.ok_or("the suite gives no certificate")?;
        let mut tls = ServerTls::new(Pem::bytes(creds.cert.clone()), Pem::bytes(creds.key))?;
        if !request.client_tls_cert.is_empty() {
            tls = tls.client_roots(Pem::bytes(request.client_tls_cert))?;
        }
        server = server.tls(tls);
        pem_cert = creds.cert;
    }
    let server = server.bind("tcp://127.0.0.1:0").await?;
    let Address::Tcp(addr) = server.local_addr() else { return Err("this is no port".into()) };
    let response = ServerCompatResponse { host: addr.ip().to_string(), port: addr.port().into(), pem_cert };
    write(&mut stdout(), &response).await?;
    // The suite stops the process with a signal.
    std::future::pending().await
}
