//! The route of each call: the first with a condition that the call meets.

use std::sync::Arc;

use frpc::{
    Call, Metadata, Status,
    fleet::{CallRoute, HashKey, MethodConfig, RouteCalls},
};

use crate::resources::{HashRule, HeaderCondition, HeaderRule, PathRule, RouteCondition, RouteRule};

/// The routes of a service.
#[derive(Debug)]
pub(crate) struct ServiceRoutes {
    routes: Vec<ServiceRoute>,
    /// The key of the channel, for hash policies without a header.
    channel_key: u64,
}

#[derive(Debug)]
struct ServiceRoute {
    rule: RouteRule,
    config: Arc<MethodConfig>,
}

impl ServiceRoutes {
    pub(crate) fn new(routes: Vec<(RouteRule, MethodConfig)>, channel_key: u64) -> Self {
        let routes = routes.into_iter().map(|(rule, config)| ServiceRoute { rule, config: Arc::new(config) });
        Self { routes: routes.collect(), channel_key }
    }
}

impl RouteCalls for ServiceRoutes {
    fn route(&self, call: &Call) -> Result<CallRoute, Status> {
        let (method, metadata) = (call.method(), call.head().metadata());
        let path = format!("/{}/{}", method.service, method.name);
        let Some(ServiceRoute { rule, config }) =
            self.routes.iter().find(|route| route.rule.condition.is_met(&path, metadata))
        else {
            return Err(Status::unavailable(format!("no route of the xDS control plane takes calls to {method}")));
        };
        let Some(target) = &rule.target else {
            let why = format!("the action of the xDS route {:?} is not supported", rule.name);
            return Err(Status::unavailable(why));
        };
        let mut route = CallRoute::new(target.choose().clone());
        route.rules = Some(config.clone());
        route.key = key(&target.hash, metadata, self.channel_key).map(HashKey::of_hash);
        Ok(route)
    }
}

/// The routes after the control plane has removed those of the service.
#[derive(Debug)]
pub(crate) struct RemovedRoutes(pub(crate) Arc<str>);

impl RouteCalls for RemovedRoutes {
    fn route(&self, _: &Call) -> Result<CallRoute, Status> {
        Err(Status::unavailable(&*self.0))
    }
}

/// Combines the hash policies of a route (gRFC A42).
fn key(rules: &[HashRule], metadata: &Metadata, channel_key: u64) -> Option<u64> {
    let mut key = None::<u64>;
    for rule in rules {
        let found = match &rule.header {
            Some(name) => value_of(metadata, name).map(|value| HashKey::new(value).hash()),
            None => Some(channel_key),
        };
        if let Some(found) = found {
            key = Some(key.map_or(found, |before| before.rotate_left(1) ^ found));
        }
        if rule.is_terminal && key.is_some() {
            break;
        }
    }
    key
}

/// Returns all values of an entry, as HTTP joins them. Binary entries take no part in routes.
fn value_of(metadata: &Metadata, name: &str) -> Option<String> {
    if name == "content-type" {
        return Some("application/grpc".to_owned());
    }
    if name.ends_with("-bin") {
        return None;
    }
    let values: Vec<_> = metadata.get_all(name).collect();
    (!values.is_empty()).then(|| values.join(","))
}

impl RouteCondition {
    fn is_met(&self, path: &str, metadata: &Metadata) -> bool {
        self.path.is_met(path, self.ignores_case)
            && self.headers.iter().all(|header| header.is_met(metadata))
            && self.per_million.is_none_or(|share| fastrand::u32(..1_000_000) < share)
    }
}

impl PathRule {
    fn is_met(&self, path: &str, ignores_case: bool) -> bool {
        let begins = |prefix: &str| {
            path.get(..prefix.len()).is_some_and(|start| match ignores_case {
                true => start.eq_ignore_ascii_case(prefix),
                false => start == prefix,
            })
        };
        match self {
            Self::Prefix(prefix) => begins(prefix),
            Self::Exact(exact) => exact.len() == path.len() && begins(exact),
            Self::Folder(folder) => begins(folder) && matches!(path.as_bytes().get(folder.len()), None | Some(b'/')),
            Self::Regex(regex) => regex.is_match(path),
        }
    }
}

impl HeaderCondition {
    fn is_met(&self, metadata: &Metadata) -> bool {
        let value = value_of(metadata, &self.name);
        let is_met = match (&self.rule, value) {
            (HeaderRule::Present(is_present), value) => value.is_some() == *is_present,
            // An inverted condition needs the entry as well.
            (_, None) => return false,
            (HeaderRule::Text(rule), Some(value)) => rule.matches(&value),
            (HeaderRule::Range(range), Some(value)) => value.parse().is_ok_and(|number| range.contains(&number)),
        };
        is_met != self.is_inverted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::TextRule;

    fn metadata(entries: &[(&str, &str)]) -> Metadata {
        let mut metadata = Metadata::new();
        for (name, value) in entries {
            metadata.append(*name, *value).unwrap();
        }
        metadata
    }

    #[test]
    fn paths_match_by_prefix_name_and_pattern() {
        let regex = |text: &str| PathRule::Regex(crate::resources::FullRegex::new(text).unwrap());
        for (rule, ignores_case, path, expected) in [
            (PathRule::Prefix(String::new()), false, "/a.B/C", true),
            (PathRule::Prefix("/a.B/".into()), false, "/a.B/C", true),
            (PathRule::Prefix("/a.b/".into()), false, "/a.B/C", false),
            (PathRule::Prefix("/a.b/".into()), true, "/a.B/C", true),
            (PathRule::Prefix("/\u{e9}".into()), true, "/\u{e8}", false),
            (PathRule::Exact("/a.B/C".into()), false, "/a.B/C", true),
            (PathRule::Exact("/a.B/C".into()), false, "/a.B/Cd", false),
            (PathRule::Folder("/a.B".into()), false, "/a.B/C", true),
            (PathRule::Folder("/a.B".into()), false, "/a.Bc/C", false),
            (regex("/a\\.B/C|/d"), false, "/a.B/C", true),
            (regex("/a\\.B/C|/d"), false, "/a.B/C/d", false),
        ] {
            assert_eq!(rule.is_met(path, ignores_case), expected, "{rule:?} {path}");
        }
    }

    #[test]
    fn headers_match_by_text_range_and_presence() {
        let metadata = metadata(&[("x-user", "ada"), ("x-many", "1"), ("x-many", "2"), ("x-number", "7")]);
        let text = |text: &str| HeaderRule::Text(TextRule::exact(text));
        for (name, rule, is_inverted, expected) in [
            ("x-user", text("ada"), false, true),
            ("x-user", text("ada"), true, false),
            ("x-user", text("bob"), true, true),
            ("x-none", text("ada"), true, false),
            ("x-many", text("1,2"), false, true),
            ("content-type", text("application/grpc"), false, true),
            ("x-number", HeaderRule::Range(7..8), false, true),
            ("x-number", HeaderRule::Range(6..7), false, false),
            ("x-user", HeaderRule::Range(0..9), false, false),
            ("x-none", HeaderRule::Present(true), false, false),
            ("x-none", HeaderRule::Present(false), false, true),
            ("x-none", HeaderRule::Present(true), true, true),
        ] {
            let condition = HeaderCondition { name: name.to_owned(), rule, is_inverted };
            assert_eq!(condition.is_met(&metadata), expected, "{condition:?}");
        }
    }

    #[test]
    fn hash_policies_are_combined_until_a_terminal_one() {
        let metadata = metadata(&[("x-one", "1"), ("x-two", "2")]);
        let rule = |name: Option<&str>, is_terminal| HashRule { header: name.map(str::to_owned), is_terminal };
        let [one, two] = ["1", "2"].map(|value| HashKey::new(value).hash());
        for (rules, expected) in [
            (vec![], None),
            (vec![rule(Some("x-none"), true)], None),
            (vec![rule(Some("x-one"), false)], Some(one)),
            (vec![rule(Some("x-one"), false), rule(Some("x-two"), false)], Some(one.rotate_left(1) ^ two)),
            (vec![rule(Some("x-one"), true), rule(Some("x-two"), false)], Some(one)),
            (vec![rule(Some("x-none"), true), rule(None, false)], Some(7)),
        ] {
            assert_eq!(key(&rules, &metadata, 7), expected, "{rules:?}");
        }
    }
}
