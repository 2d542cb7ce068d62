//! Publish and subscribe on frisbee.
//!
//! A [`Client`] publishes messages under subjects and subscribes to patterns of them. What stands behind it is a [`Backend`]: a
//! broker on frisbee, or another engine with a crate of its own.
//!
//! # Limits
//!
//! A subject has at most [`SUBJECT_LEN_MAX`] bytes and [`DEPTH_MAX`] tokens.

mod client;
mod error;
mod message;
mod subject;

pub use self::{
    client::{Backend, BackendFuture, Client, Events, Subscribe, SubscribeOptions, Subscription},
    error::{PublishError, Refusal, RefusalCode, RequestError, SubscribeError, SubscriptionEnd, TryPublishError},
    message::{Event, Message, Policy, Publication},
    subject::{DEPTH_MAX, InvalidSubject, Pattern, SUBJECT_LEN_MAX, Subject},
};
