//! Binary messages as a byte stream.

use std::io::ErrorKind;

use support::in_virtual_time;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    join,
};

use crate::peer::{frame, pair, serve};

#[test]
fn bytes_are_independent_of_message_sizes() {
    in_virtual_time(async {
        let (server, client) = pair();
        let (mut server, mut client) = (server.into_stream(), client.into_stream());
        let content: Vec<u8> = (0..1_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let writing = async {
            client.write_all(&content).await.unwrap();
            client.shutdown().await.unwrap();
            client
        };
        let mut read = Vec::new();
        let (mut client, end) = join!(writing, server.read_to_end(&mut read));
        assert_eq!(end.unwrap(), content.len());
        assert!(read == content);
        drop(server);
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    });
}

#[test]
fn message_boundaries_are_ignored() {
    in_virtual_time(async {
        let (server, mut peer) = serve();
        let mut server = server.into_stream();
        peer.say(&[frame(0x02, b"ab"), frame(0x00, b""), frame(0x80, b"c"), frame(0x82, b"de")].concat()).await;
        let mut read = [0; 5];
        server.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"abcde");
        server.write_all(b"fg").await.unwrap();
        server.flush().await.unwrap();
        assert_eq!(peer.hear().await, (0x82, b"fg".to_vec()));
    });
}

#[test]
fn text_messages_are_rejected_on_byte_streams() {
    in_virtual_time(async {
        let (server, mut peer) = serve();
        let mut server = server.into_stream();
        peer.say(&frame(0x81, b"hi")).await;
        let code = async {
            let code = peer.hear_close().await;
            drop(peer);
            code
        };
        let mut byte = [0; 1];
        let (refused, code) = join!(server.read(&mut byte), code);
        assert_eq!((refused.unwrap_err().kind(), code), (ErrorKind::InvalidData, 1003));
        assert_eq!(server.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}
