//! Hostile JSON is read or refused in bounded memory, on an ordinary stack.

use std::fmt::Debug;

use awkward::{
    codec::hostile::{Holder, Nest, Rows, Wide},
    names::shapes::{Lists, Maps, Tree, WellKnown},
    other,
};
use frpc::codec::json::{self, ErrorKind, Message, Reader};

use crate::memory::peak_of;

/// Reads a text on a thread with an ordinary stack. Asserts that its memory stays below the limit.
fn read<M: Message + Clone + Debug + PartialEq + Send>(text: String) -> Result<M, json::Error> {
    let work = move || {
        let mut result = None;
        let peak = peak_of(|| result = Some(json::from_str::<M>(&text)));
        let limit = Reader::MEMORY_LEN_MIN + (Reader::MEMORY_FACTOR + 4) * text.len();
        assert!(peak <= limit, "{}: {} bytes of text, {peak} allocated", M::NAME, text.len());
        let result = result.expect("it was read");
        if let Ok(message) = &result {
            assert!(message.clone() == *message);
            json::to_string(message).expect("what was read can be written");
        }
        result
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(work).expect("a thread");
    thread.join().expect("no panic")
}

fn refused<M: Message + Clone + Debug + PartialEq + Send>(text: String) -> ErrorKind {
    read::<M>(text).expect_err("it is too much").kind().clone()
}

fn is_too_deep(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::TooDeep { limit: 1..=Reader::DEPTH_MAX })
}

#[test]
fn a_depth_of_a_hundred_thousand_is_refused() {
    let deep = |open: &str, inner: &str, close: &str| [&open.repeat(100_000), inner, &close.repeat(100_000)].concat();
    let in_a = |name: &str, value: String| format!("{{\"{name}\":{value}}}");
    assert!(is_too_deep(&refused::<Tree>(deep("{\"left\":", "{}", "}"))));
    assert!(is_too_deep(&refused::<Tree>(deep("{\"children\":[", "", "]}"))));
    assert!(is_too_deep(&refused::<Tree>(deep("{\"byName\":{\"k\":", "{}", "}}"))));
    assert!(is_too_deep(&refused::<Tree>(deep("{\"one\":", "{}", "}"))));
    assert!(is_too_deep(&refused::<Maps>(deep("{\"j\":{\"1\":", "{}", "}}"))));
    assert!(is_too_deep(&refused::<Nest>(deep("{\"nests\":[", "", "]}"))));
    assert!(is_too_deep(&refused::<Wide>(deep("{\"one\":", "{}", "}"))));
    assert!(is_too_deep(&refused::<Wide>(deep("{\"held\":{\"many\":[", "", "]}}"))));
    assert!(is_too_deep(&refused::<WellKnown>(in_a("value", deep("[", "", "]")))));
    assert!(is_too_deep(&refused::<WellKnown>(in_a("fields", deep("{\"a\":", "1", "}")))));
    assert!(is_too_deep(&refused::<WellKnown>(in_a("unknown", deep("[", "", "]")))));
    assert!(is_too_deep(&refused::<WellKnown>(in_a("unknown", deep("{\"a\":", "1", "}")))));
    let any = "{\"@type\":\"/google.protobuf.Any\",\"value\":";
    assert!(is_too_deep(&refused::<WellKnown>(in_a("any", deep(any, "{}", "}")))));
    assert!(is_too_deep(&refused::<WellKnown>(in_a(
        "any",
        deep("{\"value\":", "{}", ",\"@type\":\"/google.protobuf.Any\"}")
    ))));
    // Brackets without their counterparts.
    assert!(is_too_deep(&refused::<WellKnown>(in_a("value", "[".repeat(1 << 20)))));
    assert!(is_too_deep(&refused::<Tree>("{\"left\":".repeat(100_000))));
}

#[test]
fn small_messages_may_be_nested_a_hundred_deep() {
    let nested = |levels: usize| ["{\"nest\":".repeat(levels - 1), "{}".to_owned(), "}".repeat(levels - 1)].concat();
    assert!(read::<Nest>(nested(100)).is_ok());
    assert_eq!(refused::<Nest>(nested(101)), ErrorKind::TooDeep { limit: 100 });
    let skipped = |levels: usize| format!("{{\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(read::<Nest>(skipped(99)).is_ok());
    assert_eq!(refused::<Nest>(skipped(100)), ErrorKind::TooDeep { limit: 100 });
}

#[test]
fn large_nested_messages_are_decoded_or_too_deep() {
    let ways = [
        ("{\"one\":", "}"),
        ("{\"many\":[", "]}"),
        ("{\"byName\":{\"\":", "}}"),
        ("{\"chosen\":", "}"),
        ("{\"holder\":{\"many\":[", "]}}"),
        ("{\"held\":{\"many\":[", "]}}"),
        ("{\"holder\":{\"holders\":{\"0\":{\"many\":[", "]}}}}"),
    ];
    for (open, close) in ways {
        let mut deepest = 0;
        for levels in [1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 99] {
            let text = [&open.repeat(levels - 1), "{}", &close.repeat(levels - 1)].concat();
            match read::<Wide>(text) {
                Ok(_) => deepest = levels,
                Err(error) => assert!(is_too_deep(error.kind()), "{open}: {error}"),
            }
        }
        assert!(deepest >= LEVELS_MIN, "{open}: {deepest} levels");
    }
}

/// Short texts of messages that are large in memory.
#[test]
fn messages_above_the_memory_budget_are_rejected() {
    let too_much = |kind: ErrorKind| matches!(kind, ErrorKind::TooMuchMemory { .. });
    let list = |name: &str, item: &str| format!("{{\"{name}\":[{}]}}", vec![item; 100_000].join(","));
    assert!(too_much(refused::<Wide>(list("many", "{}"))));
    assert!(too_much(refused::<Holder>(list("many", "{}"))));
    assert!(too_much(refused::<Wide>(list("many", "{\"one\":{}}"))));
    let map = |name: &str, value: &str| {
        let entries: Vec<_> = (0..100_000).map(|key| format!("\"{key}\":{value}")).collect();
        format!("{{\"{name}\":{{{}}}}}", entries.join(","))
    };
    assert!(too_much(refused::<Wide>(map("byName", "{}"))));
    assert!(too_much(refused::<other::codec::hostile::Wide>(map("byName", "{}"))));
}

#[test]
fn valid_messages_are_accepted() {
    let list = |name: &str, item: &str, count| format!("{{\"{name}\":[{}]}}", vec![item; count].join(","));
    assert!(read::<Lists>(list("fString", "\"\"", 200_000)).is_ok());
    assert!(read::<Lists>(list("fString", "\"a\"", 200_000)).is_ok());
    assert!(read::<Lists>(list("fInt32", "0", 200_000)).is_ok());
    assert!(read::<Lists>(list("fVoid", "{}", 200_000)).is_ok());
    assert!(read::<Lists>(list("fBytes", "\"\"", 200_000)).is_ok());
    assert!(read::<Tree>(list("children", "{\"text\":\"a\"}", 100_000)).is_ok());
    assert!(read::<Rows>(list("rows", "{\"blobs\":[\"\"]}", 100_000)).is_ok());
}

#[test]
fn a_million_keys_are_read_or_skipped() {
    let entries: Vec<_> = (0..1_000_000).map(|key| format!("\"{key}\":0")).collect();
    let object = format!("{{{}}}", entries.join(","));
    assert_eq!(read::<Tree>(object.clone()), Ok(Tree::default()));
    let known = read::<Maps>(format!("{{\"i\":{}}}", object.replace(":0", ":true"))).expect("a map of bools");
    assert_eq!(known.i.len(), 1_000_000);
    let fields = read::<WellKnown>(format!("{{\"fields\":{object}}}")).expect("a struct");
    assert_eq!(fields.fields.map(|fields| fields.fields.len()), Some(1_000_000));
}

#[test]
fn long_values_use_no_more_memory_than_their_length() {
    let long = "9".repeat(1 << 20);
    let lists = |name: &str, value: &str| format!("{{\"{name}\":[{value}]}}");
    assert!(matches!(refused::<Lists>(lists("fInt32", &long)), ErrorKind::Invalid { .. }));
    assert!(matches!(refused::<Lists>(lists("fInt64", &format!("\"{long}\""))), ErrorKind::Invalid { .. }));
    assert_eq!(refused::<Lists>(lists("fDouble", &long)), ErrorKind::OutOfRange { of: "an f64" });
    assert!(matches!(refused::<Lists>(lists("fInt32", &format!("1e{long}"))), ErrorKind::Invalid { .. }));
    assert_eq!(read::<Lists>(lists("fInt32", &format!("0e{long}"))).map(|lists| lists.f_int32), Ok(vec![0]));
    let small = read::<Lists>(lists("fDouble", &format!("0.{long}e-4"))).map(|lists| lists.f_double);
    assert_eq!(small, Ok(vec![0.0001]));
    let text = read::<Lists>(lists("fString", &format!("\"{long}\""))).expect("a text");
    assert_eq!(text.f_string[0].len(), 1 << 20);
    let escaped = read::<Lists>(lists("fString", &format!("\"{}\"", "\\n".repeat(2 << 20)))).expect("a text");
    assert_eq!(escaped.f_string[0].len(), 2 << 20);
    assert_eq!(read::<Lists>(lists("unknown", &format!("\"{}\"", "\\u0041".repeat(1 << 20)))), Ok(Lists::default()));
    // The error must not contain the whole unknown name.
    let error = read::<Lists>(format!("{{\"{long}\": 01}}")).expect_err("01 is no number");
    assert!(error.to_string().len() < 500);
}

/// The type of each nested message follows its value, so every level has to search for it.
#[test]
fn any_with_a_late_type_takes_bounded_time() {
    let filler = format!("\"{}\"", "x".repeat(1 << 20));
    let text = (0..90)
        .fold(format!("{{\"value\":{filler},\"@type\":\"/google.protobuf.StringValue\"}}"), |inner, _| {
            format!("{{\"value\":{inner},\"@type\":\"/google.protobuf.Any\"}}")
        });
    let kind = refused::<WellKnown>(format!("{{\"any\":{text}}}"));
    assert!(matches!(kind, ErrorKind::TooMuchMemory { .. } | ErrorKind::TooDeep { .. }), "{kind}");
}

/// Minimum number of readable levels with two hundred fields.
const LEVELS_MIN: usize = if cfg!(debug_assertions) { 8 } else { 20 };
