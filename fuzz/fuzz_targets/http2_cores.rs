//! Two sides of HTTP/2 with any schedule: cuts of the wire, windows, tables, resets and shutdowns.
#![no_main]

use libfuzzer_sys::fuzz_target;

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
    let mut input = Input(input);
    let (window, table) = (input.next() << 8 | input.next(), input.next() << 4);
    let window = u32::try_from(window + 50).expect("two bytes");
    model::run(&mut input, window, u32::try_from(table).expect("a byte and a half"));
});
