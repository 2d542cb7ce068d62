//! Statuses sent instead of answers, and warnings about data that plain fRPC cannot carry.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use frisbee::{Connection, Operation, Packet, PacketName};
use tracing::{debug, warn};

use super::{
    call_table::Reply,
    envelope::{self, Envelope},
    session::Session,
    stream_framing,
};
use crate::{
    call::{
        deadline::{Bounded, Deadline, HandlerTime},
        exchange::Answer,
        method::Method,
        status::Status,
    },
    client::is_draining,
    error::{CallError, ServerCause, ServerFailure},
};

/// Drops a handler at the deadline of its caller.
pub(super) fn within<F>(time: Option<HandlerTime>, handling: F) -> Bounded<F> {
    match time {
        Some(time) => time.bound(handling),
        None => Deadline::NEVER.bound(handling),
    }
}

/// Returns the packet that answers a request with a failure.
///
/// A plain request from an extended peer gets an extended answer if a plain one cannot carry every part of the failure.
pub(super) fn failed(name: PacketName, failure: &ServerFailure, connection: &Connection) -> Packet {
    let PacketName { id, operation } = name;
    let (limit, status) = (connection.content_len_max(), &failure.status);
    let has_more = failure.cause.is_some() || !status.details().is_empty() || !status.metadata().is_empty();
    if operation == Operation::EXTENDED || has_more && Session::is_extended(connection) {
        let content = envelope::failure(failure, limit, Session::metadata_max(connection)).into();
        return Packet { id, operation: Operation::EXTENDED, content };
    }
    Packet { id, operation, content: plain_failure(status, limit).into() }
}

/// Encodes a status as the content of a plain packet. Omits the text if it exceeds `limit` bytes.
fn plain_failure(status: &Status, limit: u32) -> Bytes {
    let content = status.encode();
    if content.len() <= limit as usize {
        return content;
    }
    let content = stream_framing::without_text(status).encode();
    if content.len() <= limit as usize { content } else { Status::new(status.code(), "").encode() }
}

pub(super) fn no_method(operation: u16) -> Status {
    Status::unimplemented(format!("no method has operation {operation}"))
}

/// Returns the status sent instead of an answer that exceeds the caller's size limit.
pub(super) fn answer_too_large(len: usize, limit: u32) -> ServerFailure {
    ServerCause::AnswerTooLarge { len: len.try_into().unwrap_or(u32::MAX), limit }.into()
}

/// Returns the status sent instead of an answer that exceeds the size limit of this side.
pub(super) fn too_large(len: usize, limit: u32) -> ServerFailure {
    Status::from(CallError::MessageTooLarge { len, limit }).into()
}

/// Logs the parts of an answer that plain fRPC cannot carry, so authors of handlers learn of the loss.
pub(super) fn tell_of_losses(method: &Method, answer: &Answer) {
    for (what, metadata) in [("metadata", answer.metadata()), ("trailers", answer.trailers())] {
        if !metadata.is_empty() {
            tell_of_loss(method, what, metadata.len());
        }
    }
}

/// Logs the parts of a status that plain fRPC cannot carry.
pub(super) fn tell_of_lost_details(method: &Method, status: &Status) {
    if !status.details().is_empty() {
        tell_of_loss(method, "details of a status", status.details().len());
    }
    if !status.metadata().is_empty() {
        tell_of_loss(method, "metadata of a status", status.metadata().len());
    }
}

#[cold]
pub(super) fn tell_of_loss(method: &Method, what: &'static str, len: usize) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    // A warning once only. One per call would fill the log.
    if IS_TOLD.swap(true, Ordering::Relaxed) {
        debug!(%method, what, len, "the peer speaks plain fRPC, which does not carry this");
    } else {
        warn!(%method, what, len, "the peer speaks plain fRPC, which does not carry this (told once)");
    }
}

/// Turns the answer of a peer in shutdown into an error. Other answers stay unchanged.
#[inline]
pub(super) fn refused_or_not(answer: Result<Reply, Status>) -> Result<Reply, Status> {
    match &answer {
        Ok(Reply::Extended(content)) => refusal(content).map_or(answer, Err),
        _ => answer,
    }
}

/// Decodes a failure, and returns it if it reports a shutdown. Other failures are decoded with the response.
#[cold]
fn refusal(content: &Bytes) -> Option<Status> {
    let Ok(Envelope::Failure(head)) = Envelope::decode(content.clone(), usize::MAX) else { return None };
    Some(head.into_server_status()).filter(is_draining)
}
