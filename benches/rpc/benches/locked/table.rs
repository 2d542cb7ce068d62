//! Locked instructions by the lines of ours that they are executed for.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use super::{
    code::{Frame, locked_instructions, sources},
    profile::{Function, Place, Profile},
};

/// The locked instructions that are executed for one line.
pub(super) struct Row {
    pub(super) place: String,
    pub(super) per_call: f64,
}

/// Returns the places with locked instructions, those with most first.
pub(super) fn rows(profile: &Profile, calls: usize) -> Vec<Row> {
    let objects: HashSet<&str> = profile.executed.keys().map(|(object, _)| object.as_str()).collect();
    let locked: HashMap<&str, HashSet<u64>> =
        objects.iter().map(|object| (*object, locked_instructions(object))).collect();
    let sources = Sources::of(profile, &locked);
    let mut counts: HashMap<String, f64> = HashMap::new();
    for (place, (function, count)) in &profile.executed {
        if locked[place.0.as_str()].contains(&place.1) {
            let what = sources.operation(place);
            sources.attribute(place, function, *count as f64, &what, CALLERS_MAX, &mut counts);
        }
    }
    let rows = counts.into_iter().map(|(place, count)| Row { place, per_call: count / calls as f64 });
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by(|a, b| b.per_call.total_cmp(&a.per_call).then_with(|| a.place.cmp(&b.place)));
    rows
}

/// The source of every instruction that matters here.
struct Sources<'a> {
    profile: &'a Profile,
    frames: HashMap<Place, Vec<Frame>>,
}

impl<'a> Sources<'a> {
    fn of(profile: &'a Profile, locked: &HashMap<&str, HashSet<u64>>) -> Self {
        let calls = profile.callers.values().flatten().map(|call| &call.from);
        let executed = profile.executed.keys().filter(|(object, address)| locked[object.as_str()].contains(address));
        let mut wanted: HashMap<&str, Vec<u64>> = HashMap::new();
        for (object, address) in calls.chain(executed) {
            wanted.entry(object).or_default().push(*address);
        }
        let frames = wanted.into_iter().flat_map(|(object, addresses)| {
            let found = sources(object, &addresses);
            found.into_iter().map(|(address, frames)| ((object.to_owned(), address), frames))
        });
        Self { profile, frames: frames.collect() }
    }

    /// Names what an instruction does, by the function of a library that it was inlined from.
    fn operation(&self, place: &Place) -> String {
        let mut library = self.frames(place).iter().take_while(|frame| !is_ours(frame));
        let operation = library.find(|frame| !frame.line.contains("/atomic.rs"));
        operation.map_or_else(|| "an atomic".to_owned(), |frame| format!("{} ({})", frame.name(), frame.file()))
    }

    /// Counts an instruction for the line of ours that it is inlined into. Without one, it is counted for the lines that
    /// call its function, in proportion to how often they do.
    fn attribute(
        &self,
        place: &Place,
        function: &Function,
        count: f64,
        what: &str,
        callers_left: usize,
        counts: &mut HashMap<String, f64>,
    ) {
        let ours: Vec<&Frame> = self.frames(place).iter().filter(|frame| is_ours(frame)).collect();
        if !ours.is_empty() {
            let lines: Vec<String> = ours.iter().map(|frame| short_line(frame)).take(LINES_MAX).collect();
            *counts.entry(format!("{what} in {}", lines.join(" < "))).or_default() += count;
            return;
        }
        let callers = self.profile.callers.get(function).map(Vec::as_slice).unwrap_or_default();
        let calls: u64 = callers.iter().map(|call| call.count).sum();
        if callers_left == 0 || calls == 0 {
            *counts.entry(format!("{what} in {}", function.1)).or_default() += count;
            return;
        }
        for call in callers {
            let part = count * call.count as f64 / calls as f64;
            self.attribute(&call.from, &call.caller, part, what, callers_left - 1, counts);
        }
    }

    fn frames(&self, place: &Place) -> &[Frame] {
        self.frames.get(place).map(Vec::as_slice).unwrap_or_default()
    }
}

fn is_ours(frame: &Frame) -> bool {
    Path::new(&frame.line).starts_with(workspace())
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the package is two folders down")
}

fn short_line(frame: &Frame) -> String {
    let line = Path::new(&frame.line);
    line.strip_prefix(workspace()).unwrap_or(line).display().to_string()
}

/// The most functions that are gone through on the way to a line of ours.
const CALLERS_MAX: usize = 12;
/// The most lines of ours that are shown of one place: the others are the ones it is inlined into.
const LINES_MAX: usize = 3;
