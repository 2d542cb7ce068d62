//! Deliberate defects: each must be found by the checker.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use frpc::{Answer, Call, CallError, Layer, Next, Status};
use frpc_sim::SimStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A defect of a simulated world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// Client sockets send some writes twice.
    DuplicatesWrites,
    /// Client sockets lose some writes.
    SwallowsWrites,
    /// Channels report every failure as not sent.
    ClaimsNotSent,
    /// Channels never report failures.
    Hangs,
    /// Callers repeat calls that may have been executed.
    RepeatsCalls,
    /// Some handlers answer with the name of another call.
    CrossesAnswers,
    /// Each handler leaves a task.
    LeaksTasks,
    /// Each handler leaves memory.
    LeaksMemory,
    /// Subscribers lose some messages.
    LosesMessages,
    /// Subscribers get some messages twice.
    RepeatsMessages,
}

impl Defect {
    /// All defects, with their names on the command line.
    pub(crate) const ALL: [(&str, Self); 10] = [
        ("duplicates-writes", Self::DuplicatesWrites),
        ("swallows-writes", Self::SwallowsWrites),
        ("claims-not-sent", Self::ClaimsNotSent),
        ("hangs", Self::Hangs),
        ("repeats-calls", Self::RepeatsCalls),
        ("crosses-answers", Self::CrossesAnswers),
        ("leaks-tasks", Self::LeaksTasks),
        ("leaks-memory", Self::LeaksMemory),
        ("loses-messages", Self::LosesMessages),
        ("repeats-messages", Self::RepeatsMessages),
    ];

    /// Returns the defect with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, defect)| *defect)
    }
}

/// A layer of channels with the defects of callers.
pub(super) struct DefectLayer(pub(super) Option<Defect>);

impl Layer for DefectLayer {
    async fn call(&self, call: Call, next: Next<'_>) -> Result<Answer, Status> {
        match (self.0, next.run(call).await) {
            (Some(Defect::ClaimsNotSent), Err(status)) if status.call_error().is_some() => {
                Err(CallError::NotSent { limit: std::time::Duration::ZERO }.into())
            }
            (Some(Defect::Hangs), Err(_)) => std::future::pending().await,
            (_, result) => result,
        }
    }
}

/// A client socket with the defects of a network that breaks the promises of TCP.
pub(super) struct DefectiveStream {
    pub(super) inner: SimStream,
    pub(super) defect: Option<Defect>,
    /// The rest of a write that is sent twice.
    again: Vec<u8>,
    writes: u32,
}

impl DefectiveStream {
    pub(super) fn new(inner: SimStream, defect: Option<Defect>) -> Self {
        Self { inner, defect, again: Vec::new(), writes: 0 }
    }
}

impl AsyncRead for DefectiveStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for DefectiveStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        while !this.again.is_empty() {
            let written = ready!(Pin::new(&mut this.inner).poll_write(cx, &this.again))?;
            this.again.drain(..written);
        }
        this.writes += 1;
        // The first writes open the connection.
        let is_due = this.writes > 5 && this.writes.is_multiple_of(7);
        match this.defect {
            Some(Defect::SwallowsWrites) if is_due => return Poll::Ready(Ok(buf.len())),
            _ => {}
        }
        let written = ready!(Pin::new(&mut this.inner).poll_write(cx, buf))?;
        if this.defect == Some(Defect::DuplicatesWrites) && is_due && written == buf.len() {
            this.again = buf.to_vec();
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
