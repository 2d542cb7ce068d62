//! Two sides of HTTP/2 with any schedule: cuts of the wire, windows, tables, resets and shutdowns.
#![no_main]

use frisbee_fuzz::fuzz_target;

#[path = "../../crates/frpc-http2/tests/peers/model.rs"]
mod model;

/// Takes decisions from the input: a byte for a small number, and three for a large one.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn next(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }
}

impl model::Choices for Input<'_> {
    fn below(&mut self, max: usize) -> usize {
        let number = if max <= 256 { self.next() } else { self.next() << 16 | self.next() << 8 | self.next() };
        number % max
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(&input[..input.len().min(INPUT_MAX)]);
    let (window, table) = (input.next() << 8 | input.next(), input.next() << 4);
    let window = window + 50;
    let extent = model::Extent {
        window: u32::try_from(window).expect("two bytes"),
        table: u32::try_from(table).expect("a byte and a half"),
        streams_max: 10,
        // A few windows: an exchange with many more of them only repeats itself.
        len_max: (window * 8).min(30_000),
    };
    model::run(&mut input, extent);
});

/// Longer inputs are slow, and rarely reach anything that shorter ones do not.
const INPUT_MAX: usize = 600;
