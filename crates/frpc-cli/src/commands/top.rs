//! `frpc top`: a live view of a process.

use std::{
    fmt::{Display, Write as _},
    io::{IsTerminal, Write as _, stdout},
    pin::pin,
    time::Duration,
};

use frpc::{
    Code, Request,
    codec::{Format, json},
};
use frpc_admin::protos::frpc::admin::v1::{
    CallState, EndpointState, MethodState, ProcessState, StreamState, WatchRequest, admin_client::AdminClient,
};
use terminal_size::{Height, Width, terminal_size};
use tokio::signal::ctrl_c;

use crate::{
    connect::{ConnectOptions, addresses, parse_time},
    failure::{CommandError, Result},
    load::display::{count, time},
    terminal::{OutputStyle, print_bytes, print_json, print_line, printable_name},
};

/// Shows the calls, streams, channels and errors of a process, live.
///
/// The process must serve frpc.admin.v1.Admin: see the crate frisbee-rpc-admin, and `frpc serve --echo`. Ctrl-C ends.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopCommand {
    /// The address of the server. Its scheme selects the protocol.
    address: String,
    /// The time between two states, at least 100ms.
    #[arg(long, short = 'i', value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    interval: Duration,
    /// Ends after this number of states. The first one has no rates.
    #[arg(long, short = 'n', value_name = "STATES", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// The token for access. The environment variable FRPC_ADMIN_TOKEN keeps it out of lists of processes.
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    #[command(flatten)]
    connect: ConnectOptions,
}

const EXAMPLES: &str = addresses!(
    "Examples:
  frpc top :7300
  frpc top grpc://localhost:7300 --interval 5s
  frpc top unix:/run/app.sock --json --count 2"
);

impl TopCommand {
    pub(crate) async fn run(&self, is_json: bool) -> Result<()> {
        let channel = self.connect.connect(&self.address, Format::Proto).await?;
        let interval_ms = u32::try_from(self.interval.as_millis()).unwrap_or(u32::MAX).max(1);
        let mut request = Request::new(WatchRequest { interval_ms });
        if let Some(token) = self.token.clone().or_else(|| std::env::var("FRPC_ADMIN_TOKEN").ok()) {
            let authorization = request.metadata_mut().insert("authorization", format!("Bearer {token}"));
            authorization.map_err(CommandError::new)?;
        }
        let states = AdminClient::new(channel).watch(request).await.map_err(|status| refused(&status))?;
        let mut states = states.into_inner();
        let screen = (!is_json && stdout().is_terminal()).then(LiveScreen::open).transpose()?;
        let mut interrupted = pin!(ctrl_c());
        let mut shown = 0;
        while self.count.is_none_or(|count| shown < count) {
            // The signal first: its handler must exist before the first state is shown.
            let state = tokio::select! {
                biased;
                _ = &mut interrupted => break,
                state = states.message() => state.map_err(|status| refused(&status))?,
            };
            let Some(state) = state else { break };
            match &screen {
                _ if is_json => print_json(json::to_string(&state).map_err(CommandError::new)?)?,
                Some(screen) => screen.show(&state)?,
                None => print_line(view(&state, OutputStyle::of_stdout(), None))?,
            }
            shown += 1;
        }
        Ok(())
    }
}

fn refused(status: &frpc::Status) -> CommandError {
    let failure = CommandError::new(format!("cannot watch the process: {}", status.message()));
    match status.code() {
        Code::Unimplemented => {
            failure.with_try("the service of the crate frisbee-rpc-admin on this server: `frpc_admin::Admin`")
        }
        Code::Unauthenticated | Code::PermissionDenied => {
            failure.with_try("--token TOKEN, or the machine of the server if only local peers are allowed")
        }
        _ => failure,
    }
}

/// The alternate screen of a terminal. Dropped, it restores the earlier text.
struct LiveScreen;

impl LiveScreen {
    fn open() -> Result<Self> {
        // Without line wrapping and cursor.
        print_bytes(b"\x1b[?1049h\x1b[?7l\x1b[?25l")?;
        Ok(Self)
    }

    fn show(&self, state: &ProcessState) -> Result<()> {
        let size = terminal_size().map(|(Width(_), Height(rows))| usize::from(rows));
        let text = view(state, OutputStyle::of_stdout(), size);
        // Overwritten in place, so it does not flicker.
        let lines: String =
            text.lines().take(size.unwrap_or(usize::MAX)).map(|line| format!("{line}\x1b[K\r\n")).collect();
        print_bytes(format!("\x1b[H{}\x1b[J", lines.trim_end_matches("\r\n")).as_bytes())?;
        Ok(())
    }
}

impl Drop for LiveScreen {
    fn drop(&mut self) {
        let _ = stdout().write_all(b"\x1b[?25h\x1b[?7h\x1b[?1049l");
        let _ = stdout().flush();
    }
}

/// Returns the view of a state. `rows` limits the length of the lists.
fn view(state: &ProcessState, style: OutputStyle, rows: Option<usize>) -> String {
    let mut view = StateView { out: String::new(), style };
    let blocked = state.streams.iter().filter(|stream| stream.blocked.is_some()).count();
    let connections = state.servers.iter().filter_map(|server| server.limits.first()).map(|limit| limit.used);
    let connections = connections.fold(0, u64::saturating_add);
    let sum = |of: fn(&MethodState) -> f64| state.served.iter().map(of).sum::<f64>();
    view.line(format_args!(
        "{} pid {} · up {} · {} MiB · {} connections · {} streams, {blocked} blocked",
        style.bold(&printable_name(&state.name)),
        state.pid,
        duration(state.uptime),
        state.memory >> 20,
        connections,
        state.open_streams,
    ));
    let errors = count(sum(|method| method.failure_rate));
    let in_flight = state.served.iter().map(|method| method.in_flight).fold(0, u64::saturating_add);
    view.line(format_args!(
        "{}/s served · {} errors/s · {in_flight} in flight",
        style.bold(&count(sum(|method| method.rate))),
        if sum(|method| method.failure_rate) > 0.0 { style.red(&errors) } else { errors },
    ));
    // The lines of the header and the titles.
    let left = rows.map_or(usize::MAX, |rows| rows.saturating_sub(16));
    let share = |part: usize| if left == usize::MAX { usize::MAX } else { (left * part / 10).max(3) };
    view.methods("SERVED", &state.served, share(4));
    view.methods("CALLED", &state.called, share(2));
    view.streams(&state.streams, share(2));
    let endpoints = state
        .channels
        .iter()
        .flat_map(|channel| channel.endpoints.iter().map(|endpoint| (printable_name(&channel.target), endpoint)));
    view.endpoints(endpoints.collect(), share(1));
    view.calls("ERRORS", &state.failures, share(1));
    view.calls("SLOWEST", &state.slow, share(1));
    view.out
}

struct StateView {
    out: String,
    style: OutputStyle,
}

impl StateView {
    fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{line}");
    }

    fn title(&mut self, line: &str) {
        let line = self.style.dim(line);
        self.line(format_args!("\n{line}"));
    }

    fn methods(&mut self, title: &str, methods: &[MethodState], max: usize) {
        if methods.is_empty() {
            return;
        }
        let heads = ["CALLS/S", "ERR/S", "P50", "P90", "P99", "FLIGHT", "TOTAL"];
        self.title(&format!("{title:<NAME_LEN$}{}  WIRE", heads.map(|head| format!("{head:>9}")).concat()));
        let mut methods: Vec<_> = methods.iter().collect();
        methods.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(b.started.cmp(&a.started)));
        for method in methods.into_iter().take(max) {
            let errors = format!("{:>9}", count(method.failure_rate));
            let errors = if method.failure_rate > 0.0 { self.style.red(&errors) } else { errors };
            let times =
                [method.p50, method.p90, method.p99].map(|seconds| format!("{:>9}", duration(seconds))).concat();
            let wire = [&method.system, &method.target].map(|text| printable_name(text)).join("  ");
            self.line(format_args!(
                "{}{:>9}{errors}{times}{:>9}{:>9}  {wire}",
                name(&method.method),
                count(method.rate),
                method.in_flight,
                count(method.started as f64),
            ));
        }
    }

    fn streams(&mut self, streams: &[StreamState], max: usize) {
        if streams.is_empty() {
            return;
        }
        self.title(&format!("{:<NAME_LEN$}{:>9}{:>9}{:>12}  PEER", "STREAMS", "AGE", "BLOCKED", "MESSAGES"));
        for stream in streams.iter().take(max) {
            let blocked = stream.blocked.map(duration);
            let blocked = match blocked {
                Some(time) => self.style.red(&format!("{time:>9}")),
                None => format!("{:>9}", "-"),
            };
            let peer = if stream.peer.is_empty() { &stream.target } else { &stream.peer };
            self.line(format_args!(
                "{}{:>9}{blocked}{:>12}  {}",
                name(&stream.method),
                duration(stream.age),
                count(stream.messages as f64),
                printable_name(peer),
            ));
        }
    }

    fn endpoints(&mut self, endpoints: Vec<(String, &EndpointState)>, max: usize) {
        if endpoints.is_empty() {
            return;
        }
        self.title(&format!("{:<NAME_LEN$}{:>12}{:>9}{:>9}  CHANNEL", "ENDPOINTS", "STATE", "LATENCY", "FLIGHT"));
        for (target, endpoint) in endpoints.into_iter().take(max) {
            let state = format!("{:>12}", printable_name(&endpoint.state));
            let state = if endpoint.state == "ready" { self.style.green(&state) } else { self.style.red(&state) };
            self.line(format_args!(
                "{}{state}{:>9}{:>9}  {target}",
                name(&endpoint.address),
                duration(endpoint.latency),
                endpoint.in_flight,
            ));
        }
    }

    fn calls(&mut self, title: &str, calls: &[CallState], max: usize) {
        if calls.is_empty() {
            return;
        }
        self.title(&format!("{title:<NAME_LEN$}{:>9}  CODE", "TIME"));
        for call in calls.iter().take(max) {
            let code =
                if call.code == "OK" { self.style.green("OK") } else { self.style.red(&printable_name(&call.code)) };
            let message = printable_name(&call.message);
            let line = format!("{}{:>9}  {code} {message}", name(&call.method), duration(call.duration));
            self.line(line.trim_end());
        }
    }
}

/// The width of the first column.
const NAME_LEN: usize = 44;

/// Shortens a name from the left to the width of the first column.
fn name(name: &str) -> String {
    let name = printable_name(name);
    let len = name.chars().count();
    match len < NAME_LEN {
        true => format!("{name:<NAME_LEN$}"),
        false => format!("…{} ", name.chars().skip(len + 2 - NAME_LEN).collect::<String>()),
    }
}

fn duration(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds) {
        Ok(Duration::ZERO) | Err(_) => "-".to_owned(),
        Ok(long) if long.as_secs() >= 120 => format!("{}m{:02}s", long.as_secs() / 60, long.as_secs() % 60),
        Ok(short) => time(short),
    }
}

#[cfg(test)]
mod tests {
    use frpc_admin::protos::frpc::admin::v1::{ChannelState, LimitState, ServerState};

    use super::*;

    #[test]
    fn views_fit_the_terminal_and_hide_control_characters() {
        let hostile = "a\x1b[2J\u{202e}".repeat(30);
        let method = MethodState {
            method: hostile.clone(),
            rate: 1.5e6,
            p99: 0.25,
            in_flight: u64::MAX,
            ..MethodState::default()
        };
        let limit = LimitState { used: u64::MAX, ..LimitState::default() };
        let server = ServerState { limits: vec![limit], ..ServerState::default() };
        let call = CallState { method: hostile.clone(), message: hostile.clone(), ..CallState::default() };
        let stream = StreamState { peer: hostile.clone(), blocked: Some(3.0), ..StreamState::default() };
        let endpoint = EndpointState { address: hostile.clone(), state: hostile.clone(), ..EndpointState::default() };
        let channel =
            ChannelState { target: hostile.clone(), endpoints: vec![endpoint; 40], ..ChannelState::default() };
        let state = ProcessState {
            name: hostile,
            served: vec![method.clone(); 40],
            called: vec![method; 40],
            streams: vec![stream; 40],
            channels: vec![channel],
            failures: vec![call.clone(); 40],
            slow: vec![call; 40],
            servers: vec![server; 2],
            ..ProcessState::default()
        };
        let whole = view(&state, OutputStyle::of_stdout(), None);
        assert!(whole.lines().count() > 240 && whole.contains("1.50 M") && whole.contains("250 ms"), "{whole}");
        assert!(!whole.contains(|char: char| char.is_control() && char != '\n' && char != '\x1b'));
        assert!(!whole.contains("\x1b[2J") && !whole.contains('\u{202e}'));
        let short = view(&state, OutputStyle::of_stdout(), Some(50));
        assert!(short.lines().count() <= 50, "{}", short.lines().count());
        assert_eq!(name("short").chars().count(), NAME_LEN);
        assert_eq!(name(&"long/".repeat(20)).chars().count(), NAME_LEN);
    }
}
