//! The text of simulated messages. Each names its call and its position, and its padding can be recomputed.

use std::{sync::LazyLock, time::Duration};

/// A request to the simulated service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Order {
    /// The number of the call.
    pub(super) call: u64,
    /// The messages in the stream of answers.
    pub(super) count: u64,
    /// The padding of each answer.
    pub(super) len: usize,
    /// The pause before each answer.
    pub(super) pause: Duration,
    /// `true` if the handler fails after its last answer.
    pub(super) fails: bool,
}

impl Order {
    /// Writes the order with this amount of padding.
    pub(super) fn to_text(&self, padding_len: usize) -> String {
        let Self { call, count, len, pause, fails } = self;
        let padding = padding(*call, 0, padding_len);
        format!("{call}:{count}:{len}:{}:{} {padding}", pause.as_millis(), u8::from(*fails))
    }

    /// Reads an order. `None` if any byte of it has changed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (order, rest) = text.split_once(' ')?;
        let mut fields = order.split(':').map(|field| field.parse::<u64>().ok());
        let mut next = || fields.next().flatten();
        let (call, count, len, pause, fails) = (next()?, next()?, next()?, next()?, next()? != 0);
        let order = Self { call, count, len: usize::try_from(len).ok()?, pause: Duration::from_millis(pause), fails };
        is_padding(rest, call, 0).then_some(order)
    }
}

/// Writes a message of a stream, or the answer to a unary call.
pub(super) fn message(call: u64, position: u64, len: usize) -> String {
    format!("{call}.{position} {}", padding(call, position, len))
}

/// Reads the call and the position of a message. `None` if any byte of it has changed.
pub(super) fn parse_message(text: &str) -> Option<(u64, u64)> {
    let (name, rest) = text.split_once(' ')?;
    let (call, position) = name.split_once('.')?;
    let (call, position) = (call.parse().ok()?, position.parse().ok()?);
    is_padding(rest, call, position).then_some((call, position))
}

fn is_padding(text: &str, call: u64, position: u64) -> bool {
    text.len() <= PADDING_MAX && text == padding(call, position, text.len())
}

fn padding(call: u64, position: u64, len: usize) -> &'static str {
    static LETTERS: LazyLock<String> = LazyLock::new(|| "abcdefghijklmnopqrstuvwxyz".repeat(8_000));
    let first = usize::try_from((call * 7 + position * 3) % 26).unwrap_or_default();
    &LETTERS[first..first + len]
}

/// The longest padding of a message.
pub(super) const PADDING_MAX: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_and_changes_are_found() {
        let order = Order { call: 7, count: 3, len: 100, pause: Duration::from_millis(5), fails: true };
        assert_eq!(Order::parse(&order.to_text(50)), Some(order.clone()));
        assert_eq!(Order::parse(&order.to_text(50).replacen('a', "b", 1)), None);
        assert_eq!(parse_message(&message(7, 2, 90)), Some((7, 2)));
        assert_eq!(parse_message(&message(7, 2, 90).replacen("7.2", "8.2", 1)), None, "the padding is that of 7");
    }
}
