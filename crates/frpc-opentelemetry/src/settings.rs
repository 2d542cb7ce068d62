//! Settings of exporters, from code and from the environment variables of OpenTelemetry.

use std::{env, time::Duration};

use frpc::{Address, Metadata};

use crate::error::OtlpError;

/// Settings of an exporter.
///
/// Fields may be added, so `..OtlpSettings::default()` belongs at the end of a literal.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    /// The target of the collector: `grpc://HOST:PORT`, or `grpcs://` with TLS. Default `grpc://localhost:4317`.
    pub endpoint: String,
    /// The time between two exports of metrics, at most a year. Default 60 s.
    pub interval: Duration,
    /// The time limit of one export, and so of a flush or shutdown. Default 10 s.
    pub timeout: Duration,
    /// The metadata of the calls to the collector, such as a key. Default: none.
    pub headers: Metadata,
    /// The attributes of this process, such as `service.name`. The exporter adds `service.name`, a random
    /// `service.instance.id` and `telemetry.sdk.*` if they are missing.
    pub resource: Vec<(String, String)>,
    /// The format of durations. Default [`HistogramFormat::Explicit`].
    pub histograms: HistogramFormat,
}

/// The format of histograms of durations in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistogramFormat {
    /// Explicit bounds: one per power of two from 1 µs to 69 s, as in the text for Prometheus. The counts are exact.
    #[default]
    Explicit,
    /// Exponential buckets at scale 2: four per power of two from 256 ns to 73 minutes.
    ///
    /// The counters have powers of two of nanoseconds as bounds, but OpenTelemetry expects powers of two of seconds. Each
    /// bucket overlaps two buckets in seconds, and its count is divided between them in a fixed proportion. Quantiles
    /// stay exact to one bucket, 19 %.
    Exponential,
}

impl Default for OtlpSettings {
    fn default() -> Self {
        Self {
            endpoint: "grpc://localhost:4317".to_owned(),
            interval: Duration::from_secs(60),
            timeout: Duration::from_secs(10),
            headers: Metadata::new(),
            resource: Vec::new(),
            histograms: HistogramFormat::default(),
        }
    }
}

impl OtlpSettings {
    /// Reads the environment variables of OpenTelemetry. Empty ones count as missing.
    ///
    /// | variable | field |
    /// |---|---|
    /// | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | [`resource`](Self::resource) |
    /// | `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, `OTEL_EXPORTER_OTLP_ENDPOINT` | [`endpoint`](Self::endpoint), also with `http://` and `https://` |
    /// | `OTEL_EXPORTER_OTLP_INSECURE` | `true` for an endpoint without a scheme and without TLS |
    /// | `OTEL_EXPORTER_OTLP_METRICS_HEADERS`, `OTEL_EXPORTER_OTLP_HEADERS` | [`headers`](Self::headers) |
    /// | `OTEL_EXPORTER_OTLP_METRICS_TIMEOUT`, `OTEL_EXPORTER_OTLP_TIMEOUT` | [`timeout`](Self::timeout), in milliseconds |
    /// | `OTEL_METRIC_EXPORT_INTERVAL` | [`interval`](Self::interval), in milliseconds |
    /// | `OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION` | [`histograms`](Self::histograms) |
    ///
    /// # Errors
    ///
    /// A variable is malformed, or asks for another protocol than gRPC or for another temporality than cumulative.
    pub fn from_env() -> Result<Self, OtlpError> {
        Self::from_variables(|name| env::var(name).ok())
    }

    /// Reads variables through a function.
    fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, OtlpError> {
        let lookup = |name: &str| lookup(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let vars = Variables(&lookup);
        let mut settings = Self::default();
        vars.read(["OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"], "grpc", |value| {
            (value == "grpc").then_some(())
        })?;
        vars.read(["OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"], "cumulative", |value| {
            value.eq_ignore_ascii_case("cumulative").then_some(())
        })?;
        let is_insecure = vars
            .read(["OTEL_EXPORTER_OTLP_METRICS_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE"], "true or false", to_bool)?
            .unwrap_or(false);
        let endpoints = ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        vars.read(endpoints, "a URL such as http://localhost:4317", |value| to_target(value, is_insecure))?
            .into_iter()
            .for_each(|endpoint| settings.endpoint = endpoint);
        let timeouts = ["OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
        vars.read(timeouts, MILLIS, to_millis)?.into_iter().for_each(|timeout| settings.timeout = timeout);
        vars.read(["OTEL_METRIC_EXPORT_INTERVAL"], MILLIS, to_millis)?
            .into_iter()
            .for_each(|interval| settings.interval = interval);
        vars.read(
            ["OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"],
            "explicit_bucket_histogram or base2_exponential_bucket_histogram",
            to_histograms,
        )?
        .into_iter()
        .for_each(|histograms| settings.histograms = histograms);
        vars.read(["OTEL_RESOURCE_ATTRIBUTES"], PAIRS, to_pairs)?
            .into_iter()
            .for_each(|resource| settings.resource = resource);
        if let Some(name) = (vars.0)("OTEL_SERVICE_NAME") {
            settings.resource.retain(|(key, _)| key != "service.name");
            settings.resource.push(("service.name".to_owned(), name));
        }
        let headers = ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
        let headers = vars.read(headers, PAIRS, to_headers).map_err(|error| match error {
            OtlpError::Variable { name, expected, .. } => OtlpError::Variable { name, value: String::new(), expected },
            error => error,
        })?;
        headers.into_iter().for_each(|headers| settings.headers = headers);
        Ok(settings)
    }
}

/// Variables by their names.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    /// Parses the first of these variables with a value.
    fn read<const N: usize, T>(
        &self,
        names: [&'static str; N],
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, OtlpError> {
        let found = names.into_iter().find_map(|name| Some((name, (self.0)(name)?)));
        let Some((name, value)) = found else { return Ok(None) };
        parse(&value).map(Some).ok_or(OtlpError::Variable { name, value, expected })
    }
}

/// Returns the target of a channel for the URL of a collector.
fn to_target(url: &str, is_insecure: bool) -> Option<String> {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => match &*scheme.to_ascii_lowercase() {
            "http" | "grpc" => ("grpc", rest),
            "https" | "grpcs" => ("grpcs", rest),
            _ => return None,
        },
        None if is_insecure => ("grpc", url),
        None => ("grpcs", url),
    };
    // gRPC has no use for a path.
    let host = rest.split('/').next().filter(|host| !host.is_empty())?;
    // The colons of an IPv6 address are in brackets.
    let name_len = host.find(']').map_or(0, |bracket| bracket + 1);
    match host[name_len..].split_once(':') {
        None => Some(format!("{scheme}://{host}:4317")),
        Some(_) => Address::split_host_port(host).ok().map(|_| format!("{scheme}://{host}")),
    }
}

fn to_bool(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn to_millis(value: &str) -> Option<Duration> {
    value.parse().ok().filter(|millis| *millis > 0).map(Duration::from_millis)
}

fn to_histograms(value: &str) -> Option<HistogramFormat> {
    match value {
        "explicit_bucket_histogram" => Some(HistogramFormat::Explicit),
        "base2_exponential_bucket_histogram" => Some(HistogramFormat::Exponential),
        _ => None,
    }
}

fn to_headers(value: &str) -> Option<Metadata> {
    let mut headers = Metadata::new();
    for (name, value) in to_pairs(value)? {
        headers.insert(name.to_ascii_lowercase(), value).ok()?;
    }
    Some(headers)
}

/// Reads `key=value` pairs with commas in between. Values have percent escapes, as in W3C Baggage.
fn to_pairs(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=')?;
            let key = unescape(key.trim())?;
            (!key.is_empty()).then_some((key, unescape(value.trim())?))
        })
        .collect()
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, more) = rest.split_first_chunk::<2>()?;
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(digit(digits[0])? << 4 | digit(digits[1])?);
        rest = more;
    }
    String::from_utf8(bytes).ok()
}

const MILLIS: &str = "a number of milliseconds above 0";
const PAIRS: &str = "pairs such as key=value,other=value with percent escapes";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<OtlpSettings, OtlpError> {
        OtlpSettings::from_variables(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_variables_the_defaults_apply() {
        for variables in [&[][..], &[("OTEL_EXPORTER_OTLP_ENDPOINT", " "), ("OTEL_SERVICE_NAME", "")]] {
            let settings = of(variables).unwrap();
            assert_eq!(settings.endpoint, "grpc://localhost:4317");
            assert_eq!((settings.interval, settings.timeout), (Duration::from_secs(60), Duration::from_secs(10)));
            assert!(settings.resource.is_empty() && settings.headers.is_empty());
        }
    }

    #[test]
    fn variables_set_the_fields() {
        let settings = of(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://ignored:1"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://collector:4318/v1/metrics"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "5000"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Api-Key=a%3Db, tenant=7"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=old,deployment.environment.name=test%20bed"),
            ("OTEL_SERVICE_NAME", "orders"),
            ("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "base2_exponential_bucket_histogram"),
        ])
        .unwrap();
        assert_eq!(settings.endpoint, "grpcs://collector:4318");
        assert_eq!((settings.interval, settings.timeout), (Duration::from_secs(5), Duration::from_millis(2500)));
        assert_eq!((settings.headers.get("api-key"), settings.headers.get("tenant")), (Some("a=b"), Some("7")));
        let resource = [("deployment.environment.name", "test bed"), ("service.name", "orders")];
        assert_eq!(settings.resource, resource.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(settings.histograms, HistogramFormat::Exponential);
    }

    #[test]
    fn endpoints_become_targets() {
        for (url, is_insecure, target) in [
            ("http://localhost:4317", false, Some("grpc://localhost:4317")),
            ("HTTPS://localhost:4317", false, Some("grpcs://localhost:4317")),
            ("http://localhost:+4317", false, None),
            ("grpcs://[::1]:4317/", false, Some("grpcs://[::1]:4317")),
            ("http://[::1]", false, Some("grpc://[::1]:4317")),
            ("collector:1", true, Some("grpc://collector:1")),
            ("collector", false, Some("grpcs://collector:4317")),
            ("ftp://collector", false, None),
            ("http://", false, None),
        ] {
            assert_eq!(to_target(url, is_insecure).as_deref(), target, "{url}");
        }
    }

    #[test]
    fn invalid_variables_are_named() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "unix:/run/collector"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1s"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=%zz"),
            ("OTEL_RESOURCE_ATTRIBUTES", "alone"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c"),
        ] {
            match of(&[(name, value)]) {
                Err(OtlpError::Variable { name: found, value: shown, .. }) => {
                    let expected = if name.ends_with("HEADERS") { "" } else { value };
                    assert_eq!((found, &*shown), (name, expected));
                }
                other => panic!("{name}={value}: {other:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*|[a%=,0-9]{0,20}") {
            let _ = to_pairs(&text);
            let _ = to_target(&text, true);
        }
    }
}
