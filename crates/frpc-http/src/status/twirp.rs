//! JSON of Twirp errors: `{"code": "not_found", "msg": "no such order", "meta": {"name": "value"}}`.

use std::{borrow::Cow, collections::BTreeMap};

use bytes::Bytes;
use frpc::{Code, Metadata, Status};
use serde::{Deserialize, Serialize};

use super::{JsonMap, json};
use crate::{codes, headers::metadata};

/// Serializes the error of a failed call. Values of the same name are joined by commas. Details are dropped, because
/// the format has no field for them.
pub(crate) fn error(status: &Status) -> Bytes {
    error_named(codes::name(status.code()), status.message(), status.metadata())
}

/// Serializes an error with this Twirp code.
pub(crate) fn error_named(code: &str, message: &str, meta: &Metadata) -> Bytes {
    let joined: Vec<_> = meta.keys().map(|name| (name, metadata::texts(meta, name).join(", "))).collect();
    let meta = Some(JsonMap(joined)).filter(|joined| !joined.0.is_empty());
    json(&TwirpErrorJson { code: code.into(), msg: Some(message.into()), meta })
}

/// Parses an error and returns its code as written, too. Uses `without_code` if the code is unknown. Returns `None` if
/// it is not a Twirp error.
pub(crate) fn read_error(json: &[u8], without_code: Code) -> Option<(Status, String)> {
    let error: TwirpErrorJson<'_, BTreeMap<String, String>> = serde_json::from_slice(json).ok()?;
    let code = codes::from_twirp_name(&error.code).unwrap_or(without_code);
    let mut meta = Metadata::new();
    for (name, value) in error.meta.unwrap_or_default() {
        // Metadata requires header names and printable ASCII. Other values are dropped: they are meant for people, who
        // have the message.
        let _ = metadata::append(&mut meta, &name.to_ascii_lowercase(), value.as_bytes());
    }
    Some((Status::with_metadata(code, error.msg.unwrap_or_default(), meta), error.code.into_owned()))
}

#[derive(Deserialize, Serialize)]
struct TwirpErrorJson<'a, M> {
    #[serde(borrow)]
    code: Cow<'a, str>,
    #[serde(borrow)]
    msg: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<M>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_metadata_in_meta() {
        assert_eq!(error(&Status::data_loss("")), r#"{"code":"data_loss","msg":""}"#);
        let mut meta = Metadata::new();
        meta.append("target", "Balrog").unwrap();
        meta.append_bin("x-bin", [0xff]).unwrap();
        meta.append("target", "\"it\"").unwrap();
        let json = error(&Status::with_metadata(Code::PermissionDenied, "no", meta));
        assert_eq!(json, r#"{"code":"permission_denied","msg":"no","meta":{"target":"Balrog, \"it\"","x-bin":"/w"}}"#);
        let (read, code) = read_error(&json, Code::Unknown).unwrap();
        assert_eq!(code, "permission_denied");
        assert_eq!((read.code(), read.message()), (Code::PermissionDenied, "no"));
        assert_eq!(read.metadata().get("target"), Some("Balrog, \"it\""));
        assert_eq!(read.metadata().get_bin("x-bin"), Some(&[0xff][..]));
    }

    #[test]
    fn errors_are_read_with_unknown_codes_and_fields() {
        let read = |json: &str| read_error(json.as_bytes(), Code::Internal).map(|(status, _)| status.code());
        assert_eq!(read(r#"{"code":"bad_route","msg":"m","meta":{"Über":"ü"}}"#), Some(Code::Unimplemented));
        assert_eq!(read(r#"{"code":"odd"}"#), Some(Code::Internal));
        for json in ["", "{}", "[]", r#"{"code":5}"#, r#"{"msg":"m"}"#] {
            assert_eq!(read(json), None, "{json}");
        }
    }
}
