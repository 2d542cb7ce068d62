//! Statuses sent instead of answers, and warnings about data that plain fRPC cannot carry.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use frisbee::{Connection, Operation, Packet, PacketName};
use tracing::{debug, warn};

use super::super::{
    bytes::{envelope, stream_framing},
    peer::PeerState,
};
use crate::{
    call::{exchange::Answer, method::Method, status::Status},
    error::{CallError, ServerCause, ServerFailure},
};

/// Returns the packet that answers a request with a failure.
///
/// A plain request from an extended peer gets an extended answer if a plain one cannot carry every part of the failure.
pub(super) fn failed(name: PacketName, failure: &ServerFailure, connection: &Connection) -> Packet {
    let PacketName { id, operation } = name;
    let (limit, status) = (connection.content_len_max(), &failure.status);
    let has_more = failure.cause.is_some() || !status.details().is_empty() || !status.metadata().is_empty();
    if operation == Operation::EXTENDED || has_more && PeerState::extended_on(connection).is_some() {
        let content = envelope::failure(failure, limit, PeerState::metadata_max(connection)).into();
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
