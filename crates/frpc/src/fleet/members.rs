//! The endpoints of a channel: in the last set, leaving it, and gone a short time ago.

use std::{collections::HashMap, sync::Arc, time::Duration};

use frisbee::{clock::Instant, task::AbortOnDropHandle};
use frpc_balance::{EndpointLoad, LoadSettings, ZonePreference};

use super::{
    ready::ReadyEndpoint,
    resolve::{ConnectionKey, Endpoint},
};
use crate::{
    call::method::Method,
    error::ConnectError,
    inspect::{EndpointHistory, EndpointPhase, EndpointView},
};

/// All endpoints of the resolver.
#[derive(Default)]
pub(super) struct Members {
    pub(super) all: Vec<FleetMember>,
    /// Endpoints missing from the last set, in use until one of the new set is ready. A set with dead addresses alone, whether it
    /// is wrong or early, must not stop the calls. At most as many as were ready at the same time.
    pub(super) leaving: Vec<FleetMember>,
    /// Endpoints that vanished from the set a short time ago. Answers of resolvers may flap.
    departed: HashMap<ConnectionKey, DepartedMember>,
    /// Methods that clients will call.
    pub(super) declared: Vec<&'static [Method]>,
    /// The error of the resolver, or of the last endpoint that could not be reached.
    pub(super) error: Option<Arc<ConnectError>>,
    /// Follows the resolver.
    pub(super) task: Option<AbortOnDropHandle<()>>,
    /// Starts the task again, after the end of its runtime.
    pub(super) restart: Option<Box<dyn FnOnce() + Send>>,
}

pub(super) struct FleetMember {
    pub(super) endpoint: Endpoint,
    pub(super) ready: Option<ReadyEndpoint>,
    /// The number of failed attempts to connect since the endpoint was ready.
    pub(super) failures: usize,
    /// The number of times it was ejected, less one for each sweep since then that found nothing.
    pub(super) ejections: u32,
    pub(super) ejected_until: Option<Instant>,
    /// `true` while it owes an answer to a PING for too long.
    pub(super) is_silent: bool,
    /// The load before the endpoint vanished for a short time.
    pub(super) earlier: Option<EarlierLoad>,
    pub(super) history: EndpointHistory,
    _task: AbortOnDropHandle<()>,
}

struct DepartedMember {
    left: Instant,
    ejections: u32,
    ejected_until: Option<Instant>,
    load: Option<EarlierLoad>,
}

/// The load on a connection closed by this side.
pub(super) struct EarlierLoad {
    pub(super) load: EndpointLoad,
    pub(super) joined: Duration,
}

/// The endpoints for calls, first the ones in the zone of the channel.
pub(super) struct EndpointChoice {
    pub(super) priority: u32,
    pub(super) ready: Vec<ReadyEndpoint>,
    pub(super) preferred: ZonePreference,
}

impl FleetMember {
    fn new(endpoint: Endpoint, task: AbortOnDropHandle<()>, departed: Option<DepartedMember>) -> Self {
        let (ejections, ejected_until, earlier) =
            departed.map_or((0, None, None), |departed| (departed.ejections, departed.ejected_until, departed.load));
        Self {
            endpoint,
            ready: None,
            failures: 0,
            ejections,
            ejected_until,
            is_silent: false,
            earlier,
            history: EndpointHistory::default(),
            _task: task,
        }
    }

    /// Takes over the weight, the zone and the priority of the same endpoint in a new set.
    fn with_endpoint(self, endpoint: Endpoint) -> Self {
        if let Some(ready) = &self.ready {
            ready.set_weight(endpoint.weight);
        }
        Self { endpoint, ..self }
    }

    fn key(&self) -> ConnectionKey {
        self.endpoint.connection_key()
    }

    fn depart(self, now: Instant, settings: &LoadSettings) -> DepartedMember {
        let Self { ready, ejections, ejected_until, earlier, .. } = self;
        let load = ready.map(|ready| {
            let load = EndpointLoad::new(settings);
            load.continue_from(ready.load());
            EarlierLoad { load, joined: ready.joined() }
        });
        DepartedMember { left: now, ejections, ejected_until, load: load.or(earlier) }
    }

    pub(super) fn view(&self, now: Instant, clock: Duration) -> EndpointView {
        let ejected = self.ejected_until.map(|until| until.saturating_duration_since(now));
        let state = match (&self.ready, ejected) {
            (Some(_), Some(left)) => EndpointPhase::Ejected(left),
            (Some(_), None) if self.is_silent => EndpointPhase::Silent,
            (Some(_), None) => EndpointPhase::Ready,
            (None, _) if self.failures > 0 => EndpointPhase::Failing,
            (None, _) => EndpointPhase::Connecting,
        };
        let load = self.ready.as_ref().map(ReadyEndpoint::load);
        let latency = load.and_then(|load| load.latency(clock));
        EndpointView {
            address: self.endpoint.address.clone(),
            zone: self.endpoint.zone.clone(),
            weight: self.endpoint.weight,
            state,
            in_flight: load.map_or(0, |load| load.in_flight()),
            latency: latency.and_then(|nanos| Duration::try_from_secs_f32(nanos / 1e9).ok()),
            failures: self.failures,
            ejections: self.ejections,
            history: self.history,
            traffic: self.ready.as_ref().and_then(|ready| ready.caller().traffic()),
            frames: self.ready.as_ref().map(|ready| ready.caller().frames()).unwrap_or_default(),
            flow: self.ready.as_ref().and_then(|ready| ready.caller().flow()),
            is_secure: self.ready.as_ref().is_some_and(|ready| ready.caller().is_secure()),
        }
    }
}

impl DepartedMember {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.left) < DEPARTED_KEPT
    }
}

impl Members {
    pub(super) fn find(&mut self, endpoint: &Endpoint) -> Option<&mut FleetMember> {
        let key = endpoint.connection_key();
        self.all.iter_mut().chain(&mut self.leaving).find(|member| member.endpoint.connection_key() == key)
    }

    /// Returns all endpoints with a task. The last set comes first.
    pub(super) fn in_use(&self) -> impl Iterator<Item = &FleetMember> {
        self.all.iter().chain(&self.leaving)
    }

    /// Uses another set of endpoints. `join` starts the task of a new one. The former ones are leaving.
    pub(super) fn replace(
        &mut self,
        chosen: Vec<Endpoint>,
        now: Instant,
        join: impl Fn(Endpoint) -> AbortOnDropHandle<()>,
    ) {
        let before = std::mem::take(&mut self.all).into_iter().chain(std::mem::take(&mut self.leaving));
        let mut before: Vec<_> = before.map(Some).collect();
        let mut places: HashMap<_, _> = (0..).zip(before.iter().flatten()).map(|(at, one)| (one.key(), at)).collect();
        for endpoint in chosen {
            let key = endpoint.connection_key();
            let known = places.remove(&key).and_then(|at: usize| before[at].take());
            let member = match known {
                Some(member) => member.with_endpoint(endpoint),
                None => {
                    let departed = self.departed.remove(&key).filter(|departed| departed.is_recent(now));
                    FleetMember::new(endpoint.clone(), join(endpoint), departed)
                }
            };
            self.all.push(member);
        }
        self.leaving = before.into_iter().flatten().collect();
    }

    /// Releases the endpoints missing from the last set, once one of that set is ready. Until then, the connected ones
    /// stay.
    pub(super) fn release_leaving(&mut self, now: Instant, settings: &LoadSettings) {
        let is_ready = |member: &FleetMember| member.ready.is_some();
        let is_replaced = self.all.iter().any(is_ready);
        let gone: Vec<_> = self.leaving.extract_if(.., |member| is_replaced || !is_ready(member)).collect();
        if gone.is_empty() {
            return;
        }
        self.departed.retain(|_, member| member.is_recent(now));
        let departed = gone.into_iter().map(|member| (member.key(), member.depart(now, settings)));
        self.departed.extend(departed.filter(|(_, member)| member.load.is_some() || member.ejections > 0));
    }

    /// Returns the endpoints for calls: the ready ones of the best priority, except ejected and silent ones. Better such
    /// an endpoint than none.
    pub(super) fn choice(&self, zone: Option<&str>) -> EndpointChoice {
        let is_used = |member: &&FleetMember| member.ejected_until.is_none() && !member.is_silent;
        let (priority, all_used) = match self.best_priority(is_used) {
            Some(best) => (best, false),
            None => (self.best_priority(|_| true).unwrap_or_default(), true),
        };
        let of_priority = self.in_use().filter(|member| member.endpoint.priority == priority);
        let (near, far): (Vec<_>, Vec<_>) = of_priority.partition(|member| member.endpoint.is_in_zone(zone));
        let ready = |members: &[&FleetMember]| {
            let used = members.iter().filter(|member| all_used || is_used(member));
            used.filter_map(|member| member.ready.clone()).collect::<Vec<_>>()
        };
        let mut all = ready(&near);
        let preferred = ZonePreference::new(all.len(), near.len());
        all.extend(ready(&far));
        EndpointChoice { priority, ready: all, preferred }
    }

    fn best_priority(&self, is_used: impl Fn(&&FleetMember) -> bool) -> Option<u32> {
        let ready = self.in_use().filter(|member| member.ready.is_some()).filter(is_used);
        ready.map(|member| member.endpoint.priority).min()
    }
}

/// The time for which the load and the ejection of a vanished endpoint are kept.
const DEPARTED_KEPT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use frpc_balance::EndpointState;
    use futures_util::future::BoxFuture;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        call::{
            exchange::{Answer, Call},
            status::Status,
        },
        client::caller::Caller,
        codec::Format,
        fleet::{clock::FleetClock, server::ServerCaller},
    };

    struct NoCaller;

    impl Caller for NoCaller {
        fn format(&self) -> Format {
            Format::Proto
        }

        fn call(&self, _: Call) -> BoxFuture<'_, Result<Answer, Status>> {
            unreachable!("no call is made")
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Another set: bits of endpoints, and of the ones with a lower priority.
        Set(u8, u8),
        Connected(u8),
        Lost(u8),
        Silent(u8, bool),
        Ejected(u8, bool),
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let index = 0..6_u8;
        let step = prop_oneof![
            (1..64_u8, any::<u8>()).prop_map(|(set, low)| Step::Set(set, low)),
            index.clone().prop_map(Step::Connected),
            index.clone().prop_map(Step::Lost),
            (index.clone(), any::<bool>()).prop_map(|(index, is_silent)| Step::Silent(index, is_silent)),
            (index, any::<bool>()).prop_map(|(index, is_ejected)| Step::Ejected(index, is_ejected)),
            (1..100_u64).prop_map(Step::Wait),
        ];
        proptest::collection::vec(step, 1..60)
    }

    fn endpoint(index: u8, is_low: bool) -> Endpoint {
        Endpoint::new(format!("tcp://10.0.0.{index}:80")).unwrap().priority(is_low.into())
    }

    /// The rules in short, for endpoints by index.
    #[derive(Clone, Copy, Default)]
    struct Modelled {
        in_set: bool,
        /// Connected, and in the last set or leaving.
        is_ready: bool,
        is_low: bool,
        is_silent: bool,
        is_ejected: bool,
        /// The number of ejections, and the time since which the endpoint is gone.
        ejections: u32,
        left: Option<u64>,
    }

    fn release(model: &mut [Modelled; 6], now: u64) {
        let is_replaced = model.iter().any(|one| one.in_set && one.is_ready);
        for one in model.iter_mut().filter(|one| !one.in_set && one.left.is_none()) {
            if is_replaced || !one.is_ready {
                (one.is_ready, one.left) = (false, Some(now));
            }
        }
    }

    fn expected(model: &[Modelled; 6]) -> Vec<u8> {
        let ready = || (0..6_u8).zip(model).filter(|(_, one)| one.is_ready);
        let is_good = |one: &Modelled| !one.is_silent && !one.is_ejected;
        let any_good = ready().any(|(_, one)| is_good(one));
        let used = || ready().filter(|(_, one)| !any_good || is_good(one));
        let best = used().map(|(_, one)| one.is_low).min();
        used().filter(|(_, one)| Some(one.is_low) == best).map(|(index, _)| index).collect()
    }

    proptest! {
        #[test]
        fn members_follow_a_simple_model(steps in steps()) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _entered = runtime.enter();
            let clock = FleetClock::start();
            let (start, mut now) = (Instant::now(), 0);
            let mut members = Members::default();
            let mut model = [Modelled { left: Some(0), ..Modelled::default() }; 6];
            let join = |_| AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
            for step in steps {
                let at = |now| start + Duration::from_secs(now);
                match step {
                    Step::Set(set, low) => {
                        let in_set = |index: u8| set >> index & 1 == 1;
                        let chosen = (0..6).filter(|index| in_set(*index)).map(|index| endpoint(index, low >> index & 1 == 1));
                        members.replace(chosen.collect(), at(now), join);
                        for (index, one) in (0..6).zip(&mut model) {
                            one.in_set = in_set(index);
                            if !one.in_set {
                                continue;
                            }
                            if let Some(left) = one.left.take() {
                                let is_kept = one.ejections > 0 && now - left < 60;
                                *one = Modelled { in_set: true, ..Modelled::default() };
                                if is_kept {
                                    (one.is_ejected, one.ejections) = (true, 1);
                                }
                            }
                            one.is_low = low >> index & 1 == 1;
                        }
                        members.release_leaving(at(now), &LoadSettings::default());
                        release(&mut model, now);
                    }
                    Step::Connected(index) => {
                        let Some(member) = members.find(&endpoint(index, false)) else { continue };
                        let load = EndpointLoad::new(&LoadSettings::default());
                        let (hash, address) = (member.endpoint.address_hash(), member.endpoint.address.clone());
                        let state = EndpointState { load, weight: 1.into(), hash, joined: Duration::ZERO };
                        let caller = ServerCaller::Other(Arc::new(NoCaller));
                        member.ready = Some(ReadyEndpoint::new(state, address, caller, clock));
                        member.is_silent = false;
                        members.release_leaving(at(now), &LoadSettings::default());
                        let one = &mut model[usize::from(index)];
                        (one.is_ready, one.is_silent) = (true, false);
                        release(&mut model, now);
                    }
                    Step::Lost(index) => {
                        let Some(member) = members.find(&endpoint(index, false)) else { continue };
                        member.ready = None;
                        model[usize::from(index)].is_ready = false;
                    }
                    Step::Silent(index, is_silent) => {
                        let Some(member) = members.find(&endpoint(index, false)) else { continue };
                        member.is_silent = is_silent;
                        model[usize::from(index)].is_silent = is_silent;
                    }
                    Step::Ejected(index, is_ejected) => {
                        let Some(member) = members.find(&endpoint(index, false)) else { continue };
                        let one = &mut model[usize::from(index)];
                        (member.ejected_until, one.is_ejected) = (is_ejected.then_some(start), is_ejected);
                        (member.ejections, one.ejections) = (is_ejected.into(), is_ejected.into());
                    }
                    Step::Wait(seconds) => now += seconds,
                }
                let mut found: Vec<_> = members.choice(None).ready.iter().map(|ready| ready.address().to_string()).collect();
                found.sort();
                let expected: Vec<_> = expected(&model).iter().map(|index| format!("tcp://10.0.0.{index}:80")).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
