//! Server processes for a single test, found ready by their log.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    sync::mpsc,
};

use crate::directory::Directory;

/// A server process and its files, killed and removed on drop.
#[derive(Debug)]
pub(crate) struct LoggedProcess {
    process: Child,
    log: mpsc::UnboundedReceiver<String>,
    directory: Directory,
}

impl LoggedProcess {
    pub(crate) fn start(mut command: Command, directory: Directory) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.kill_on_drop(true).spawn().expect("the server can run");
        let (sender, log) = mpsc::unbounded_channel();
        read_log(process.stdout.take().expect("it is piped"), sender.clone());
        read_log(process.stderr.take().expect("it is piped"), sender);
        Self { process, log, directory }
    }

    /// Waits for a log line with this text and returns it. Discards the lines before it.
    pub(crate) async fn says(&mut self, text: &str) -> String {
        self.says_one_of(&[text]).await
    }

    /// Waits for a log line with one of these texts and returns it. Discards the lines before it.
    pub(crate) async fn says_one_of(&mut self, texts: &[&str]) -> String {
        let mut before = Vec::new();
        while let Some(line) = self.log.recv().await {
            if texts.iter().any(|text| line.contains(text)) {
                return line;
            }
            before.push(line);
        }
        panic!("the server has ended before it said {texts:?}:\n{}", before.join("\n"));
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }
}

/// Reads the whole log. A full pipe would block the server.
fn read_log(log: impl AsyncRead + Send + Unpin + 'static, sender: mpsc::UnboundedSender<String>) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(log).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let _ = sender.send(line);
        }
    });
}

impl Drop for LoggedProcess {
    fn drop(&mut self) {
        // It must end before its files are removed.
        let _ = self.process.start_kill();
        while let Ok(None) = self.process.try_wait() {
            std::thread::yield_now();
        }
    }
}
