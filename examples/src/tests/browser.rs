//! Two users of the page in `browser/`, simulated in Chromium.

use std::time::Duration;

use frpc::Address;
use support::{foreign_browser, in_real_time_within, typescript_client};
use tokio::process::Command;

#[test]
fn two_pages_share_a_live_chart_and_chat() {
    let (Some(client), Some(_)) = (typescript_client(), foreign_browser()) else { return };
    in_real_time_within(Duration::from_secs(120), async {
        let server = examples::browser::serve("tcp://127.0.0.1:0").await.unwrap();
        let Address::Tcp(at) = server.local_addr() else { panic!("it has no port") };
        let script = client.join("build/test/live/page.js");
        let run =
            Command::new("node").arg(script).arg(format!("http://{at}/")).kill_on_drop(true).output().await.unwrap();
        let said = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success() && said.contains("all went well"), "{said}");
    });
}
