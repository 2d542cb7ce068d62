//! JSON of REST errors: the message `google.rpc.Status`.
//!
//! ```text
//!   {"code": 5, "message": "no such order", "details": [{"@type": "type.googleapis.com/shop.Hint", "text": "…"}]}
//! ```

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use frpc::{
    Code, Status,
    codec::json::{self, Types},
    prost_types::Any,
};
use serde::Serialize;
use serde_json::value::RawValue;

/// Serializes the error of a failed call. A detail of an unknown type has its bytes as the member `value`.
pub(crate) fn error(status: &Status, any_types: &'static Types) -> Bytes {
    let details = status.error_details().iter().map(|detail| detail_json(detail, any_types)).collect();
    // A failed call must not carry `Ok`.
    let code = if status.code() == Code::Ok { Code::Unknown } else { status.code() };
    super::json(&RestErrorJson { code: code.into(), message: status.message(), details })
}

fn detail_json(detail: &Any, any_types: &'static Types) -> Box<RawValue> {
    let known = json::to_string_with(detail, any_types).ok().and_then(|text| RawValue::from_string(text).ok());
    known.unwrap_or_else(|| {
        let unknown = UnknownDetailJson { name: &detail.type_url, value: BASE64_STANDARD.encode(&detail.value) };
        serde_json::value::to_raw_value(&unknown).expect("strings can be written as JSON")
    })
}

#[derive(Serialize)]
struct RestErrorJson<'a> {
    code: u8,
    message: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<Box<RawValue>>,
}

#[derive(Serialize)]
struct UnknownDetailJson<'a> {
    #[serde(rename = "@type")]
    name: &'a str,
    value: String,
}

#[cfg(test)]
mod tests {
    use frpc::prost_types::Duration;

    use super::*;

    #[test]
    fn an_error_is_a_status_of_google() {
        assert_eq!(error(&Status::not_found("a \"b\""), Types::WELL_KNOWN), r#"{"code":5,"message":"a \"b\""}"#);
        let details = [
            Any::from_msg(&Duration { seconds: 3, nanos: 0 }).unwrap(),
            Any { type_url: "x/t.T".into(), value: vec![7] },
        ];
        let status = Status::with_error_details(Code::Aborted, "m", details);
        assert_eq!(
            error(&status, Types::WELL_KNOWN),
            r#"{"code":10,"message":"m","details":[{"@type":"type.googleapis.com/google.protobuf.Duration","value":"3s"},{"@type":"x/t.T","value":"Bw=="}]}"#
        );
    }
}
