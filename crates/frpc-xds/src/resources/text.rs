//! Conditions on text: the values of headers, and paths.

use frpc::shown;
use regex::{Regex, RegexBuilder};

use crate::protos::frpc::xds::v3::{self as proto, string_matcher::MatchPattern};

/// A condition on a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TextRule {
    pattern: TextPattern,
    ignores_case: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum TextPattern {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    Regex(FullRegex),
}

/// A regular expression for a whole text.
#[derive(Clone, Debug)]
pub(crate) struct FullRegex(Regex);

impl FullRegex {
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        if text.len() > REGEX_LEN_MAX {
            return Err(format!("a regular expression has {} bytes, more than {REGEX_LEN_MAX}", text.len()));
        }
        let regex = RegexBuilder::new(&format!("^(?:{text})$"))
            .size_limit(REGEX_SIZE_MAX)
            .dfa_size_limit(REGEX_SIZE_MAX)
            .build();
        // The error quotes the text.
        regex.map(Self).map_err(|error| {
            let (text, error) = (shown(text), shown(error.to_string()));
            format!("the regular expression \"{text}\" is not usable: {error}")
        })
    }

    pub(super) fn read(matcher: &proto::RegexMatcher) -> Result<Self, String> {
        Self::new(&matcher.regex)
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl PartialEq for FullRegex {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl TextRule {
    #[cfg(test)]
    pub(crate) fn exact(text: &str) -> Self {
        Self::new(TextPattern::Exact(text.to_owned()), false)
    }

    fn new(pattern: TextPattern, ignores_case: bool) -> Self {
        Self { pattern, ignores_case }
    }

    pub(super) fn read(matcher: &proto::StringMatcher) -> Result<Self, String> {
        let fold = |text: &str| if matcher.ignore_case { text.to_ascii_lowercase() } else { text.to_owned() };
        let pattern = match &matcher.match_pattern {
            Some(MatchPattern::Exact(text)) => TextPattern::Exact(fold(text)),
            Some(MatchPattern::Prefix(text)) => TextPattern::Prefix(fold(text)),
            Some(MatchPattern::Suffix(text)) => TextPattern::Suffix(fold(text)),
            Some(MatchPattern::Contains(text)) => TextPattern::Contains(fold(text)),
            // Regular expressions have their own flag for the case.
            Some(MatchPattern::SafeRegex(regex)) => {
                return Ok(Self::new(TextPattern::Regex(FullRegex::read(regex)?), false));
            }
            Some(MatchPattern::Custom(_)) | None => return Err("a string matcher has no supported pattern".to_owned()),
        };
        Ok(Self::new(pattern, matcher.ignore_case))
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        let folded;
        let text = if self.ignores_case {
            folded = text.to_ascii_lowercase();
            &folded
        } else {
            text
        };
        match &self.pattern {
            TextPattern::Exact(exact) => text == exact,
            TextPattern::Prefix(prefix) => text.starts_with(prefix.as_str()),
            TextPattern::Suffix(suffix) => text.ends_with(suffix.as_str()),
            TextPattern::Contains(part) => text.contains(part.as_str()),
            TextPattern::Regex(regex) => regex.is_match(text),
        }
    }
}

/// A condition on a metadata entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeaderCondition {
    /// In lower case.
    pub(crate) name: String,
    pub(crate) rule: HeaderRule,
    pub(crate) is_inverted: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HeaderRule {
    Text(TextRule),
    Range(std::ops::Range<i64>),
    /// The entry is present, or absent for `false`.
    Present(bool),
}

impl HeaderCondition {
    pub(super) fn read(matcher: proto::HeaderMatcher) -> Result<Self, String> {
        use proto::header_matcher::HeaderMatchSpecifier as Specifier;
        let name = matcher.name.to_ascii_lowercase();
        if name.is_empty() {
            return Err("a header matcher has no name".to_owned());
        }
        let text = |pattern| HeaderRule::Text(TextRule::new(pattern, false));
        let rule = match matcher.header_match_specifier {
            Some(Specifier::ExactMatch(exact)) => text(TextPattern::Exact(exact)),
            Some(Specifier::PrefixMatch(prefix)) => text(TextPattern::Prefix(prefix)),
            Some(Specifier::SuffixMatch(suffix)) => text(TextPattern::Suffix(suffix)),
            Some(Specifier::ContainsMatch(part)) => text(TextPattern::Contains(part)),
            Some(Specifier::SafeRegexMatch(regex)) => text(TextPattern::Regex(FullRegex::read(&regex)?)),
            Some(Specifier::StringMatch(matcher)) => HeaderRule::Text(TextRule::read(&matcher)?),
            Some(Specifier::RangeMatch(range)) => HeaderRule::Range(range.start..range.end),
            Some(Specifier::PresentMatch(is_present)) => HeaderRule::Present(is_present),
            None => HeaderRule::Present(true),
        };
        Ok(Self { name, rule, is_inverted: matcher.invert_match })
    }
}

/// Returns `true` if the condition has a regular expression.
pub(super) fn has_regex(matcher: &proto::HeaderMatcher) -> bool {
    use proto::header_matcher::HeaderMatchSpecifier as Specifier;
    match &matcher.header_match_specifier {
        Some(Specifier::SafeRegexMatch(_)) => true,
        Some(Specifier::StringMatch(text)) => matches!(text.match_pattern, Some(MatchPattern::SafeRegex(_))),
        _ => false,
    }
}

/// The maximum length of the text of a regular expression.
const REGEX_LEN_MAX: usize = 4 * 1024;
/// The maximum size of a compiled regular expression, and of its cache in each thread.
const REGEX_SIZE_MAX: usize = 256 * 1024;
