//! The service config of gRPC, as JSON or as typed structs.

mod balancing;
mod txt;
mod value;

use std::{collections::HashSet, time::Duration};

pub use balancing::{BalancingConfig, RING_ENTRIES_MAX};
pub use value::{CONFIG_DEPTH_MAX, CONFIG_LEN_MAX, ConfigError};
use value::{ConfigNode, JsonValue, Result};

use crate::{ATTEMPTS_MAX, CodeSet, HedgingDelay, HedgingPolicy, InvalidSetting, RetryPolicy, RetryThrottling, codes};

/// The rules of a service for its clients: balancing, timeouts, retries and hedged calls.
///
/// Fields may be added, so `..ServiceConfig::default()` belongs at the end of a literal.
///
/// ```
/// use frpc_balance::ServiceConfig;
///
/// let config = ServiceConfig::from_json(
///     r#"{"methodConfig": [{"name": [{"service": "shop.Catalog"}], "timeout": "1.5s"}]}"#,
/// )?;
/// let method = config.method("shop.Catalog", "Find").expect("the service is configured");
/// assert_eq!(method.timeout, Some(std::time::Duration::from_millis(1_500)));
///
/// let error = ServiceConfig::from_json(r#"{"methodConfig": [{"timeout": 3}]}"#).unwrap_err();
/// assert_eq!(error.path(), "methodConfig[0].timeout");
/// # Ok::<(), frpc_balance::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceConfig {
    /// The choice of an endpoint for each call: the first known policy of the list.
    pub load_balancing: Option<BalancingConfig>,
    /// The rules of methods.
    pub methods: Vec<MethodConfig>,
    /// The limit on retries per server name.
    pub retry_throttling: Option<RetryThrottling>,
    /// The service name for `grpc.health.v1`, if endpoints are watched.
    pub health_check: Option<String>,
}

/// The rules of some methods.
///
/// Fields may be added, so `..MethodConfig::default()` belongs at the end of a literal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MethodConfig {
    /// The methods of these rules.
    pub names: Vec<MethodName>,
    /// `true` if calls wait for a reachable endpoint.
    pub wait_for_ready: Option<bool>,
    /// The maximum time of a call. An earlier deadline of the caller counts.
    pub timeout: Option<Duration>,
    /// The maximum length of a request message.
    pub request_len_max: Option<u64>,
    /// The maximum length of a response message.
    pub response_len_max: Option<u64>,
    /// The retries of failed attempts. Excludes `hedging`.
    pub retry: Option<RetryPolicy>,
    /// The attempts in parallel. Excludes `retry`.
    pub hedging: Option<HedgingPolicy>,
}

/// One method, all methods of a service, or all methods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MethodName {
    /// The full name of the service. Empty for all services.
    pub service: String,
    /// The name of the method. Empty for all methods.
    pub method: String,
}

impl ServiceConfig {
    /// Parses the JSON of a service config. Unknown fields are ignored, as in all implementations of gRPC.
    ///
    /// The text has at most [`CONFIG_LEN_MAX`] bytes and [`CONFIG_DEPTH_MAX`] levels. `hedgingDelay` may be `"p95"`, a
    /// value without a meaning to other implementations.
    pub fn from_json(text: &str) -> Result<Self> {
        Self::read(&ConfigNode::root(&JsonValue::parse(text)?))
    }

    /// Returns the rules of a method: an exact name comes before the service, and the service before all methods.
    pub fn method(&self, service: &str, method: &str) -> Option<&MethodConfig> {
        let find = |service: &str, method: &str| {
            let is_this = |name: &MethodName| name.service == service && name.method == method;
            self.methods.iter().find(|config| config.names.iter().any(is_this))
        };
        find(service, method).or_else(|| find(service, "")).or_else(|| find("", ""))
    }

    /// Returns an error if a field has an unusable value. [`from_json`](Self::from_json) has checked them.
    pub fn check(&self) -> Result<()> {
        let invalid = |path: String, result: Result<(), InvalidSetting>| {
            result.map_err(|error| ConfigError::new(format!("{path}.{}", error.name()), error.why()))
        };
        let mut names = HashSet::new();
        for (index, config) in self.methods.iter().enumerate() {
            let path = format!("methodConfig[{index}]");
            for (index, name) in config.names.iter().enumerate() {
                let path = format!("{path}.name[{index}]");
                if name.service.is_empty() && !name.method.is_empty() {
                    return Err(ConfigError::new(path, "has a method without a service"));
                }
                if !names.insert(name) {
                    let why = format!(
                        "has the same service \"{}\" and method \"{}\" as an earlier name",
                        name.service, name.method
                    );
                    return Err(ConfigError::new(path, why));
                }
            }
            if config.retry.is_some() && config.hedging.is_some() {
                return Err(ConfigError::new(path, "has both retryPolicy and hedgingPolicy"));
            }
            invalid(format!("{path}.retryPolicy"), config.retry.as_ref().map_or(Ok(()), RetryPolicy::check))?;
            invalid(format!("{path}.hedgingPolicy"), config.hedging.as_ref().map_or(Ok(()), HedgingPolicy::check))?;
        }
        invalid("retryThrottling".to_owned(), self.retry_throttling.as_ref().map_or(Ok(()), RetryThrottling::check))
    }

    fn read(root: &ConfigNode<'_>) -> Result<Self> {
        let policy = match root.optional("loadBalancingConfig", |node| match node.items()?.len() {
            0 => Ok(None),
            _ => balancing::read_policies(&node).map(Some),
        })? {
            Some(policy) => policy,
            None => root.optional("loadBalancingPolicy", read_policy_name)?.flatten(),
        };
        let methods = |node: ConfigNode<'_>| node.items()?.map(|node| read_method(&node)).collect();
        let config = Self {
            load_balancing: policy,
            methods: root.or("methodConfig", Vec::new(), methods)?,
            retry_throttling: root.optional("retryThrottling", read_throttling)?,
            health_check: root
                .optional("healthCheckConfig", |node| {
                    node.optional("serviceName", |node| node.text().map(str::to_owned))
                })?
                .flatten(),
        };
        config.check()?;
        Ok(config)
    }
}

/// Reads the deprecated form of a policy, a name.
fn read_policy_name(node: ConfigNode<'_>) -> Result<Option<BalancingConfig>> {
    match &*node.text()?.to_ascii_lowercase() {
        "" => Ok(None),
        "pick_first" => Ok(Some(BalancingConfig::PickFirst { shuffle: false })),
        "round_robin" => Ok(Some(BalancingConfig::RoundRobin)),
        _ => node.error("must be \"pick_first\" or \"round_robin\"; other policies belong in loadBalancingConfig"),
    }
}

fn read_method(node: &ConfigNode<'_>) -> Result<MethodConfig> {
    let name = |node: ConfigNode<'_>| {
        let part = |name| node.or(name, String::new(), |node| node.text().map(str::to_owned));
        Ok(MethodName { service: part("service")?, method: part("method")? })
    };
    let len = |node: ConfigNode<'_>| node.integer(0..=u64::MAX);
    Ok(MethodConfig {
        names: node.or("name", Vec::new(), |node| node.items()?.map(name).collect())?,
        wait_for_ready: node.optional("waitForReady", |node| node.bool())?,
        timeout: node.optional("timeout", |node| node.duration())?,
        request_len_max: node.optional("maxRequestMessageBytes", len)?,
        response_len_max: node.optional("maxResponseMessageBytes", len)?,
        retry: node.optional("retryPolicy", |node| read_retry(&node))?,
        hedging: node.optional("hedgingPolicy", |node| read_hedging(&node))?,
    })
}

fn read_attempts(node: &ConfigNode<'_>) -> Result<u32> {
    node.require("maxAttempts", "an integer of at least 2")?.capped(2, ATTEMPTS_MAX)
}

fn read_retry(node: &ConfigNode<'_>) -> Result<RetryPolicy> {
    let codes = node.require("retryableStatusCodes", "a list of status codes")?;
    let policy = RetryPolicy {
        attempts_max: read_attempts(node)?,
        first_pause: node.require("initialBackoff", "a duration")?.positive_duration()?,
        pause_max: node.require("maxBackoff", "a duration")?.positive_duration()?,
        multiplier: node.require("backoffMultiplier", "a number above 0")?.positive()?,
        codes: read_codes(&codes)?,
    };
    if policy.codes.is_empty() { codes.error("must have at least one status code") } else { Ok(policy) }
}

fn read_hedging(node: &ConfigNode<'_>) -> Result<HedgingPolicy> {
    let delay = |node: ConfigNode<'_>| match node.as_text() {
        Some("p95") => Ok(HedgingDelay::P95),
        _ => node.duration().map(HedgingDelay::Fixed),
    };
    Ok(HedgingPolicy {
        attempts_max: read_attempts(node)?,
        delay: node.or("hedgingDelay", HedgingDelay::Fixed(Duration::ZERO), delay)?,
        non_fatal_codes: node.or("nonFatalStatusCodes", CodeSet::EMPTY, |node| read_codes(&node))?,
    })
}

fn read_codes(list: &ConfigNode<'_>) -> Result<CodeSet> {
    list.items()?.map(|node| read_code(&node)).collect()
}

fn read_code(node: &ConfigNode<'_>) -> Result<u32> {
    let by_name = node.as_text().and_then(|text| codes::CODE_NAMES.iter().position(|name| *name == text));
    match by_name.map(u32::try_from) {
        Some(Ok(code)) => Ok(code),
        _ if node.number().is_some() => node.small(0..=16),
        _ => node.error(format!("must be one of {}, or 0 to 16", codes::CODE_NAMES.join(", "))),
    }
}

fn read_throttling(node: ConfigNode<'_>) -> Result<RetryThrottling> {
    let ratio = node.require("tokenRatio", "a number of at least 0.001")?;
    let throttling = RetryThrottling {
        tokens_max: node.require("maxTokens", "an integer from 1 to 1000")?.small(1..=1_000)?,
        ratio: ratio.positive()?,
    };
    if throttling.ratio < 0.001 { ratio.error("must be at least 0.001") } else { Ok(throttling) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{OutlierRule, OutlierSettings};

    const WHOLE: &str = r#"{
        "loadBalancingConfig": [{"grpclb": {}}, {"outlier_detection_experimental": {
            "interval": "5s", "baseEjectionTime": "400s", "maxEjectionPercent": "20", "failurePercentageEjection": {"threshold": 50},
            "childPolicy": [{"random_subsetting": {"subsetSize": 7, "childPolicy": [{"least_request_experimental": {"choiceCount": 99}}]}}]
        }}, {"round_robin": 3}],
        "methodConfig": [
            {"name": [{}], "waitForReady": true},
            {"name": [{"service": "a.B"}, {"service": "a.C", "method": null}], "timeout": "1.000000001s", "future": [1],
             "retryPolicy": {"maxAttempts": 9, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": "2",
                             "retryableStatusCodes": ["UNAVAILABLE", 10, "8"]}},
            {"name": [{"service": "a.B", "method": "M"}], "maxRequestMessageBytes": "1024",
             "hedgingPolicy": {"maxAttempts": 3.0e0, "hedgingDelay": "p95", "nonFatalStatusCodes": ["ABORTED"]}}
        ],
        "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
        "healthCheckConfig": {"serviceName": "a.B"}
    }"#;

    #[test]
    fn all_fields_are_read() {
        let config = ServiceConfig::from_json(WHOLE).unwrap();
        let child =
            BalancingConfig::RandomSubset { len: 7, child: Box::new(BalancingConfig::LeastRequest { choices: 10 }) };
        let rules = OutlierSettings {
            sweep: Duration::from_secs(5),
            ejection: Duration::from_secs(400),
            ejection_max: Duration::from_secs(400),
            ejected_max: 0.2,
            success_rate: None,
            failures: Some(OutlierRule::new(0.5, 50)),
            ..OutlierSettings::default()
        };
        assert_eq!(config.load_balancing, Some(BalancingConfig::OutlierDetection { rules, child: Box::new(child) }));
        assert_eq!(config.retry_throttling, Some(RetryThrottling { tokens_max: 10, ratio: 0.1 }));
        assert_eq!(config.health_check.as_deref(), Some("a.B"));
        let service = config.method("a.C", "Any").unwrap();
        assert_eq!(service.timeout, Some(Duration::new(1, 1)));
        let retry = service.retry.as_ref().unwrap();
        assert_eq!((retry.attempts_max, retry.multiplier), (ATTEMPTS_MAX, 2.0), "A6 caps attempts");
        assert_eq!(retry.codes.iter().collect::<Vec<_>>(), [8, 10, 14]);
        let hedging = config.method("a.B", "M").unwrap().hedging.clone().unwrap();
        assert_eq!((hedging.attempts_max, hedging.delay), (3, HedgingDelay::P95));
        assert_eq!(config.method("a.B", "M").unwrap().request_len_max, Some(1_024));
    }

    #[test]
    fn the_most_exact_name_counts() {
        let config = ServiceConfig::from_json(WHOLE).unwrap();
        assert!(config.method("a.B", "M").unwrap().hedging.is_some());
        assert!(config.method("a.B", "N").unwrap().retry.is_some());
        assert_eq!(config.method("other", "M").unwrap().wait_for_ready, Some(true));
        assert_eq!(ServiceConfig::default().method("a", "b"), None);
    }

    #[test]
    fn errors_name_the_field_and_the_values_allowed() {
        let retry = |fields: &str| format!(r#"{{"methodConfig": [{{}}, {{"retryPolicy": {{{fields}}}}}]}}"#);
        let pauses = r#""initialBackoff": "1s", "maxBackoff": "1s", "backoffMultiplier": 1"#;
        let at = "methodConfig[1].retryPolicy";
        let cases = [
            (retry(""), format!("{at}.retryableStatusCodes: is missing: a list of status codes")),
            (
                retry(r#""maxAttempts": 1, "retryableStatusCodes": []"#),
                format!("{at}.maxAttempts: must be an integer of at least 2"),
            ),
            (
                retry(&format!(r#""maxAttempts": 2, {pauses}, "retryableStatusCodes": []"#)),
                format!("{at}.retryableStatusCodes: must have at least one status code"),
            ),
            (
                retry(&format!(r#""maxAttempts": 2, {pauses}, "retryableStatusCodes": [14, 17]"#)),
                format!("{at}.retryableStatusCodes[1]: must be an integer from 0 to 16"),
            ),
            (
                retry(r#""maxAttempts": 2, "initialBackoff": "0s", "retryableStatusCodes": [14]"#),
                format!("{at}.initialBackoff: must be more than \"0s\""),
            ),
            ("[]".to_owned(), "service config: must be an object".to_owned()),
            (
                r#"{"retryThrottling": {"maxTokens": 1001, "tokenRatio": 1}}"#.to_owned(),
                "retryThrottling.maxTokens: must be an integer from 1 to 1000".to_owned(),
            ),
            (
                r#"{"methodConfig": [{"timeout": "1s", "timeout": "2s"}]}"#.to_owned(),
                "methodConfig[0].timeout: appears twice".to_owned(),
            ),
            (
                r#"{"methodConfig": [{"name": [{"method": "M"}]}]}"#.to_owned(),
                "methodConfig[0].name[0]: has a method without a service".to_owned(),
            ),
            (
                r#"{"methodConfig": [{"name": [{}]}, {"name": [{}]}]}"#.to_owned(),
                "methodConfig[1].name[0]: has the same service \"\" and method \"\" as an earlier name".to_owned(),
            ),
            (
                r#"{"loadBalancingConfig": [{"round_robin": {}, "pick_first": {}}]}"#.to_owned(),
                "loadBalancingConfig[0]: must have one field, the name of the policy".to_owned(),
            ),
            (
                r#"{"loadBalancingConfig": [{"ring_hash_experimental": {"minRingSize": 9, "maxRingSize": 8}}]}"#
                    .to_owned(),
                "loadBalancingConfig[0].ring_hash_experimental: minRingSize 9 is more than maxRingSize 8".to_owned(),
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(ServiceConfig::from_json(&json).unwrap_err().to_string(), expected, "{json}");
        }
        let unknown = ServiceConfig::from_json(r#"{"loadBalancingConfig": [{"xds": {}}]}"#).unwrap_err();
        assert!(
            unknown
                .to_string()
                .starts_with("loadBalancingConfig: has no known policy among [xds]; known are pick_first")
        );
        let code = retry(
            r#""retryableStatusCodes": ["NO"], "maxAttempts": 2, "initialBackoff": "1s", "maxBackoff": "1s", "backoffMultiplier": 1"#,
        );
        assert!(ServiceConfig::from_json(&code).unwrap_err().to_string().contains("must be one of OK, CANCELLED"));
    }

    #[test]
    fn configs_built_in_code_are_checked() {
        let both = MethodConfig {
            retry: Some(RetryPolicy::default()),
            hedging: Some(HedgingPolicy::default()),
            ..MethodConfig::default()
        };
        let config = ServiceConfig { methods: vec![both], ..ServiceConfig::default() };
        assert_eq!(config.check().unwrap_err().path(), "methodConfig[0]");
        let retry = RetryPolicy { attempts_max: 0, ..RetryPolicy::default() };
        let method = MethodConfig { retry: Some(retry), ..MethodConfig::default() };
        let config = ServiceConfig { methods: vec![method], ..ServiceConfig::default() };
        assert_eq!(config.check().unwrap_err().path(), "methodConfig[0].retryPolicy.attempts_max");
        assert!(ServiceConfig::default().check().is_ok());
    }

    #[test]
    fn the_deprecated_policy_name_counts_without_a_list() {
        let policy = |json: &str| ServiceConfig::from_json(json).map(|config| config.load_balancing);
        assert_eq!(policy(r#"{"loadBalancingPolicy": "ROUND_ROBIN"}"#), Ok(Some(BalancingConfig::RoundRobin)));
        let both = r#"{"loadBalancingPolicy": "round_robin", "loadBalancingConfig": [{"pick_first": {}}]}"#;
        assert_eq!(policy(both), Ok(Some(BalancingConfig::PickFirst { shuffle: false })));
        assert_eq!(policy(r#"{"loadBalancingPolicy": "grpclb"}"#).unwrap_err().path(), "loadBalancingPolicy");
        assert_eq!(policy("{}"), Ok(None));
    }

    proptest! {
        #[test]
        fn damaged_text_never_panics(at in 0..WHOLE.len(), len in 0_usize..20, with in "[\\[\\]{}\",:0-9a-z.-]{0,4}") {
            let end = (at + len).min(WHOLE.len());
            let _ = ServiceConfig::from_json(&format!("{}{with}{}", &WHOLE[..at], &WHOLE[end..]));
        }

        #[test]
        fn any_text_is_refused_or_read(text in ".{0,200}") {
            let _ = ServiceConfig::from_json(&text);
        }
    }
}
