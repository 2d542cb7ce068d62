//! The service called by the page.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use frpc::{Request, Response, Status, Streaming};
use futures_util::stream::try_unfold;
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::{MissedTickBehavior, interval},
};

use super::protos::{Line, Sample, WatchRequest, board_server};

/// A chat room and measurements of the server.
#[derive(Clone)]
pub struct Board {
    room: broadcast::Sender<Line>,
    lines: Arc<AtomicU64>,
}

impl Default for Board {
    fn default() -> Self {
        Self { room: broadcast::Sender::new(LINES_MAX), lines: Arc::default() }
    }
}

impl board_server::Board for Board {
    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Streaming<Sample>>, Status> {
        let pause = Duration::from_millis(request.get_ref().interval_ms.into());
        if pause < INTERVAL_MIN {
            return Err(Status::invalid_argument(format!("interval_ms: at least {} ms", INTERVAL_MIN.as_millis())));
        }
        let mut ticks = interval(pause);
        // A slow reader gets the next sample, without those it missed.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let begun = (self.clone(), ticks, Processors::default());
        let samples = try_unfold(begun, async |(board, mut ticks, before)| {
            ticks.tick().await;
            let now = Processors::read();
            let sample = Sample {
                busy: now.busy_since(&before),
                people: board.room.receiver_count().try_into().unwrap_or(u32::MAX),
                lines: board.lines.load(Ordering::Relaxed),
            };
            Ok(Some((sample, (board, ticks, now))))
        });
        Ok(Streaming::new(samples).into())
    }

    async fn join(&self, request: Request<Streaming<Line>>) -> Result<Response<Streaming<Line>>, Status> {
        let joined = (self.clone(), request.into_inner(), self.room.subscribe());
        let heard = try_unfold(joined, async |(board, mut said, mut heard)| {
            loop {
                tokio::select! {
                    line = said.message() => match line? {
                        Some(line) => board.say(line)?,
                        None => return Ok(None),
                    },
                    line = heard.recv() => match line {
                        Ok(line) => return Ok(Some((line, (board, said, heard)))),
                        // The reader was too slow for some lines. Skip them.
                        Err(RecvError::Lagged(_)) => {}
                        Err(RecvError::Closed) => return Ok(None),
                    },
                }
            }
        });
        Ok(Streaming::new(heard).into())
    }
}

impl Board {
    fn say(&self, line: Line) -> Result<(), Status> {
        if line.name.is_empty() || line.text.len() > TEXT_LEN_MAX {
            return Err(Status::invalid_argument(format!(
                "a line has a name, and a text of at most {TEXT_LEN_MAX} bytes"
            )));
        }
        self.lines.fetch_add(1, Ordering::Relaxed);
        // The sender itself receives the line, so there is at least one receiver.
        let _ = self.room.send(line);
        Ok(())
    }
}

/// The time used by all processors since the machine started, in ticks.
#[derive(Default)]
struct Processors {
    busy: f64,
    all: f64,
}

impl Processors {
    /// Reads the figures from Linux. On other systems they are zero.
    fn read() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let times = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let times: Vec<f64> = times.filter_map(|time| time.parse().ok()).collect();
        let all = times.iter().sum();
        // The fourth and fifth figures are idle time, without and with pending I/O.
        Self { busy: all - times.iter().skip(3).take(2).sum::<f64>(), all }
    }

    fn busy_since(&self, before: &Self) -> f64 {
        let all = self.all - before.all;
        if all > 0.0 { (self.busy - before.busy) / all } else { 0.0 }
    }
}

const LINES_MAX: usize = 256;
const TEXT_LEN_MAX: usize = 1000;
const INTERVAL_MIN: Duration = Duration::from_millis(20);
