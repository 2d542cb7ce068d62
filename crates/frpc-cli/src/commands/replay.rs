//! `frpc replay`: sends recorded calls again and compares the answers.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use frpc_record::{RecordedCall, Recording};
use serde_json::{Value, json};

use crate::{
    arguments::MetadataOptions,
    connect::{ConnectOptions, addresses, parse_time},
    failure::{CommandError, Result},
    replay::{self, Difference, IgnoredPaths, ReplayPlan, ReplayTarget, ReplayedCall, is_replayable},
    schema::SchemaSources,
    terminal::{OutputStyle, print_json, print_line, print_note, printable_json, printable_name},
};

/// Sends recorded calls to a server and compares the answers.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayCommand {
    /// The recording, as written by the layer of the crate frisbee-rpc-record.
    file: String,
    /// The address of the server. Its scheme selects the wire.
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// Shows each difference with the path of its field.
    #[arg(long, help_heading = "Output")]
    diff: bool,
    /// A field without comparison, such as created_at, items[].price or @status.message. Can be repeated.
    #[arg(long, value_name = "PATH", help_heading = "Comparison")]
    ignore: Vec<String>,
    /// Also compares the recorded metadata and trailers of answers.
    #[arg(long, help_heading = "Comparison")]
    metadata: bool,
    /// The factor of the recorded speed, or `max` for no pauses.
    #[arg(long, default_value = "1", value_name = "FACTOR", value_parser = parse_speed, help_heading = "Replay")]
    speed: f64,
    /// The maximum number of concurrent calls.
    #[arg(long, default_value_t = 64, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Replay")]
    concurrency: u32,
    /// A method or service to replay, such as shop.Orders/Create or shop.Orders. Can be repeated. Default: all.
    #[arg(long, value_name = "METHOD", help_heading = "Replay")]
    only: Vec<String>,
    #[command(flatten)]
    given: MetadataOptions,
    /// Does not send the recorded metadata, for wires without metadata.
    #[arg(long, help_heading = "Replay")]
    no_metadata: bool,
    /// The deadline of each call. Default: the recorded one, or the recorded duration and 30s.
    #[arg(long, short = 't', value_name = "TIME", value_parser = parse_time, help_heading = "Replay")]
    timeout: Option<Duration>,
    #[command(flatten)]
    sources: SchemaSources,
    #[command(flatten)]
    connect: ConnectOptions,
}

const EXAMPLES: &str = addresses!(
    "Examples:
  frpc replay calls.frec --to :7300 --diff
  frpc replay calls.frec --to grpc://localhost:7300 --speed 2
  frpc replay calls.frec --to :7300 --speed max --only shop.Orders --ignore created_at

Exit codes: 0 if all answers are equal, 3 if some differ, 1 for other failures"
);

/// The results so far.
#[derive(Clone, Copy, Debug, Default)]
struct ReplayTotals {
    equal: usize,
    different: usize,
}

impl ReplayCommand {
    pub(crate) async fn run(&self, is_json: bool) -> Result<()> {
        let recording =
            Recording::open(&self.file).map_err(|error| CommandError::new(format!("{}: {error}", self.file)))?;
        let chosen: Vec<_> = recording.calls().iter().filter(|call| self.is_chosen(call)).collect();
        let all = chosen.len();
        let calls: Vec<RecordedCall> = chosen.into_iter().filter(|call| is_replayable(call)).cloned().collect();
        let skipped = all - calls.len();
        if calls.is_empty() && !self.only.is_empty() {
            let paths: BTreeSet<_> = recording.calls().iter().map(RecordedCall::path).collect();
            return Err(CommandError::new("the recording has no complete call of these methods")
                .with_try(paths.into_iter().collect::<Vec<_>>().join(" or ")));
        }
        let plan = self.plan()?;
        let target =
            ReplayTarget::prepare(&recording, &calls, &self.to, &self.connect, &self.sources, &plan.metadata).await?;
        if !is_json {
            self.tell(&recording, &calls, &plan, skipped, target.has_metadata);
        }
        let (mut totals, calls) = (ReplayTotals::default(), Arc::new(calls));
        let shown = calls.clone();
        let report = |replayed: ReplayedCall| {
            match replayed.total {
                0 => totals.equal += 1,
                _ => {
                    totals.different += 1;
                    self.print(&shown[replayed.at], &replayed, is_json)?;
                }
            }
            Ok(())
        };
        replay::run(Arc::new(target), calls, Arc::new(plan), self.concurrency as usize, report).await?;
        let ReplayTotals { equal, different } = totals;
        if is_json {
            print_json(json!({
                "replayed": equal + different, "equal": equal, "different": different, "skipped": skipped,
                "dropped": recording.dropped_calls(), "cut_at": recording.cut_at(),
            }))?;
        } else {
            let style = OutputStyle::of_stdout();
            let different = match different {
                0 => style.green("none different"),
                _ => style.red(&format!("{different} different")),
            };
            print_line(format_args!("{} calls replayed: {equal} equal, {different}", totals.equal + totals.different))?;
        }
        if totals.different > 0 { Err(CommandError::Different) } else { Ok(()) }
    }

    fn is_chosen(&self, call: &RecordedCall) -> bool {
        let path = call.path();
        self.only.is_empty() || self.only.iter().any(|only| *only == path || *only == call.service)
    }

    fn plan(&self) -> Result<ReplayPlan> {
        Ok(ReplayPlan {
            speed: self.speed,
            metadata: self.given.metadata()?,
            sends_metadata: !self.no_metadata,
            compares_metadata: self.metadata,
            timeout: self.timeout,
            ignored: IgnoredPaths::parse(&self.ignore)?,
        })
    }

    /// Prints notes about the parts that are not replayed.
    fn tell(
        &self,
        recording: &Recording,
        calls: &[RecordedCall],
        plan: &ReplayPlan,
        skipped: usize,
        has_metadata: bool,
    ) {
        if let Some(at) = recording.cut_at() {
            print_note(&format!("the recording is cut at byte {at}: its process ended early, or still records"));
        }
        if recording.dropped_calls() > 0 {
            print_note(&format!("the recorder dropped {} calls at its limits", recording.dropped_calls()));
        }
        if skipped > 0 {
            print_note(&format!("{skipped} calls are not complete in the recording, and are not replayed"));
        }
        let hidden: BTreeSet<_> = calls.iter().flat_map(|call| &call.metadata.hidden).collect();
        let hidden: Vec<_> = hidden.into_iter().filter(|name| !plan.metadata.contains_key(name)).cloned().collect();
        if !hidden.is_empty() && has_metadata && plan.sends_metadata {
            let names = hidden.join(", ");
            print_note(&format!("the recording has no values of secret metadata: {names}. -H adds them"));
        }
        if !has_metadata && calls.iter().any(|call| !call.metadata.values.is_empty()) {
            print_note("this wire has no metadata: the recorded metadata is not sent");
        }
    }

    fn print(&self, call: &RecordedCall, replayed: &ReplayedCall, is_json: bool) -> Result<()> {
        let (number, path) = (replayed.at + 1, call.path());
        if is_json {
            let differences = replayed.differences.iter().map(|difference| {
                let Difference { path, message, recorded, replayed } = difference;
                json!({ "path": path, "message": message, "recorded": recorded, "replayed": replayed })
            });
            let differences: Vec<_> = differences.collect();
            return Ok(print_json(json!({
                "call": number, "method": path, "start": call.start.as_secs_f64(), "total": replayed.total,
                "differences": differences,
            }))?);
        }
        let style = OutputStyle::of_stdout();
        let plural = if replayed.total == 1 { "" } else { "s" };
        print_line(format_args!(
            "call {number} {} ({:.3} s): {} difference{plural}",
            style.bold(&printable_name(&path)),
            call.start.as_secs_f64(),
            replayed.total
        ))?;
        if !self.diff {
            return Ok(());
        }
        for Difference { path, message, recorded, replayed } in &replayed.differences {
            let message = message.map_or_else(String::new, |number| format!("message {number}, "));
            let path = if path.is_empty() { "(the message)" } else { path };
            print_line(format_args!(
                "  {message}{}: {} → {}",
                style.cyan(&printable_name(path)),
                style.red(&text_of(recorded.as_ref())),
                style.green(&text_of(replayed.as_ref()))
            ))?;
        }
        let more = replayed.total - replayed.differences.len();
        if more > 0 {
            print_line(format_args!("  and {more} more"))?;
        }
        Ok(())
    }
}

/// Returns a value for people, shortened to a line.
fn text_of(value: Option<&Value>) -> String {
    let Some(value) = value else { return "(none)".to_owned() };
    let text = printable_json(&value.to_string());
    if text.chars().count() <= VALUE_LEN_MAX {
        return text;
    }
    format!("{}…", text.chars().take(VALUE_LEN_MAX).collect::<String>())
}

/// The maximum number of characters of a value in a difference.
const VALUE_LEN_MAX: usize = 200;

fn parse_speed(text: &str) -> std::result::Result<f64, String> {
    let speed = if text == "max" { f64::INFINITY } else { text.parse().unwrap_or(f64::NAN) };
    if speed > 0.0 { Ok(speed) } else { Err(format!("{text:?} is not a speed: write 1, 0.5, 10 or max")) }
}
