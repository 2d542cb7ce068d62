//! A random walk over two sides with streams, and the frames between them. Checks that no credit is lost.

use std::collections::VecDeque;

use super::*;

/// The rules of a walk: the amount of data, and the choice of ids.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Manners {
    /// Ids advance, as with the public handles, and frames are small compared with the window.
    Usual,
    /// A few ids are reused all the time, frames exceed windows, and much is sent before the peer is recognized.
    Wild,
}

/// A frame, with the number of its sending stream for the books.
#[derive(Debug)]
enum Frame {
    Hello,
    Data {
        id: u16,
        len: usize,
        of: usize,
    },
    /// Data larger than the other side accepts.
    TooLarge {
        id: u16,
        len: usize,
        of: usize,
    },
    Close {
        id: u16,
    },
    Credit {
        id: u16,
        len: u32,
        of: usize,
    },
}

/// A stream with a live handle.
#[derive(Clone, Copy)]
struct Held {
    key: StreamKey,
    number: usize,
}

struct Side {
    streams: Streams,
    held: Vec<Held>,
    /// Frames to write. Frames that overtake others are in a separate queue.
    ahead: VecDeque<Frame>,
    queued: VecDeque<Frame>,
    /// Frames in flight to the other side.
    wire: VecDeque<Frame>,
    is_known: bool,
}

/// The books about a stream of one side, kept after its removal.
#[derive(Default)]
struct Book {
    /// The stream of the other side with which it exchanged frames.
    partner: Option<usize>,
    /// `true` after a reuse of its id: frames of several streams arrived, or credit was lost.
    is_mixed: bool,
    /// The cost of data and the credit in flight from this stream.
    data: usize,
    credit: usize,
}

struct Walk {
    manners: Manners,
    random: u64,
    now: Instant,
    sides: [Side; 2],
    books: Vec<Book>,
    /// The number of each stream by key.
    numbers: [HashMap<StreamKey, usize>; 2],
    done: Done,
}

/// Event counts of a walk, to prove that every event occurred.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) data: u64,
    pub(super) waits: u64,
    pub(super) credits: u64,
    pub(super) widened: u64,
    pub(super) mixed: u64,
    pub(super) balanced: u64,
}

impl Walk {
    fn new(now: Instant, manners: Manners, random: u64) -> Self {
        let config = Config {
            streams_max: STREAMS_MAX,
            streams_len_max: 2 * HALF,
            stream_queue_len_max: HALF,
            stream_stall_max: Duration::from_secs(1),
            ..Config::default()
        };
        let side = |ids| Side {
            streams: Streams::new(ids, &config),
            held: Vec::new(),
            ahead: VecDeque::new(),
            queued: VecDeque::new(),
            wire: VecDeque::new(),
            is_known: false,
        };
        let ids = match manners {
            Manners::Usual => [1..=0x7fff, 0x8000..=0xffff],
            Manners::Wild => [1..=3, 4..=6],
        };
        let mut sides = ids.map(side);
        sides[0].ahead.push_back(Frame::Hello);
        Self {
            manners,
            random,
            now,
            sides,
            books: Vec::new(),
            numbers: [HashMap::new(), HashMap::new()],
            done: Done::default(),
        }
    }

    /// Returns a random number below `bound` (xorshift).
    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % bound
    }

    fn pick(&mut self, side: usize) -> Option<Held> {
        let count = self.sides[side].held.len();
        (count > 0).then(|| self.below(count)).map(|index| self.sides[side].held[index])
    }

    fn step(&mut self) {
        let side = self.below(2);
        match self.below(32) {
            0 => self.open(side),
            1..=8 => self.send(side),
            9..=16 => self.read(side),
            17..=20 => self.write(side, 4),
            21..=28 => self.deliver(1 - side, 4),
            29 => self.let_go(side),
            _ => self.pass_time(side),
        }
    }

    fn open(&mut self, side: usize) {
        let id = 1 + u16::try_from(self.below(6)).unwrap();
        let streams = &mut self.sides[side].streams;
        let opened = if self.manners == Manners::Wild { streams.open(id) } else { streams.open_next() };
        if let Ok(key) = opened {
            self.hold(side, key);
        }
    }

    fn hold(&mut self, side: usize, key: StreamKey) {
        let number = self.books.len();
        self.books.push(Book::default());
        self.numbers[side].insert(key, number);
        self.sides[side].held.push(Held { key, number });
    }

    fn send(&mut self, side: usize) {
        let is_too_large = self.below(100) == 0;
        let len_max = if self.manners == Manners::Wild { LEN_MAX } else { 600 };
        let len = if is_too_large { LEN_MAX + 1 } else { 1 + self.below(len_max) };
        let Some(held) = self.pick(side) else { return };
        let Side { streams, is_known, .. } = &self.sides[side];
        // A lot of data before the other side announces its window acts like data of a plain peer.
        let is_early = !is_known && self.manners == Manners::Usual;
        if is_early || streams.ended(held.key).is_some() {
            return;
        }
        if streams.has_credit(held.key) { self.send_on(side, held, len) } else { self.done.waits += 1 }
    }

    /// Sends data. The peer discards it if it is too large.
    fn send_on(&mut self, side: usize, held: Held, len: usize) {
        let Side { streams, queued, .. } = &mut self.sides[side];
        queued.extend(streams.take_unannounced().into_iter().map(|id| Frame::Close { id }));
        streams.spend_credit(held.key, len);
        let (id, of) = (streams.id(held.key), held.number);
        queued.push_back(if len > LEN_MAX { Frame::TooLarge { id, len, of } } else { Frame::Data { id, len, of } });
        self.books[held.number].data += len + PACKET_COST;
        self.done.data += 1;
    }

    fn read(&mut self, side: usize) {
        let Some(Held { key, .. }) = self.pick(side) else { return };
        let only_looks = self.below(8) == 0;
        let streams = &mut self.sides[side].streams;
        if !streams.entries[key.0].is_ignored {
            let _ = if only_looks { streams.peek(key) } else { streams.read(key) };
        }
    }

    /// Drops the reader of a stream, or ends the stream in one of several ways.
    fn let_go(&mut self, side: usize) {
        let way = self.below(8);
        let Some(held) = self.pick(side) else { return };
        match way {
            0 | 1 => self.sides[side].streams.ignore(held.key),
            2 => self.sides[side].streams.defer_close(held.key),
            3 => self.close(side, held.key),
            _ => self.release(side, held),
        }
    }

    fn close(&mut self, side: usize, key: StreamKey) {
        let Side { streams, queued, .. } = &mut self.sides[side];
        if streams.close(key) {
            queued.push_back(Frame::Close { id: streams.id(key) });
        }
    }

    fn release(&mut self, side: usize, held: Held) {
        self.close(side, held.key);
        self.sides[side].streams.remove(held.key);
        self.sides[side].held.retain(|other| other.number != held.number);
        self.numbers[side].remove(&held.key);
    }

    fn pass_time(&mut self, side: usize) {
        let passed = self.below(20_000) as u64;
        self.now += Duration::from_micros(passed);
        let Side { streams, queued, .. } = &mut self.sides[side];
        while let Some(key) = streams.end_stalled(self.now) {
            queued.push_back(Frame::Close { id: streams.id(key) });
        }
    }

    /// Puts due credit and several frames on the wire.
    fn write(&mut self, side: usize, frames: usize) {
        let round_trip = Some(Duration::from_millis(20));
        let Side { streams, queued, ahead, wire, .. } = &mut self.sides[side];
        while let Some((id, len)) = streams.poll_credit(self.now, round_trip) {
            let of = self.numbers[side][&StreamKey(streams.open[&id])];
            self.books[of].credit += len as usize;
            ahead.push_back(Frame::Credit { id, len, of });
            self.done.credits += 1;
        }
        wire.append(ahead);
        wire.extend(queued.drain(..frames.min(queued.len())));
    }

    /// Delivers several frames from the other side.
    fn deliver(&mut self, side: usize, frames: usize) {
        for _ in 0..frames {
            if self.sides[side].streams.stall() {
                return;
            }
            let Some(frame) = self.sides[1 - side].wire.pop_front() else { return };
            self.handle(side, frame);
        }
    }

    fn handle(&mut self, side: usize, frame: Frame) {
        match frame {
            Frame::Hello => {
                let window = u32::try_from(WINDOW).unwrap();
                let Side { streams, ahead, queued, is_known, .. } = &mut self.sides[side];
                streams.use_credit(Some(window));
                queued.extend(streams.take_unannounced().into_iter().map(|id| Frame::Close { id }));
                *is_known = true;
                if side == 1 {
                    ahead.push_back(Frame::Hello);
                }
            }
            Frame::Data { id, len, of } => {
                self.books[of].data -= len + PACKET_COST;
                let content = Bytes::from(vec![0; len]);
                let key = match self.sides[side].streams.handle_data(self.now, id, content) {
                    DataOutcome::Opened(key) => {
                        self.hold(side, key);
                        key
                    }
                    DataOutcome::Queued(key) => key,
                    DataOutcome::Ignored => StreamKey(self.sides[side].streams.open[&id]),
                    DataOutcome::Refused => return self.refuse(side, id, of),
                };
                self.meet(of, self.numbers[side][&key]);
                self.check_promise(side, key, len);
            }
            Frame::TooLarge { id, len, of } => {
                self.books[of].data -= len + PACKET_COST;
                let len = u32::try_from(len).unwrap();
                match self.sides[side].streams.handle_too_large(self.now, id, len, len - 1) {
                    DataOutcome::Refused => self.refuse(side, id, of),
                    _ => self.meet(of, self.numbers[side][&StreamKey(self.sides[side].streams.open[&id])]),
                }
            }
            Frame::Close { id } => {
                self.sides[side].streams.handle_close(id);
            }
            Frame::Credit { id, len, of } => {
                self.books[of].credit -= len as usize;
                let streams = &mut self.sides[side].streams;
                streams.handle_credit(id, len).expect("no credit comes near to its end");
                match streams.open.get(&id) {
                    Some(&key) => self.meet(of, self.numbers[side][&StreamKey(key)]),
                    None => self.books[of].is_mixed = true,
                }
            }
        }
    }

    fn refuse(&mut self, side: usize, id: u16, of: usize) {
        self.books[of].is_mixed = true;
        self.sides[side].queued.push_back(Frame::Close { id });
    }

    /// Records that a frame of one stream reached another.
    fn meet(&mut self, from: usize, to: usize) {
        for (one, other) in [(from, to), (to, from)] {
            let book = &mut self.books[one];
            book.is_mixed |= *book.partner.get_or_insert(other) != other;
        }
    }

    /// Returns `true` if the stream or its partner exchanged frames with a third stream.
    fn is_mixed(&self, number: usize) -> bool {
        let book = &self.books[number];
        book.is_mixed || book.partner.is_some_and(|partner| self.books[partner].is_mixed)
    }

    fn check_promise(&mut self, side: usize, key: StreamKey, len: usize) {
        let entry = &self.sides[side].streams.entries[key.0];
        let is_mixed = self.is_mixed(self.numbers[side][&key]);
        self.done.widened += u64::from(entry.window.len() > WINDOW);
        if self.manners == Manners::Usual && !is_mixed {
            assert!(entry.held_len() < entry.window.len() + len + PACKET_COST, "it holds more than it promised");
        }
        if self.manners == Manners::Usual {
            let Side { streams, .. } = &self.sides[side];
            assert!(streams.over_since.is_none(), "all streams are held up");
            let stalls = streams.entries.iter().filter(|(_, entry)| entry.stalls_since.is_some());
            let mut numbers = stalls.map(|(key, _)| self.numbers[side][&StreamKey(key)]);
            assert!(numbers.all(|number| self.is_mixed(number)), "a stream holds up others");
        }
    }

    /// Checks that no credit is lost: for each pair of streams, the bytes in flight, held and owed add up to the
    /// window.
    fn check_books(&mut self) {
        for side in 0..2 {
            let (sender, receiver) = (&self.sides[side].streams, &self.sides[1 - side].streams);
            for (&key, &number) in &self.numbers[side] {
                let (book, entry) = (&self.books[number], &sender.entries[key.0]);
                let Some(partner) = book.partner else { continue };
                let Some(&other) = receiver.open.get(&entry.id) else { continue };
                let other_book = &self.books[partner];
                let is_pair = self.numbers[1 - side][&StreamKey(other)] == partner && entry.end.is_none();
                if self.is_mixed(number) {
                    self.done.mixed += 1;
                } else if is_pair && self.sides.iter().all(|side| side.is_known) {
                    let other = &receiver.entries[other];
                    let there = book.data + other.held_len() + other.window.owed() + other_book.credit;
                    let there = i64::try_from(there).unwrap();
                    assert_eq!(entry.credit.left() + there, i64::try_from(other.window.len()).unwrap());
                    self.done.balanced += 1;
                }
            }
            let lent = sender.entries.iter().map(|(_, entry)| entry.claim.saturating_sub(WINDOW)).sum::<usize>();
            assert_eq!(sender.budget.free(), isize::try_from(HALF).unwrap() - isize::try_from(lent).unwrap());
            assert_eq!(sender.len, sender.entries.iter().map(|(_, entry)| entry.held_len()).sum::<usize>());
        }
    }

    /// Delivers and reads everything.
    fn settle(&mut self) {
        let mut is_quiet = false;
        while !is_quiet {
            is_quiet = true;
            for side in 0..2 {
                self.write(side, usize::MAX);
                is_quiet &= self.sides[side].wire.is_empty();
                self.deliver(1 - side, usize::MAX);
                let Side { streams, held, .. } = &mut self.sides[1 - side];
                for held in held.iter().filter(|held| !streams.entries[held.key.0].is_ignored).collect::<Vec<_>>() {
                    while let Ok(Some(_)) = streams.read(held.key) {
                        is_quiet = false;
                    }
                }
                is_quiet &= !streams.owes_credit();
            }
        }
    }

    /// Checks that every open stream can send while its peer reads.
    fn check_that_all_can_send(&mut self) {
        for _ in 0..3 {
            for side in 0..2 {
                for held in self.sides[side].held.clone() {
                    if self.sides[side].streams.ended(held.key).is_some() {
                        continue;
                    }
                    assert!(self.sides[side].streams.has_credit(held.key), "it is stuck");
                    while self.sides[side].streams.has_credit(held.key) {
                        self.send_on(side, held, 1000);
                    }
                }
            }
            self.settle();
        }
    }
}

/// The largest accepted content.
const LEN_MAX: usize = 9000;
/// The initial window in these tests.
const WINDOW: usize = HALF / STREAMS_MAX;
const STREAMS_MAX: usize = 24;
const HALF: usize = 32 * 1024;

/// Runs several walks with `steps` steps in total, each with a new pair of sides.
pub(super) fn walk(now: Instant, manners: Manners, steps: usize) -> Done {
    let mut all = Done::default();
    for seed in 1..=steps / STEPS {
        let mut walk = Walk::new(now, manners, 0x9e37_79b9_7f4a_7c15 ^ seed as u64);
        for step in 0..STEPS {
            walk.step();
            if step % 16 == 0 {
                walk.check_books();
            }
        }
        walk.settle();
        walk.check_books();
        walk.check_that_all_can_send();
        walk.check_books();
        let Done { data, waits, credits, widened, mixed, balanced } = walk.done;
        all.data += data;
        all.waits += waits;
        all.credits += credits;
        all.widened += widened;
        all.mixed += mixed;
        all.balanced += balanced;
    }
    all
}

const STEPS: usize = 2000;
