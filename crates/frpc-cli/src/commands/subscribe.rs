//! `frpc sub`: prints published messages.

use std::{
    io::{IsTerminal, stdout},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use frisbee_pubsub::{Message, Policy, Subscription, SubscriptionEvent};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    broker::BrokerOptions,
    connect::parse_time,
    failure::{CommandError, Result},
    terminal::{OutputStyle, print_bytes, print_json, print_line, print_note, printable_name},
};

/// Subscribes to subjects and prints messages as they arrive.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SubscribeCommand {
    /// The address of the broker: tcp://HOST:PORT, :PORT on this machine, unix:PATH, or nats://HOST:PORT.
    address: String,
    /// The subjects: * matches one token, a trailing > one or more.
    pattern: String,
    /// Ends after this number of messages.
    #[arg(long, short = 'n', value_name = "MESSAGES", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Ends after this time. With --count, receiving fewer messages is then a failure.
    #[arg(long, short = 't', value_name = "TIME", value_parser = parse_time)]
    timeout: Option<Duration>,
    /// Joins a queue group: each message is delivered to one of its members.
    #[arg(long, short = 'g', value_name = "NAME")]
    group: Option<String>,
    /// The messages to drop if they are not read fast enough.
    #[arg(long, value_enum, default_value_t = PolicyArgument::Newest)]
    policy: PolicyArgument,
    /// Prints the payloads only, unmodified and one per line.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    broker: BrokerOptions,
}

const EXAMPLES: &str = "Examples:
  frpc sub :7300 'orders.*.created'
  frpc sub :7300 'orders.>' --count 1 --timeout 5s
  frpc sub :7300 jobs.resize --group workers --json
  frpc sub nats://localhost:4222 'orders.>'";

/// The policy for messages that are not read fast enough.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyArgument {
    /// Drops new messages.
    #[value(name = "drop-newest")]
    Newest,
    /// Drops the oldest waiting messages.
    #[value(name = "drop-oldest")]
    Oldest,
    /// Keeps only the latest message of each subject.
    KeepLatest,
    /// Drops nothing: publishers wait.
    Block,
    /// Drops nothing: the subscription ends.
    Disconnect,
}

impl SubscribeCommand {
    pub(crate) async fn run(&self, is_json: bool) -> Result<()> {
        if self.raw && stdout().is_terminal() {
            return Err(CommandError::new("raw output could send control sequences to the terminal")
                .with_try("`… --raw > FILE`"));
        }
        let client = self.broker.connect(&self.address).await?;
        let mut subscribe = client.subscribe(&self.pattern).policy(self.policy.into());
        if let Some(group) = &self.group {
            subscribe = subscribe.group(group);
        }
        let subscription = subscribe.await.map_err(CommandError::new)?;
        match is_json {
            true => print_json(json!({ "subscribed": self.pattern }))?,
            false => print_note(&format!("subscribed to {}", self.pattern)),
        }
        let mut printed = 0;
        let printing = self.print(subscription, &mut printed, is_json);
        let outcome = match self.timeout {
            Some(timeout) => tokio::time::timeout_at(Instant::now() + timeout, printing).await,
            None => Ok(printing.await),
        };
        match (outcome, self.count) {
            (Ok(outcome), _) => outcome?,
            (Err(_), Some(count)) => {
                return Err(CommandError::new(format!("{printed} of {count} messages arrived in time"))
                    .with_try("a longer --timeout"));
            }
            (Err(_), None) => {}
        }
        client.close().await;
        Ok(())
    }

    /// Prints messages and events until the requested number of messages.
    async fn print(&self, mut subscription: Subscription, printed: &mut u64, is_json: bool) -> Result<()> {
        while self.count.is_none_or(|count| *printed < count) {
            match subscription.next().await {
                Some(SubscriptionEvent::Message(message)) => {
                    self.print_message(&message, is_json)?;
                    *printed += 1;
                }
                Some(SubscriptionEvent::Missing(messages)) if is_json => print_json(json!({ "missing": messages }))?,
                Some(SubscriptionEvent::Missing(messages)) => {
                    print_note(&format!("{messages} messages are missing here"))
                }
                Some(SubscriptionEvent::Reconnected) if is_json => print_json(json!({ "reconnected": true }))?,
                Some(SubscriptionEvent::Reconnected) => {
                    print_note("the connection was lost and restored: messages may be missing here");
                }
                Some(_) => {}
                None => {
                    let end = subscription.end().map_or_else(|| "it ended".to_owned(), ToString::to_string);
                    return Err(CommandError::new(format!("the subscription ended: {end}")));
                }
            }
        }
        Ok(())
    }

    fn print_message(&self, message: &Message, is_json: bool) -> Result<()> {
        if self.raw {
            print_bytes(&[&message.payload[..], b"\n"].concat())?;
        } else if is_json {
            print_json(message_json(message))?;
        } else {
            let payload = match std::str::from_utf8(&message.payload) {
                Ok(text) => printable_name(text),
                Err(_) => format!("{} bytes: {}", message.payload.len(), BASE64_STANDARD.encode(&message.payload)),
            };
            let subject = printable_name(message.subject.as_str());
            print_line(format_args!("{} {payload}", OutputStyle::of_stdout().cyan(&subject)))?;
        }
        Ok(())
    }
}

/// Returns a message as JSON for programs. A payload that is not UTF-8 is base64.
pub(super) fn message_json(message: &Message) -> Value {
    let mut json = json!({ "subject": message.subject.as_str() });
    match std::str::from_utf8(&message.payload) {
        Ok(text) => json["text"] = text.into(),
        Err(_) => json["base64"] = BASE64_STANDARD.encode(&message.payload).into(),
    }
    if let Some(reply) = &message.reply {
        json["reply"] = reply.as_str().into();
    }
    if message.is_retained {
        json["retained"] = true.into();
    }
    json
}

impl From<PolicyArgument> for Policy {
    fn from(drops: PolicyArgument) -> Self {
        match drops {
            PolicyArgument::Newest => Self::DropNewest,
            PolicyArgument::Oldest => Self::DropOldest,
            PolicyArgument::KeepLatest => Self::KeepLatest,
            PolicyArgument::Block => Self::Block,
            PolicyArgument::Disconnect => Self::Disconnect,
        }
    }
}
