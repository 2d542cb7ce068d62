//! Lists and watches recorded by `tests/kubernetes/record.py` from kube-apiserver 1.37.2.

use frpc::fleet::{Endpoint, Endpoints};
use frpc_kubernetes::ResolverSettings;
use support::in_real_time;

use crate::{Found, fake::FakeApi, hasty, pods, zone};

const PAGES: [&[u8]; 3] = [
    include_bytes!("recorded/page1.json"),
    include_bytes!("recorded/page2.json"),
    include_bytes!("recorded/page3.json"),
];
/// A deploy: ten pods of the last slice terminate, a slice and one in IPv6 appear, the first is deleted.
const CHANGES: &[u8] = include_bytes!("recorded/changes.watch");
/// The watch of a version that the server no longer has.
const GONE: &[u8] = include_bytes!("recorded/gone.watch");
/// Of the list, and of the last bookmark.
const VERSIONS: [&str; 2] = ["539", "545"];

async fn answer_pages(api: &mut FakeApi) {
    let [first, second, third] = PAGES;
    api.list(first).await;
    for page in [second, third] {
        let asked = api.next().await;
        assert!(asked.query.starts_with("&limit=50&continue=eyJ2Ijoib"), "{}", asked.query);
        assert!(asked.head.contains("\r\nauthorization: Bearer secret\r\n"), "{}", asked.head);
        asked.answer(200, page).await;
    }
}

fn after_the_changes(zone: Option<u16>) -> Endpoints {
    // Pods with an IPv4 address keep that one.
    let numbers = (100..240).chain(250..260).filter(|number| zone.is_none_or(|zone| number % 3 == zone));
    Endpoints::new(pods(numbers))
}

#[test]
fn endpoints_of_three_slices_are_found_and_follow_a_deploy() {
    in_real_time(async {
        for piece_len in [1, 1000, usize::MAX] {
            let mut api = FakeApi::listen().await;
            let mut found = Found::by(&api.resolver(ResolverSettings::default()));
            let (endpoints, ()) = tokio::join!(found.next(), answer_pages(&mut api));
            assert_eq!(endpoints.unwrap(), Endpoints::new(pods(0..250)));
            let expected = after_the_changes(None);
            let (watch, ()) = tokio::join!(
                async {
                    let mut watch = api.watch(VERSIONS[0]).await;
                    for piece in CHANGES.chunks(piece_len) {
                        watch.send(piece).await;
                    }
                    watch
                },
                found.until(expected)
            );
            // The next watch continues after the bookmark.
            let (again, _) = tokio::join!(
                async {
                    watch.end().await;
                    let mut again = api.watch(VERSIONS[1]).await;
                    again.send(GONE).await;
                    // The version is gone, so the list follows, without a version.
                    answer_pages(&mut api).await;
                    again
                },
                found.until(Endpoints::new(pods(0..250)))
            );
            again.closed().await;
        }
    });
}

#[test]
fn hints_and_families_select_among_recorded_endpoints() {
    in_real_time(async {
        let mut api = FakeApi::listen().await;
        let settings = ResolverSettings { zone: Some("b".into()), ..hasty() };
        let mut found = Found::by(&api.resolver(settings));
        let (endpoints, ()) = tokio::join!(found.next(), answer_pages(&mut api));
        assert_eq!(endpoints.unwrap(), Endpoints::new(pods((0..250).filter(|number| number % 3 == 1))));
        tokio::join!(
            async {
                let mut watch = api.watch(VERSIONS[0]).await;
                watch.send(CHANGES).await;
            },
            found.until(after_the_changes(Some(1)))
        );

        let mut api = FakeApi::listen().await;
        let mut found = Found::by(&api.resolver(ResolverSettings { prefer_ipv6: true, ..hasty() }));
        let (endpoints, ()) = tokio::join!(found.next(), answer_pages(&mut api));
        assert_eq!(endpoints.unwrap(), Endpoints::new(pods(0..250)), "there is no other");
        let ipv6 = (250..255_u16).map(|number| {
            let endpoint = Endpoint::new(format!("tcp://[fd00::{:x}]:7300", number + 1)).unwrap();
            endpoint.zone(zone(number)).tls_name("orders.shop.svc")
        });
        // Slices are in the order of their names: the one in IPv6 is `orders-6`.
        let expected = Endpoints::new(ipv6.chain(pods((100..240).chain(255..260))));
        tokio::join!(
            async {
                let mut watch = api.watch(VERSIONS[0]).await;
                watch.send(CHANGES).await;
            },
            found.until(expected)
        );
    });
}
