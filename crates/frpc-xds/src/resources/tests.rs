//! Conversion of good, wrong and hostile resources.

use std::time::Duration;

use frpc::{
    fleet::PickPolicy,
    prost::Message,
    prost_types::{self, Any},
};
use proptest::prelude::*;

use super::*;
use crate::protos::frpc::xds::v3::{
    self as proto, address, cluster, config_source, hash_policy, route, route_action, route_match,
};

fn ads() -> Option<proto::ConfigSource> {
    let specifier = config_source::ConfigSourceSpecifier::Ads(proto::AggregatedConfigSource {});
    Some(proto::ConfigSource { config_source_specifier: Some(specifier) })
}

fn pack(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
}

fn endpoint(ip: &str, port: u32) -> proto::LbEndpoint {
    let socket = proto::SocketAddress { address: ip.to_owned(), port_value: port, ..Default::default() };
    let address = proto::Address { address: Some(address::Address::SocketAddress(socket)) };
    let endpoint = proto::Endpoint { address: Some(address), ..Default::default() };
    proto::LbEndpoint { endpoint: Some(endpoint), ..Default::default() }
}

fn locality(
    zone: &str,
    weight: u32,
    priority: u32,
    lb_endpoints: Vec<proto::LbEndpoint>,
) -> proto::LocalityLbEndpoints {
    let locality = proto::Locality { zone: zone.to_owned(), ..Default::default() };
    let load_balancing_weight = Some(weight).filter(|weight| *weight > 0);
    proto::LocalityLbEndpoints { locality: Some(locality), lb_endpoints, load_balancing_weight, priority }
}

fn assignment(endpoints: Vec<proto::LocalityLbEndpoints>) -> proto::ClusterLoadAssignment {
    proto::ClusterLoadAssignment { cluster_name: "c".to_owned(), endpoints, policy: None }
}

fn cluster() -> proto::Cluster {
    proto::Cluster {
        name: "c".to_owned(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(proto::EdsClusterConfig { eds_config: ads(), service_name: String::new() }),
        ..Default::default()
    }
}

fn routed(path: route_match::PathSpecifier, action: proto::RouteAction) -> proto::Route {
    let found = proto::RouteMatch { path_specifier: Some(path), ..Default::default() };
    proto::Route { r#match: Some(found), action: Some(route::Action::Route(action)), name: String::new() }
}

fn to_cluster(name: &str) -> proto::RouteAction {
    let cluster_specifier = Some(route_action::ClusterSpecifier::Cluster(name.to_owned()));
    proto::RouteAction { cluster_specifier, ..Default::default() }
}

fn table(hosts: &[(&[&str], Vec<proto::Route>)]) -> proto::RouteConfiguration {
    let host = |(domains, routes): &(&[&str], Vec<proto::Route>)| proto::VirtualHost {
        domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
        routes: routes.clone(),
        ..Default::default()
    };
    proto::RouteConfiguration { name: "r".to_owned(), virtual_hosts: hosts.iter().map(host).collect() }
}

fn read(kind: ResourceKind, message: &impl Message) -> Result<Resource, String> {
    kind.read(&message.encode_to_vec())
}

fn shares(message: &proto::ClusterLoadAssignment) -> Vec<Vec<f64>> {
    let Ok(Resource::Endpoints(found)) = read(ResourceKind::Endpoints, message) else { panic!("it is valid") };
    found.priorities.iter().map(|endpoints| endpoints.iter().map(|one| one.share).collect()).collect()
}

#[test]
fn shares_follow_the_weights_of_localities_and_endpoints() {
    let mut heavy = endpoint("10.0.0.2", 1);
    heavy.load_balancing_weight = Some(3);
    let mut sick = endpoint("10.0.0.3", 1);
    sick.health_status = proto::lb_endpoint::HealthStatus::Draining as i32;
    let weighted = assignment(vec![
        locality("b", 1, 0, vec![endpoint("::1", 1), sick]),
        locality("a", 1, 0, vec![endpoint("10.0.0.1", 1), heavy]),
        locality("unused", 0, 0, vec![endpoint("10.0.0.4", 1)]),
        locality("a", 1, 1, vec![endpoint("10.0.0.5", 1)]),
    ]);
    assert_eq!(shares(&weighted), [vec![0.5, 0.125, 0.375], vec![1.0]]);
    let even = assignment(vec![
        locality("a", 0, 0, vec![endpoint("10.0.0.1", 1)]),
        locality("b", 0, 0, vec![endpoint("10.0.0.2", 1)]),
    ]);
    assert_eq!(shares(&even), [[0.5, 0.5]], "without weights, all are equal");
    assert_eq!(shares(&assignment(vec![locality("a", 1, 0, Vec::new())])), [[0.0; 0]]);
}

#[test]
fn drops_of_several_categories_are_combined() {
    let half = proto::FractionalPercent { numerator: 50, denominator: 0 };
    let drop = proto::DropOverload { category: "c".to_owned(), drop_percentage: Some(half) };
    let policy = Some(proto::AssignmentPolicy { drop_overloads: vec![drop.clone(), drop] });
    let Ok(Resource::Endpoints(found)) =
        read(ResourceKind::Endpoints, &proto::ClusterLoadAssignment { policy, ..assignment(Vec::new()) })
    else {
        panic!("it is valid")
    };
    assert_eq!(found.dropped, 750_000);
}

#[test]
fn wrong_assignments_are_refused() {
    let one = || endpoint("10.0.0.1", 1);
    let mut weightless = one();
    weightless.load_balancing_weight = Some(0);
    for (localities, why) in [
        (vec![locality("a", 1, 1, vec![one()])], "there is no priority 0"),
        (vec![locality("a", 1, 0, vec![one()]), locality("b", 1, u32::MAX, vec![])], "there is no priority 1"),
        (vec![locality("a", 1, 0, vec![one()]), locality("a", 1, 0, vec![])], "locality \"a\" appears twice"),
        (vec![locality("a", 1, 0, vec![one(), one()])], "10.0.0.1:1 appears twice"),
        (vec![locality("a", 1, 0, vec![weightless])], "weight 0"),
        (vec![locality("a", 1, 0, vec![endpoint("orders.internal", 1)])], "not an IP address"),
        (vec![locality("a", 1, 0, vec![endpoint("10.0.0.1", 0)])], "the port 0"),
        (vec![locality("a", 1, 0, vec![endpoint("10.0.0.1", 65_536)])], "the port 65536"),
        (vec![locality("a", 1, 0, vec![proto::LbEndpoint::default()])], "no address"),
        (vec![locality("a", u32::MAX, 0, vec![]), locality("b", 1, 0, vec![])], "the sum of the weights"),
        (vec![locality("a", 1, 0, vec![proto::LbEndpoint::default(); 10_001])], "more than 10000"),
    ] {
        let error = read(ResourceKind::Endpoints, &assignment(localities)).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn policies_limits_and_outliers_of_clusters_are_read() {
    let mut found = cluster();
    found.circuit_breakers = Some(proto::CircuitBreakers {
        thresholds: vec![
            proto::Thresholds { priority: 1, max_requests: Some(1) },
            proto::Thresholds { priority: 0, max_requests: Some(7) },
        ],
    });
    found.outlier_detection = Some(proto::OutlierDetection {
        enforcing_failure_percentage: Some(50),
        enforcing_success_rate: Some(0),
        max_ejection_percent: Some(20),
        ..Default::default()
    });
    let ring = pack("envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash", &proto::RingHash::default());
    let policies = |config: Any| {
        let typed_extension_config =
            Some(proto::TypedExtensionConfig { name: String::new(), typed_config: Some(config) });
        proto::LoadBalancingPolicy { policies: vec![proto::Policy { typed_extension_config }] }
    };
    let wrr = proto::WrrLocality { endpoint_picking_policy: Some(policies(ring)) };
    found.load_balancing_policy =
        Some(policies(pack("envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality", &wrr)));
    let Ok(Resource::Cluster(config)) = read(ResourceKind::Cluster, &found) else { panic!("it is valid") };
    assert_eq!((config.calls_max, config.balancing.policy), (7, PickPolicy::RingHash));
    assert_eq!(config.source, ClusterSource::Discovered("c".to_owned()));
    let outliers = config.outliers.unwrap();
    assert_eq!((outliers.success_rate, outliers.ejected_max), (None, 0.2));
    assert_eq!(outliers.failures.unwrap().enforcement, 0.5);
    let Ok(Resource::Cluster(usual)) = read(ResourceKind::Cluster, &cluster()) else { panic!("it is valid") };
    assert_eq!((usual.calls_max, usual.balancing.policy), (1_024, PickPolicy::RoundRobin));
    assert_eq!((&usual.outliers, &usual.tls), (&None, &None));
}

#[test]
fn wrong_clusters_are_refused() {
    type Change = fn(&mut proto::Cluster);
    let cases: [(Change, &str); 11] = [
        (|found| found.eds_cluster_config = None, "eds_cluster_config is missing"),
        (|found| found.eds_cluster_config = Some(Default::default()), "must be ads or self"),
        (|found| found.cluster_discovery_type = None, "load_assignment is missing"),
        (
            |found| found.cluster_discovery_type = Some(cluster::ClusterDiscoveryType::Type(1)),
            "STRICT_DNS is not supported",
        ),
        (|found| found.cluster_discovery_type = Some(cluster::ClusterDiscoveryType::Type(99)), "type 99 is unknown"),
        (|found| found.cluster_discovery_type = Some(cluster::ClusterDiscoveryType::Type(2)), "needs one locality"),
        (|found| found.lb_policy = 5, "MAGLEV is not supported"),
        (
            |found| {
                found.lb_policy = 2;
                let minimum_ring_size = Some(u64::MAX);
                found.ring_hash_lb_config = Some(proto::RingHashLbConfig { minimum_ring_size, ..Default::default() });
            },
            "ring size",
        ),
        (
            |found| {
                found.lb_policy = 1;
                found.least_request_lb_config = Some(proto::LeastRequestLbConfig { choice_count: Some(1) });
            },
            "choice_count is 1",
        ),
        (
            |found| {
                let max_ejection_percent = Some(101);
                found.outlier_detection = Some(proto::OutlierDetection { max_ejection_percent, ..Default::default() });
            },
            "more than 100",
        ),
        (
            |found| {
                let interval = Some(prost_types::Duration { seconds: -1, nanos: 0 });
                found.outlier_detection = Some(proto::OutlierDetection { interval, ..Default::default() });
            },
            "interval is not a valid duration",
        ),
    ];
    for (change, why) in cases {
        let mut found = cluster();
        change(&mut found);
        let error = read(ResourceKind::Cluster, &found).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn nested_policies_are_limited() {
    const WRR: &str = "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality";
    let mut policy = proto::LoadBalancingPolicy::default();
    for _ in 0..20 {
        let config = pack(WRR, &proto::WrrLocality { endpoint_picking_policy: Some(policy) });
        let typed_extension_config =
            Some(proto::TypedExtensionConfig { name: String::new(), typed_config: Some(config) });
        policy = proto::LoadBalancingPolicy { policies: vec![proto::Policy { typed_extension_config }] };
    }
    let found = proto::Cluster { load_balancing_policy: Some(policy), ..cluster() };
    assert!(read(ResourceKind::Cluster, &found).unwrap_err().contains("nested more than"));
}

#[test]
fn regular_expressions_are_limited() {
    let regex = |text: &str| proto::RegexMatcher { regex: text.to_owned() };
    let read_all = |len, text: &str| {
        let header = proto::HeaderMatcher {
            name: "x".to_owned(),
            header_match_specifier: Some(proto::header_matcher::HeaderMatchSpecifier::SafeRegexMatch(regex(text))),
            ..Default::default()
        };
        let mut route = routed(route_match::PathSpecifier::SafeRegex(regex(text)), to_cluster("c"));
        route.r#match.as_mut().unwrap().headers = vec![header];
        read(ResourceKind::Routes, &table(&[(&["*"], vec![route; len])]))
    };
    assert!(read_all(250, "a").is_ok());
    let long = "a".repeat(5_000);
    for (len, text, why) in [
        (251, "a", "502 regular expressions"),
        (1, &*long, "5000 bytes"),
        (1, "((\\w{99}){99}){99}", "not usable"),
        (1, "\x1b[2J(", "\\u{1b}[2J"),
    ] {
        let error = read_all(len, text).unwrap_err();
        assert!(error.contains(why) && !error.contains('\x1b'), "{error}");
    }
}

#[test]
fn durations_are_limited() {
    for seconds in [-1, 315_576_000_001, i64::MAX] {
        let interval = Some(prost_types::Duration { seconds, nanos: 0 });
        let outlier_detection = Some(proto::OutlierDetection { interval, ..Default::default() });
        let error = read(ResourceKind::Cluster, &proto::Cluster { outlier_detection, ..cluster() }).unwrap_err();
        assert!(error.contains("interval is not a valid duration"), "{error}");
    }
}

#[test]
fn the_best_domain_of_a_service_decides() {
    let all = |name: &str| vec![routed(route_match::PathSpecifier::Prefix(String::new()), to_cluster(name))];
    let config = table(&[
        (&["*"], all("any")),
        (&["*.internal"], all("suffix")),
        (&["*ders.internal"], all("longer")),
        (&["orders.*"], all("prefix")),
        (&["Orders.internal"], all("exact")),
    ]);
    let Ok(Resource::Routes(found)) = read(ResourceKind::Routes, &config) else { panic!("it is valid") };
    let chosen = |service: &str| found.routes_of(service).unwrap()[0].target.as_ref().unwrap().choose().to_string();
    for (service, expected) in [
        ("orders.internal", "exact"),
        ("ORDERS.INTERNAL", "exact"),
        ("borders.internal", "longer"),
        ("users.internal", "suffix"),
        ("orders.example", "prefix"),
        ("users", "any"),
    ] {
        assert_eq!(chosen(service), expected, "{service}");
    }
    let Ok(Resource::Routes(found)) = read(ResourceKind::Routes, &table(&[(&["a"], all("x"))])) else {
        panic!("valid")
    };
    assert_eq!(found.routes_of("b"), None);
}

#[test]
fn routes_bring_paths_retries_timeouts_and_keys() {
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let header = proto::HashHeader { header_name: "X-User".to_owned(), regex_rewrite: None };
    let action = proto::RouteAction {
        retry_policy: Some(proto::RetryPolicy {
            retry_on: "5xx, unavailable,resource-exhausted".to_owned(),
            num_retries: Some(100),
            retry_back_off: None,
        }),
        max_stream_duration: Some(proto::MaxStreamDuration {
            max_stream_duration: seconds(9),
            grpc_timeout_header_max: seconds(3),
        }),
        hash_policy: vec![proto::HashPolicy {
            policy_specifier: Some(hash_policy::PolicySpecifier::Header(header)),
            terminal: true,
        }],
        ..to_cluster("c")
    };
    let path = |path: &str| route_match::PathSpecifier::Path(path.to_owned());
    let prefix = |prefix: &str| route_match::PathSpecifier::Prefix(prefix.to_owned());
    let routes = vec![
        routed(path("/a.B/C"), action),
        routed(prefix("/a.B/"), to_cluster("c")),
        routed(route_match::PathSpecifier::PathSeparatedPrefix("/a".to_owned()), to_cluster("c")),
        routed(prefix("/"), to_cluster("c")),
    ];
    let Ok(Resource::Routes(found)) = read(ResourceKind::Routes, &table(&[(&["*"], routes)])) else { panic!("valid") };
    let routes = found.routes_of("x").unwrap();
    let paths: Vec<_> = routes.iter().map(|route| route.condition.path.clone()).collect();
    let prefix = |text: &str| PathRule::Prefix(text.to_owned());
    let [exact, folder] = ["/a.B/C", "/a"].map(str::to_owned);
    assert_eq!(paths, [PathRule::Exact(exact), prefix("/a.B/"), PathRule::Folder(folder), prefix("/")]);
    let target = routes[0].target.clone().unwrap();
    let hash = HashRule { header: Some("x-user".to_owned()), is_terminal: true };
    assert_eq!((target.timeout, target.hash), (Some(Duration::from_secs(3)), vec![hash]));
    let retry = target.retry.unwrap();
    assert!(retry.codes.contains(14) && retry.codes.contains(8) && !retry.codes.contains(13));
    assert_eq!((retry.attempts_max, retry.first_pause), (5, Duration::from_millis(25)));
}

#[test]
fn wrong_routes_and_listeners_are_refused() {
    let prefix = || route_match::PathSpecifier::Prefix(String::new());
    let weights = |weights: &[u32]| {
        let one = |weight: &u32| proto::ClusterWeight { name: "c".to_owned(), weight: Some(*weight) };
        let weighted = proto::WeightedCluster { clusters: weights.iter().map(one).collect() };
        let cluster_specifier = Some(route_action::ClusterSpecifier::WeightedClusters(weighted));
        vec![routed(prefix(), proto::RouteAction { cluster_specifier, ..Default::default() })]
    };
    for (hosts, why) in [
        (table(&[(&["*"], vec![]), (&["*"], vec![])]), "\"*\" appears twice"),
        (table(&[(&[], vec![])]), "has no domains"),
        (table(&[(&["a*b"], vec![])]), "invalid domain"),
        (table(&[(&["*"], vec![proto::Route::default()])]), "match is missing"),
        (table(&[(&["*"], vec![routed(prefix(), proto::RouteAction::default())])]), "the route has no cluster"),
        (table(&[(&["*"], weights(&[0, 0]))]), "the sum of the weights"),
        (table(&[(&["*"], weights(&[u32::MAX, 1]))]), "the sum of the weights"),
        (table(&[(&["*"], weights(&[1; 101]))]), "more than 100"),
        (table(&[(&["*"], vec![routed(prefix(), to_cluster("c")); 10_001])]), "10001 routes"),
    ] {
        let error = read(ResourceKind::Routes, &hosts).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
    const MANAGER: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let listener = |manager: Any| proto::Listener {
        name: "l".to_owned(),
        api_listener: Some(proto::ApiListener { api_listener: Some(manager) }),
    };
    let fault = |value: &[u8]| {
        let url = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault";
        let typed_config = Some(Any { type_url: url.to_owned(), value: value.to_vec() });
        let filter = proto::HttpFilter { name: "fault".to_owned(), typed_config, is_optional: false };
        proto::HttpConnectionManager { http_filters: vec![filter], ..Default::default() }
    };
    let filter = proto::HttpFilter { name: "rbac".to_owned(), ..Default::default() };
    let filtered = proto::HttpConnectionManager { http_filters: vec![filter], ..Default::default() };
    for (found, why) in [
        (proto::Listener::default(), "api_listener is missing"),
        (listener(pack("other", &filtered)), "has the type"),
        (listener(pack(MANAGER, &filtered)), "unsupported type"),
        (listener(pack(MANAGER, &fault(&[10, 0]))), "unsupported type"),
        (listener(pack(MANAGER, &fault(&[]))), "neither rds nor route_config"),
        (listener(pack(MANAGER, &proto::HttpConnectionManager::default())), "neither rds nor route_config"),
    ] {
        let error = read(ResourceKind::Listener, &found).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn names_in_certificates_are_matched() {
    let rules = |pattern: proto::string_matcher::MatchPattern, ignore_case, san_type: i32| {
        let matcher = proto::StringMatcher { match_pattern: Some(pattern), ignore_case };
        let typed = proto::SubjectAltNameMatcher { san_type, matcher: Some(matcher) };
        let validation = proto::CertificateValidationContext {
            match_typed_subject_alt_names: vec![typed],
            system_root_certs: Some(proto::Unread {}),
            ..Default::default()
        };
        let common = proto::CommonTlsContext { validation_context: Some(validation), ..Default::default() };
        let context = proto::UpstreamTlsContext { common_tls_context: Some(common), sni: String::new() };
        let config = pack("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", &context);
        TlsRules::read(&proto::TransportSocket { name: String::new(), typed_config: Some(config) })
    };
    use proto::string_matcher::MatchPattern::{Contains, Exact, Prefix, SafeRegex, Suffix};
    const DNS: i32 = 2;
    const URI: i32 = 3;
    for (pattern, ignore_case, kind, name, is_uri, expected) in [
        (Exact("a.example".to_owned()), false, DNS, "A.example", false, true),
        (Exact("a.example".to_owned()), false, DNS, "*.example", false, true),
        (Exact("b.a.example".to_owned()), false, DNS, "*.example", false, false),
        (Exact("example".to_owned()), false, DNS, "*.example", false, false),
        (Exact("a.example".to_owned()), false, URI, "a.example", false, false),
        (Exact("spiffe://x/a".to_owned()), false, URI, "spiffe://x/a", true, true),
        (Exact("spiffe://x/a".to_owned()), false, URI, "spiffe://x/A", true, false),
        (Exact("spiffe://x/a".to_owned()), true, URI, "spiffe://x/A", true, true),
        (Prefix("spiffe://x/".to_owned()), false, URI, "spiffe://x/a", true, true),
        (Suffix(".example".to_owned()), false, DNS, "a.example", false, true),
        (Suffix(".example".to_owned()), false, DNS, "a.example.org", false, false),
        (Contains("exam".to_owned()), false, DNS, "a.example", false, true),
    ] {
        let found = rules(pattern.clone(), ignore_case, kind).unwrap();
        assert_eq!(found.names[0].matches(name, is_uri), expected, "{pattern:?} {name}");
    }
    assert!(rules(SafeRegex(proto::RegexMatcher::default()), false, DNS).unwrap_err().contains("no supported pattern"));
    assert!(rules(Exact(String::new()), false, DNS).unwrap_err().contains("empty"));
    assert!(rules(Exact("a".to_owned()), false, 1).unwrap_err().contains("SAN type 1"));
}

/// Returns a TLS context with secrets for the authorities and the certificate of the client.
fn context_with_secrets(change: impl FnOnce(&mut proto::CommonTlsContext)) -> Result<TlsRules, String> {
    let secret = |name: &str| proto::SdsSecretConfig { name: name.to_owned(), sds_config: ads() };
    let mut common = proto::CommonTlsContext {
        tls_certificate_sds_secret_configs: vec![secret("mine")],
        validation_context_sds_secret_config: Some(secret("roots")),
        ..Default::default()
    };
    change(&mut common);
    let context = proto::UpstreamTlsContext { common_tls_context: Some(common), sni: String::new() };
    let config = pack("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", &context);
    TlsRules::read(&proto::TransportSocket { name: String::new(), typed_config: Some(config) })
}

fn file(path: &str) -> Option<proto::DataSource> {
    Some(proto::DataSource { specifier: Some(proto::data_source::Specifier::Filename(path.to_owned())) })
}

fn secret(kind: Option<proto::secret::Type>) -> Vec<u8> {
    proto::Secret { name: "one".to_owned(), r#type: kind }.encode_to_vec()
}

#[test]
fn secrets_take_the_place_of_their_names() {
    use proto::secret::Type;
    let read = |content: &[u8]| match ResourceKind::Secret.read(content).unwrap() {
        Resource::Secret(secret) => secret,
        other => panic!("{other:?}"),
    };
    let rule = |name: &str| proto::StringMatcher {
        match_pattern: Some(proto::string_matcher::MatchPattern::Exact(name.to_owned())),
        ..Default::default()
    };
    let validation = proto::CertificateValidationContext {
        trusted_ca: file("/ca.pem"),
        match_subject_alt_names: vec![rule("b.example")],
        ..Default::default()
    };
    let certificate = proto::TlsCertificate { certificate_chain: file("/c.pem"), private_key: file("/k.pem") };
    let roots = read(&secret(Some(Type::ValidationContext(validation))));
    let mine = read(&secret(Some(Type::TlsCertificate(certificate))));
    let rules = context_with_secrets(|common| {
        common.combined_validation_context = Some(proto::CombinedCertificateValidationContext {
            default_validation_context: Some(proto::CertificateValidationContext {
                trusted_ca: file("/replaced.pem"),
                match_subject_alt_names: vec![rule("a.example")],
                ..Default::default()
            }),
            validation_context_sds_secret_config: common.validation_context_sds_secret_config.take(),
            ..Default::default()
        });
    });
    let rules = rules.unwrap();
    assert_eq!(rules.secrets().map(|name| &**name).collect::<Vec<_>>(), ["roots", "mine"]);
    let secrets = [("roots".into(), roots.clone()), ("mine".into(), mine.clone())].into();
    let found = rules.with_secrets(&secrets).unwrap();
    assert_eq!(found.authorities, CertificateSource::File("/ca.pem".into()));
    let identity = found.identity.unwrap();
    assert_eq!(identity.certificate, CertificateSource::File("/c.pem".into()));
    assert_eq!(identity.key, CertificateSource::File("/k.pem".into()));
    assert!(found.names.iter().any(|rule| rule.matches("a.example", false)));
    assert!(found.names.iter().any(|rule| rule.matches("b.example", false)));
    // Each in the place of the other.
    let swapped = [("roots".into(), mine), ("mine".into(), roots)].into();
    assert!(rules.with_secrets(&swapped).unwrap_err().contains("\"roots\" is no validation_context"));
}

#[test]
fn unusable_secrets_are_refused() {
    use proto::secret::Type;
    let text = |text: &str| {
        Some(proto::DataSource { specifier: Some(proto::data_source::Specifier::InlineString(text.to_owned())) })
    };
    let certificate = |certificate_chain, private_key| {
        Some(Type::TlsCertificate(proto::TlsCertificate { certificate_chain, private_key }))
    };
    let validation = |trusted_ca| {
        Some(Type::ValidationContext(proto::CertificateValidationContext { trusted_ca, ..Default::default() }))
    };
    for (kind, why) in [
        (None, "neither tls_certificate nor validation_context"),
        (certificate(text("x"), None), "needs certificate_chain and private_key"),
        (certificate(text("x"), text("y")), "tls_certificate is unusable"),
        (validation(None), "needs trusted_ca"),
        (validation(text("-----BEGIN CERTIFICATE-----")), "trusted_ca is unusable"),
    ] {
        let error = ResourceKind::Secret.read(&secret(kind)).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
    for (change, why) in [
        (
            (|common| common.tls_certificate_sds_secret_configs[0].name.clear()) as fn(&mut proto::CommonTlsContext),
            "name is empty",
        ),
        (|common| common.tls_certificate_sds_secret_configs[0].sds_config = None, "must be ads or self"),
        (|common| common.tls_certificate_sds_secret_configs.push(Default::default()), "more than one"),
        (|common| common.tls_certificates.push(Default::default()), "more than one"),
    ] {
        let error = context_with_secrets(change).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
    let shown = format!("{:?}", CertificateSource::Inline(b"secret".to_vec()));
    assert_eq!(shown, "Inline(6 bytes)");
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for kind in ResourceKind::ALL {
            let _ = kind.read(&bytes);
        }
        let _ = name_of(&bytes);
    }

    #[test]
    fn damaged_resources_never_panic(at in any::<prop::sample::Index>(), with in any::<u8>()) {
        let listener = assignment(vec![
            locality("a", 3, 0, vec![endpoint("10.0.0.1", 1), endpoint("::1", 2)]),
            locality("b", 1, 1, vec![endpoint("10.0.0.2", 1)]),
        ]);
        let action = proto::RouteAction { retry_policy: Some(Default::default()), ..to_cluster("c") };
        let routes = table(&[(&["*"], vec![routed(route_match::PathSpecifier::Prefix("/a/".to_owned()), action)])]);
        let contents = [
            (ResourceKind::Endpoints, listener.encode_to_vec()),
            (ResourceKind::Cluster, cluster().encode_to_vec()),
            (ResourceKind::Routes, routes.encode_to_vec()),
        ];
        for (kind, mut bytes) in contents {
            let at = at.index(bytes.len());
            bytes[at] = with;
            let _ = kind.read(&bytes);
        }
    }
}
