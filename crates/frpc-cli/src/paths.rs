//! Paths to places in a message, such as `a.b[0].c[]`.

use serde_json::{Map, Value};

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathStep {
    Key(String),
    Index(usize),
    /// A new element after the last one of a list.
    Push,
}

/// Returns `true` if `name` may be a path.
pub(crate) fn is_path(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|char| char.is_alphanumeric() || "_-.[]".contains(char))
}

/// Parses a path such as `a.b[0].c[]`.
pub(crate) fn parse(text: &str) -> std::result::Result<Vec<PathStep>, String> {
    let mut path = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (key, behind) = inner.split_once(']').ok_or("a [ is not closed")?;
            path.push(match (key, key.parse()) {
                ("", _) => PathStep::Push,
                (_, Ok(index)) => PathStep::Index(index),
                (key, _) => PathStep::Key(key.to_owned()),
            });
            rest = behind;
        } else {
            let name = rest.strip_prefix('.').filter(|_| !path.is_empty()).unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return Err("a name is missing".to_owned());
            }
            path.push(PathStep::Key(name[..end].to_owned()));
            rest = &name[end..];
        }
    }
    Ok(path)
}

/// Formats a path in the syntax of arguments.
pub(crate) fn shown(path: &[PathStep]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            PathStep::Key(name) if text.is_empty() => text.push_str(name),
            PathStep::Key(name) => text.extend([".", name]),
            PathStep::Index(index) => text.push_str(&format!("[{index}]")),
            PathStep::Push => text.push_str("[]"),
        }
    }
    text
}

/// Inserts a value at a path, creating objects and lists on the way.
pub(crate) fn insert(root: &mut Value, path: &[PathStep], value: Value) -> std::result::Result<(), String> {
    let Some((first, rest)) = path.split_first() else {
        *root = value;
        return Ok(());
    };
    let next = match first {
        PathStep::Key(name) => {
            if root.is_null() {
                *root = Value::Object(Map::new());
            }
            let object = root.as_object_mut().ok_or("another argument already sets a value other than an object")?;
            let is_again = rest.is_empty() && object.contains_key(name);
            if is_again {
                return Err(format!("it is set twice: use {name}[]= for each element of a list"));
            }
            object.entry(name.clone()).or_insert(Value::Null)
        }
        PathStep::Index(_) | PathStep::Push => {
            if root.is_null() {
                *root = Value::Array(Vec::new());
            }
            let list = root.as_array_mut().ok_or("another argument already sets a value other than a list")?;
            let index = if let PathStep::Index(index) = first { *index } else { list.len() };
            if index > list.len() {
                return Err(format!("element {index} of a list with {}: set elements in order", list.len()));
            }
            if index == list.len() {
                list.push(Value::Null);
            }
            &mut list[index]
        }
    };
    insert(next, rest, value)
}
