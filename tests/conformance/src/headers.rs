//! Headers of the suite. Their values are always text.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use frpc::{InvalidMetadata, Metadata, MetadataValue};

use crate::protos::Header;

/// Returns metadata as headers.
pub fn from_metadata(metadata: &Metadata) -> Vec<Header> {
    let mut headers: Vec<Header> = Vec::new();
    for (name, value) in metadata.iter() {
        let value = match value {
            MetadataValue::Ascii(value) => value.to_owned(),
            MetadataValue::Binary(value) => STANDARD_NO_PAD.encode(value),
        };
        match headers.iter_mut().find(|header| header.name == name) {
            Some(header) => header.value.push(value),
            None => headers.push(Header { name: name.to_owned(), value: vec![value] }),
        }
    }
    headers
}

/// Adds headers to metadata.
pub fn to_metadata(headers: &[Header], metadata: &mut Metadata) -> Result<(), InvalidMetadata> {
    for Header { name, value } in headers {
        for value in value {
            if name.to_ascii_lowercase().ends_with("-bin") {
                let value = STANDARD_NO_PAD.decode(value.trim_end_matches('=')).unwrap_or_default();
                metadata.append_bin(name, value)?;
            } else {
                metadata.append(name, value)?;
            }
        }
    }
    Ok(())
}
