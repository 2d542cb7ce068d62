//! Publishing, subscribing and requests over a real NATS server.

use std::time::Duration;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use frisbee_pubsub::{
    Client, Message, Pattern, Policy, Publication, PublishError, RefusalCode, RequestError, Subscription,
    SubscriptionEnd, SubscriptionEvent, TryPublishError,
};
use frisbee_pubsub_nats::{Login, Nats, NatsOptions};
use nkeys::KeyPair;
use serde_json::{Value, json};
use support::{Directory, Identity, NatsProgram, in_real_time, until};

#[test]
fn messages_reach_subscribers_in_order() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
        let mut created = theirs.subscribe("orders.*.created").await.unwrap();
        let mut all = theirs.subscribe("orders.>").await.unwrap();
        for number in 0..1000 {
            let kind = if number % 2 == 0 { "created" } else { "paid" };
            ours.publish(&format!("orders.{number}.{kind}"), number.to_string()).await.unwrap();
        }
        for number in 0..1000 {
            let text = number.to_string();
            assert_eq!(next(&mut all).await.payload, text);
            if number % 2 == 0 {
                assert_eq!(next(&mut created).await.subject, *format!("orders.{number}.created"));
            }
        }
        ours.send(Publication::new("orders.1", "answer me").reply("answers.1")).await.unwrap();
        assert_eq!(next(&mut all).await.reply.as_deref(), Some("answers.1"));
        drop(created);
        theirs.close().await;
        assert!(all.next().await.is_none());
        assert!(matches!(all.end(), Some(SubscriptionEnd::Closed)));
        assert!(matches!(theirs.publish("orders.1", "").await, Err(PublishError::Closed)));
    });
}

/// The work of a program whose only input is an address.
async fn program(address: &str) -> String {
    let client = frisbee_pubsub_nats::connect(address).await.unwrap();
    let mut jobs = client.subscribe("jobs.*").group("workers").await.unwrap();
    client.publish_acknowledged("jobs.first", "do it").await.unwrap();
    let job = next(&mut jobs).await;
    tokio::spawn({
        let client = client.clone();
        async move {
            let question = next(&mut jobs).await;
            client.respond(&question, "done").await.unwrap();
            // The connection must stay open until the answer is sent.
            client.flush().await.unwrap();
        }
    });
    let answer = client.request("jobs.second", "do it too").await.unwrap();
    let nobody = client.request("strikes", "").await.unwrap_err();
    format!("{} {:?} {:?} {nobody}", job.subject, job.payload, answer.payload)
}

#[test]
fn the_address_selects_nats_or_a_frisbee_broker() {
    in_real_time(async {
        let Some(nats) = NatsProgram::find() else { return };
        let server = nats.start("one", "").await;
        let broker = frisbee::Server::builder(frisbee_pubsub::Broker::new().router());
        let broker = broker.bind("tcp://127.0.0.1:0").await.unwrap();
        let expected = "jobs.first b\"do it\" b\"done\" the subject has no subscribers";
        assert_eq!(program(&server.url()).await, expected);
        assert_eq!(program(&broker.local_addr().to_string()).await, expected);
        assert!(frisbee_pubsub_nats::connect("http://localhost").await.is_err());
    });
}

#[test]
fn each_message_reaches_one_member_of_a_group() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let client = connect(&server.url()).await;
        let mut members = Vec::new();
        for _ in 0..3 {
            members.push(client.subscribe("jobs.>").group("workers").await.unwrap());
        }
        for number in 0..300_u32 {
            client.publish("jobs.new", number.to_string()).await.unwrap();
        }
        client.publish_acknowledged("jobs.over", "").await.unwrap();
        // Only one member gets the last message. The others may still have messages in flight, and closing the client
        // delivers these.
        client.close().await;
        let mut numbers = Vec::new();
        for mut member in members {
            while let Some(message) = member.next_message().await {
                numbers.extend(String::from_utf8_lossy(&message.payload).parse::<u32>());
            }
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..300).collect::<Vec<_>>());
    });
}

#[test]
fn requests_without_responders_fail_immediately() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let client = connect(&server.url()).await;
        assert!(matches!(client.request("sums.add", "1 2").await, Err(RequestError::NoResponders)));
        let mut questions = client.subscribe("sums.*").group("adders").await.unwrap();
        let answering = tokio::spawn({
            let client = client.clone();
            async move {
                let question = next(&mut questions).await;
                let sum: u32 =
                    String::from_utf8_lossy(&question.payload).split(' ').map(|n| n.parse::<u32>().unwrap()).sum();
                client.respond(&question, sum.to_string()).await.unwrap();
                questions
            }
        });
        assert_eq!(client.request("sums.add", "1 2").await.unwrap().payload, "3");
        let _silent = answering.await.unwrap();
        let impatient = client.with_request_limit(Duration::from_millis(1));
        assert!(matches!(impatient.request("sums.add", "1 2").await, Err(RequestError::TimedOut)));
    });
}

#[test]
fn only_the_slow_subscriber_misses_messages() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let client = connect(&server.url()).await;
        let mut fast = client.subscribe("news").window(1 << 24).await.unwrap();
        let slow = client.subscribe("news").policy(Policy::DropOldest).window(10_000).await.unwrap();
        let cut = client.subscribe("news").policy(Policy::Disconnect).window(10_000).await.unwrap();
        for number in 0..1000_u32 {
            client.publish("news", number.to_string()).await.unwrap();
        }
        client.publish_acknowledged("news", "over").await.unwrap();
        for number in 0..1000_u32 {
            assert_eq!(next(&mut fast).await.payload, number.to_string());
        }
        client.close().await;
        let (delivered, missing, _) = count(slow).await;
        assert_eq!(delivered.len() as u64 + missing, 1001);
        assert_eq!((missing > 0, delivered.last().unwrap().as_str()), (true, "over"));
        let (delivered, _, end) = count(cut).await;
        assert!(matches!(end, SubscriptionEnd::TooSlow { .. }), "{end:?}");
        assert_eq!(delivered, (0..delivered.len()).map(|number| number.to_string()).collect::<Vec<_>>());
    });
}

#[test]
fn unpublishable_messages_return_an_error() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "max_payload: 1000").await;
        let client = connect(&server.url()).await;
        let large = vec![0; 1001];
        let too_large = |error: &PublishError| matches!(error, PublishError::TooLarge { len: 1001, limit: 1000 });
        assert!(too_large(&client.publish("news", large.clone()).await.unwrap_err()));
        assert!(too_large(&client.publish_acknowledged("news", large.clone()).await.unwrap_err()));
        assert!(matches!(client.request("news", large).await, Err(RequestError::Publish(error)) if too_large(&error)));
        assert!(matches!(client.publish("news.*", "").await, Err(PublishError::InvalidSubject(_))));
        let retained = client.send(Publication::new("news", "").retain()).await.unwrap_err();
        assert!(retained.to_string().starts_with("NATS retains no values"), "{retained}");
        client.publish_acknowledged("news", "small").await.unwrap();
    });
}

#[test]
fn subscriptions_and_queued_messages_survive_a_restart() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let mut server = program.start("one", "").await;
        let options = NatsOptions { commands_max: 4, ..NatsOptions::default() };
        let client = Nats::connect_with(&[server.url()], options).await.unwrap().client();
        let mut news = client.subscribe("news").await.unwrap();
        client.publish_acknowledged("news", "before").await.unwrap();
        assert_eq!(next(&mut news).await.payload, "before");

        server.kill().await;
        // The client accepts messages until it notices the loss of its connection. They are lost with it.
        let full = loop {
            match client.try_publish("news", "in between") {
                Ok(()) => tokio::task::yield_now().await,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, TryPublishError::Full(payload) if payload == "in between"));
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { client.publish("news", "after").await }
        });
        let _server = server.restart().await;
        waiting.await.unwrap().unwrap();
        let mut told = false;
        loop {
            match news.next().await.unwrap() {
                SubscriptionEvent::Reconnected => told = true,
                SubscriptionEvent::Message(message) if message.payload == "after" => break,
                _ => {}
            }
        }
        while !told {
            told = matches!(news.next().await, Some(SubscriptionEvent::Reconnected));
        }
        client.publish_acknowledged("news", "again").await.unwrap();
        assert_eq!(next(&mut news).await.payload, "again");
    });
}

#[test]
fn messages_lost_with_the_server_are_not_acknowledged() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let mut server = program.start("one", "").await;
        let client = connect(&server.url()).await;
        // The server first stops answering and then dies.
        server.stop();
        let death = async {
            client.publish("news", "behind it").await.unwrap();
            // The messages leave, and no answer comes.
            assert!(tokio::time::timeout(Duration::from_millis(100), client.flush()).await.is_err());
            server.kill().await;
            server.restart().await
        };
        let (refused, _server) = tokio::join!(client.publish_acknowledged("news", "lost"), death);
        assert!(matches!(refused, Err(PublishError::Lost { may_have_left: true })), "{refused:?}");
    });
}

#[test]
fn unresponsive_servers_count_as_dead() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let options = NatsOptions { ping_interval: Duration::from_millis(50), ..NatsOptions::default() };
        let nats = Nats::connect_with(&[server.url()], options).await.unwrap();
        // On a busy machine, an answer may be late too. The client then reconnects.
        until(|| nats.is_connected()).await;
        server.stop();
        until(|| !nats.is_connected()).await;
    });
}

#[test]
fn servers_and_clients_authenticate_each_other() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let (identity, key) = (Identity::new(), KeyPair::new_user());
        let (certificate, secret) = (identity.pem_file(), identity.key_file());
        let (path, private) = (certificate.path().display(), secret.path().display());
        let denied = "permissions: { subscribe: { deny: \"secrets.>\" } }";
        let settings = format!(
            "tls {{ cert_file: \"{path}\", key_file: \"{private}\" }}\n\
             authorization {{ users: [ {{ nkey: {} }}, {{ user: ada, password: \"right\", {denied} }} ] }}",
            key.public_key(),
        );
        let server = program.start("one", &settings).await;
        let port = server.addr.port();

        let url = |user: &str| format!("tls://{user}localhost:{port}?roots={path}");
        let client = connect(&url("ada:right@")).await;
        client.publish_acknowledged("news", "hello").await.unwrap();
        let mut secrets = client.subscribe("secrets.>").await.unwrap();
        assert!(secrets.next().await.is_none());
        let Some(SubscriptionEnd::Refused(refusal)) = secrets.end() else { panic!("{:?}", secrets.end()) };
        assert_eq!(refusal.code, RefusalCode::Denied);

        let (servers, mut options) = NatsOptions::from_url(&url("")).unwrap();
        options.login = Some(Login::Seed(key.seed().unwrap()));
        Nats::connect_with(&servers, options.clone()).await.unwrap();
        options.login = Some(Login::Seed(KeyPair::new_user().seed().unwrap()));
        assert!(Nats::connect_with(&servers, options).await.unwrap_err().is_refused());
        for wrong in [url("ada:wrong@"), url("")] {
            let error = Nats::connect(&wrong).await.unwrap_err();
            assert!(error.is_refused() && !error.to_string().contains("wrong"), "{error}");
        }
        // This client does not trust the certificate's authority.
        let error = Nats::connect(&format!("tls://ada:right@localhost:{port}")).await.unwrap_err();
        assert!(!error.is_refused(), "{error}");
    });
}

#[test]
fn publish_errors_of_the_server_reach_the_caller() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let denied = "permissions: { publish: { deny: \"secrets.>\" } }";
        let settings = format!("authorization {{ users: [ {{ user: ada, password: \"right\", {denied} }} ] }}");
        let server = program.start("one", &settings).await;
        let client = connect(&server.url().replace("nats://", "nats://ada:right@")).await;
        let check = |error: PublishError, subject: &str| match error {
            PublishError::Refused(refusal) => {
                assert_eq!(refusal.code, RefusalCode::Denied);
                assert!(refusal.text.contains(subject), "{refusal}");
            }
            error => panic!("{error:?}"),
        };
        client.publish("news", "first").await.unwrap();
        client.flush().await.unwrap();
        client.publish("secrets.first", "").await.unwrap();
        client.publish("secrets.second", "").await.unwrap();
        // On a busy machine, a refusal may be processed after the answer. The next call reports it then.
        let refused = loop {
            if let Err(error) = client.flush().await {
                break error;
            }
        };
        check(refused, "secrets.");
        let refused = loop {
            if let Err(error) = client.publish_acknowledged("secrets.third", "").await {
                break error;
            }
        };
        check(refused, "secrets.third");
        client.publish_acknowledged("news", "third").await.unwrap();
        match client.request("secrets.fourth", "").await {
            Err(RequestError::Publish(error)) => check(error, "secrets.fourth"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn authenticates_with_a_credentials_file() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let (operator, system, account) = (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
        let user = KeyPair::new_user();
        let all =
            json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1, "leaf": -1 });
        let of_account =
            |key: &KeyPair| claim(&operator, key, json!({ "type": "account", "version": 2, "limits": all }));
        let settings = format!(
            "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}",
            claim(&operator, &operator, json!({ "type": "operator", "version": 2 })),
            system.public_key(),
            system.public_key(),
            of_account(&system),
            account.public_key(),
            of_account(&account),
        );
        let server = program.start("one", &settings).await;
        let rights = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
        let directory = Directory::new("credentials");
        for (signer, is_let_in) in [(&account, true), (&KeyPair::new_account(), false)] {
            let file = directory.path().join(signer.public_key());
            let text = format!(
                "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
                 -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
                claim(signer, &user, rights.clone()),
                user.seed().unwrap(),
            );
            std::fs::write(&file, text).unwrap();
            match Nats::connect(&format!("{}?credentials={}", server.url(), file.display())).await {
                Ok(nats) => {
                    assert!(is_let_in);
                    nats.client().publish_acknowledged("news", "hello").await.unwrap();
                }
                Err(error) => assert!(!is_let_in && error.is_refused(), "{error}"),
            }
        }
        let error = Nats::connect(&format!("{}?credentials=/nowhere", server.url())).await.unwrap_err();
        assert!(error.to_string().starts_with("the credentials in /nowhere cannot be read: "), "{error}");
    });
}

/// Creates a signed NATS token by hand, with the rights of `subject`, issued by `issuer`.
fn claim(issuer: &KeyPair, subject: &KeyPair, rights: Value) -> String {
    let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let (issuer_name, subject_name) = (issuer.public_key(), subject.public_key());
    let claims = json!({ "jti": subject_name, "iat": 0, "iss": issuer_name, "sub": subject_name, "name": "test", "nats": rights });
    let text = format!("{}.{}", encode(&json!({ "typ": "JWT", "alg": "ed25519-nkey" })), encode(&claims));
    let signature = issuer.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

#[test]
fn messages_with_unsupported_subjects_count_as_missing() {
    in_real_time(async {
        let Some(program) = NatsProgram::find() else { return };
        let server = program.start("one", "").await;
        let client = connect(&server.url()).await;
        let mut all = client.subscribe("deep.>").await.unwrap();
        let foreign = async_nats::connect(server.url()).await.unwrap();
        foreign.publish(format!("deep{}", ".er".repeat(20)), "x".into()).await.unwrap();
        foreign.publish("deep.enough", "y".into()).await.unwrap();
        assert_eq!(all.next().await, Some(SubscriptionEvent::Missing(1)));
        assert_eq!(next(&mut all).await.payload, "y");
        assert!(Pattern::new("deep.>").unwrap().matches("deep.enough"));
    });
}

async fn connect(url: &str) -> Client {
    Nats::connect(url).await.unwrap().client()
}

async fn next(subscription: &mut Subscription) -> Message {
    match subscription.next().await {
        Some(SubscriptionEvent::Message(message)) => message,
        event => panic!("{event:?} {:?}", subscription.end()),
    }
}

/// Returns the texts received by a subscription, the number of missing messages, and the reason for its end.
async fn count(mut subscription: Subscription) -> (Vec<String>, u64, SubscriptionEnd) {
    let (mut delivered, mut missing) = (Vec::new(), 0);
    while let Some(event) = subscription.next().await {
        match event {
            SubscriptionEvent::Message(message) => {
                delivered.push(String::from_utf8_lossy(&message.payload).into_owned())
            }
            SubscriptionEvent::Missing(count) => missing += count,
            _ => {}
        }
    }
    (delivered, missing, subscription.end().unwrap().clone())
}
