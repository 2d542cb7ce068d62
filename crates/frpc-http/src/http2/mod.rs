//! HTTP/2 connections of a server: our driver of [`frpc_http2`], or parts missing from hyper.

#[cfg(not(feature = "http2"))]
mod answers;
#[cfg(feature = "http2")]
mod connection;
mod preface;
#[cfg(feature = "http2")]
mod received;
#[cfg(feature = "http2")]
mod request;
#[cfg(feature = "http2")]
mod request_body;
#[cfg(feature = "http2")]
mod response;
#[cfg(feature = "http2")]
mod sending;
#[cfg(all(feature = "http2", any(test, fuzzing)))]
mod similar_heads;
#[cfg(feature = "http2")]
mod slot_table;
#[cfg(feature = "http2")]
mod socket;
#[cfg(feature = "http2")]
mod streams;
#[cfg(feature = "http2")]
mod task;
#[cfg(feature = "http2")]
mod wakes;

#[cfg(not(feature = "http2"))]
pub(crate) use self::answers::{PiecewiseBody, ResponseExecutor};
pub(crate) use self::preface::read_preface;
#[cfg(all(feature = "http2", fuzzing))]
pub(crate) use self::similar_heads::check as check_similar_heads;
#[cfg(feature = "http2")]
pub(crate) use self::{
    connection::serve,
    received::ReceivedData,
    request::header_map,
    sending::{SendProgress, SendingBody},
    slot_table::SlotTable,
    socket::{
        PARTIAL_KEPT, READS_MAX, ROUNDS_MAX, ReceivedChunk, add_flow, add_frames, default_settings, poll_write_output,
        with_scratch,
    },
    wakes::{SlotWaker, WakeList},
};
