//! A server for clients of others: the service of gRPC's own tests, a greeter, health checks and reflection on every wire, and
//! functions of JSON-RPC.

mod functions;
mod greeter;
mod test_service;

use frpc::{ServeError, Server};
use frpc_admin::{Admin, AdminAccess};
use frpc_http::{Http, MetricsPage};
use frpc_services::{Health, Reflection};

pub use greeter::Host;
pub use test_service::Testing;

use crate::protos::{grpc::testing::test_service_server::TestServiceServer, helloworld::greeter_server::GreeterServer};

/// The generated code.
pub mod protos {
    #![allow(missing_docs, reason = "the schema has hardly any")]
    frpc::include_protos!();
}

/// Serves everything on a port.
pub async fn serve() -> Result<Server, ServeError> {
    let (rpc, admin) = (functions::json_rpc(), Admin::new(AdminAccess::local()));
    let http = Http::new().mount("/metrics", MetricsPage).mount("/admin", admin.page());
    Server::builder()
        .add_service(GreeterServer::new(Host))
        .add_service(TestServiceServer::new(Testing))
        .add_service(Health::new())
        .add_service(Reflection::v1())
        .add_service(Reflection::v1alpha())
        .add_service(admin.channelz())
        .add_service(admin)
        // Clients of UCall know no path.
        .wire(http.mount("/rpc", rpc.clone()).mount("/", rpc.clone()))
        .wire(rpc)
        .bind("tcp://127.0.0.1:0")
        .await
}
