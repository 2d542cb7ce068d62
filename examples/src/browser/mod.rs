//! The server of a page that shows what it measures, and a room in which people on such pages talk. The page and its calls come to the
//! same port: files by HTTP, calls by frisbee over WebSocket.

mod board;
mod files;

use std::path::{Path, PathBuf};

pub use board::Board;
use files::{File, Files};
use frpc::{ServeError, Server};
use frpc_http::Http;
use protos::board_server::BoardServer;

/// Made of `proto/browser.proto`.
pub mod protos {
    frpc::include_proto!("browser");
}

/// Serves the page and what it calls. `browser/start` compiles the page before.
pub async fn serve(address: &str) -> Result<Server, ServeError> {
    let mut http = Http::new();
    for (path, file) in page() {
        http = http.mount(path, file);
    }
    Server::builder().add_service(BoardServer::new(Board::default())).wire(http).bind(address).await
}

/// Returns the files of the page by their paths: its own, and the packages that its import map names.
fn page() -> Files {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let client = here.join("../clients/typescript");
    let mut files = Files::default();
    files.insert("/".into(), File::read(&here.join("browser/index.html")));
    let folders: [(&str, PathBuf); 3] = [
        ("", here.join("browser/build")),
        ("/frpc", client.join("dist")),
        ("/protobuf", client.join("node_modules/@bufbuild/protobuf/dist/esm")),
    ];
    for (path, folder) in folders {
        files::add_scripts(&mut files, path, &folder);
    }
    files
}
