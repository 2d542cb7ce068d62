//! Byte streams with faults.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    sync::watch,
    time::{Sleep, sleep},
};

use crate::{
    faults::{LinkFaults, NetworkFaults},
    lock::lock,
};

/// One end of a simulated connection, with the [`LinkFaults`] of its server.
#[derive(Debug)]
pub struct SimStream {
    inner: DuplexStream,
    faults: watch::Receiver<NetworkFaults>,
    cut: Arc<LinkCut>,
    /// Current stalls of reading and of writing.
    stalls: [Option<Pin<Box<Sleep>>>; 2],
}

/// The place of the cut of one connection. Both ends share it.
#[derive(Debug)]
pub(crate) struct LinkCut {
    state: Mutex<CutState>,
    /// Stalls and cuts of all connections.
    injected: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CutState {
    /// The bytes before the cut, in both directions together. `None` without a cut.
    bytes_left: Option<u64>,
    kind: CutKind,
    is_cut: bool,
    /// Tasks that wait for the other side.
    wakers: Vec<Waker>,
}

#[derive(Clone, Copy, Debug)]
enum CutKind {
    Reset,
    End,
    HalfOpen,
}

impl LinkCut {
    pub(crate) fn new(faults: &LinkFaults, injected: Arc<AtomicU64>) -> Arc<Self> {
        let bytes_left = (faults.cut_within > 0).then(|| fastrand::u64(1..=faults.cut_within));
        let kind = match fastrand::u8(..4) {
            0 => CutKind::HalfOpen,
            1 => CutKind::End,
            _ => CutKind::Reset,
        };
        let state = CutState { bytes_left, kind, is_cut: false, wakers: Vec::new() };
        Arc::new(Self { state: Mutex::new(state), injected })
    }

    /// Returns the cut, or registers the task for it.
    fn poll_cut(&self, cx: &Context<'_>) -> Option<CutKind> {
        let mut state = lock(&self.state);
        let is_known = state.wakers.iter().any(|waker| waker.will_wake(cx.waker()));
        if state.bytes_left.is_some() && !state.is_cut && !is_known {
            // Tasks with a new waker in each poll have abandoned the oldest ones.
            if state.wakers.len() == WAKERS_MAX {
                state.wakers.remove(0);
            }
            state.wakers.push(cx.waker().clone());
        }
        state.is_cut.then_some(state.kind)
    }

    /// Returns the bytes that may be written before the cut.
    fn limit(&self, len: usize) -> usize {
        let bytes_left = lock(&self.state).bytes_left.unwrap_or(u64::MAX);
        len.min(usize::try_from(bytes_left).unwrap_or(usize::MAX))
    }

    /// Counts written bytes, and cuts the connection after the last one.
    fn count_written(&self, len: usize) {
        let mut state = lock(&self.state);
        let Some(bytes_left) = &mut state.bytes_left else { return };
        *bytes_left = bytes_left.saturating_sub(len as u64);
        if *bytes_left == 0 && !state.is_cut {
            state.is_cut = true;
            self.injected.fetch_add(1, Ordering::Relaxed);
            state.wakers.drain(..).for_each(Waker::wake);
        }
    }
}

impl SimStream {
    pub(crate) fn new(inner: DuplexStream, faults: watch::Receiver<NetworkFaults>, cut: Arc<LinkCut>) -> Self {
        Self { inner, faults, cut, stalls: [None, None] }
    }

    /// Waits out a stall, begins another, or wakes the task without a reason. Returns the maximum length of a step.
    fn poll_faults(&mut self, cx: &mut Context<'_>, direction: usize) -> Poll<usize> {
        let LinkFaults { step_max, spurious_wakes, stalls, stall_max, .. } = self.faults.borrow().links;
        let stall = &mut self.stalls[direction];
        if stall.is_none() && stalls > 0.0 && fastrand::f64() < stalls {
            self.cut.injected.fetch_add(1, Ordering::Relaxed);
            *stall = Some(Box::pin(sleep(stall_max.mul_f64(fastrand::f64()) + Duration::from_millis(1))));
        }
        if let Some(waiting) = stall {
            ready!(waiting.as_mut().poll(cx));
            *stall = None;
        }
        if spurious_wakes > 0.0 && fastrand::f64() < spurious_wakes {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(if step_max == 0 { usize::MAX } else { fastrand::usize(1..=step_max) })
    }
}

impl AsyncRead for SimStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.cut.poll_cut(cx) {
            Some(CutKind::Reset) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Some(CutKind::End) => return Poll::Ready(Ok(())),
            Some(CutKind::HalfOpen) => return Poll::Pending,
            None => {}
        }
        let step = ready!(this.poll_faults(cx, READING));
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(step.min(buf.remaining())));
        ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buf.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.cut.poll_cut(cx) {
            Some(CutKind::Reset) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Some(CutKind::End) => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Some(CutKind::HalfOpen) => return Poll::Ready(Ok(buf.len())),
            None => {}
        }
        let step = ready!(this.poll_faults(cx, WRITING)).min(buf.len());
        // A healed server cuts no more connections.
        let is_cutting = this.faults.borrow().links.cut_within > 0;
        let step = if is_cutting { this.cut.limit(step) } else { step };
        let written = ready!(Pin::new(&mut this.inner).poll_write(cx, &buf[..step]))?;
        if is_cutting {
            this.cut.count_written(written);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.cut.poll_cut(cx) {
            // The other side of a half-open connection learns nothing.
            Some(_) => Poll::Ready(Ok(())),
            None => Pin::new(&mut this.inner).poll_shutdown(cx),
        }
    }
}

const WAKERS_MAX: usize = 16;
const READING: usize = 0;
const WRITING: usize = 1;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::Instant,
    };

    use super::*;

    fn pair(links: LinkFaults, cut: CutKind) -> (SimStream, SimStream, watch::Sender<NetworkFaults>) {
        let faults = watch::Sender::new(NetworkFaults { links, ..NetworkFaults::default() });
        let (near, far) = duplex(1024);
        let link = LinkCut::new(&links, Arc::default());
        lock(&link.state).kind = cut;
        let end = |io| SimStream::new(io, faults.subscribe(), link.clone());
        (end(near), end(far), faults)
    }

    #[tokio::test(start_paused = true)]
    async fn short_steps_and_spurious_wakes_lose_no_bytes() {
        let links = LinkFaults { step_max: 7, spurious_wakes: 0.5, ..LinkFaults::default() };
        let (mut near, mut far, _faults) = pair(links, CutKind::Reset);
        let sent: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let expected = sent.clone();
        tokio::spawn(async move { near.write_all(&sent).await.unwrap() });
        let mut received = vec![0; 5000];
        far.read_exact(&mut received).await.unwrap();
        assert_eq!(received, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_delays_bytes() {
        let links = LinkFaults { stalls: 1.0, stall_max: Duration::from_secs(9), ..LinkFaults::default() };
        let ((mut near, mut far, _faults), begun) = (pair(links, CutKind::Reset), Instant::now());
        near.write_all(b"a").await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'a');
        assert!(begun.elapsed() > Duration::ZERO && begun.elapsed() < Duration::from_secs(20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_takes_effect_at_a_byte_and_wakes_both_sides() {
        for cut in [CutKind::Reset, CutKind::End] {
            let (mut near, mut far, _faults) = pair(LinkFaults { cut_within: 100, ..LinkFaults::default() }, cut);
            let reading = tokio::spawn(async move { far.read_to_end(&mut Vec::new()).await });
            tokio::task::yield_now().await;
            assert!(near.write_all(&[1; 200]).await.is_err());
            assert_eq!(reading.await.unwrap().is_err(), matches!(cut, CutKind::Reset));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_half_open_connection_takes_bytes_and_tells_neither_side() {
        let links = LinkFaults { cut_within: 100, ..LinkFaults::default() };
        let (mut near, mut far, _faults) = pair(links, CutKind::HalfOpen);
        near.write_all(&[1; 5000]).await.unwrap();
        drop(near);
        let mut received = vec![0; 5000];
        let reading = async { while far.read(&mut received).await.unwrap() > 0 {} };
        assert!(tokio::time::timeout(Duration::from_secs(3600), reading).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_healed_link_is_not_cut() {
        let (mut near, mut far, faults) = pair(LinkFaults { cut_within: 100, ..LinkFaults::default() }, CutKind::Reset);
        faults.send_replace(NetworkFaults::default());
        near.write_all(&[1; 500]).await.unwrap();
        far.read_exact(&mut [0; 500]).await.unwrap();
    }
}
