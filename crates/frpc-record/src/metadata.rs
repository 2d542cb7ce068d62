//! Metadata in a recording, without secret values.

use frpc::{InvalidMetadata, Metadata, MetadataValue, layers::looks_secret};

use crate::protos::{Entry, entry::Value};

/// Metadata in a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedMetadata {
    /// The entries with recorded values.
    pub values: Metadata,
    /// The names of entries whose values were not recorded because they look secret.
    pub hidden: Vec<String>,
}

/// Returns the entries for the file.
pub(crate) fn entries(metadata: &Metadata) -> Vec<Entry> {
    let entry = |(name, value): (&str, MetadataValue<'_>)| {
        let value = match value {
            _ if looks_secret(name) => Value::Hidden(true),
            MetadataValue::Ascii(text) => Value::Text(text.to_owned()),
            MetadataValue::Binary(bytes) => Value::Binary(bytes.to_vec().into()),
        };
        Entry { name: name.to_owned(), value: Some(value) }
    };
    metadata.iter().map(entry).collect()
}

/// Reads the entries of a file.
pub(crate) fn read(entries: Vec<Entry>) -> Result<RecordedMetadata, InvalidMetadata> {
    let mut read = RecordedMetadata::default();
    for Entry { name, value } in entries {
        match value {
            Some(Value::Text(text)) => read.values.append(name, text)?,
            Some(Value::Binary(bytes)) => read.values.append_bin(name, bytes)?,
            Some(Value::Hidden(_)) | None => read.hidden.push(name),
        }
    }
    Ok(read)
}
