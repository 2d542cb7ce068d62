//! The server of a page with a live chart and a chat room.
//!
//! The page and its calls use the same port: files over HTTP, calls over frisbee in a WebSocket.

mod board;
mod files;

use std::path::{Path, PathBuf};

pub use board::Board;
use files::{File, Files};
use frpc::{ServeError, Server};
use frpc_http::Http;
use protos::board_server::BoardServer;

/// Generated from `proto/browser.proto`.
pub mod protos {
    frpc::include_proto!("browser");
}

/// Serves the page and its service. Run `browser/start` first to compile the page.
pub async fn serve(address: &str) -> Result<Server, ServeError> {
    // ANCHOR: serve
    let mut http = Http::new();
    for (path, file) in page() {
        http = http.mount(path, file);
    }
    Server::builder().add_service(BoardServer::new(Board::default())).wire(http).bind(address).await
    // ANCHOR_END: serve
}

/// Returns the files of the page by path: its own files, and the packages named in its import map.
fn page() -> Files {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let client = here.join("../clients/typescript");
    let mut files = Files::default();
    let index = File::read(&here.join("browser/index.html"));
    // The same page with its script in Rust, compiled by `browser/rust/build.sh`.
    files.insert("/rust".into(), index.with_script("import start from '/rust/browser_page.js'; start();"));
    files.insert("/".into(), index);
    let folders: [(&str, PathBuf); 3] = [
        ("", here.join("browser/build")),
        ("/frpc", client.join("dist")),
        ("/protobuf", client.join("node_modules/@bufbuild/protobuf/dist/esm")),
    ];
    for (path, folder) in folders {
        files::add_programs(&mut files, path, &folder);
    }
    files
}
