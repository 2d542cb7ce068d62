//! Image files as values.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeStruct};
use serde_json::{Value, json};

use super::{base64, tensor::Base64Text};
use crate::{protos, schema::Schema};

/// An image file with its media type. The content of the file is not checked.
///
/// In JSON it is an object with the media type and the file in base64. [`protos::Image`] is the message with the same
/// JSON.
///
/// ```
/// use frpc_jsonrpc::Image;
///
/// let image = Image::new(&b"\x89PNG\r\n\x1a\n"[..]);
/// assert_eq!(image.media_type(), "image/png");
/// assert_eq!(serde_json::to_string(&image)?, r#"{"type":"image/png","data":"iVBORw0KGgo="}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    media_type: String,
    data: Bytes,
}

impl Image {
    /// Creates an image, with the media type guessed from its first bytes: PNG, JPEG, GIF, WebP, or
    /// `application/octet-stream`.
    pub fn new(data: impl Into<Bytes>) -> Self {
        let data = data.into();
        Self { media_type: guess(&data).to_owned(), data }
    }

    /// Creates an image with the given media type.
    pub fn of_type(media_type: impl Into<String>, data: impl Into<Bytes>) -> Self {
        Self { media_type: media_type.into(), data: data.into() }
    }

    /// Returns the media type, such as `image/png`. It is not checked against the file.
    pub fn media_type(&self) -> &str {
        &self.media_type
    }

    /// Returns the file.
    pub fn data(&self) -> &Bytes {
        &self.data
    }
}

/// Guesses the media type from the first bytes of a file.
fn guess(data: &[u8]) -> &'static str {
    match data {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'G', b'I', b'F', b'8', ..] => "image/gif",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        _ => "application/octet-stream",
    }
}

impl From<Image> for protos::Image {
    fn from(image: Image) -> Self {
        Self { r#type: image.media_type, data: image.data }
    }
}

impl From<protos::Image> for Image {
    fn from(image: protos::Image) -> Self {
        Self { media_type: image.r#type, data: image.data }
    }
}

impl Serialize for Image {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Image", 2)?;
        object.serialize_field("type", &self.media_type)?;
        object.serialize_field("data", &Base64Text(&self.data))?;
        object.end()
    }
}

/// The JSON of an image. Empty fields may be missing, because protobuf JSON omits them.
#[derive(Deserialize)]
struct ImageJson<'a> {
    #[serde(default)]
    r#type: String,
    #[serde(borrow, default)]
    data: Cow<'a, str>,
}

impl<'de> Deserialize<'de> for Image {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ImageJson { r#type, data } = ImageJson::deserialize(deserializer)?;
        let data =
            base64::decode(&data).ok_or_else(|| de::Error::custom("the data of the image is not valid base64"))?;
        Ok(if r#type.is_empty() { Self::new(data) } else { Self::of_type(r#type, data) })
    }
}

impl Schema for Image {
    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "type": {"type": "string", "examples": ["image/png"]},
                "data": {"type": "string", "contentEncoding": "base64"},
            },
            "required": ["data"],
        })
    }
}

#[cfg(test)]
mod tests {
    use frpc::codec::json;

    use super::*;

    #[test]
    fn the_protobuf_message_has_the_same_json() {
        let image = Image::new(&b"GIF89a"[..]);
        let message = protos::Image::from(image.clone());
        let text = serde_json::to_string(&image).unwrap();
        assert_eq!(text, json::to_string(&message).unwrap());
        assert_eq!(serde_json::from_str::<Image>(&text).unwrap(), image);
        assert_eq!(Image::from(message), image);
    }

    #[test]
    fn a_missing_type_is_guessed_and_invalid_base64_rejected() {
        let read = |text| serde_json::from_str::<Image>(text);
        assert_eq!(read(r#"{"data":"_9j_"}"#).unwrap().media_type(), "image/jpeg");
        assert_eq!(read("{}").unwrap(), Image::of_type("application/octet-stream", ""));
        assert!(
            read(r#"{"data":"!"}"#).unwrap_err().to_string().starts_with("the data of the image is not valid base64")
        );
    }
}
