//! Two users of the page in `browser/`, simulated in Chromium.

use std::{path::Path, time::Duration};

use frpc::Address;
use support::{foreign_browser, has_wasm, in_real_time_within, typescript_client};
use tokio::process::Command;

#[test]
fn two_pages_share_a_live_chart_and_chat() {
    share_a_page("");
}

#[test]
fn two_pages_in_rust_share_a_live_chart_and_chat() {
    if has_wasm(&Path::new(env!("CARGO_MANIFEST_DIR")).join("browser/build/rust/browser_page_bg.wasm")) {
        share_a_page("rust");
    }
}

fn share_a_page(path: &str) {
    let (Some(client), Some(_)) = (typescript_client(), foreign_browser()) else { return };
    in_real_time_within(Duration::from_secs(120), async {
        let server = examples::browser::serve("tcp://127.0.0.1:0").await.unwrap();
        let Address::Tcp(at) = server.local_addr() else { panic!("it has no port") };
        let (script, url) = (client.join("build/test/live/page.js"), format!("http://{at}/{path}"));
        let run = Command::new("node").arg(script).arg(url).kill_on_drop(true).output().await.unwrap();
        let said = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success() && said.contains("all went well"), "{said}");
    });
}
