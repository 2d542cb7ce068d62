//! Service configs, and proto files of an edition. Invalid JSON is refused, errors have a place, and columns of
//! rewritten files belong to the file as written.
#![no_main]

#[allow(dead_code, reason = "the compiler uses more of it")]
#[path = "../../crates/frpc-build/src/edition_text.rs"]
mod edition_text;

use arbitrary::Arbitrary;
use edition_text::EditionText;
use frisbee_fuzz::fuzz_target;
use frpc_balance::{CONFIG_LEN_MAX, ServiceConfig};
use serde::de::IgnoredAny;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Config(&'a str),
    Records { records: Vec<&'a str>, hostname: &'a str, percent: u8 },
    Edition(&'a str),
}

fuzz_target!(|input: Input<'_>| match input {
    Input::Config(text) => config(text),
    Input::Records { records, hostname, percent } => {
        let records: Vec<_> = records.iter().map(|record| format!("grpc_config={record}")).collect();
        let _ = ServiceConfig::from_txt(records.iter().map(String::as_str), hostname, percent % 100);
    }
    Input::Edition(text) => edition(&format!("edition = \"2023\"; {text}")),
});

fn config(text: &str) {
    match ServiceConfig::from_json(text) {
        Ok(config) => {
            assert!(text.len() <= CONFIG_LEN_MAX && serde_json::from_str::<IgnoredAny>(text).is_ok(), "{text}");
            assert_eq!(config.check(), Ok(()));
            for method in &config.methods {
                for name in &method.names {
                    assert!(config.method(&name.service, &name.method).is_some());
                }
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn edition(source: &str) {
    let edition = EditionText::of(source).expect("it begins as a file of an edition");
    let lines = |text: &str| text.matches('\n').count();
    assert_eq!(lines(&edition.text), lines(source));
    for (line, (new, old)) in edition.text.split('\n').zip(source.split('\n')).enumerate() {
        let mut last = 0;
        for column in 0..=new.len() {
            let original = edition.original(line, column);
            assert!(last <= original && original <= old.len(), "{line}:{column} is {original}");
            last = original;
        }
    }
}
