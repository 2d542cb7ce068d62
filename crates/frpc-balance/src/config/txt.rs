//! Service configs from DNS TXT records (gRFC A2).

use super::{
    ServiceConfig,
    value::{ConfigNode, JsonValue, Result},
};

/// The start of a TXT record with a service config.
const PREFIX: &str = "grpc_config=";
/// The language of this client.
const LANGUAGE: &str = "rust";

impl ServiceConfig {
    /// Returns the service config for this client from the TXT records of `_grpc_config.<host>`, or `None` if there is
    /// none.
    ///
    /// `hostname` is the name of this machine. `percent` is a random number in `0..100`, the same for the whole life of
    /// the process, so that a config reaches a fixed share of clients. The first matching choice counts. Other choices
    /// may have configs unknown to this client.
    pub fn from_txt<'a>(
        records: impl IntoIterator<Item = &'a str>,
        hostname: &str,
        percent: u8,
    ) -> Result<Option<Self>> {
        let Some(json) = records.into_iter().find_map(|record| record.strip_prefix(PREFIX)) else { return Ok(None) };
        let value = JsonValue::parse(json)?;
        for choice in ConfigNode::root(&value).items()? {
            if is_for(&choice, hostname, percent)? {
                let config = choice.require("serviceConfig", "an object")?;
                return Self::read(&config).map(Some);
            }
        }
        Ok(None)
    }
}

fn is_for(choice: &ConfigNode<'_>, hostname: &str, percent: u8) -> Result<bool> {
    let is_listed = |name: &str, wanted: &str| {
        choice.or(name, true, |list| {
            let mut names = list.items()?;
            if names.len() == 0 {
                return Ok(true);
            }
            names.try_fold(false, |found, name| Ok(name.text()?.eq_ignore_ascii_case(wanted) || found))
        })
    };
    let share = choice.or("percentage", 100, |node| node.small(0..=100))?;
    Ok(u32::from(percent) < share && is_listed("clientLanguage", LANGUAGE)? && is_listed("clientHostname", hostname)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BalancingConfig;

    fn chosen(json: &str, hostname: &str, percent: u8) -> Result<Option<BalancingConfig>> {
        let record = format!("{PREFIX}{json}");
        let config = ServiceConfig::from_txt(["v=spf1 -all", &record], hostname, percent)?;
        Ok(config.map(|config| config.load_balancing.unwrap_or(BalancingConfig::RoundRobin)))
    }

    #[test]
    fn the_first_choice_for_this_client_counts() {
        let json = r#"[
            {"clientLanguage": ["go", "java"], "serviceConfig": {"loadBalancingConfig": "of a later version"}},
            {"clientHostname": ["canary"], "serviceConfig": {"loadBalancingConfig": [{"least_request_experimental": {}}]}},
            {"percentage": 30, "clientLanguage": ["Rust"], "serviceConfig": {"loadBalancingConfig": [{"pick_first": {}}]}},
            {"percentage": 100, "clientLanguage": [], "serviceConfig": {}}
        ]"#;
        assert_eq!(chosen(json, "canary", 99), Ok(Some(BalancingConfig::LeastRequest { choices: 2 })));
        assert_eq!(chosen(json, "a", 29), Ok(Some(BalancingConfig::PickFirst { shuffle: false })));
        assert_eq!(chosen(json, "a", 30), Ok(Some(BalancingConfig::RoundRobin)));
        assert_eq!(chosen(r#"[{"percentage": 0, "serviceConfig": {}}]"#, "a", 0), Ok(None));
        assert_eq!(ServiceConfig::from_txt(["something else"], "a", 0), Ok(None));
    }

    #[test]
    fn errors_name_the_choice() {
        let path = |json: &str| chosen(json, "a", 0).unwrap_err().path().to_owned();
        assert_eq!(path(r#"[{"percentage": 101}]"#), "[0].percentage");
        assert_eq!(path(r#"[{"clientLanguage": ["rust", 1]}]"#), "[0].clientLanguage[1]");
        assert_eq!(path(r#"[{"percentage": 0}, {}]"#), "[1].serviceConfig");
        assert_eq!(path(r#"[{"serviceConfig": {"methodConfig": 3}}]"#), "[0].serviceConfig.methodConfig");
        assert_eq!(path("{}"), "");
    }
}
