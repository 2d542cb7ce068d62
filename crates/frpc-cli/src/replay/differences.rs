//! Differences between recorded and replayed answers, with the paths of their fields.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    failure::{CommandError, Result},
    paths::{self, PathStep, shown},
};

/// A place where a replayed answer differs from the recorded one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// The path of the field, such as `items[0].sku`. Paths outside of messages begin with `@`.
    pub(crate) path: String,
    /// The number of the message in a stream of answers, from 1.
    pub(crate) message: Option<usize>,
    /// The values. `None` for a missing one.
    pub(crate) recorded: Option<Value>,
    pub(crate) replayed: Option<Value>,
}

/// Places without comparison, such as timestamps.
#[derive(Clone, Debug, Default)]
pub(crate) struct IgnoredPaths {
    fields: Vec<Vec<PathStep>>,
    /// Paths outside of messages.
    outside: Vec<String>,
}

impl IgnoredPaths {
    pub(crate) fn parse(texts: &[String]) -> Result<Self> {
        let mut ignored = Self::default();
        for text in texts {
            if text.starts_with('@') {
                ignored.outside.push(text.to_ascii_lowercase());
                continue;
            }
            let path = paths::parse(text).map_err(|why| {
                CommandError::new(format!("--ignore {text}: {why}"))
                    .with_try("created_at, items[].updated, items[0].price, *.etag, or @status.message")
            })?;
            ignored.fields.push(path);
        }
        Ok(ignored)
    }

    /// Returns `true` for the place itself and everything in it.
    fn has_field(&self, path: &[PathStep]) -> bool {
        self.fields.iter().any(|ignored| {
            ignored.len() <= path.len() && ignored.iter().zip(path).all(|(ignored, step)| matches_step(ignored, step))
        })
    }

    /// Does the same for a path outside of messages.
    fn is_outside_ignored(&self, path: &str) -> bool {
        let path = path.to_ascii_lowercase();
        self.outside.iter().any(|ignored| {
            path.strip_prefix(&**ignored).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }
}

fn matches_step(ignored: &PathStep, step: &PathStep) -> bool {
    match (ignored, step) {
        (PathStep::Key(any), PathStep::Key(_)) if any == "*" => true,
        // Both `created_at` and `createdAt` name a field.
        (PathStep::Key(one), PathStep::Key(other)) => {
            let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
            plain(one) == plain(other)
        }
        (PathStep::Push, PathStep::Index(_)) => true,
        // A map can have numbers as keys.
        (PathStep::Index(index), PathStep::Key(key)) => *key == index.to_string(),
        (one, other) => one == other,
    }
}

/// The differences found in one call.
#[derive(Debug)]
pub(crate) struct DifferenceList<'a> {
    ignored: &'a IgnoredPaths,
    pub(crate) found: Vec<Difference>,
    /// The number of differences, including the ones above the limit.
    pub(crate) total: usize,
}

/// The maximum number of differences kept for one call.
const DIFFERENCES_MAX: usize = 100;

impl<'a> DifferenceList<'a> {
    pub(crate) fn new(ignored: &'a IgnoredPaths) -> Self {
        Self { ignored, found: Vec::new(), total: 0 }
    }

    /// Compares two messages, the `message`th of a stream.
    pub(crate) fn compare_messages(&mut self, message: Option<usize>, recorded: &Value, replayed: &Value) {
        self.compare(message, &mut Vec::new(), Some(recorded), Some(replayed));
    }

    /// Compares values outside of messages.
    pub(crate) fn compare_outside(&mut self, path: &str, recorded: Option<Value>, replayed: Option<Value>) {
        if recorded != replayed && !self.ignored.is_outside_ignored(path) {
            self.add(None, path.to_owned(), recorded, replayed);
        }
    }

    fn compare(
        &mut self,
        message: Option<usize>,
        path: &mut Vec<PathStep>,
        recorded: Option<&Value>,
        replayed: Option<&Value>,
    ) {
        if recorded == replayed || self.ignored.has_field(path) {
            return;
        }
        match (recorded, replayed) {
            (Some(Value::Object(recorded)), Some(Value::Object(replayed))) => {
                let keys: BTreeSet<_> = recorded.keys().chain(replayed.keys()).collect();
                for key in keys {
                    path.push(PathStep::Key(key.clone()));
                    self.compare(message, path, recorded.get(key), replayed.get(key));
                    path.pop();
                }
            }
            (Some(Value::Array(recorded)), Some(Value::Array(replayed))) => {
                for at in 0..recorded.len().max(replayed.len()) {
                    path.push(PathStep::Index(at));
                    self.compare(message, path, recorded.get(at), replayed.get(at));
                    path.pop();
                }
            }
            _ => self.add(message, shown(path), recorded.cloned(), replayed.cloned()),
        }
    }

    fn add(&mut self, message: Option<usize>, path: String, recorded: Option<Value>, replayed: Option<Value>) {
        self.total += 1;
        if self.found.len() < DIFFERENCES_MAX {
            self.found.push(Difference { path, message, recorded, replayed });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differences(ignored: &[&str], recorded: &Value, replayed: &Value) -> Vec<String> {
        let ignored = IgnoredPaths::parse(&ignored.iter().map(|&text| text.to_owned()).collect::<Vec<_>>()).unwrap();
        let mut list = DifferenceList::new(&ignored);
        list.compare_messages(None, recorded, replayed);
        list.found.into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn differences_have_the_path_of_their_field() {
        let recorded = json!({ "a": 1, "items": [{ "sku": "x", "n": 1 }, { "sku": "y", "n": 2 }], "m": { "k": 1 } });
        let replayed = json!({ "a": 1, "items": [{ "sku": "z", "n": 1 }], "m": { "k": 2 }, "new": true });
        assert_eq!(differences(&[], &recorded, &recorded), [""; 0]);
        assert_eq!(differences(&[], &recorded, &replayed), ["items[0].sku", "items[1]", "m.k", "new"]);
        assert_eq!(differences(&["items[].sku", "m.*"], &recorded, &replayed), ["items[1]", "new"]);
        assert_eq!(differences(&["items", "m", "new"], &recorded, &replayed), [""; 0]);
        assert_eq!(differences(&["items[0]", "M.k"], &recorded, &replayed), ["items[1]", "new"]);
    }

    #[test]
    fn names_match_in_both_spellings() {
        let (recorded, replayed) = (json!({ "created_at": 1 }), json!({ "created_at": 2 }));
        assert_eq!(differences(&["createdAt"], &recorded, &replayed), [""; 0]);
        assert_eq!(differences(&["created"], &recorded, &replayed), ["created_at"]);
    }

    #[test]
    fn places_outside_of_messages_are_ignored_by_name() {
        let ignored = IgnoredPaths::parse(&["@trailers.date".to_owned(), "@status.details".to_owned()]).unwrap();
        let mut list = DifferenceList::new(&ignored);
        for path in ["@trailers.Date", "@trailers.dated", "@status.details[0].value", "@status.message"] {
            list.compare_outside(path, Some(1.into()), None);
        }
        let paths: Vec<_> = list.found.into_iter().map(|difference| difference.path).collect();
        assert_eq!(paths, ["@trailers.dated", "@status.message"]);
    }

    #[test]
    fn the_list_of_differences_is_bounded() {
        let all = |value: i32| Value::from(vec![value; 1_000]);
        let ignored = IgnoredPaths::default();
        let mut list = DifferenceList::new(&ignored);
        list.compare_messages(Some(1), &all(1), &all(2));
        assert_eq!((list.found.len(), list.total), (DIFFERENCES_MAX, 1_000));
    }

    #[test]
    fn an_invalid_path_is_an_error() {
        assert!(IgnoredPaths::parse(&["a[".to_owned()]).is_err());
    }
}
