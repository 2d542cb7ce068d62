//! The state-of-the-world protocol, without I/O: subscriptions, versions, nonces and deadlines.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use frpc::shown;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::{
    protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse, ErrorDetail, Node},
    resources::{Resource, ResourceKind, name_of},
};

/// The resources of one client.
#[derive(Debug)]
pub(crate) struct AdsState {
    node: Node,
    types: BTreeMap<ResourceKind, TypeState>,
    /// The number of the current stream. A request of an earlier one is never sent.
    stream: u64,
    /// `true` after the first request of a stream, which identifies the client.
    has_node: bool,
    /// The control plane of the stream may forget resources for a time.
    ignores_removals: bool,
}

/// The resources of one type.
#[derive(Debug, Default)]
struct TypeState {
    subscriptions: BTreeMap<Arc<str>, Subscription>,
    /// The version of the last accepted response.
    version: String,
    /// The nonce of the last response on this stream.
    nonce: String,
    /// `true` if a request is due.
    is_due: bool,
    /// The version of the last refused response.
    refused_version: Option<String>,
    /// The time of the last request that refused a response.
    refused: Option<Instant>,
    /// The time before which no request is made.
    pause_until: Option<Instant>,
    /// The reason to refuse the last response, for the next request.
    refusal: Option<String>,
    /// `true` after a request with names on this stream. A first request without names would ask for everything.
    was_requested: bool,
}

#[derive(Debug)]
struct Subscription {
    watchers: usize,
    state: ResourceState,
    /// The time of the first request on this stream.
    requested: Option<Instant>,
}

/// The state of one resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ResourceState {
    /// There is no answer yet.
    Pending,
    Known(Resource),
    /// The control plane does not have it.
    Missing,
    /// Its first version is invalid.
    Refused(Arc<str>),
}

impl AdsState {
    pub(crate) fn new(node: Node) -> Self {
        let types = ResourceKind::ALL.into_iter().map(|kind| (kind, TypeState::default())).collect();
        Self { node, types, stream: 0, has_node: false, ignores_removals: false }
    }

    fn type_state(&mut self, kind: ResourceKind) -> &mut TypeState {
        self.types.entry(kind).or_default()
    }

    /// Adds a watcher of a resource. Returns `true` if a request is due.
    pub(crate) fn watch(&mut self, kind: ResourceKind, name: &Arc<str>) -> bool {
        let state = self.type_state(kind);
        let new = || Subscription { watchers: 0, state: ResourceState::Pending, requested: None };
        let subscription = state.subscriptions.entry(name.clone()).or_insert_with(new);
        subscription.watchers += 1;
        state.is_due |= subscription.watchers == 1;
        state.is_due
    }

    /// Removes a watcher of a resource. Returns `true` if a request is due.
    pub(crate) fn unwatch(&mut self, kind: ResourceKind, name: &Arc<str>) -> bool {
        let state = self.type_state(kind);
        let Some(subscription) = state.subscriptions.get_mut(name) else { return false };
        subscription.watchers -= 1;
        if subscription.watchers == 0 {
            state.subscriptions.remove(name);
            state.is_due = true;
        }
        state.is_due
    }

    pub(crate) fn resource(&self, kind: ResourceKind, name: &str) -> ResourceState {
        let subscription = self.types.get(&kind).and_then(|state| state.subscriptions.get(name));
        subscription.map_or(ResourceState::Pending, |subscription| subscription.state.clone())
    }

    #[cfg(test)]
    pub(crate) fn is_watched(&self, kind: ResourceKind, name: &str) -> bool {
        self.types.get(&kind).is_some_and(|state| state.subscriptions.contains_key(name))
    }

    /// Returns `true` if a resource was never received.
    pub(crate) fn has_unknown(&self) -> bool {
        let mut all = self.types.values().flat_map(|state| state.subscriptions.values());
        all.any(|one| !matches!(one.state, ResourceState::Known(_)))
    }

    /// Begins a stream: everything is requested again, with the last versions. Returns its number. With
    /// `ignores_removals`, known resources stay although the control plane removes them (gRFC A53).
    pub(crate) fn begin_stream(&mut self, ignores_removals: bool) -> u64 {
        self.end_stream();
        self.ignores_removals = ignores_removals;
        self.stream += 1;
        self.has_node = false;
        for state in self.types.values_mut() {
            state.is_due = !state.subscriptions.is_empty();
        }
        self.stream
    }

    /// Ends a stream. The time limits of resources stop, because nothing can arrive.
    pub(crate) fn end_stream(&mut self) {
        for state in self.types.values_mut() {
            state.nonce.clear();
            (state.refused_version, state.refused, state.pause_until) = (None, None, None);
            (state.was_requested, state.refusal) = (false, None);
            state.subscriptions.values_mut().for_each(|subscription| subscription.requested = None);
        }
    }

    /// Returns the next due request of a stream.
    pub(crate) fn next_request(&mut self, stream: u64, now: Instant) -> Option<DiscoveryRequest> {
        if stream != self.stream {
            return None;
        }
        let (kind, state) = self.types.iter_mut().find(|(_, state)| state.is_due_at(now))?;
        (state.is_due, state.pause_until) = (false, None);
        state.refused = state.refusal.as_ref().map(|_| now).or(state.refused);
        if state.subscriptions.is_empty() && !state.was_requested {
            return self.next_request(stream, now);
        }
        state.was_requested = true;
        for subscription in state.subscriptions.values_mut() {
            if subscription.state == ResourceState::Pending {
                subscription.requested.get_or_insert(now);
            }
        }
        let request = DiscoveryRequest {
            version_info: state.version.clone(),
            node: (!self.has_node).then(|| self.node.clone()),
            resource_names: state.subscriptions.keys().map(|name| (**name).to_owned()).collect(),
            type_url: kind.type_url().to_owned(),
            response_nonce: state.nonce.clone(),
            error_detail: state.refusal.take().map(|message| ErrorDetail { code: INVALID_ARGUMENT, message }),
        };
        self.has_node = true;
        Some(request)
    }

    /// Returns the end of the first pause before a request.
    pub(crate) fn next_pause_end(&self) -> Option<Instant> {
        self.types.values().filter(|state| state.is_due).filter_map(|state| state.pause_until).min()
    }

    /// Returns the time at which the first requested resource counts as missing.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let all = self.types.values().flat_map(|state| state.subscriptions.values());
        let pending = all.filter(|subscription| subscription.state == ResourceState::Pending);
        pending.filter_map(|subscription| subscription.requested).min().map(|requested| requested + RESOURCE_TIME_MAX)
    }

    /// Gives up resources without an answer. Returns `true` if there were any.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let mut has_expired = false;
        for (kind, state) in &mut self.types {
            for (name, subscription) in &mut state.subscriptions {
                let is_late = subscription.requested.is_some_and(|requested| now >= requested + RESOURCE_TIME_MAX);
                if is_late && subscription.state == ResourceState::Pending {
                    warn!(?kind, %name, "the control plane did not send a resource in time");
                    subscription.state = ResourceState::Missing;
                    has_expired = true;
                }
            }
        }
        has_expired
    }

    /// Takes a response. Its acceptance or refusal becomes the next request. Returns `true` if a resource has changed.
    pub(crate) fn respond(&mut self, response: DiscoveryResponse) -> bool {
        let Some(kind) = ResourceKind::of_url(&response.type_url) else {
            // Without a type there is nothing to refuse.
            warn!(type_url = shown(&response.type_url), "the control plane sent resources of an unknown type");
            return false;
        };
        let ignores_removals = self.ignores_removals;
        let state = self.type_state(kind);
        let mut faults = Faults::default();
        let mut found = HashMap::new();
        let is_short = response.resources.len() <= RESOURCES_MAX;
        if !is_short {
            faults.add("", &format!("there are {} resources, more than {RESOURCES_MAX}", response.resources.len()));
        }
        for (index, any) in response.resources.iter().enumerate().take_while(|_| is_short) {
            let at = format!("resource {index}");
            if any.type_url != kind.type_url() {
                faults.add(&at, &format!("has the type {:?}, expected {}", any.type_url, kind.type_url()));
                continue;
            }
            let name = match name_of(&any.value) {
                Ok(name) => name,
                Err(why) => {
                    faults.add(&at, &why);
                    continue;
                }
            };
            // The rest may be for other kinds of clients.
            if !state.subscriptions.contains_key(&*name) {
                continue;
            }
            let mut read = kind.read(&any.value);
            if found.contains_key(&name) {
                read = Err("appears twice".to_owned());
            }
            if let Err(why) = &read {
                faults.add(&name, why);
            }
            found.insert(name, read);
        }
        let mut has_changed = false;
        for (name, subscription) in &mut state.subscriptions {
            let next = match found.remove(&**name) {
                Some(Ok(resource)) => ResourceState::Known(resource),
                Some(Err(why)) if !matches!(subscription.state, ResourceState::Known(_)) => {
                    ResourceState::Refused(why.into())
                }
                // The last good version stays.
                Some(Err(_)) => continue,
                // The response to an earlier request lacks a new name, so a pending resource only fails by time.
                None if kind.is_complete() && is_short && subscription.state != ResourceState::Pending => {
                    if matches!(subscription.state, ResourceState::Known(_)) {
                        warn!(?kind, %name, ignored = ignores_removals, "the control plane has removed a resource");
                        if ignores_removals {
                            continue;
                        }
                    }
                    ResourceState::Missing
                }
                None => continue,
            };
            subscription.requested = None;
            if next != subscription.state {
                (subscription.state, has_changed) = (next, true);
            }
        }
        state.nonce = response.nonce;
        state.is_due = true;
        state.refusal = faults.into_reason();
        let is_again = state.refused_version.as_ref() == Some(&response.version_info);
        match &state.refusal {
            None => {
                debug!(?kind, version = shown(&response.version_info), "accepted resources");
                (state.version, state.refused_version, state.pause_until) = (response.version_info, None, None);
            }
            Some(reason) => {
                if !is_again {
                    warn!(?kind, version = shown(&response.version_info), reason, "refused resources");
                    state.refused_version = Some(response.version_info);
                }
                // Some control planes answer a refusal with an invalid version without delay: the same, or another one.
                state.pause_until = state.refused.map(|last| last + REFUSAL_PAUSE);
            }
        }
        has_changed
    }
}

impl TypeState {
    fn is_due_at(&self, now: Instant) -> bool {
        self.is_due && self.pause_until.is_none_or(|end| end <= now)
    }
}

/// The faults of a response, as text of limited length.
#[derive(Default)]
struct Faults {
    text: String,
    omitted: usize,
}

impl Faults {
    fn add(&mut self, at: &str, why: &str) {
        if self.text.len() > REASON_LEN_MAX {
            self.omitted += 1;
            return;
        }
        let comma = if self.text.is_empty() { "" } else { "; " };
        let colon = if at.is_empty() { "" } else { ": " };
        let fault = format!("{comma}{at}{colon}{why}");
        self.text.extend(fault.chars().take(FAULT_LEN_MAX));
    }

    fn into_reason(self) -> Option<String> {
        match self.omitted {
            _ if self.text.is_empty() => None,
            0 => Some(self.text),
            omitted => Some(format!("{}; and {omitted} more", self.text)),
        }
    }
}

/// The time after a request in which a resource must arrive.
pub(crate) const RESOURCE_TIME_MAX: Duration = Duration::from_secs(15);
/// The shortest time between two refusals of resources of one type.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of resources in a response.
const RESOURCES_MAX: usize = 10_000;
/// The maximum length of the reason of a refusal, except its last fault.
const REASON_LEN_MAX: usize = 2_048;
/// The maximum length of one fault in characters.
const FAULT_LEN_MAX: usize = 512;
const INVALID_ARGUMENT: i32 = 3;

#[cfg(test)]
mod tests {
    use frpc::{prost::Message, prost_types::Any};

    use super::*;
    use crate::protos::frpc::xds::v3::{ClusterLoadAssignment, LocalityLbEndpoints, NamedResource};

    const KIND: ResourceKind = ResourceKind::Endpoints;

    fn any(kind: ResourceKind, message: &impl Message) -> Any {
        Any { type_url: kind.type_url().to_owned(), value: message.encode_to_vec() }
    }

    fn assignment(name: &str, priority: u32) -> Any {
        let endpoints = vec![LocalityLbEndpoints { priority, ..LocalityLbEndpoints::default() }];
        any(KIND, &ClusterLoadAssignment { cluster_name: name.to_owned(), endpoints, ..Default::default() })
    }

    fn response(kind: ResourceKind, version: &str, resources: Vec<Any>) -> DiscoveryResponse {
        DiscoveryResponse {
            version_info: version.to_owned(),
            resources,
            type_url: kind.type_url().to_owned(),
            nonce: format!("nonce {version}"),
        }
    }

    fn state_with(kind: ResourceKind, names: &[&str]) -> (AdsState, u64) {
        let mut state = AdsState::new(Node { id: "me".to_owned(), ..Node::default() });
        names.iter().for_each(|name| assert!(state.watch(kind, &(*name).into())));
        let stream = state.begin_stream(false);
        (state, stream)
    }

    fn is_known(state: &AdsState, kind: ResourceKind, name: &str) -> bool {
        matches!(state.resource(kind, name), ResourceState::Known(_))
    }

    #[tokio::test(start_paused = true)]
    async fn responses_are_acknowledged_with_their_version_and_nonce() {
        let (mut state, stream) = state_with(KIND, &["b", "a"]);
        let first = state.next_request(stream, Instant::now()).unwrap();
        assert_eq!(first.resource_names, ["a", "b"]);
        assert_eq!((&*first.version_info, &*first.response_nonce), ("", ""));
        assert_eq!(first.node.unwrap().id, "me");
        assert_eq!(state.next_request(stream, Instant::now()), None);

        assert!(state.respond(response(KIND, "1", vec![assignment("a", 0)])));
        let ack = state.next_request(stream, Instant::now()).unwrap();
        assert_eq!((&*ack.version_info, &*ack.response_nonce, ack.error_detail), ("1", "nonce 1", None));
        assert_eq!(ack.node, None, "only the first request identifies the client");
        assert!(is_known(&state, KIND, "a"));
        assert!(!state.respond(response(KIND, "2", vec![assignment("a", 0)])), "nothing has changed");
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_resources_are_refused_and_the_last_good_ones_stay() {
        let (mut state, stream) = state_with(KIND, &["a", "b"]);
        state.next_request(stream, Instant::now()).unwrap();
        state.respond(response(KIND, "1", vec![assignment("a", 0)]));
        state.next_request(stream, Instant::now()).unwrap();
        let good = state.resource(KIND, "a");
        // There is no priority 0. The valid part of the response is used.
        let broken = Any { type_url: KIND.type_url().to_owned(), value: vec![0xff; 9] };
        let other = Any { type_url: "type.googleapis.com/other".to_owned(), value: Vec::new() };
        assert!(state.respond(response(KIND, "2", vec![assignment("a", 3), assignment("b", 0), broken, other])));
        let nack = state.next_request(stream, Instant::now()).unwrap();
        assert_eq!((&*nack.version_info, &*nack.response_nonce), ("1", "nonce 2"));
        let reason = nack.error_detail.unwrap().message;
        for part in ["a: there is no priority 0", "resource 2", "resource 3", "type.googleapis.com/other"] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        assert_eq!(state.resource(KIND, "a"), good);
        assert!(is_known(&state, KIND, "b"));
        tokio::time::advance(REFUSAL_PAUSE).await;
        let twice = vec![assignment("a", 0), assignment("a", 0)];
        state.respond(response(KIND, "3", twice));
        let nack = state.next_request(stream, Instant::now()).unwrap();
        assert_eq!(nack.error_detail.unwrap().message, "a: appears twice");
        assert!(is_known(&state, KIND, "a"));
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_versions_are_refused_once_per_second() {
        for versions in [["1", "1", "1", "1"], ["1", "2", "1", "2"], ["1", "2", "3", "4"]] {
            let (mut state, stream) = state_with(KIND, &["a"]);
            let mut now = Instant::now();
            state.next_request(stream, now).unwrap();
            for (number, version) in versions.into_iter().enumerate() {
                state.respond(response(KIND, version, vec![assignment("a", 3)]));
                if number > 0 {
                    assert_eq!(state.next_request(stream, now), None, "{versions:?}");
                    // A further response does not delay the refusal.
                    state.respond(response(KIND, version, vec![assignment("a", 3)]));
                    now += REFUSAL_PAUSE;
                    assert_eq!(state.next_pause_end(), Some(now));
                }
                assert!(state.next_request(stream, now).unwrap().error_detail.is_some());
            }
            state.respond(response(KIND, "5", vec![assignment("a", 3)]));
            state.respond(response(KIND, "6", vec![assignment("a", 0)]));
            let ack = state.next_request(stream, now).unwrap();
            assert_eq!((&*ack.version_info, ack.error_detail), ("6", None), "a valid version needs no pause");
            state.respond(response(KIND, "7", vec![assignment("a", 3)]));
            assert!(
                state.next_request(stream, now + REFUSAL_PAUSE).is_some(),
                "after a second, neither does another one"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_version_that_is_wrong_is_an_error() {
        let (mut state, stream) = state_with(KIND, &["a"]);
        state.next_request(stream, Instant::now()).unwrap();
        assert!(state.respond(response(KIND, "1", vec![assignment("a", 3)])));
        assert!(matches!(state.resource(KIND, "a"), ResourceState::Refused(_)));
        assert!(state.respond(response(KIND, "2", vec![assignment("a", 0)])));
        assert!(is_known(&state, KIND, "a"));
    }

    #[tokio::test(start_paused = true)]
    async fn resources_without_an_answer_are_missing_after_15_seconds() {
        let (mut state, stream) = state_with(KIND, &["a"]);
        assert_eq!(state.next_expiry(), None, "nothing was requested");
        let begun = Instant::now();
        state.next_request(stream, begun).unwrap();
        assert_eq!(state.next_expiry(), Some(begun + RESOURCE_TIME_MAX));
        assert!(!state.expire(begun + RESOURCE_TIME_MAX / 2));
        state.end_stream();
        assert!(!state.expire(begun + RESOURCE_TIME_MAX), "without a stream, nothing can arrive");
        let stream = state.begin_stream(false);
        state.next_request(stream, begun + RESOURCE_TIME_MAX).unwrap();
        assert!(state.expire(begun + RESOURCE_TIME_MAX * 2));
        assert_eq!(state.resource(KIND, "a"), ResourceState::Missing);
        assert_eq!(state.next_expiry(), None);
        assert!(state.respond(response(KIND, "1", vec![assignment("a", 0)])), "a late resource is used");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_stream_resumes_with_the_last_versions() {
        let (mut state, stream) = state_with(KIND, &["a"]);
        state.next_request(stream, Instant::now()).unwrap();
        state.respond(response(KIND, "7", vec![assignment("a", 0)]));
        state.end_stream();
        assert!(is_known(&state, KIND, "a"), "the last resources stay in use");
        let next = state.begin_stream(false);
        assert_eq!(state.next_request(stream, Instant::now()), None, "the earlier stream sends nothing");
        let first = state.next_request(next, Instant::now()).unwrap();
        assert_eq!((&*first.version_info, &*first.response_nonce), ("7", ""), "nonces belong to their stream");
        assert!(first.node.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_and_clusters_missing_from_a_response_were_removed() {
        for kind in ResourceKind::ALL {
            let (mut state, stream) = state_with(kind, &["a", "b"]);
            state.next_request(stream, Instant::now()).unwrap();
            let Some(subscription) = state.type_state(kind).subscriptions.get_mut("a") else { panic!("it is watched") };
            subscription.state = ResourceState::Refused("".into());
            state.respond(response(kind, "1", Vec::new()));
            let is_missing = state.resource(kind, "a") == ResourceState::Missing;
            assert_eq!(is_missing, kind.is_complete(), "{kind:?}");
            assert_eq!(state.resource(kind, "b"), ResourceState::Pending, "it may be new to the control plane");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn subscriptions_end_with_their_last_watcher() {
        let (mut state, stream) = state_with(KIND, &["a"]);
        state.next_request(stream, Instant::now()).unwrap();
        assert!(!state.watch(KIND, &"a".into()), "it is requested already");
        assert!(!state.unwatch(KIND, &"a".into()));
        assert!(state.unwatch(KIND, &"a".into()));
        assert!(state.next_request(stream, Instant::now()).unwrap().resource_names.is_empty());
        // An empty first request would subscribe to everything.
        let stream = state.begin_stream(false);
        assert_eq!(state.next_request(stream, Instant::now()), None);
        assert!(state.watch(KIND, &"b".into()));
        assert!(state.unwatch(KIND, &"b".into()));
        assert_eq!(state.next_request(stream, Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn hostile_responses_are_bounded() {
        let (mut state, stream) = state_with(KIND, &["a"]);
        state.next_request(stream, Instant::now()).unwrap();
        let many = vec![assignment("a", 0); RESOURCES_MAX + 1];
        assert!(!state.respond(response(KIND, "1", many)));
        let nack = state.next_request(stream, Instant::now()).unwrap();
        assert!(nack.error_detail.unwrap().message.contains("more than 10000"));
        tokio::time::advance(REFUSAL_PAUSE).await;
        // Names and types of any length give a short reason.
        let long = "x".repeat(1 << 20);
        let named = |name: &String| any(KIND, &NamedResource { name: name.clone() });
        let mut resources = vec![named(&long), Any { type_url: long.clone(), value: Vec::new() }];
        resources.extend(vec![Any { type_url: long.clone(), value: Vec::new() }; 100]);
        state.respond(response(KIND, "2", resources));
        let nack = state.next_request(stream, Instant::now()).unwrap();
        let reason = nack.error_detail.unwrap().message;
        assert!(reason.len() < 2 * REASON_LEN_MAX && reason.ends_with(" more"), "{}", reason.len());
        let unknown = DiscoveryResponse { type_url: "type.googleapis.com/Secret".to_owned(), ..Default::default() };
        assert!(!state.respond(unknown));
        assert_eq!(state.next_request(stream, Instant::now()), None);
    }
}
