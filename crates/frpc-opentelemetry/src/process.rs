//! The identity of this process: its resource attributes and the time of its start.

use std::{
    env,
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use crate::protos::opentelemetry::proto::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    resource::v1::Resource,
};

/// Returns the resource with these attributes, and defaults for missing ones.
pub(crate) fn resource(attributes: &[(String, String)]) -> Resource {
    let mut attributes: Vec<KeyValue> = attributes.iter().map(|(key, value)| text(key, value)).collect();
    let defaults = [
        ("service.name", service_name as fn() -> String),
        // Without it, the points of two processes of a service overwrite each other.
        ("service.instance.id", || instance().to_owned()),
        ("telemetry.sdk.language", || "rust".to_owned()),
        ("telemetry.sdk.name", || env!("CARGO_PKG_NAME").to_owned()),
        ("telemetry.sdk.version", || env!("CARGO_PKG_VERSION").to_owned()),
    ];
    for (key, default) in defaults {
        if attributes.iter().all(|attribute| attribute.key != key) {
            attributes.push(text(key, default()));
        }
    }
    Resource { attributes, ..Resource::default() }
}

/// Returns an attribute with a text.
pub(crate) fn text(key: &str, value: impl Into<String>) -> KeyValue {
    let value = Some(AnyValue { value: Some(Value::StringValue(value.into())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn service_name() -> String {
    let program = env::current_exe().ok();
    match program.as_deref().and_then(|path| path.file_stem()) {
        Some(program) => format!("unknown_service:{}", program.to_string_lossy()),
        None => "unknown_service".to_owned(),
    }
}

/// Returns the id of this process: a random UUID of version 4.
pub(crate) fn instance() -> &'static str {
    static INSTANCE: LazyLock<String> = LazyLock::new(|| {
        let bits = fastrand::u128(..) & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        let digits = format!("{bits:032x}");
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
    });
    &INSTANCE
}

/// Returns the time at which the counters of this process were zero.
pub(crate) fn started_at() -> SystemTime {
    static STARTED: LazyLock<SystemTime> = LazyLock::new(|| {
        let now = SystemTime::now();
        age().and_then(|age| now.checked_sub(age)).unwrap_or(now)
    });
    *STARTED
}

/// Returns the age of this process, if the system reports it.
#[cfg(target_os = "linux")]
fn age() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    age_of(&stat, &uptime)
}

#[cfg(not(target_os = "linux"))]
fn age() -> Option<Duration> {
    None
}

/// Returns the age of a process from its `stat` and the uptime of the system.
#[cfg(any(target_os = "linux", test))]
fn age_of(stat: &str, uptime: &str) -> Option<Duration> {
    // The name of the program is in parentheses and may contain spaces. The start is field 22.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u32 = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    // The kernel shows 100 ticks per second to programs. A container with a separate uptime gives a negative age.
    Duration::try_from_secs_f64(uptime - f64::from(ticks) / 100.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_of(resource: &Resource, key: &str) -> Vec<String> {
        let found = resource.attributes.iter().filter(|attribute| attribute.key == key);
        found
            .map(|attribute| match attribute.value.clone().and_then(|value| value.value) {
                Some(Value::StringValue(text)) => text,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_resource_has_a_name_and_an_instance() {
        let resource = resource(&[("service.name".to_owned(), "orders".to_owned())]);
        assert_eq!(value_of(&resource, "service.name"), ["orders"]);
        let instance = value_of(&resource, "service.instance.id");
        assert_eq!((instance.len(), instance[0].len(), &instance[0][14..15]), (1, 36, "4"));
        assert!("89ab".contains(&instance[0][19..20]), "{instance:?}");
        assert!(value_of(&super::resource(&[]), "service.name")[0].starts_with("unknown_service:"));
    }

    #[test]
    fn the_age_of_a_process_comes_from_its_stat() {
        let stat = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 1250 20 21";
        assert_eq!(age_of(stat, "100.5 3.0"), Some(Duration::from_secs(88)));
        assert_eq!((age_of(stat, "3.5 3.0"), age_of("", ""), age_of(stat, "-")), (None, None, None));
        assert!(started_at() <= SystemTime::now());
    }
}
