//! Command-line arguments such as `a=1 b:=[2] x-name:value`, and their conversion to a JSON message.

use std::fs;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use frpc::{Metadata, MetadataValue};
use prost_reflect::MessageDescriptor;
use serde_json::Value;

use crate::{
    failure::{CommandError, Result},
    fields::{self, ValueShape},
    paths::{self, PathStep, insert, is_path, shown},
};

/// The arguments after the method of a command.
#[derive(Debug, Default)]
pub(crate) struct CallArguments {
    fields: Vec<(Vec<PathStep>, ArgumentValue)>,
    positions: Vec<ArgumentValue>,
    /// The pairs given as `name:value`.
    pub(crate) metadata: Vec<(String, String)>,
}

/// A value as given on the command line.
#[derive(Clone, Debug, PartialEq)]
enum ArgumentValue {
    /// Text, converted to the type of its field.
    Text(String),
    Json(Value),
    Bytes(Vec<u8>),
}

impl CallArguments {
    /// Parses arguments and reads the files they name.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut parsed = Self::default();
        for argument in arguments {
            parsed.add(argument)?;
        }
        if let (Some((path, _)), false) = (parsed.fields.first(), parsed.positions.is_empty()) {
            let name = shown(path);
            return Err(CommandError::new(format!(
                "{name} has a name and other arguments have none: name all or none of them"
            ))
            .with_try("NAME=VALUE, NAME:=JSON, or `frpc call --help`"));
        }
        Ok(parsed)
    }

    /// Returns `true` if the arguments contain no part of a message.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.positions.is_empty()
    }

    /// Inserts the arguments into a message. If its type is known, it determines the meaning of texts.
    pub(crate) fn put_into(&self, message: &mut Value, shape: Option<&MessageDescriptor>) -> Result<()> {
        if !self.positions.is_empty() {
            return self.put_positions(message, shape);
        }
        for (path, given) in &self.fields {
            let place = shape.map(|shape| fields::find(shape, path)).transpose()?.unwrap_or(ValueShape::Anything);
            let value = given.value_at(&place).map_err(|why| CommandError::new(format!("{}: {why}", shown(path))))?;
            let mut path = path.clone();
            if matches!(place, ValueShape::List(_)) && !value.is_array() {
                // `tags=a tags=b` sets two elements of a list.
                path.push(PathStep::Push);
            }
            insert(message, &path, value).map_err(|why| CommandError::new(format!("{}: {why}", shown(&path))))?;
        }
        Ok(())
    }

    /// Arguments without names become an array, or the fields of a message in order.
    fn put_positions(&self, message: &mut Value, shape: Option<&MessageDescriptor>) -> Result<()> {
        let Some(shape) = shape.filter(|shape| !fields::is_any_json(shape)) else {
            let values = self.positions.iter().map(|given| given.value_at(&ValueShape::Anything));
            let values = values.collect::<std::result::Result<Vec<_>, _>>().map_err(CommandError::new)?;
            *message = Value::Array(values);
            return Ok(());
        };
        let fields: Vec<_> = shape.fields().collect();
        if self.positions.len() > fields.len() {
            return Err(CommandError::new(format!(
                "{} arguments for the {} fields of {}",
                self.positions.len(),
                fields.len(),
                shape.full_name()
            ))
            .with_try(format!("name them: {}", fields::names(shape))));
        }
        for (field, given) in fields.iter().zip(&self.positions) {
            let path = [PathStep::Key(field.name().to_owned())];
            let place = fields::find(shape, &path)?;
            let value = given.value_at(&place).map_err(|why| CommandError::new(format!("{}: {why}", field.name())))?;
            insert(message, &path, value).map_err(CommandError::new)?;
        }
        Ok(())
    }

    fn add(&mut self, argument: &str) -> Result<()> {
        let separator = argument.find([':', '=', '@']).filter(|at| is_path(&argument[..*at]));
        let Some(at) = separator else {
            self.positions.push(ArgumentValue::Text(argument.to_owned()));
            return Ok(());
        };
        let (name, rest) = argument.split_at(at);
        let given = if let Some(path) = rest.strip_prefix(":=@") {
            ArgumentValue::Json(parse_json(&read_text(path)?, path)?)
        } else if let Some(json) = rest.strip_prefix(":=") {
            ArgumentValue::Json(parse_json(json, argument)?)
        } else if let Some(path) = rest.strip_prefix("=@") {
            ArgumentValue::Text(read_text(path)?)
        } else if let Some(text) = rest.strip_prefix('=') {
            ArgumentValue::Text(text.to_owned())
        } else if let Some(path) = rest.strip_prefix('@') {
            ArgumentValue::Bytes(read(path)?)
        } else if let Some(given) = typed(&rest[1..], argument)? {
            given
        } else {
            self.metadata.push((name.to_owned(), rest[1..].trim_start().to_owned()));
            return Ok(());
        };
        self.fields.push((paths::parse(name).map_err(|why| CommandError::new(format!("{argument}: {why}")))?, given));
        Ok(())
    }
}

/// Parses `TYPE=VALUE` as in UCall's command line, or returns `None` for other text.
fn typed(text: &str, argument: &str) -> Result<Option<ArgumentValue>> {
    let Some((kind, value)) = text.split_once('=') else { return Ok(None) };
    let json = |value: &str| parse_json(value, argument).map(ArgumentValue::Json);
    Ok(Some(match kind {
        "str" | "string" => ArgumentValue::Json(value.into()),
        "int" | "float" | "json" => json(value)?,
        "bool" => json(&value.to_lowercase())?,
        "binary" | "image" => ArgumentValue::Bytes(read(value)?),
        _ => return Ok(None),
    }))
}

impl ArgumentValue {
    /// Returns the value as JSON for a place in a message.
    fn value_at(&self, place: &ValueShape) -> std::result::Result<Value, String> {
        match self {
            Self::Json(value) => Ok(value.clone()),
            Self::Bytes(bytes) => Ok(BASE64_STANDARD.encode(bytes).into()),
            Self::Text(text) => place.read(text),
        }
    }
}

/// The option for metadata.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct MetadataOptions {
    /// Metadata of each call, as in `-H 'authorization: Bearer …'`, also for reflection. Values of names ending in -bin
    /// are base64. Can be repeated.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", help_heading = "Call")]
    headers: Vec<String>,
}

impl MetadataOptions {
    /// Returns the given metadata.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        let mut metadata = Metadata::new();
        let headers = self.headers.iter().map(|header| {
            let (name, value) = header.split_once(':')?;
            Some((name.trim(), value.trim()))
        });
        let headers = headers.collect::<Option<Vec<_>>>();
        let headers =
            headers.ok_or_else(|| CommandError::new("a header without a colon").with_try("-H 'NAME: VALUE'"))?;
        add_metadata(&mut metadata, headers)?;
        Ok(metadata)
    }
}

/// Adds pairs to `metadata`. Values of names with the suffix `-bin` are base64.
pub(crate) fn add_metadata<'a>(
    metadata: &mut Metadata,
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<()> {
    for (name, value) in pairs {
        let name = name.to_ascii_lowercase();
        let added = if name.ends_with("-bin") {
            let bytes = BASE64_STANDARD.decode(value);
            let bytes =
                bytes.map_err(|error| CommandError::new(format!("metadata {name}: not valid base64: {error}")))?;
            metadata.append_bin(&name, bytes)
        } else {
            metadata.append(&name, value)
        };
        added.map_err(|error| CommandError::new(format!("metadata {name}: {error}")))?;
    }
    Ok(())
}

/// Returns a metadata value in the format accepted by [`add_metadata`].
pub(crate) fn metadata_text(value: MetadataValue<'_>) -> String {
    match value {
        MetadataValue::Ascii(text) => text.to_owned(),
        MetadataValue::Binary(bytes) => BASE64_STANDARD.encode(bytes),
    }
}

/// Reads a whole file, or standard input for `-`.
pub(crate) fn read(path: &str) -> Result<Vec<u8>> {
    let read = if path == "-" {
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin(), &mut all).map(|_| all)
    } else {
        fs::read(path)
    };
    read.map_err(|error| CommandError::new(format!("{path}: {error}")))
}

fn read_text(path: &str) -> Result<String> {
    String::from_utf8(read(path)?).map_err(|_| {
        CommandError::new(format!("{path} is not UTF-8 text")).with_try(format!("NAME@{path}, for a bytes field"))
    })
}

fn parse_json(text: &str, from: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| {
        CommandError::new(format!("{from}: not valid JSON: {error}"))
            .with_try("NAME=VALUE for a text, NAME:='\"text\"' as JSON")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(texts: &[&str]) -> Result<CallArguments> {
        CallArguments::parse(&texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    fn body(texts: &[&str]) -> Value {
        let mut body = Value::Null;
        arguments(texts).unwrap().put_into(&mut body, None).unwrap();
        body
    }

    #[test]
    fn values_are_inferred_without_a_schema() {
        assert_eq!(
            body(&["a=1", "b=2.5", "c=hello", "d=true", "e=007", "f=-3", "g=", "h=1x", "i=null"]),
            json!({ "a": 1, "b": 2.5, "c": "hello", "d": true, "e": "007", "f": -3, "g": "", "h": "1x", "i": "null" })
        );
    }

    #[test]
    fn json_and_typed_values_are_kept() {
        assert_eq!(
            body(&["a:=[1,2]", "b:str=1", "c:int=5", "d:bool=True", "e:={\"x\":null}"]),
            json!({ "a": [1, 2], "b": "1", "c": 5, "d": true, "e": { "x": null } })
        );
    }

    #[test]
    fn paths_address_objects_and_lists() {
        assert_eq!(
            body(&["a.b.c=1", "a.b.d=2", "l[]=1", "l[]=2", "m[0].x=1", "m[0].y=2", "n[k-1]=v"]),
            json!({ "a": { "b": { "c": 1, "d": 2 } }, "l": [1, 2], "m": [{ "x": 1, "y": 2 }], "n": { "k-1": "v" } })
        );
    }

    #[test]
    fn unnamed_arguments_form_an_array() {
        assert_eq!(body(&["1", "two", "a b=c"]), json!([1, "two", "a b=c"]));
    }

    #[test]
    fn names_with_a_colon_are_metadata() {
        let parsed = arguments(&["authorization:Bearer a=b", "x-id: 5", "a=b:c"]).unwrap();
        let expected =
            [("authorization", "Bearer a=b"), ("x-id", "5")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(parsed.metadata, expected);
        assert_eq!(parsed.fields.len(), 1);
    }

    #[test]
    fn invalid_arguments_are_named_in_the_error() {
        for (texts, part) in [
            (&["a=1", "2"][..], "name all or none"),
            (&["a:=nothing"], "not valid JSON"),
            (&["a[=1"], "a [ is not closed"),
            (&["a..b=1"], "a name is missing"),
            (&["a=@/no/such/file"], "/no/such/file"),
        ] {
            let Err(CommandError::Own { what, .. }) = arguments(texts) else { panic!("{texts:?}") };
            assert!(what.contains(part), "{what}");
        }
        for (texts, part) in
            [(&["a=1", "a=2"][..], "twice"), (&["a=1", "a.b=2"], "other than an object"), (&["a[1]=1"], "in order")]
        {
            let result = arguments(texts).unwrap().put_into(&mut Value::Null, None);
            let Err(CommandError::Own { what, .. }) = result else { panic!("{texts:?}") };
            assert!(what.contains(part), "{what}");
        }
    }
}
