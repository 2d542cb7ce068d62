//! Entry points for fuzz targets, built with `--cfg fuzzing` only.

use bytes::Bytes;
use frpc::{Code, Metadata};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{
    headers::{metadata, percent, timeout},
    message::{compression, envelope::EnvelopeReader},
    serve::TextDecoder,
    status::{connect, twirp},
};

/// Reads frames from chunks. Returns their flags and contents, and `true` if the chunks end after a whole frame.
pub fn frames<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, content_len_max: usize) -> (Vec<(u8, Bytes)>, bool) {
    let (mut frames, mut read) = (EnvelopeReader::new(content_len_max), Vec::new());
    for chunk in chunks {
        frames.push(Bytes::copy_from_slice(chunk));
        loop {
            match frames.next() {
                Ok(Some(frame)) => {
                    assert!(frame.content.len() <= content_len_max);
                    read.push((frame.flags, frame.content));
                }
                Ok(None) => break,
                Err(_) => return (read, false),
            }
        }
    }
    let is_whole = !frames.is_partial();
    (read, is_whole)
}

/// Decodes chunks of gRPC-Web text. Returns `None` if they are not valid base64.
pub fn text<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let (mut decoder, mut text) = (TextDecoder::default(), Vec::new());
    for chunk in chunks {
        text.extend_from_slice(&decoder.decode(chunk).ok()?);
    }
    (!decoder.is_partial()).then_some(text)
}

/// Decompresses content to at most `len_max` bytes.
pub fn inflate(content: &[u8], len_max: usize) {
    if let Ok(inflated) = compression::decompress(content, len_max) {
        assert!(inflated.len() <= len_max);
    }
}

/// Reads headers as metadata, then checks that a round trip keeps all values.
pub fn headers<'a>(lines: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    let Ok(read) = metadata::from_headers(&headers) else { return };
    let mut written = HeaderMap::new();
    metadata::extend(&mut written, &read, "");
    let again = metadata::from_headers(&written).expect("it was written here");
    let values = |metadata: &Metadata, name: &str| {
        let texts = metadata.get_all(name).map(|text| text.as_bytes().to_vec());
        texts.chain(metadata.get_all_bin(name).map(<[u8]>::to_vec)).collect::<Vec<_>>()
    };
    for name in read.keys() {
        assert_eq!(values(&read, name), values(&again, name), "{name}");
    }
}

/// Reads a header value in every supported format.
pub fn value(bytes: &[u8]) {
    let text = percent::decode(bytes);
    assert_eq!(percent::decode(percent::encode(&text).as_bytes()), text);
    if let Some(time) = timeout::parse_grpc(bytes) {
        let again = timeout::parse_grpc(timeout::grpc(time).as_bytes()).expect("it was written here");
        assert!(again <= time);
    }
    if let Some(time) = timeout::parse_connect(bytes) {
        assert_eq!(timeout::parse_connect(timeout::connect(time).as_bytes()), Some(time));
    }
}

/// Checks that a head read after another one makes the same call as alone.
#[cfg(feature = "http2")]
pub fn similar_heads(first: &[(&str, &[u8])], second: &[(&str, &[u8])]) {
    crate::http2::check_similar_heads([first, second]);
}

/// Reads a response as the error of each protocol.
pub fn statuses(bytes: &[u8]) {
    let _ = connect::read_error(bytes, Code::Unknown);
    let _ = connect::read_end_of_stream(bytes);
    let _ = twirp::read_error(bytes, Code::Unknown);
}
