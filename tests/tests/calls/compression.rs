//! Compression between extended peers: which side compresses which messages.

use frpc::{
    Channel, ChannelBuilder, Code, CompressionSettings, Config, Request, Server, ServerBuilder, codec::Compression,
    interceptor,
};
use support::{
    EventLog, SECOND, assert_elapsed,
    calls::{
        CallbackServer, TestClient, TestServer, TestService, all, ask, each_kind, encoded, of_kind, plain, quiet,
        stream_of, words,
    },
    in_virtual_time, settle,
};
use tokio::{io::duplex, time::Instant};

const ALGORITHMS: [Compression; 3] = [Compression::Lz4, Compression::Zstd, Compression::Gzip];

/// A server of the test service, and a client that offers the same service.
struct Pair {
    service: TestService,
    server: Server,
    client: TestClient,
}

impl Pair {
    async fn new(
        server: impl FnOnce(ServerBuilder) -> ServerBuilder,
        channel: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
    ) -> Self {
        Self::with_configs(server, channel, quiet(), quiet()).await
    }

    async fn with_configs(
        server: impl FnOnce(ServerBuilder) -> ServerBuilder,
        channel: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
        config: Config,
        client_config: Config,
    ) -> Self {
        let service = TestService::default();
        let server = server(Server::builder()).config(config).add_service(TestServer::new(service.clone()));
        let server = server.without_listener().unwrap();
        let (ours, theirs) = duplex(64 * 1024);
        server.attach(theirs);
        let channel = channel(Channel::builder()).config(client_config);
        let channel = channel.add_service(CallbackServer::new(service.clone())).attach(ours).await.unwrap();
        settle().await;
        Self { service, server, client: TestClient::new(channel) }
    }

    /// Returns the bytes sent in each direction during a call, and its result.
    async fn measured<T>(&self, call: impl Future<Output = T>) -> (u64, u64, T) {
        settle().await;
        let before = self.server.metrics().counters;
        let result = call.await;
        settle().await;
        let after = self.server.metrics().counters;
        (after.bytes_in - before.bytes_in, after.bytes_out - before.bytes_out, result)
    }

    async fn assert_unharmed(&self) {
        settle().await;
        assert_eq!(self.server.metrics().accepted, 1);
        let connections = self.server.connections();
        assert_eq!(connections.len(), 1, "the connection is there");
        assert_eq!(connections[0].metrics().streams, 0);
    }
}

/// Returns a text that compresses well.
fn text(len: usize) -> String {
    "to-be-or-not-to-be-".chars().cycle().take(len).collect()
}

#[test]
fn each_side_compresses_only_if_configured() {
    const LEN: usize = 100_000;
    for (algorithm, client, server) in ALGORITHMS.into_iter().flat_map(|it| {
        [(true, true), (true, false), (false, true), (false, false)].map(|(client, server)| (it, client, server))
    }) {
        in_virtual_time(async {
            let pair = Pair::new(
                |builder| {
                    if server {
                        builder.compression(CompressionSettings {
                            send: vec![algorithm],
                            ..CompressionSettings::default()
                        })
                    } else {
                        builder
                    }
                },
                |builder| {
                    if client {
                        builder.compression(CompressionSettings {
                            send: vec![algorithm],
                            ..CompressionSettings::default()
                        })
                    } else {
                        builder
                    }
                },
            )
            .await;
            let text = text(LEN);
            for kind in 0..4 {
                let (there, back, answer) = pair.measured(of_kind(&pair.client, kind, &text)).await;
                let answer = answer.unwrap();
                assert!(answer.ends_with(&text) && answer.len() < LEN + 10, "{kind}");
                let is_short = |len| len < LEN as u64 / 10;
                assert_eq!((is_short(there), is_short(back)), (client, server), "{algorithm:?} {kind}: {there} {back}");
            }
            pair.assert_unharmed().await;
        });
    }
}

#[test]
fn callbacks_of_a_handler_are_compressed() {
    for algorithm in ALGORITHMS {
        in_virtual_time(async {
            let pair = Pair::new(
                |builder| {
                    builder.compression(CompressionSettings { send: vec![algorithm], ..CompressionSettings::default() })
                },
                |builder| {
                    builder.compression(CompressionSettings { send: vec![algorithm], ..CompressionSettings::default() })
                },
            )
            .await;
            let text = text(50_000);
            for kind in ["say", "count", "gather", "chat"] {
                let call = format!("back {kind} {text}");
                let (there, back, answer) = pair.measured(ask(&pair.client, &call)).await;
                assert!(answer.unwrap().len() >= 50_000, "{kind}");
                assert!(there < 20_000 && back < 20_000, "{algorithm:?} {kind}: {there} {back}");
            }
        });
    }
}

#[test]
fn messages_below_the_threshold_are_sent_uncompressed() {
    for algorithm in ALGORITHMS {
        in_virtual_time(async {
            let text = text(500);
            let len = encoded(&text).len();
            for (len_min, compresses) in [(len - 1, true), (len, true), (len + 1, false)] {
                let pair = Pair::new(
                    |builder| {
                        builder.compression(CompressionSettings {
                            send: vec![algorithm],
                            len_min,
                            ..CompressionSettings::default()
                        })
                    },
                    |builder| {
                        builder.compression(CompressionSettings {
                            send: vec![algorithm],
                            len_min,
                            ..CompressionSettings::default()
                        })
                    },
                )
                .await;
                let (there, back, answer) = pair.measured(ask(&pair.client, &text)).await;
                assert_eq!(answer.unwrap(), text);
                assert_eq!(
                    (there < 300, back < 300),
                    (compresses, compresses),
                    "{algorithm:?} {len_min}: {there} {back}"
                );
                if !compresses {
                    assert_eq!((there, back), (10 + len as u64, 10 + len as u64), "they are plain packets");
                }
            }
        });
    }
}

#[test]
fn small_messages_of_a_stream_are_compressed_together() {
    for algorithm in ALGORITHMS {
        in_virtual_time(async {
            let pair = Pair::new(
                |builder| {
                    builder.compression(CompressionSettings { send: vec![algorithm], ..CompressionSettings::default() })
                },
                |builder| {
                    builder.compression(CompressionSettings { send: vec![algorithm], ..CompressionSettings::default() })
                },
            )
            .await;
            let texts = "a message of some words, ".repeat(1000);
            let (_, back, answer) = pair
                .measured(async { all(pair.client.count(words(texts.trim_end_matches(", "))).await.unwrap()).await })
                .await;
            assert_eq!(answer.unwrap(), ["a message of some words"; 1000]);
            assert!(back < 5000, "{algorithm:?}: {back}");
            let (there, _, answer) =
                pair.measured(pair.client.gather(stream_of(&"a-message-of-one-word ".repeat(1000)))).await;
            assert_eq!(answer.unwrap().into_inner().text.len(), 21_999);
            assert!(there < 2500, "{algorithm:?}: {there}");
            pair.assert_unharmed().await;
        });
    }
}

#[test]
fn incompressible_messages_are_sent_uncompressed() {
    in_virtual_time(async {
        let compress = Compression::Lz4;
        let pair = Pair::new(
            |builder| {
                builder.compression(CompressionSettings { send: vec![compress], ..CompressionSettings::default() })
            },
            |builder| {
                builder.compression(CompressionSettings { send: vec![compress], ..CompressionSettings::default() })
            },
        )
        .await;
        let mut state = 1_u32;
        let noise: String = (0..5000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                char::from(b'0' + u8::try_from(state >> 24).unwrap() % 74)
            })
            .collect();
        let len = 10 + encoded(&noise).len() as u64;
        let (there, back, answer) = pair.measured(ask(&pair.client, &noise)).await;
        assert_eq!((answer.unwrap(), there, back), (noise.clone(), len, len));
        for result in each_kind(&pair.client, &noise).await {
            assert!(result.unwrap().ends_with(&noise));
        }
    });
}

#[test]
fn peers_without_decompression_get_uncompressed_messages() {
    for algorithm in ALGORITHMS {
        let text = &text(50_000);
        for (inflates_none, is_plain) in [(true, false), (false, true)] {
            in_virtual_time(async {
                let config = if is_plain { plain() } else { quiet() };
                let pair = Pair::with_configs(
                    |builder| {
                        builder.compression(CompressionSettings {
                            send: vec![algorithm],
                            ..CompressionSettings::default()
                        })
                    },
                    |builder| {
                        if inflates_none {
                            builder.compression(CompressionSettings {
                                inflated_len_max: 0,
                                ..CompressionSettings::default()
                            })
                        } else {
                            builder
                        }
                    },
                    quiet(),
                    config.clone(),
                )
                .await;
                let (_, back, answer) = pair.measured(ask(&pair.client, text)).await;
                assert_eq!((&answer.unwrap(), back), (text, 10 + encoded(text).len() as u64));
                for result in each_kind(&pair.client, text).await {
                    assert!(result.unwrap().ends_with(text));
                }
                let pair = Pair::with_configs(
                    |builder| {
                        if inflates_none {
                            builder.compression(CompressionSettings {
                                inflated_len_max: 0,
                                ..CompressionSettings::default()
                            })
                        } else {
                            builder
                        }
                    },
                    |builder| {
                        builder.compression(CompressionSettings {
                            send: vec![algorithm],
                            ..CompressionSettings::default()
                        })
                    },
                    config,
                    quiet(),
                )
                .await;
                let (there, _, answer) = pair.measured(ask(&pair.client, text)).await;
                assert_eq!((&answer.unwrap(), there), (text, 10 + encoded(text).len() as u64));
                for result in each_kind(&pair.client, text).await {
                    assert!(result.unwrap().ends_with(text));
                }
            });
        }
    }
}

#[test]
fn layers_see_uncompressed_messages() {
    in_virtual_time(async {
        let log = EventLog::default();
        let seen = |name: &'static str| {
            let log = log.clone();
            interceptor(move |call: &mut frpc::Call| {
                log.add(format!("{name} {:?}", call.body().content_len()));
                Ok(())
            })
        };
        let algorithm = Compression::Zstd;
        let pair = Pair::new(
            |builder| {
                builder
                    .compression(CompressionSettings { send: vec![algorithm], ..CompressionSettings::default() })
                    .layer(seen("server"))
            },
            |builder| {
                builder
                    .compression(CompressionSettings { send: vec![algorithm], ..CompressionSettings::default() })
                    .layer(seen("client"))
            },
        )
        .await;
        let text = text(5000);
        let len = encoded(&text).len();
        assert_eq!(ask(&pair.client, &text).await.unwrap(), text);
        assert_eq!(log.take(), [format!("client Some({len})"), format!("server Some({len})")]);
    });
}

#[test]
fn messages_above_the_receiver_limit_fail_at_the_sender() {
    for algorithm in ALGORITHMS {
        in_virtual_time(async {
            let small = Config { content_len_max: 20_000, ..quiet() };
            let pair = Pair::with_configs(
                |builder| builder,
                |builder| {
                    builder.compression(CompressionSettings { send: vec![algorithm], ..CompressionSettings::default() })
                },
                small,
                quiet(),
            )
            .await;
            for result in each_kind(&pair.client, &text(30_000)).await {
                let status = result.unwrap_err();
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                assert!(status.message().contains("20000 bytes (content_len_max)"), "{status}");
            }
            assert!(pair.service.log.take().iter().all(|line| !line.contains("to-be")), "no handler saw it");
            for result in each_kind(&pair.client, &text(19_900)).await {
                assert!(result.unwrap().len() >= 19_900);
            }
            pair.assert_unharmed().await;
        });
    }
}

#[test]
fn compressed_calls_carry_timeout_and_metadata() {
    in_virtual_time(async {
        let algorithm = Compression::Lz4;
        let pair = Pair::new(
            |builder| {
                builder.compression(CompressionSettings { send: vec![algorithm], ..CompressionSettings::default() })
            },
            |builder| {
                builder.compression(CompressionSettings { send: vec![algorithm], ..CompressionSettings::default() })
            },
        )
        .await;
        let mut request = Request::new(words(format!("wait {}", text(5000))));
        request.set_timeout(SECOND);
        request.metadata_mut().insert("note", "x").unwrap();
        let (start, status) = (Instant::now(), pair.client.say(request).await.unwrap_err());
        assert_elapsed(start, SECOND);
        assert_eq!(status.code(), Code::DeadlineExceeded);
        pair.assert_unharmed().await;
        assert_eq!(pair.server.metrics().handlers, 0);
    });
}
