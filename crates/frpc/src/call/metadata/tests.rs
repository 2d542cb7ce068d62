use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

#[test]
fn lookups_ignore_case() {
    let mut metadata = Metadata::new();
    metadata.insert("X-Request-ID", "Seven").unwrap();
    assert_eq!(metadata.iter().collect::<Vec<_>>(), [("x-request-id", MetadataValue::Ascii("Seven"))]);
    assert_eq!(metadata.get("x-REQUEST-id"), Some("Seven"));
    assert!(metadata.contains_key("X-request-ID"));
    assert!(metadata.remove("x-request-Id"));
    assert!(metadata.is_empty());
}

#[test]
fn names_are_validated_like_in_grpc() {
    let refusal = |name: &'static str| Metadata::new().append(name, "").err();
    let owned = |name: &str| name.to_owned();
    for name in ["a", "0", "_", "-", ".", "Azaz09_-.", "bin", "abin", "user-agent", "authorization", "grpc", "tea"] {
        assert_eq!(refusal(name), None, "{name}");
    }
    for name in [" ", "a b", ":path", "a:", "ü", "a\n", "a\0", "a/b", "a=b"] {
        assert_eq!(refusal(name), Some(InvalidMetadata::NameCharacters { name: owned(name) }), "{name:?}");
    }
    for name in ["grpc-status", "grpc-", "GRPC-Timeout", "te", "TE", "Content-Type", "host", "transfer-encoding"] {
        assert_eq!(refusal(name), Some(InvalidMetadata::ReservedName { name: name.to_lowercase() }), "{name}");
    }
    assert_eq!(refusal(""), Some(InvalidMetadata::EmptyName));
    let binary = Metadata::new().append_bin("grpc-trace-bin", "").err();
    assert_eq!(binary, Some(InvalidMetadata::ReservedName { name: owned("grpc-trace-bin") }));
}

#[test]
fn text_is_printable_ascii_and_binary_values_are_anything() {
    let mut metadata = Metadata::new();
    let printable: String = (' '..='~').collect();
    metadata.insert("a", printable.clone()).unwrap();
    metadata.insert("empty", "").unwrap();
    for (value, position) in [("\n", 0), ("ab\r", 2), ("\x1f", 0), ("a\x7f", 1), ("aü", 1), ("\0", 0)] {
        let refused = InvalidMetadata::NotPrintable { name: "a".to_owned(), position };
        assert_eq!(metadata.insert("a", value), Err(refused.clone()), "{value:?}");
        assert_eq!(metadata.append("A", value), Err(refused), "{value:?}");
    }
    assert_eq!(metadata.get_all("a").collect::<Vec<_>>(), [printable], "a refused value changes nothing");
    let bytes: Vec<u8> = (0..=255).collect();
    metadata.insert_bin("a-bin", bytes.clone()).unwrap();
    assert_eq!(metadata.get_bin("a-bin").unwrap(), &bytes);
}

#[test]
fn text_and_binary_values_have_separate_names() {
    let mut metadata = Metadata::new();
    let (binary, ascii) = ("x-bin".to_owned(), "x".to_owned());
    assert_eq!(metadata.insert("X-Bin", "1"), Err(InvalidMetadata::BinaryName { name: binary.clone() }));
    assert_eq!(metadata.append("x-bin", "1"), Err(InvalidMetadata::BinaryName { name: binary }));
    assert_eq!(metadata.insert_bin("X", "1"), Err(InvalidMetadata::AsciiName { name: ascii.clone() }));
    assert_eq!(metadata.append_bin("x", "1"), Err(InvalidMetadata::AsciiName { name: ascii }));
    assert!(metadata.is_empty());
    metadata.insert("x", "1").unwrap();
    metadata.insert_bin("x-bin", "1").unwrap();
    assert_eq!((metadata.get("x-bin"), metadata.get_bin("x")), (None, None));
    assert_eq!((metadata.get_all("x-bin").count(), metadata.get_all_bin("x").count()), (0, 0));
}

#[test]
fn merging_replaces_equal_names_and_keeps_the_rest() {
    let mut metadata = Metadata::new();
    let mut other = Metadata::new();
    for (name, value) in [("a", "1"), ("b", "2"), ("a", "3")] {
        metadata.append(name, value).unwrap();
    }
    for (name, value) in [("a", "4"), ("c", "5"), ("a", "6")] {
        other.append(name, value).unwrap();
    }
    metadata.merge(other);
    let all: Vec<_> = metadata.iter().collect();
    let expected = [("b", "2"), ("a", "4"), ("c", "5"), ("a", "6")];
    assert_eq!(all, expected.map(|(name, value)| (name, MetadataValue::Ascii(value))));
}

#[test]
fn size_counts_names_values_and_32_for_each_value() {
    let mut metadata = Metadata::new();
    assert_eq!(metadata.size(), 0);
    metadata.append("name", "value").unwrap();
    metadata.append("name", "").unwrap();
    metadata.append_bin("b-bin", vec![0; 100]).unwrap();
    assert_eq!(metadata.size(), (4 + 5 + 32) + (4 + 32) + (5 + 100 + 32));
}

#[test]
fn debug_output_hides_only_secrets() {
    let mut metadata = Metadata::new();
    metadata.insert("x-request-id", "visible").unwrap();
    metadata.insert_bin("trace-bin", "bytes").unwrap();
    for secret in SECRETS {
        metadata.insert(format!("X-{secret}-1"), "hush").unwrap();
        metadata.insert_bin(format!("{secret}-bin"), "hush").unwrap();
    }
    let shown = format!("{metadata:?}");
    assert!(!shown.contains("hush"), "{shown}");
    assert_eq!(shown.matches(HIDDEN).count(), 2 * SECRETS.len(), "{shown}");
    assert!(shown.starts_with(r#"{"x-request-id": "visible", "trace-bin": b"bytes", "x-auth-1": ***"#), "{shown}");
}

#[test]
fn an_error_does_not_show_the_value() {
    let refused = Metadata::new().insert("authorization", "Bearer hush\n").unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("hush"));
}

/// A reference model: names with the lists of their values.
type Model = Vec<(String, Vec<Vec<u8>>)>;

#[derive(Clone, Debug)]
enum Step {
    Insert(&'static str, Vec<u8>),
    Append(&'static str, Vec<u8>),
    Remove(&'static str),
    Merge(Vec<(&'static str, Vec<u8>)>),
    Clear,
}

fn names() -> impl Strategy<Value = &'static str> {
    select(&["a", "A", "b", "b.c", "x-bin", "X-Bin", "y-bin"])
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    vec(b' '..=b'~', 0..3)
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (names(), values()).prop_map(|(name, value)| Step::Insert(name, value)),
        8 => (names(), values()).prop_map(|(name, value)| Step::Append(name, value)),
        3 => names().prop_map(Step::Remove),
        2 => vec((names(), values()), 0..4).prop_map(Step::Merge),
        1 => Just(Step::Clear),
    ]
}

fn append(metadata: &mut Metadata, name: &'static str, value: &[u8]) {
    match String::from_utf8(value.to_vec()) {
        Ok(text) if !name.to_lowercase().ends_with("-bin") => metadata.append(name, text).unwrap(),
        _ => metadata.append_bin(name, value).unwrap(),
    }
}

fn run(metadata: &mut Metadata, model: &mut Model, step: Step) {
    let remove = |model: &mut Model, name: &str| {
        let len_before = model.len();
        model.retain(|(known, _)| *known != name.to_lowercase());
        model.len() < len_before
    };
    let push = |model: &mut Model, name: &str, value: Vec<u8>| {
        let name = name.to_lowercase();
        match model.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => model.push((name, vec![value])),
        }
    };
    match step {
        Step::Insert(name, value) => {
            match String::from_utf8(value.clone()) {
                Ok(text) if !name.to_lowercase().ends_with("-bin") => metadata.insert(name, text).unwrap(),
                _ => metadata.insert_bin(name, value.clone()).unwrap(),
            }
            remove(model, name);
            push(model, name, value);
        }
        Step::Append(name, value) => {
            append(metadata, name, &value);
            push(model, name, value);
        }
        Step::Remove(name) => assert_eq!(metadata.remove(name), remove(model, name)),
        Step::Merge(entries) => {
            let mut other = Metadata::new();
            for (name, value) in &entries {
                append(&mut other, name, value);
                remove(model, name);
            }
            metadata.merge(other);
            for (name, value) in entries {
                push(model, name, value);
            }
        }
        Step::Clear => {
            metadata.clear();
            model.clear();
        }
    }
}

proptest! {
    #[test]
    fn metadata_behaves_like_a_map_of_lists(steps in vec(steps(), 0..24)) {
        let (mut metadata, mut model) = (Metadata::new(), Model::new());
        for step in steps {
            run(&mut metadata, &mut model, step);
            let keys: Vec<&str> = metadata.keys().collect();
            prop_assert_eq!(keys, model.iter().map(|(name, _)| &**name).collect::<Vec<_>>());
            prop_assert_eq!(metadata.len(), model.iter().map(|(_, values)| values.len()).sum::<usize>());
            prop_assert_eq!(metadata.is_empty(), model.is_empty());
            prop_assert_eq!(metadata.iter().count(), metadata.len());
            for name in ["a", "b", "b.c", "x-bin", "y-bin", "z"] {
                let known = model.iter().find(|(known, _)| known == name);
                let expected = known.map_or(&[][..], |(_, values)| values);
                let ascii = metadata.get_all(name).map(|value| value.as_bytes().to_vec());
                let values: Vec<_> = ascii.chain(metadata.get_all_bin(name).map(|value| value.to_vec())).collect();
                prop_assert_eq!(&values, expected);
                let first = metadata.get(name).map(str::as_bytes).or(metadata.get_bin(name));
                prop_assert_eq!(first, expected.first().map(|value| &**value));
                prop_assert_eq!(metadata.contains_key(name), !expected.is_empty());
            }
        }
    }
}

#[test]
fn names_of_secrets_are_recognized() {
    for name in ["authorization", "Proxy-Authorization", "cookie", "set-cookie", "X_API_KEY", "id-token", "password"] {
        assert!(looks_secret(name), "{name}");
    }
    assert!(!["user-agent", "traceparent", "x-request-id", "color"].into_iter().any(looks_secret));
}
