//! Fields of several resources.

use std::time::Duration;

use frpc::{
    prost::Message,
    prost_types::{self, Any},
};

use super::decode;
use crate::protos::frpc::xds::v3::{
    ConfigSource, FractionalPercent, config_source::ConfigSourceSpecifier, fractional_percent::DenominatorType,
};

/// Converts a duration that must not be negative.
pub(super) fn duration(name: &str, duration: Option<prost_types::Duration>) -> Result<Option<Duration>, String> {
    let Some(duration) = duration else { return Ok(None) };
    let valid = Duration::try_from(duration).ok().filter(|duration| duration.as_secs() <= SECONDS_MAX);
    valid.map(Some).ok_or_else(|| format!("{name} is not a valid duration"))
}

/// Decodes a message in an `Any`, which must have this type.
pub(super) fn unpack<M: Message + Default>(field: &str, any: &Any, name: &str) -> Result<M, String> {
    if type_name(any) != name {
        return Err(format!("{field} has the type {:?}, expected {name}", any.type_url));
    }
    decode(&any.value).map_err(|error| format!("{field} {error}"))
}

pub(super) fn type_name(any: &Any) -> &str {
    any.type_url.rsplit_once('/').map_or(&*any.type_url, |(_, name)| name)
}

/// Refuses resources from elsewhere than the aggregated stream.
pub(super) fn check_source(field: &str, source: Option<&ConfigSource>) -> Result<(), String> {
    match source.and_then(|source| source.config_source_specifier.as_ref()) {
        Some(ConfigSourceSpecifier::Ads(_) | ConfigSourceSpecifier::Self_(_)) => Ok(()),
        None => Err(format!("{field} must be ads or self")),
    }
}

/// Converts a share of the calls. Absent means none.
pub(super) fn fraction(field: &str, fraction: Option<&FractionalPercent>) -> Result<f64, String> {
    let Some(fraction) = fraction else { return Ok(0.0) };
    let whole = match DenominatorType::try_from(fraction.denominator) {
        Ok(DenominatorType::Hundred) => 100.0,
        Ok(DenominatorType::TenThousand) => 10_000.0,
        Ok(DenominatorType::Million) => 1e6,
        Err(_) => return Err(format!("{field} has the unknown denominator {}", fraction.denominator)),
    };
    Ok((f64::from(fraction.numerator) / whole).min(1.0))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1,000,000")]
pub(super) fn per_million(share: f64) -> u32 {
    (share * 1e6).round() as u32
}

pub(super) fn check_len<T>(field: &str, list: &[T], len_max: usize) -> Result<(), String> {
    match list.len() {
        len if len > len_max => Err(format!("{field} has {len} elements, more than {len_max}")),
        _ => Ok(()),
    }
}

/// The maximum number of seconds of `google.protobuf.Duration`. Adding a longer one to the current time may
/// overflow.
const SECONDS_MAX: u64 = 315_576_000_000;
