//! Channels to the servers that a real name server knows.

use std::time::Duration;

use frpc::{
    Channel, ConnectRetry, Engine, Method, Server,
    fleet::{FleetSettings, PickPolicy, look_up_service_config},
};
use support::{
    MILLI, SECOND, Unbound,
    calls::{TestServer, TestService, Words, schema::test_methods, words},
    in_real_time,
};

static SAY: Method = test_methods::SAY.idempotent();

/// A server on one of the addresses of this machine.
struct Host {
    service: TestService,
    server: Server,
}

impl Host {
    async fn at(ip: &str, port: u16) -> Option<Self> {
        let service = TestService::default();
        let server = Server::builder().engine(Engine::Tokio).add_service(TestServer::new(service.clone()));
        let server = server.bind(format!("tcp://{ip}:{port}")).await.ok()?;
        Some(Self { service, server })
    }

    fn port(&self) -> u16 {
        self.server.local_addr().socket_addr().unwrap().port()
    }

    /// Returns the number of calls since the last question.
    fn calls(&self) -> usize {
        self.service.log.take().iter().filter(|event| !event.starts_with("dropped")).count()
    }
}

/// Starts servers with the same port on different addresses.
async fn hosts<const N: usize>(ips: [&str; N]) -> [Host; N] {
    loop {
        let mut all = vec![Host::at(ips[0], 0).await.unwrap()];
        for ip in &ips[1..] {
            // Another program may use the port there.
            all.extend(Host::at(ip, all[0].port()).await);
        }
        if let Ok(all) = all.try_into() {
            return all;
        }
    }
}

async fn connect(target: &str, fleet: FleetSettings) -> Channel {
    Channel::builder().fleet(fleet).connect(target).await.unwrap()
}

async fn say(channel: &Channel) {
    assert_eq!(channel.unary::<_, Words>(&SAY, words("hi")).await.unwrap().get_ref().text, "hi");
}

#[test]
fn a_channel_follows_the_records_of_a_host() {
    in_real_time(async {
        let Some(dns) = Unbound::start(&["orders.test. 600 IN A 127.0.0.1".into()]).await else { return };
        let [first, second] = hosts(["127.0.0.1", "127.0.0.2"]).await;
        let target = format!("dns://{}/orders.test:{}", dns.place(), first.port());
        let channel = connect(&target, FleetSettings { wait_for_ready: true, ..FleetSettings::default() }).await;
        say(&channel).await;
        assert_eq!((first.calls(), second.calls()), (1, 0));
        dns.replace("orders.test.", &["orders.test. 600 IN A 127.0.0.2".into()]).await;
        first.server.shutdown(Duration::ZERO).await;
        // The lost connection asks DNS again, long before the record expires.
        say(&channel).await;
        assert_eq!(second.calls(), 1);
    });
}

#[test]
fn records_are_looked_up_when_they_expire() {
    in_real_time(async {
        let Some(dns) = Unbound::start(&["orders.test. 1 IN A 127.0.0.1".into()]).await else { return };
        let [first, second] = hosts(["127.0.0.1", "127.0.0.2"]).await;
        let target = format!("dns://{}/orders.test:{}", dns.place(), first.port());
        let channel =
            connect(&target, FleetSettings { policy: PickPolicy::RoundRobin, ..FleetSettings::default() }).await;
        let both = ["127.0.0.1", "127.0.0.2"].map(|ip| format!("orders.test. 1 IN A {ip}"));
        dns.replace("orders.test.", &both).await;
        while second.calls() == 0 {
            say(&channel).await;
        }
        assert!(first.calls() > 0);
    });
}

#[test]
fn a_channel_uses_the_hosts_of_a_service() {
    in_real_time(async {
        let [first, second, spare] = hosts(["127.0.0.1", "127.0.0.2", "127.0.0.3"]).await;
        let port = first.port();
        let records = [
            format!("_orders._tcp.test. 600 IN SRV 1 1 {port} one.test."),
            format!("_orders._tcp.test. 600 IN SRV 1 3 {port} two.test."),
            format!("_orders._tcp.test. 600 IN SRV 1 1 {port} missing.test."),
            format!("_orders._tcp.test. 600 IN SRV 9 1 {port} spare.test."),
            // No server has the port 0, so this is not the best priority.
            "_orders._tcp.test. 600 IN SRV 0 1 0 spare.test.".into(),
            "one.test. 600 IN A 127.0.0.1".into(),
            "two.test. 600 IN A 127.0.0.2".into(),
            "spare.test. 600 IN A 127.0.0.3".into(),
        ];
        let Some(dns) = Unbound::start(&records).await else { return };
        let target = format!("dns://{}/_orders._tcp.test", dns.place());
        let fleet = FleetSettings { policy: PickPolicy::Weighted, ..FleetSettings::default() };
        let channel = connect(&target, fleet).await;
        let [mut one, mut two] = [0, 0];
        while one < 50 || two < 50 {
            say(&channel).await;
            one += first.calls();
            two += second.calls();
        }
        assert!(two > one, "weight 3 gets {two} calls, weight 1 gets {one}");
        assert_eq!(spare.calls(), 0, "the hosts of the best priority are well");
    });
}

#[test]
fn thousands_of_records_are_no_trouble() {
    in_real_time(async {
        let ips = (0..3_000).map(|number| format!("127.{}.{}.9", number / 250, number % 250));
        let records: Vec<_> = ips.map(|ip| format!("orders.test. 600 IN A {ip}")).collect();
        let Some(dns) = Unbound::start(&records).await else { return };
        let everywhere = Host::at("0.0.0.0", 0).await.unwrap();
        let target = format!("dns://{}/orders.test:{}", dns.place(), everywhere.port());
        let channel = connect(&target, FleetSettings { endpoints_max: 5, ..FleetSettings::default() }).await;
        say(&channel).await;
        assert_eq!(everywhere.calls(), 1);
    });
}

#[test]
fn a_name_without_servers_is_an_error() {
    in_real_time(async {
        let records = ["_shut._tcp.test. 600 IN SRV 0 1 0 one.test.".into(), "one.test. 600 IN A 127.0.0.1".into()];
        let Some(dns) = Unbound::start(&records).await else { return };
        for (name, why) in [("orders.test:7300", ""), ("_orders._tcp.test", ""), ("_shut._tcp.test", "the port 0")] {
            let retry = ConnectRetry { attempts: 1, pause: MILLI };
            let channel = Channel::builder().retry(retry).connect(format!("dns://{}/{name}", dns.place()));
            let error = channel.await.unwrap_err().to_string();
            assert!(error.contains(name.split(':').next().unwrap()) && error.contains(why), "{error}");
        }
    });
}

#[test]
fn service_configs_come_from_text_records() {
    in_real_time(async {
        let config =
            r#"[{"clientLanguage": ["rust"], "serviceConfig": {"methodConfig": [{"name": [{}], "timeout": "3s"}]}}]"#;
        let quoted = config.replace('"', "\\\"");
        let records = [
            format!("_grpc_config.orders.test. 600 IN TXT \"grpc_config={quoted}\""),
            "_grpc_config.wrong.test. 600 IN TXT \"grpc_config=3\"".into(),
        ];
        let Some(dns) = Unbound::start(&records).await else { return };
        let find = |name: &str| {
            let target = format!("dns+grpc://{}/{name}.test:443", dns.place());
            async move { look_up_service_config(&target).await }
        };
        let found = find("orders").await.unwrap().unwrap();
        assert_eq!(found.methods[0].timeout, Some(3 * SECOND));
        assert_eq!(find("other").await.unwrap(), None);
        let error = find("wrong").await.unwrap_err().to_string();
        assert!(error.contains("_grpc_config.wrong.test"), "{error}");
        assert!(look_up_service_config("tcp://orders.test:443").await.is_err());
    });
}
