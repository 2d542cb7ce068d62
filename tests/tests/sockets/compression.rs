//! Compressed messages over sockets, on every engine.

use frpc::{Channel, CompressionSettings, Server, codec::Compression};
use support::{
    calls::{TestClient, TestServer, TestService, each_kind},
    engines, in_real_time,
};

#[test]
fn large_messages_of_every_call_kind_arrive_compressed() {
    let algorithms = [Compression::Lz4, Compression::Zstd, Compression::Gzip];
    for (engine, algorithm) in engines().flat_map(|engine| algorithms.map(|algorithm| (engine, algorithm))) {
        in_real_time(async {
            let server = Server::builder()
                .engine(engine)
                .compression(CompressionSettings { send: vec![algorithm], ..CompressionSettings::default() });
            let server = server.add_service(TestServer::new(TestService::default())).bind("127.0.0.1:0").await.unwrap();
            let channel = Channel::builder()
                .engine(engine)
                .compression(CompressionSettings { send: vec![algorithm], ..CompressionSettings::default() });
            let channel = channel.connect(server.local_addr()).await.unwrap();
            let client = TestClient::new(channel.clone());
            // Larger than a single part and than the buffer of a socket.
            let text: String = (0..20_000).map(|number| format!("{number}-th word;")).collect();
            let calls: Vec<_> = (0..4)
                .map(|_| {
                    let (client, text) = (client.clone(), text.clone());
                    tokio::spawn(async move {
                        each_kind(&client, &text).await.map(|answer| answer.unwrap().ends_with(&text))
                    })
                })
                .collect();
            for call in calls {
                assert_eq!(call.await.unwrap(), [true; 4], "{engine} {algorithm:?}");
            }
            let counters = channel.connection().unwrap().metrics().counters;
            let plain = 4 * 4 * text.len() as u64;
            assert!(counters.bytes_in < plain / 2 && counters.bytes_out < plain / 2, "{counters:?} of {plain}");
        });
    }
}
