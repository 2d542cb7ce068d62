//! Compile errors for incorrect uses of the derive.

use super::expand;

#[test]
fn unsupported_types_are_rejected_with_advice() {
    let by_hand = |name: &str| format!("a schema cannot be derived with `{name}`: implement `Schema` by hand");
    let both_ways = "a schema applies to serialization and deserialization: use one name for both".to_owned();
    let table = [
        ("union U { a: u8 }", "a schema cannot be derived for a union".to_owned()),
        (r#"#[serde(from = "u8")] struct S(u8);"#, by_hand("from")),
        (r#"#[serde(remote = "R")] struct S { a: u8 }"#, by_hand("remote")),
        ("enum E { #[serde(other)] A }", by_hand("other")),
        ("enum E { #[serde(untagged)] A(u8) }", by_hand("untagged")),
        (r#"struct S { #[serde(getter = "f")] a: u8 }"#, by_hand("getter")),
        (r#"#[serde(rename_all(serialize = "lowercase"))] struct S;"#, both_ways.clone()),
        (r#"struct S { #[serde(rename(deserialize = "b"))] a: u8 }"#, both_ways),
        (
            r#"#[serde(rename_all = "Camel")] struct S;"#,
            "unknown case: expected one of lowercase, UPPERCASE, PascalCase, camelCase, snake_case, \
             SCREAMING_SNAKE_CASE, kebab-case, SCREAMING-KEBAB-CASE"
                .to_owned(),
        ),
        (
            r#"#[serde(tag = "t")] enum E { A(u8, u8) }"#,
            "a tuple variant cannot have a tag: name its fields".to_owned(),
        ),
        ("fn f() {}", "expected one of: `struct`, `enum`, `union`".to_owned()),
    ];
    for (item, expected) in table {
        let found = expand(item.parse().expect("the item has tokens")).expect_err("it is wrong").to_string();
        assert_eq!(found, expected, "{item}");
    }
}
