//! `frpc pub`: publishes messages.

use std::{io::BufRead, time::Duration};

use frisbee_pubsub::{Client, Publication, RequestError};
use serde_json::json;
use tokio::sync::mpsc;

use super::subscribe::message_json;
use crate::{
    arguments::read,
    broker::BrokerOptions,
    connect::parse_time,
    failure::{CommandError, Result},
    terminal::{print_json, print_line, printable},
};

/// Publishes a message to a subject and prints the number of subscriptions.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PublishCommand {
    /// The address of the broker: tcp://HOST:PORT, :PORT on this machine, unix:PATH, or nats://HOST:PORT.
    address: String,
    /// The subject, such as orders.eu.created.
    subject: String,
    /// The message: a text, @FILE for the content of a file, or @- for standard input. Default: empty.
    data: Option<String>,
    /// Publishes each line of standard input as a message.
    #[arg(long, conflicts_with_all = ["data", "count", "request"])]
    lines: bool,
    /// Publishes the message this number of times.
    #[arg(long, short = 'n', value_name = "MESSAGES", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Waits for an answer and prints it.
    #[arg(long, conflicts_with_all = ["count", "retain"])]
    request: bool,
    /// Stores the message as the last value of the subject, for later subscribers. An empty message removes it.
    #[arg(long)]
    retain: bool,
    /// The timeout for each acknowledgement, or for the answer.
    #[arg(long, short = 't', value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    timeout: Duration,
    #[command(flatten)]
    broker: BrokerOptions,
}

const EXAMPLES: &str = "Examples:
  frpc pub :7300 orders.eu.created 'one for Ada'
  frpc pub :7300 orders.eu.created @order.json --count 3
  frpc pub :7300 log.web --lines < access.log
  frpc pub :7300 vat.rate books --request";

impl PublishCommand {
    pub(crate) async fn run(&self, is_json: bool) -> Result<()> {
        let payload = match self.data.as_deref() {
            Some(data) => match data.strip_prefix('@') {
                Some(path) => read(path)?,
                None => data.as_bytes().to_vec(),
            },
            None => Vec::new(),
        };
        let client = self.broker.connect(&self.address).await?;
        if self.request {
            return self.ask(&client.with_request_limit(self.timeout), payload, is_json).await;
        }
        let (mut messages, mut deliveries) = (0, None);
        if self.lines {
            let mut lines = lines_of_input();
            while let Some(line) = lines.recv().await {
                deliveries = self.publish(&client, line?).await?;
                messages += 1;
            }
        } else {
            for _ in 0..self.count {
                deliveries = self.publish(&client, payload.clone()).await?;
                messages += 1;
            }
        }
        client.close().await;
        if is_json {
            print_json(json!({ "subject": self.subject, "messages": messages, "subscriptions": deliveries }))?;
            return Ok(());
        }
        let noun = if messages == 1 { "message" } else { "messages" };
        print_line(match deliveries {
            Some(1) => format!("published {messages} {noun}, the last to 1 subscription"),
            Some(deliveries) => format!("published {messages} {noun}, the last to {deliveries} subscriptions"),
            None => format!("published {messages} {noun}"),
        })?;
        Ok(())
    }

    /// Publishes a message and returns the number of subscriptions, if the broker knows it.
    async fn publish(&self, client: &Client, payload: Vec<u8>) -> Result<Option<u32>> {
        let mut publication = Publication::new(&self.subject, payload);
        publication.retain = self.retain;
        let acknowledged = tokio::time::timeout(self.timeout, client.send_acknowledged(publication)).await;
        let late =
            |_| CommandError::new(format!("the broker did not acknowledge the message within {:?}", self.timeout));
        acknowledged.map_err(late)?.map_err(CommandError::new)
    }

    async fn ask(&self, client: &Client, payload: Vec<u8>, is_json: bool) -> Result<()> {
        let answer = client.request(&self.subject, payload).await.map_err(|error| match error {
            RequestError::TimedOut => CommandError::new(format!("there was no answer within {:?}", self.timeout)),
            error => CommandError::new(error),
        })?;
        match (is_json, std::str::from_utf8(&answer.payload)) {
            (true, _) => print_json(message_json(&answer))?,
            (false, Ok(text)) => print_line(printable(text))?,
            (false, Err(_)) => print_json(message_json(&answer))?,
        }
        Ok(())
    }
}

/// Returns the lines of standard input, without line endings.
fn lines_of_input() -> mpsc::Receiver<Result<Vec<u8>>> {
    let (sender, lines) = mpsc::channel(16);
    // Reading standard input cannot be cancelled, so it runs on its own thread.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().split(b'\n') {
            let line = line.map_err(|error| CommandError::new(format!("standard input: {error}")));
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}
