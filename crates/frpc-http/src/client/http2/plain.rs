//! Plain responses: one uncompressed message without metadata, and the status OK.

use std::sync::Arc;

use frpc::codec::Format;
use frpc_http2::Head;

use crate::message::envelope;

/// Recognizes the plain responses of a connection to unary gRPC calls.
pub(in crate::client) struct PlainResponse {
    format: Format,
    /// The maximum length of the message.
    len_max: usize,
    /// The latest head and trailers of a plain response. The cache of heads shares them with most responses.
    accepted: Option<(Arc<Head>, Arc<Head>)>,
}

impl PlainResponse {
    pub(in crate::client) fn new(format: Format, len_max: usize) -> Self {
        Self { format, len_max, accepted: None }
    }

    /// Returns `true` for the parts of a plain response.
    #[inline]
    pub(super) fn matches(&mut self, head: &Arc<Head>, data: &[u8], trailers: &Arc<Head>) -> bool {
        self.is_message(data) && self.accepts(head, trailers)
    }

    /// Returns `true` for the data of one uncompressed message within the limit.
    fn is_message(&self, data: &[u8]) -> bool {
        let header = data.first_chunk().map(envelope::parse);
        header.is_some_and(|(flags, len)| flags == 0 && len <= self.len_max && data.len() == envelope::HEADER_LEN + len)
    }

    fn accepts(&mut self, head: &Arc<Head>, trailers: &Arc<Head>) -> bool {
        let mut accepted = self.accepted.iter();
        accepted.any(|(first, last)| Arc::ptr_eq(first, head) && Arc::ptr_eq(last, trailers))
            || self.accepts_new(head, trailers)
    }

    #[cold]
    fn accepts_new(&mut self, head: &Arc<Head>, trailers: &Arc<Head>) -> bool {
        let is_plain = is_plain_head(self.format, head) && is_success(trailers);
        if is_plain {
            self.accepted = Some((head.clone(), trailers.clone()));
        }
        is_plain
    }
}

/// Returns `true` for the head of a response without metadata.
fn is_plain_head(format: Format, head: &Head) -> bool {
    let mut has_type = false;
    for (name, value) in head.iter() {
        match name {
            b"content-type" => {
                let is_known = match format {
                    Format::Json => value == b"application/grpc+json",
                    _ => matches!(value, b"application/grpc" | b"application/grpc+proto"),
                };
                if !is_known {
                    return false;
                }
                has_type = true;
            }
            // No metadata.
            b"date" | b"grpc-accept-encoding" | b"accept-encoding" => {}
            b"grpc-encoding" if value == b"identity" => {}
            _ => return false,
        }
    }
    has_type && head.status() == Some(200)
}

fn is_success(trailers: &Head) -> bool {
    let mut trailers = trailers.iter();
    matches!(trailers.next(), Some((b"grpc-status", b"0")))
        && trailers.all(|field| matches!(field, (b"grpc-message", b"")))
}
