//! The output of callgrind: how often each instruction was executed, and which function called which.

use std::collections::HashMap;

/// An instruction, by its file and the address in it.
pub(super) type Place = (String, u64);

/// A function, by its file and its mangled name.
pub(super) type Function = (String, String);

/// The instructions that were executed while callgrind counted.
#[derive(Default)]
pub(super) struct Profile {
    /// The number of times that each instruction was executed, and the function it belongs to.
    pub(super) executed: HashMap<Place, (Function, u64)>,
    /// From where, and how often, each function was called.
    pub(super) callers: HashMap<Function, Vec<Call>>,
}

/// Calls of a function from one instruction.
pub(super) struct Call {
    pub(super) from: Place,
    pub(super) caller: Function,
    pub(super) count: u64,
}

impl Profile {
    /// Reads a dump that was made with `--dump-instr=yes`, without compression and with mangled names.
    pub(super) fn parse(dump: &str) -> Self {
        let mut profile = Self::default();
        let (mut object, mut function) = (String::new(), String::new());
        let (mut called_object, mut called_function) = (None, String::new());
        let mut called = None;
        for line in dump.lines() {
            if let Some((key, value)) = line.split_once('=') {
                match key {
                    "ob" => object = value.to_owned(),
                    "fn" => function = value.to_owned(),
                    // Written only where it is another than that of the caller.
                    "cob" => called_object = Some(value.to_owned()),
                    "cfn" => called_function = value.to_owned(),
                    "calls" => called = value.split(' ').next().and_then(|count| count.parse().ok()),
                    _ => {}
                }
                continue;
            }
            let Some((address, count)) = parse_cost(line) else { continue };
            let (place, here) = ((object.clone(), address), (object.clone(), function.clone()));
            // The line behind `calls` has what the callee cost, which is counted where it was executed.
            if let Some(count) = called.take() {
                let callee = (called_object.take().unwrap_or_else(|| object.clone()), called_function.clone());
                profile.callers.entry(callee).or_default().push(Call { from: place, caller: here, count });
            } else {
                profile.executed.entry(place).or_insert((here, 0)).1 += count;
            }
        }
        profile
    }
}

/// Reads the address and the count out of `0x1f30 123 1000`, whose middle is the line.
fn parse_cost(line: &str) -> Option<(u64, u64)> {
    let mut words = line.strip_prefix("0x")?.split(' ');
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    Some((address, words.next_back()?.parse().ok()?))
}
