//! JSON values together with their path, for errors.

use std::{borrow::Cow, fmt, ops::RangeInclusive, time::Duration};

use frpc_json::{Scanner, SyntaxError, numbers};

/// The maximum length of a service config in bytes.
pub const CONFIG_LEN_MAX: usize = 64 << 10;
/// The maximum nesting of a service config.
pub const CONFIG_DEPTH_MAX: u32 = 32;

/// A field of a service config with an unusable value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    path: String,
    why: String,
}

impl ConfigError {
    pub(super) fn new(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self { path: path.into(), why: why.into() }
    }

    /// Returns the path of the field, such as `methodConfig[2].retryPolicy.maxAttempts`. It is empty for errors of the
    /// whole text.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "service config" } else { &self.path };
        write!(f, "{path}: {}", self.why)
    }
}

impl std::error::Error for ConfigError {}

pub(super) type Result<T, E = ConfigError> = std::result::Result<T, E>;

/// A JSON value.
#[derive(Debug)]
pub(super) enum JsonValue<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    Text(Cow<'a, str>),
    List(Vec<JsonValue<'a>>),
    Object(Vec<(Cow<'a, str>, JsonValue<'a>)>),
}

impl<'a> JsonValue<'a> {
    /// Parses the whole text.
    pub(super) fn parse(text: &'a str) -> Result<Self> {
        if text.len() > CONFIG_LEN_MAX {
            return Err(ConfigError::new("", format!("{} bytes are more than {CONFIG_LEN_MAX}", text.len())));
        }
        let mut scanner = Scanner::new(text, CONFIG_DEPTH_MAX);
        let value = Self::scan(&mut scanner).and_then(|value| match scanner.peek() {
            None => Ok(value),
            Some(_) => Err(SyntaxError::Expected("the end of the text")),
        });
        value.map_err(|error| ConfigError::new("", format!("invalid JSON at byte {}: {error}", scanner.position())))
    }

    /// Reads a value. The scanner limits the recursion to [`CONFIG_DEPTH_MAX`].
    fn scan(scanner: &mut Scanner<'a>) -> Result<Self, SyntaxError> {
        match scanner.peek() {
            Some(b'"') => scanner.text("text").map(Self::Text),
            Some(b'{') => {
                let mut fields = Vec::new();
                let mut is_more = scanner.enter(b'}')?;
                while is_more {
                    fields.push((scanner.name_text()?, Self::scan(scanner)?));
                    is_more = scanner.is_more(b'}')?;
                }
                Ok(Self::Object(fields))
            }
            Some(b'[') => {
                let mut items = Vec::new();
                let mut is_more = scanner.enter(b']')?;
                while is_more {
                    items.push(Self::scan(scanner)?);
                    is_more = scanner.is_more(b']')?;
                }
                Ok(Self::List(items))
            }
            Some(b't') => scanner.word("true", "a value").map(|()| Self::Bool(true)),
            Some(b'f') => scanner.word("false", "a value").map(|()| Self::Bool(false)),
            Some(b'n') => scanner.word("null", "a value").map(|()| Self::Null),
            Some(b'-' | b'0'..=b'9') => {
                let start = scanner.position();
                scanner.number().map(|()| Self::Number(scanner.since(start)))
            }
            Some(_) => Err(SyntaxError::Expected("a value")),
            None => Err(SyntaxError::Truncated),
        }
    }
}

/// A value and its path.
#[derive(Debug)]
pub(super) struct ConfigNode<'v> {
    pub(super) path: String,
    value: &'v JsonValue<'v>,
}

impl<'v> ConfigNode<'v> {
    pub(super) fn root(value: &'v JsonValue<'v>) -> Self {
        Self { path: String::new(), value }
    }

    pub(super) fn error<T>(&self, why: impl Into<String>) -> Result<T> {
        Err(ConfigError::new(self.path.clone(), why))
    }

    fn below(&self, name: &str, value: &'v JsonValue<'v>) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self { path: format!("{}{dot}{name}", self.path), value }
    }

    /// Returns the fields of an object.
    pub(super) fn fields(&self) -> Result<impl ExactSizeIterator<Item = (&'v str, Self)>> {
        let JsonValue::Object(fields) = self.value else { return self.error("must be an object") };
        Ok(fields.iter().map(|(name, value)| (&**name, self.below(name, value))))
    }

    /// Returns a field of an object, or `None` if it is absent or null.
    pub(super) fn get(&self, name: &str) -> Result<Option<Self>> {
        let JsonValue::Object(fields) = self.value else { return self.error("must be an object") };
        let mut found = fields.iter().filter(|(field, _)| field == name).map(|(_, value)| self.below(name, value));
        let first = found.next();
        match found.next() {
            Some(second) => second.error("appears twice"),
            None => Ok(first.filter(|node| !matches!(node.value, JsonValue::Null))),
        }
    }

    /// Returns a field of an object.
    pub(super) fn require(&self, name: &str, expected: &str) -> Result<Self> {
        match self.get(name)? {
            Some(node) => Ok(node),
            None => self.below(name, self.value).error(format!("is missing: {expected}")),
        }
    }

    /// Converts a field with `read`, or returns `default` if it is absent.
    pub(super) fn or<T>(&self, name: &str, default: T, read: impl FnOnce(Self) -> Result<T>) -> Result<T> {
        self.get(name)?.map_or(Ok(default), read)
    }

    /// Converts a field with `read`, if it is present.
    pub(super) fn optional<T>(&self, name: &str, read: impl FnOnce(Self) -> Result<T>) -> Result<Option<T>> {
        self.get(name)?.map(read).transpose()
    }

    /// Returns the items of a list.
    pub(super) fn items(&self) -> Result<impl ExactSizeIterator<Item = Self>> {
        let JsonValue::List(items) = self.value else { return self.error("must be a list") };
        let item = |(index, value)| Self { path: format!("{}[{index}]", self.path), value };
        Ok(items.iter().enumerate().map(item))
    }

    pub(super) fn bool(&self) -> Result<bool> {
        match self.value {
            JsonValue::Bool(value) => Ok(*value),
            _ => self.error("must be true or false"),
        }
    }

    pub(super) fn text(&self) -> Result<&'v str> {
        match self.value {
            JsonValue::Text(text) => Ok(text),
            _ => self.error("must be text"),
        }
    }

    pub(super) fn as_text(&self) -> Option<&'v str> {
        self.text().ok()
    }

    /// Returns the text of a number, with or without quotes.
    pub(super) fn number(&self) -> Option<&'v str> {
        match self.value {
            JsonValue::Number(text) => Some(text),
            JsonValue::Text(text) if numbers::is_number(text) => Some(text),
            _ => None,
        }
    }

    /// Returns an integer in this range.
    pub(super) fn integer(&self, range: RangeInclusive<u64>) -> Result<u64> {
        let value = self.number().and_then(numbers::integer);
        match value.and_then(|(is_negative, value)| numbers::unsigned(is_negative, value)) {
            Some(value) if range.contains(&value) => Ok(value),
            _ if *range.end() == u64::MAX => self.error(format!("must be an integer of at least {}", range.start())),
            _ => self.error(format!("must be an integer from {} to {}", range.start(), range.end())),
        }
    }

    /// Returns an integer in this range.
    pub(super) fn small(&self, range: RangeInclusive<u32>) -> Result<u32> {
        let value = self.integer(u64::from(*range.start())..=u64::from(*range.end()))?;
        Ok(u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// Returns an integer from `least` to `most`. Larger integers become `most`.
    pub(super) fn capped(&self, least: u32, most: u32) -> Result<u32> {
        let value = self.integer(u64::from(least)..=u64::MAX)?;
        Ok(u32::try_from(value).unwrap_or(u32::MAX).min(most))
    }

    /// Returns a number of at least zero.
    pub(super) fn not_negative(&self) -> Result<f32> {
        let value = self.number().and_then(|text| text.parse::<f32>().ok());
        match value.filter(|value| *value >= 0.0 && value.is_finite()) {
            Some(value) => Ok(value),
            None => self.error("must be a number of at least 0"),
        }
    }

    /// Returns a number above zero.
    pub(super) fn positive(&self) -> Result<f32> {
        let value = self.number().and_then(|text| text.parse::<f32>().ok());
        match value.filter(|value| *value > 0.0 && value.is_finite()) {
            Some(value) => Ok(value),
            None => self.error("must be a number above 0"),
        }
    }

    /// Returns a duration such as `1.5s`.
    pub(super) fn duration(&self) -> Result<Duration> {
        match self.as_text().and_then(parse_duration) {
            Some(duration) => Ok(duration),
            None => self.error("must be a duration such as \"1.5s\", not negative"),
        }
    }

    /// Returns a duration above zero.
    pub(super) fn positive_duration(&self) -> Result<Duration> {
        match self.duration()? {
            Duration::ZERO => self.error("must be more than \"0s\""),
            duration => Ok(duration),
        }
    }
}

/// The maximum number of seconds of `google.protobuf.Duration`.
const SECONDS_MAX: u64 = 315_576_000_000;

/// Parses the JSON form of `google.protobuf.Duration`, unless it is negative.
fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.strip_suffix('s')?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(seconds) || !is_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let seconds = seconds.parse().ok().filter(|seconds| *seconds <= SECONDS_MAX)?;
    Some(Duration::new(seconds, format!("{fraction:0<9}").parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_protobuf_does() {
        assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1_500)));
        assert_eq!(parse_duration("0.000000001s"), Some(Duration::from_nanos(1)));
        assert_eq!(parse_duration("315576000000s"), Some(Duration::from_secs(SECONDS_MAX)));
        for text in
            ["", "s", "1", "1.5", "-1s", "+1s", "1.s", ".5s", "1e3s", "1.0000000001s", "315576000001s", " 1s", "1ms"]
        {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }

    #[test]
    fn malformed_long_and_deep_text_is_refused() {
        let error = |text: &str| JsonValue::parse(text).unwrap_err().to_string();
        assert_eq!(error(r#"{"a": "#), "service config: invalid JSON at byte 6: the JSON ends too early");
        assert_eq!(error("{} x"), "service config: invalid JSON at byte 3: expected the end of the text");
        assert_eq!(error(&" ".repeat(CONFIG_LEN_MAX + 1)), "service config: 65537 bytes are more than 65536");
        assert!(error(&"[".repeat(CONFIG_LEN_MAX)).contains("nested deeper than 32"));
        assert!(JsonValue::parse(&format!("{}{}", "[".repeat(32), "]".repeat(32))).is_ok());
    }
}
