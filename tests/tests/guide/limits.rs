//! The page of settings: their documentation, and the values of their defaults.

use std::fmt::{Debug, Write as _};

use regex::Regex;

use crate::pages::{heading, read, update};

/// The settings of a struct.
struct SettingsTable {
    /// The type as users name it.
    path: &'static str,
    /// The file with the documentation.
    file: &'static str,
    /// The default in the format `{:#?}`.
    default: String,
}

macro_rules! tables {
    ($($type:ty: $file:literal,)+) => { [$(SettingsTable {
        path: stringify!($type),
        file: $file,
        default: printed(&<$type>::default()),
    }),+] };
}

fn printed(value: &impl Debug) -> String {
    format!("{value:#?}")
}

#[test]
fn the_page_of_limits_matches_the_code() {
    let tables = tables! {
        frisbee::Config: "crates/frisbee/src/config.rs",
        frisbee::ServerLimits: "crates/frisbee/src/server/settings.rs",
        frisbee::SocketOptions: "crates/frisbee/src/net/options.rs",
        frisbee::ConnectRetry: "crates/frisbee/src/backoff.rs",
        frpc::CallSettings: "crates/frpc/src/service/settings.rs",
        frpc::MessageSettings: "crates/frpc/src/service/settings.rs",
        frpc::CompressionSettings: "crates/frpc/src/service/settings.rs",
        frpc::ChannelCallSettings: "crates/frpc/src/channel/settings.rs",
        frpc::fleet::FleetSettings: "crates/frpc/src/fleet/settings.rs",
        frpc::fleet::RetrySettings: "crates/frpc/src/fleet/settings.rs",
        frpc::fleet::RetryPolicy: "crates/frpc-balance/src/retry.rs",
        frpc::fleet::HedgingPolicy: "crates/frpc-balance/src/retry.rs",
        frpc::fleet::BudgetSettings: "crates/frpc-balance/src/budget.rs",
        frpc::fleet::OutlierSettings: "crates/frpc-balance/src/outlier.rs",
        frpc::fleet::ThrottleSettings: "crates/frpc-balance/src/throttle.rs",
        frpc::fleet::LoadSettings: "crates/frpc-balance/src/load.rs",
        frpc::fleet::ReportSettings: "crates/frpc-balance/src/report.rs",
        frpc::layers::OverloadSettings: "crates/frpc/src/service/overload.rs",
        frpc::layers::LimitSettings: "crates/frpc-balance/src/limit.rs",
        frpc::layers::RateSettings: "crates/frpc/src/service/rate.rs",
        frpc::pages::PageLimits: "crates/frpc/src/pages.rs",
        frpc_http::HttpSettings: "crates/frpc-http/src/settings.rs",
        frpc_http::ClientSettings: "crates/frpc-http/src/client/settings.rs",
        frpc_jsonrpc::JsonRpcSettings: "crates/frpc-jsonrpc/src/settings.rs",
        frpc_nats::NatsSettings: "crates/frpc-nats/src/settings.rs",
        frisbee_pubsub::BrokerLimits: "crates/frisbee-pubsub/src/broker/limits.rs",
    };
    let mut page = heading(
        "Limits and settings",
        "Every setting of servers, channels and brokers, with its default. All of them are fields of structs with\n\
         `Default`. The documentation of the fields says more.",
    );
    for table in &tables {
        table.write(&mut page);
    }
    update(&[("docs/reference/limits.md", &page)]);
}

impl SettingsTable {
    fn write(&self, page: &mut String) {
        let path = self.path.replace(' ', "");
        let (_, name) = path.rsplit_once("::").unwrap();
        let source = read(self.file);
        let start = source.find(&format!("pub struct {name} {{")).unwrap_or_else(|| panic!("{}: no {name}", self.file));
        let docs = docs_of(&source[start..]);
        let summary = summary_of(&source[..start]);
        writeln!(page, "\n## {path}\n\n{summary}\n\n| field | default | meaning |\n|---|---|---|").unwrap();
        let defaults = defaults(&self.default);
        assert_eq!(docs.len(), defaults.len(), "{path}: fields in the source, and in the default");
        for ((field, meaning), (name, value)) in docs.iter().zip(&defaults) {
            assert_eq!(field, name, "{path}");
            writeln!(page, "| `{field}` | {} | {} |", shown(field, value), meaning.replace('|', "\\|")).unwrap();
        }
    }
}

/// Returns the first sentences of the documentation before a struct.
fn summary_of(source: &str) -> String {
    let comment = source.rsplit_once("\n\n").map_or(source, |(_, comment)| comment);
    first_paragraph(comment.lines())
}

/// Returns the public fields of a struct with their first paragraphs, without the sentence about the default.
fn docs_of(source: &str) -> Vec<(String, String)> {
    let (mut fields, mut comment) = (Vec::new(), Vec::new());
    for line in source.lines().skip(1).take_while(|line| *line != "}") {
        match line.trim_start().strip_prefix("pub ").and_then(|rest| rest.split_once(':')) {
            Some((field, _)) => {
                let text = first_paragraph(comment.drain(..));
                let sentences = text.split_inclusive(". ").filter(|sentence| !sentence.starts_with("Default"));
                fields.push((field.to_owned(), sentences.collect::<String>().trim().to_owned()));
            }
            None => comment.push(line),
        }
    }
    fields
}

fn first_paragraph<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let lines = lines.filter_map(|line| line.trim_start().strip_prefix("///")).map(str::trim);
    let text = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    // Links of rustdoc have no meaning here.
    Regex::new(r"\[([^\]]+)\](\([^)]*\))?").unwrap().replace_all(&text, "$1").into_owned()
}

/// Returns the fields of a value in the format `{:#?}`. Each value is one line.
fn defaults(printed: &str) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in printed.lines().skip(1).take_while(|line| !line.starts_with('}')) {
        let inner = line.strip_prefix("    ").unwrap_or(line);
        match inner.split_once(": ") {
            Some((name, value)) if !inner.starts_with([' ', '}', ')', ']']) => fields.push((name.into(), value.into())),
            _ => fields.last_mut().unwrap().1.push_str(inner.trim_start()),
        }
    }
    fields.iter_mut().for_each(|(_, value)| *value = value.trim_end_matches(',').to_owned());
    fields
}

/// Returns a value as a reader expects it.
fn shown(field: &str, value: &str) -> String {
    let some = value.strip_prefix("Some(").and_then(|rest| rest.strip_suffix(')'));
    let value = some.unwrap_or(value).trim_end_matches(',');
    if let Ok(number) = value.parse::<u64>() {
        let is_bytes = ["len", "memory", "window", "replay"].iter().any(|part| field.contains(part));
        return match number {
            _ if is_bytes && number >= 1 << 30 && number.is_multiple_of(1 << 30) => format!("{} GiB", number >> 30),
            _ if is_bytes && number >= 1 << 20 && number.is_multiple_of(1 << 20) => format!("{} MiB", number >> 20),
            _ if is_bytes && number >= 1 << 10 && number.is_multiple_of(1 << 10) => format!("{} KiB", number >> 10),
            _ => grouped(value),
        };
    }
    let duration = Regex::new(r"^([\d.]+)(ns|µs|ms|s)$").unwrap();
    match value {
        "None" => "none".to_owned(),
        "[]" | "\"\"" => "empty".to_owned(),
        value if duration.is_match(value) => duration.replace(value, "$1 $2").into_owned(),
        value => match value.split_once(['{', '(']) {
            Some((name, _)) if !name.trim().is_empty() => format!("`{}`", name.trim()),
            _ => format!("`{value}`"),
        },
    }
}

/// Returns a number with a comma for thousands.
fn grouped(digits: &str) -> String {
    let len = digits.len();
    let comma = |at: usize| if at > 0 && (len - at).is_multiple_of(3) { "," } else { "" };
    digits.char_indices().map(|(at, digit)| format!("{}{digit}", comma(at))).collect()
}

#[test]
fn values_are_shown_with_units() {
    for (field, value, expected) in [
        ("content_len_max", "5242880", "5 MiB"),
        ("server_memory_max", "1073741824", "1 GiB"),
        ("handlers_max", "65536", "65,536"),
        ("ping_interval", "Some(500ms,)", "500 ms"),
        ("age", "None", "none"),
        ("send", "[]", "empty"),
        ("dispatch", "InPlace", "`InPlace`"),
        ("policy", "RetryPolicy {attempts_max: 5,}", "`RetryPolicy`"),
    ] {
        assert_eq!(shown(field, value), expected, "{field}: {value}");
    }
}

#[test]
fn the_documentation_of_fields_is_read() {
    let source = "pub struct A {\n    /// The [limit](crate::B). Default 5 MiB.\n    ///\n    /// More.\n    pub a: u32,\n    \
                  /// A [`B`]. Default none. Or more.\n    pub b: u32,\n}\n";
    let expected = [("a", "The limit."), ("b", "A `B`. Or more.")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(docs_of(source), expected);
    let fields = defaults("A {\n    a: 1,\n    b: Some(\n        B {\n            c: 2,\n        },\n    ),\n}");
    assert_eq!(fields, [("a".into(), "1".into()), ("b".into(), "Some(B {c: 2,},)".into())]);
}
