//! Values of parameters as JSON.

use std::fmt::Display;

use frpc_json::{DEPTH_MAX, Scanner, base64, text::put_string};

use crate::types::{EnumInfo, ScalarKind, WellKnown};

/// Writes a scalar.
///
/// # Errors
///
/// The description of a valid value.
pub(crate) fn put_scalar(out: &mut Vec<u8>, kind: ScalarKind, text: &str) -> Result<(), &'static str> {
    fn put(out: &mut Vec<u8>, value: impl Display) {
        out.extend_from_slice(value.to_string().as_bytes());
    }
    let is_put = match kind {
        ScalarKind::Bool => match text {
            "true" | "True" | "TRUE" | "t" | "T" | "1" => {
                put(out, true);
                true
            }
            "false" | "False" | "FALSE" | "f" | "F" | "0" => {
                put(out, false);
                true
            }
            _ => false,
        },
        ScalarKind::Int32 => text.parse::<i32>().map(|value| put(out, value)).is_ok(),
        ScalarKind::Int64 => text.parse::<i64>().map(|value| put(out, value)).is_ok(),
        ScalarKind::Uint32 => text.parse::<u32>().map(|value| put(out, value)).is_ok(),
        ScalarKind::Uint64 => text.parse::<u64>().map(|value| put(out, value)).is_ok(),
        ScalarKind::Float => put_float(out, text, text.parse::<f32>().is_ok_and(f32::is_finite)),
        ScalarKind::Double => put_float(out, text, text.parse::<f64>().is_ok_and(f64::is_finite)),
        ScalarKind::String => {
            put_string(out, text);
            true
        }
        ScalarKind::Bytes => {
            put_string(out, text);
            base64::decode(text).is_some()
        }
    };
    if is_put { Ok(()) } else { Err(kind.expected()) }
}

fn put_float(out: &mut Vec<u8>, text: &str, is_finite: bool) -> bool {
    if matches!(text, "NaN" | "Infinity" | "-Infinity") {
        put_string(out, text);
        return true;
    }
    let Some(value) = text.parse::<f64>().ok().filter(|value| is_finite && value.is_finite()) else { return false };
    out.extend_from_slice(format!("{value:?}").as_bytes());
    true
}

/// Writes an enum value, given by its name or number.
pub(crate) fn put_enum(out: &mut Vec<u8>, declared: Option<&EnumInfo>, text: &str) -> Result<(), &'static str> {
    if let Ok(number) = text.parse::<i32>() {
        out.extend_from_slice(number.to_string().as_bytes());
        return Ok(());
    }
    let known = declared.and_then(|declared| declared.values.iter().find(|value| value.name == text));
    let known = known.ok_or("the name or the number of a value of this enum")?;
    put_string(out, &known.name);
    Ok(())
}

/// Writes a value of a well-known type.
pub(crate) fn put_well_known(out: &mut Vec<u8>, known: Option<WellKnown>, text: &str) -> Result<(), &'static str> {
    match known {
        Some(WellKnown::Timestamp | WellKnown::Duration) => put_string(out, text),
        Some(WellKnown::FieldMask) => put_string(out, &json_mask(text)),
        Some(WellKnown::Wrapper(kind)) => return put_scalar(out, kind, text),
        Some(WellKnown::Value | WellKnown::Struct | WellKnown::ListValue) => {
            let mut scanner = Scanner::new(text, DEPTH_MAX);
            if scanner.value().is_err() || scanner.peek().is_some() {
                return Err("JSON");
            }
            out.extend_from_slice(text.as_bytes());
        }
        Some(WellKnown::Any | WellKnown::HttpBody) | None => return Err("a value that fits into a parameter"),
    }
    Ok(())
}

/// Returns the JSON form of a field mask, whose paths may have names of the proto file.
pub(crate) fn json_mask(text: &str) -> String {
    let mut mask = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letters.peek() {
            Some(next) if letter == '_' && next.is_ascii_lowercase() => {
                mask.push(next.to_ascii_uppercase());
                letters.next();
            }
            _ => mask.push(letter),
        }
    }
    mask
}

/// Returns the JSON of a `google.api.HttpBody`.
pub(crate) fn http_body(content_type: &str, data: &[u8]) -> String {
    let mut out = b"{\"contentType\":".to_vec();
    put_string(&mut out, content_type);
    out.extend_from_slice(b",\"data\":\"");
    base64::encode(data, &mut out);
    out.extend_from_slice(b"\"}");
    String::from_utf8(out).unwrap_or_default()
}
