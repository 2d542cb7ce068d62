//! Decodes any bytes in any pieces. The decoder never panics, and the boundaries of the pieces make no difference.
#![no_main]

use arbitrary::Arbitrary;
use bytes::BytesMut;
use frisbee::{
    ProtocolError,
    proto::{Decoder, Frame, HeaderFormat},
};
use frisbee_fuzz::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    format: u8,
    content_len_max: u32,
    /// Lengths of the pieces, repeated.
    pieces: [u8; 8],
    bytes: &'a [u8],
}

fuzz_target!(|input: Input| {
    let whole = decode(&input, [input.bytes].into_iter());
    assert_eq!(decode(&input, pieces(&input)), whole, "where the input is cut makes no difference");
});

fn decode<'a>(input: &Input, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Option<ProtocolError>) {
    let format = [None, Some(HeaderFormat::Magic10), Some(HeaderFormat::Plain8)][usize::from(input.format % 3)];
    let skip_len_max = input.content_len_max.saturating_mul(u32::from(input.format / 3 % 4));
    let mut decoder = Decoder::new(format, input.content_len_max).skipping(skip_len_max);
    let (mut inbox, mut frames, mut given, mut held) = (BytesMut::new(), Vec::new(), 0, 0);
    for piece in pieces {
        inbox.extend_from_slice(piece);
        given += piece.len();
        loop {
            match decoder.decode(&mut inbox) {
                Ok(Some(frame)) => {
                    let format = decoder.format().expect("a frame shows its format");
                    held += format.header_len() + frame.content.len();
                    assert!(frame.content.len() <= input.content_len_max as usize);
                    assert!(
                        frame.skipped <= input.content_len_max.max(skip_len_max)
                            && frame.skipped as usize == decoder.skip_len()
                    );
                    frames.push(frame);
                }
                Ok(None) => break,
                Err(error) => {
                    let left = inbox.clone();
                    assert_eq!(decoder.decode(&mut inbox), Err(error.clone()), "an error stays");
                    assert_eq!(inbox, left, "an error takes nothing");
                    return (frames, Some(error));
                }
            }
        }
        assert!(held + inbox.len() <= given, "no byte is made up");
        assert!(decoder.content_len() <= input.content_len_max as usize);
    }
    undo(&mut decoder, inbox, input);
    (frames, None)
}

/// Checks that incomplete input can be put back and decoded again with the same result.
fn undo(decoder: &mut Decoder, mut inbox: BytesMut, input: &Input) {
    let (before, under_way) = (inbox.clone(), decoder.content_len());
    decoder.undo(&mut inbox);
    assert!(input.bytes.ends_with(&inbox) && inbox.ends_with(&before));
    assert_eq!(decoder.decode(&mut inbox), Ok(None));
    assert_eq!((inbox, decoder.content_len()), (before, under_way));
}

fn pieces<'a>(input: &Input<'a>) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = input.bytes;
    input.pieces.into_iter().cycle().map_while(move |len| {
        let piece;
        (piece, rest) = rest.split_at(rest.len().min(usize::from(len) + 1));
        (!piece.is_empty()).then_some(piece)
    })
}
