//! Arguments of a call, by position or by name.

use std::fmt::{self, Display};

use frpc::Status;
use frpc_json::Splitter;
use serde::de::{DeserializeOwned, Deserializer, Expected, Unexpected, Visitor};

/// The arguments of a call to a function with `N` parameters, each as JSON text.
#[derive(Debug)]
pub struct Arguments<'a, const N: usize> {
    names: &'static [&'static str],
    params: &'a str,
    values: [Option<&'a str>; N],
}

impl<'a, const N: usize> Arguments<'a, N> {
    /// Splits `params` into the values for parameters with these names.
    #[inline]
    pub fn read(
        function: &str,
        names: &'static [&'static str],
        params: Option<&'a str>,
        mut values: [Option<&'a str>; N],
    ) -> Result<Self, Status> {
        let params = params.unwrap_or_default();
        split(params, names, &mut values).map_err(|misfit| misfit.into_status(function, names))?;
        Ok(Self { names, params, values })
    }

    /// Parses an argument. A missing argument is an error, unless its type is an [`Option`].
    #[inline]
    pub fn required<T: DeserializeOwned>(&self, index: usize) -> Result<T, Status> {
        match self.values[index] {
            Some(value) => serde_json::from_str(value).map_err(|error| self.wrong(index, value, &error)),
            None => T::deserialize(MissingArgument).map_err(|expected| self.missing(index, &expected)),
        }
    }

    /// Parses an optional argument, or returns the default if it is missing.
    #[inline]
    pub fn or_else<T: DeserializeOwned>(&self, index: usize, default: impl FnOnce() -> T) -> Result<T, Status> {
        match self.values[index] {
            Some(_) => self.required(index),
            None => Ok(default()),
        }
    }

    #[cold]
    fn missing(&self, index: usize, error: &MissingArgumentError) -> Status {
        let place = self.place(index);
        Status::invalid_argument(match &error.0 {
            Some(expected) => format!("{place} is missing: expected {expected}"),
            None => format!("{place} is missing"),
        })
    }

    #[cold]
    fn wrong(&self, index: usize, value: &str, error: &serde_json::Error) -> Status {
        let place = self.place(index);
        let text = error.to_string();
        // serde_json reports lines and columns relative to the value, meaningless to the caller.
        let text = text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text);
        let text = match text.split_once(": ").and_then(|(_, rest)| rest.rsplit_once(", expected ")) {
            Some((found, expected)) => format!("expected {expected}, found {}", short(found)),
            None => short(text).into_owned(),
        };
        if value.starts_with(['{', '[']) {
            let byte = offset_of(value, self.params) + byte_of(value, error);
            return Status::invalid_argument(format!("{place}: {text} (at byte {byte} of the params)"));
        }
        Status::invalid_argument(format!("{place}: {text}"))
    }

    fn place(&self, index: usize) -> impl Display {
        format!("argument `{}` ({} of {N})", self.names[index], index + 1)
    }
}

/// The reason why params do not match the parameters of a function.
enum ParamsMismatch<'a> {
    NotAList,
    Broken,
    TooMany(usize),
    Unknown(&'a str),
    Twice(usize),
}

impl ParamsMismatch<'_> {
    #[cold]
    fn into_status(self, function: &str, names: &[&str]) -> Status {
        let takes = || match names {
            [] => "no arguments".to_owned(),
            [name] => format!("1 argument (`{name}`)"),
            _ => format!("{} arguments (`{}`)", names.len(), names.join("`, `")),
        };
        Status::invalid_argument(match self {
            Self::NotAList => "the params must be an array or an object".to_owned(),
            Self::Broken => "the params are not well-formed JSON".to_owned(),
            Self::TooMany(count) => format!("`{function}` takes {}, but the call has {count}", takes()),
            Self::Unknown(name) => {
                format!("`{function}` has no argument `{}`: it takes {}", short(name.trim_matches('"')), takes())
            }
            Self::Twice(index) => {
                format!("argument `{}` ({} of {}) was given twice", names[index], index + 1, names.len())
            }
        })
    }
}

/// Splits `params` into values. Malformed params are an error only where the split notices them.
fn split<'a>(params: &'a str, names: &[&str], values: &mut [Option<&'a str>]) -> Result<(), ParamsMismatch<'a>> {
    let mut text = Splitter::new(params);
    match text.next_byte() {
        None => return Ok(()),
        Some(b'[') => split_list(&mut text, values)?,
        Some(b'{') => split_object(&mut text, names, values)?,
        Some(b'n') if params.trim_ascii() == "null" => return Ok(()),
        Some(_) => return Err(ParamsMismatch::NotAList),
    }
    text.next_byte().map_or(Ok(()), |_| Err(ParamsMismatch::Broken))
}

fn split_list<'a>(text: &mut Splitter<'a>, values: &mut [Option<&'a str>]) -> Result<(), ParamsMismatch<'a>> {
    let mut count = 0;
    if text.peek() == Some(b']') {
        text.next_byte();
        return Ok(());
    }
    loop {
        let value = text.value().ok_or(ParamsMismatch::Broken)?;
        if let Some(place) = values.get_mut(count) {
            *place = Some(value);
        }
        count += 1;
        match text.next_byte() {
            Some(b',') => {}
            Some(b']') if count > values.len() => return Err(ParamsMismatch::TooMany(count)),
            Some(b']') => return Ok(()),
            _ => return Err(ParamsMismatch::Broken),
        }
    }
}

fn split_object<'a>(
    text: &mut Splitter<'a>,
    names: &[&str],
    values: &mut [Option<&'a str>],
) -> Result<(), ParamsMismatch<'a>> {
    if text.peek() == Some(b'}') {
        text.next_byte();
        return Ok(());
    }
    loop {
        let name = text.value().ok_or(ParamsMismatch::Broken)?;
        if text.next_byte() != Some(b':') {
            return Err(ParamsMismatch::Broken);
        }
        let value = text.value().ok_or(ParamsMismatch::Broken)?;
        let index = index_of(name, names).ok_or(ParamsMismatch::Unknown(name))?;
        if values[index].replace(value).is_some() {
            return Err(ParamsMismatch::Twice(index));
        }
        match text.next_byte() {
            Some(b',') => {}
            Some(b'}') => return Ok(()),
            _ => return Err(ParamsMismatch::Broken),
        }
    }
}

/// Returns the index of a name in quotes, with or without escapes.
fn index_of(quoted: &str, names: &[&str]) -> Option<usize> {
    let plain = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if !plain.contains('\\') {
        return names.iter().position(|name| *name == plain);
    }
    let plain: String = serde_json::from_str(quoted).ok()?;
    names.iter().position(|name| *name == plain)
}

/// Returns the offset of `part` within `of`.
fn offset_of(part: &str, of: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(of.as_ptr() as usize)
}

/// Returns the byte offset of a serde_json error within `value`.
fn byte_of(value: &str, error: &serde_json::Error) -> usize {
    let lines = value.split_inclusive('\n').take(error.line().saturating_sub(1));
    lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1)
}

/// Returns a bounded prefix of a text chosen by the caller.
fn short(text: &str) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(SHORT_LEN) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// The maximum number of characters of a value repeated in an error.
const SHORT_LEN: usize = 80;

/// Returns `true` if an argument of type `T` may be missing.
pub(crate) fn is_optional<T: DeserializeOwned>() -> bool {
    T::deserialize(MissingArgument).is_ok()
}

/// The deserializer of a missing argument: `None` for an [`Option`], an error for any other type.
struct MissingArgument;

/// The error for a missing argument, with the expected type.
#[derive(Debug)]
struct MissingArgumentError(Option<String>);

impl<'de> Deserializer<'de> for MissingArgument {
    type Error = MissingArgumentError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, MissingArgumentError> {
        Err(MissingArgumentError(Some((&visitor as &dyn Expected).to_string())))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, MissingArgumentError> {
        visitor.visit_none()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

impl serde::de::Error for MissingArgumentError {
    fn custom<T: Display>(_: T) -> Self {
        Self(None)
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self(Some(expected.to_string()))
    }
}

impl Display for MissingArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("an argument is missing"))
    }
}

impl std::error::Error for MissingArgumentError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    const NAMES: &[&str] = &["a", "b"];

    fn read(params: &str) -> Result<(i64, Option<String>), String> {
        let arguments = Arguments::<2>::read("f", NAMES, Some(params), [None; 2]);
        let read = arguments.and_then(|arguments| Ok((arguments.required(0)?, arguments.required(1)?)));
        read.map_err(|status| status.message().to_owned())
    }

    #[test]
    fn arguments_are_found_by_position_and_name() {
        let expected = Ok((1, Some("x,]}".to_owned())));
        for params in [
            r#"[1,"x,]}"]"#,
            " [ 1 , \"x,]}\" ] ",
            r#"{"a":1,"b":"x,]}"}"#,
            r#"{ "b" : "x,]}" , "a" : 1 }"#,
            r#"{"\u0061":1,"b":"x\u002c]\u007D"}"#,
        ] {
            assert_eq!(read(params), expected, "{params}");
        }
        assert_eq!(read("[1]"), Ok((1, None)));
        assert_eq!(read("[1,null]"), Ok((1, None)));
        assert_eq!(read(r#"{"a":-9223372036854775808}"#), Ok((i64::MIN, None)));
    }

    #[test]
    fn an_error_names_the_argument_its_position_and_type() {
        let table = [
            ("[]", "argument `a` (1 of 2) is missing: expected i64"),
            ("{}", "argument `a` (1 of 2) is missing: expected i64"),
            ("", "argument `a` (1 of 2) is missing: expected i64"),
            ("null", "argument `a` (1 of 2) is missing: expected i64"),
            (r#"["x"]"#, "argument `a` (1 of 2): expected i64, found string \"x\""),
            (r#"{"a":1,"b":2}"#, "argument `b` (2 of 2): expected a string, found integer `2`"),
            ("[1.5]", "argument `a` (1 of 2): expected i64, found floating point `1.5`"),
            ("[9223372036854775808]", "argument `a` (1 of 2): expected i64, found integer `9223372036854775808`"),
            ("[null]", "argument `a` (1 of 2): expected i64, found null"),
            ("[1,2,3]", "`f` takes 2 arguments (`a`, `b`), but the call has 3"),
            (r#"{"a":1,"c":2}"#, "`f` has no argument `c`: it takes 2 arguments (`a`, `b`)"),
            (r#"{"a":1,"a":2}"#, "argument `a` (1 of 2) was given twice"),
            ("7", "the params must be an array or an object"),
        ];
        for (params, expected) in table {
            assert_eq!(read(params), Err(expected.to_owned()), "{params}");
        }
    }

    #[test]
    fn an_error_within_a_value_has_its_path() {
        let arguments = Arguments::<1>::read("f", &["list"], Some("[[1,\n2,\"x\"]]"), [None]).unwrap();
        let error = arguments.required::<Vec<i64>>(0).unwrap_err();
        let expected = "argument `list` (1 of 1): expected i64, found string \"x\" (at byte 9 of the params)";
        assert_eq!(error.message(), expected);
    }

    #[test]
    fn malformed_arguments_are_an_error() {
        for params in [
            "[1", "[", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "[1,", "[1]]", "[\"", "[\"\\", "{a:1}", "[,]", "[[}",
            "[1 2]", "[\"ä",
        ] {
            assert!(read(params).is_err(), "{params}");
        }
    }

    #[test]
    fn an_error_shows_only_the_beginning_of_a_value() {
        let long = format!("[\"{}\"]", "x".repeat(10_000));
        assert!(read(&long).unwrap_err().len() < 300);
        let long = format!("{{\"{}\":1}}", "x".repeat(10_000));
        assert!(read(&long).unwrap_err().len() < 300);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a\\\\\"\\[\\]{},:\u{e4} ]{0,6}".prop_map(Value::from),
            "[a-z ]{0,70}[\\\\\"\\[\\]{}]{0,2}[a-z\u{e4}]{0,70}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let fields = prop::collection::btree_map("[a\\\\\"}]{0,3}", inner.clone(), 0..3);
            let fields = fields.prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()));
            prop_oneof![prop::collection::vec(inner, 0..3).prop_map(Value::from), fields]
        })
    }

    proptest! {
        #[test]
        fn argument_values_round_trip(a in any_value(), b in any_value(), is_pretty: bool) {
            for params in [json!([a, b]), json!({"b": b, "a": a})] {
                let text = if is_pretty { format!("{params:#}") } else { params.to_string() };
                let arguments = Arguments::<2>::read("f", NAMES, Some(&text), [None; 2]).unwrap();
                prop_assert_eq!(arguments.required::<Value>(0).unwrap(), a.clone());
                prop_assert_eq!(arguments.required::<Value>(1).unwrap(), b.clone());
            }
        }

        #[test]
        fn arbitrary_text_is_parsed_or_rejected(text in "[\\[\\]{}\",:a1\\\\ \u{e4}]{0,24}[a1,]{0,40}[\\[\\]{}\",:a1\\\\]{0,12}") {
            let arguments = Arguments::<2>::read("f", &["a", "1"], Some(&text), [None; 2]);
            let is_params = matches!(serde_json::from_str(&text), Ok(Value::Array(items)) if items.len() <= 2);
            prop_assert!(arguments.is_ok() || !is_params);
            if let Ok(arguments) = arguments {
                let _ = (arguments.required::<Value>(0), arguments.required::<Vec<i64>>(1));
            }
        }
    }
}
