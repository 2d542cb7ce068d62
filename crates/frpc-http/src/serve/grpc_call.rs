//! Unary gRPC calls whose request is a single short message: the fast path of HTTP/2.

use std::time::{Duration, Instant};

use bytes::Bytes;
use frpc::{
    Answer, Body, Drain, HandlerFuture, HandlerPermit, Head, Metadata, MethodHandle, MethodKind, Status, TraceContext,
    codec::EncodedMessage,
};
use http::{HeaderMap, Method, Response, header::ORIGIN, request::Parts};

use super::{
    body::ResponseBody,
    coding::CallCompression,
    grpc::{self, GrpcDialect, GrpcHead},
    refuse_head, refuse_host,
    request_memory::COUNTED_LEN,
    site::{ServeContext, media_type},
    spawns_unary,
};
use crate::{
    headers::{metadata, timeout},
    message::envelope,
};

/// A unary call, as the head of its request describes it. Requests with the same head make the same call again.
#[derive(Clone, Debug)]
pub(crate) struct GrpcCall {
    dialect: GrpcDialect,
    coding: CallCompression,
    method: MethodHandle,
    time: Option<Duration>,
    /// The head of each call, without its timeout. Clones share the metadata.
    head: Head,
}

/// The reply to a call.
pub(crate) enum GrpcReply {
    /// One message, without metadata and trailers.
    Message(EncodedMessage),
    Other(Box<Response<ResponseBody>>),
}

/// Returns `true` if this body is a single uncompressed message, short enough to need no account of its memory.
pub(crate) fn is_short_message(site: &ServeContext, body: &[u8]) -> bool {
    let len_max = site.settings.message_len_max.min(COUNTED_LEN);
    let header = body.first_chunk().map(envelope::parse);
    header.is_some_and(|(flags, len)| flags == 0 && len <= len_max && body.len() == envelope::HEADER_LEN + len)
}

/// Returns the trailers of a successful call without metadata.
pub(crate) fn ok_trailers() -> HeaderMap {
    grpc::ok_trailers(&Metadata::new())
}

impl GrpcCall {
    /// Reads the head of a valid unary call. Returns `None` for all requests that need
    /// [`respond`](super::respond), including invalid ones.
    pub(crate) fn read(site: &ServeContext, parts: &Parts) -> Option<Self> {
        let dialect = GrpcDialect::of(media_type(&parts.headers)).filter(GrpcDialect::is_grpc)?;
        let additions = &site.additions;
        let needs_cors = additions.cors.is_some() && parts.headers.contains_key(ORIGIN);
        let is_mounted = additions.mounts.at(parts.uri.path()).is_some();
        let is_refused =
            || refuse_host(site, &parts.uri, &parts.headers).is_some() || refuse_head(site, parts).is_some();
        if needs_cors
            || is_mounted
            || parts.method != Method::POST
            || !dialect.is_enabled(&site.settings)
            || is_refused()
        {
            return None;
        }
        let coding = grpc::negotiate(site, parts).ok()?;
        let GrpcHead { method, time, metadata } = GrpcHead::read(site, dialect, parts).ok()?;
        let is_late = time.is_some_and(|time| time.is_zero());
        let head = site.head_of(&metadata, None, site.peer.as_ref()).ok()?;
        let is_unary = method.method().kind == MethodKind::Unary;
        (is_unary && !is_late).then_some(Self { dialect, coding, method, time, head })
    }

    /// The headers that differ between calls of the same method by the same client.
    pub(crate) const VARYING: [&str; 3] = [TraceContext::NAMES[0], TraceContext::NAMES[1], timeout::GRPC_TIMEOUT_NAME];

    /// Returns the same call with other [varying](Self::VARYING) headers, in a head of this size. Returns `None` for all
    /// requests that need [`respond`](super::respond).
    pub(crate) fn with_varying<'h>(
        &self,
        site: &ServeContext,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
        head_len: usize,
    ) -> Option<Self> {
        if head_len > usize::try_from(site.settings.head_len_max).unwrap_or(usize::MAX) {
            return None;
        }
        let (mut head, mut time) = (self.head.clone(), None);
        for name in TraceContext::NAMES {
            // Mutable access allocates.
            if head.metadata().contains_key(name) {
                head.metadata_mut().remove(name);
            }
        }
        for (name, value) in headers {
            // Other bytes are forbidden in metadata, or even in headers.
            if !value.iter().all(|byte| (0x20..0x7f).contains(byte)) {
                return None;
            }
            if name != timeout::GRPC_TIMEOUT_NAME.as_bytes() {
                metadata::append(head.metadata_mut(), str::from_utf8(name).ok()?, value).ok()?;
            } else if time.is_none() {
                // As with several headers of this name, the first one counts.
                time = Some(timeout::parse_grpc(value).filter(|time| !time.is_zero())?);
            }
        }
        let metadata = head.metadata();
        let fits = metadata.size() + 2 * metadata.len() <= site.endpoint.metadata_len_max();
        fits.then_some(Self { head, time, ..*self })
    }

    /// Returns the content type of the response.
    pub(crate) fn content_type(&self) -> &'static str {
        self.dialect.content_type()
    }

    /// Describes the call, with its metadata sorted by name.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn summary(&self) -> String {
        let Self { dialect, coding, method, time, mut head } = self.clone();
        let metadata = std::mem::take(head.metadata_mut());
        let mut values: Vec<_> = metadata.iter().collect();
        values.sort_by_key(|(name, _)| *name);
        format!("{dialect:?} {coding:?} {method:?} {time:?} {values:?} {head:?}")
    }

    /// Begins the call with its message, in a turn begun at this time.
    pub(crate) fn begin<'a>(&self, site: &'a ServeContext, message: Bytes, turn: Instant) -> HandlerFuture<'a> {
        let mut head = self.head.clone();
        if let Some(time) = self.time {
            head.set_timeout(time);
        }
        let (format, body) = (self.dialect.format(), Body::from(message));
        site.endpoint.call_unary_in_turn(self.method, format, head, body, turn)
    }

    /// Returns `true` if calls of this server may begin without [`ServeContext::call_unary`]: in place, and in any number
    /// on their connection.
    pub(crate) fn is_possible(site: &ServeContext) -> bool {
        !spawns_unary(site) && site.endpoint.calls_max().is_none()
    }

    /// Returns a permit for the handler of a call that has begun in place and now waits, if the server has one.
    pub(crate) fn handler_permit(site: &ServeContext) -> Option<HandlerPermit> {
        site.drain.as_ref().and_then(Drain::try_handler_permit)
    }

    /// Builds the reply.
    pub(crate) fn reply(&self, site: &ServeContext, answer: Result<Answer, Status>) -> GrpcReply {
        let Self { dialect, coding, .. } = *self;
        let answer = match answer {
            Ok(answer) => answer,
            Err(status) => return GrpcReply::Other(Box::new(self.failed(site, &status))),
        };
        let is_short = answer.metadata().is_empty() && answer.trailers().is_empty() && coding.of_answers.is_none();
        // A peer with a limit this low gets the error of the general case.
        let fits = site.answer_head_len_max.is_none_or(|max| max >= PLAIN_HEAD_LEN_MAX);
        let response = if is_short && fits {
            match answer.into_body() {
                Body::One(content) => return GrpcReply::Message(content),
                _ => Err(Status::internal("the handler of a unary method returned a stream")),
            }
        } else {
            grpc::respond(site, dialect, coding, answer, None)
        };
        GrpcReply::Other(Box::new(response.unwrap_or_else(|status| self.failed(site, &status))))
    }

    fn failed(&self, site: &ServeContext, status: &Status) -> Response<ResponseBody> {
        grpc::failed(site, self.dialect, status)
    }
}

/// The size of the head and trailers of a response without metadata, as HTTP/2 counts header lists, is below this.
const PLAIN_HEAD_LEN_MAX: usize = 512;
