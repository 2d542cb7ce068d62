//! The field `loadBalancingConfig` of a service config.

use std::time::Duration;

use super::value::{ConfigNode, Result};
use crate::{
    outlier::{OutlierRule, OutlierSettings},
    report::ReportSettings,
};

/// The maximum number of entries of a ring. Larger numbers mean this one (gRFC A42).
pub const RING_ENTRIES_MAX: u32 = 4_096;

/// The choice of an endpoint for each call, from a service config.
#[derive(Clone, Debug, PartialEq)]
pub enum BalancingConfig {
    /// The first reachable endpoint: `pick_first`.
    PickFirst {
        /// `true` if the addresses are shuffled first.
        shuffle: bool,
    },
    /// All endpoints in turn: `round_robin`.
    RoundRobin,
    /// The endpoint with the least calls among some random ones: `least_request_experimental` (A48).
    LeastRequest {
        /// The number of random endpoints, 2 to 10. Default 2.
        choices: u32,
    },
    /// The endpoint at the hash of a key: `ring_hash_experimental` (A42).
    RingHash {
        /// The minimum number of entries. Default 1,024.
        entries_min: u32,
        /// The maximum number of entries. Default 4,096.
        entries_max: u32,
        /// The metadata entry with the key (A76).
        key_header: Option<String>,
    },
    /// Shares by the load reported by each server: `weighted_round_robin` (A58).
    WeightedRoundRobin(ReportSettings),
    /// A random part of the endpoints: `random_subsetting` (A68).
    RandomSubset {
        /// The number of endpoints in the part.
        len: u32,
        /// The choice within the part.
        child: Box<BalancingConfig>,
    },
    /// Ejection of outliers: `outlier_detection_experimental` (A50). A rule without a field is disabled.
    OutlierDetection {
        /// The rules for outliers.
        rules: OutlierSettings,
        /// The choice among the remaining endpoints.
        child: Box<BalancingConfig>,
    },
}

/// Reads a list of policies. The first known one counts, as in all implementations of gRPC.
pub(super) fn read_policies(list: &ConfigNode<'_>) -> Result<BalancingConfig> {
    let mut unknown = Vec::new();
    for item in list.items()? {
        let mut fields = item.fields()?;
        let (1, Some((name, config))) = (fields.len(), fields.next()) else {
            return item.error("must have one field, the name of the policy");
        };
        match read_policy(name, &config)? {
            Some(policy) => return Ok(policy),
            None => unknown.push(name),
        }
    }
    list.error(format!("has no known policy among [{}]; known are {}", unknown.join(", "), KNOWN.join(", ")))
}

const KNOWN: [&str; 7] = [
    "pick_first",
    "round_robin",
    "least_request_experimental",
    "ring_hash_experimental",
    "weighted_round_robin",
    "random_subsetting",
    "outlier_detection_experimental",
];

fn read_policy(name: &str, config: &ConfigNode<'_>) -> Result<Option<BalancingConfig>> {
    Ok(Some(match name {
        "pick_first" => {
            BalancingConfig::PickFirst { shuffle: config.or("shuffleAddressList", false, |node| node.bool())? }
        }
        "round_robin" => BalancingConfig::RoundRobin,
        "least_request_experimental" => {
            BalancingConfig::LeastRequest { choices: config.or("choiceCount", 2, |node| node.capped(2, 10))? }
        }
        "ring_hash_experimental" => read_ring(config)?,
        "weighted_round_robin" => BalancingConfig::WeightedRoundRobin(read_reports(config)?),
        "random_subsetting" | "random_subsetting_experimental" => BalancingConfig::RandomSubset {
            len: config.require("subsetSize", "an integer of at least 1")?.capped(1, u32::MAX)?,
            child: read_child(config)?,
        },
        "outlier_detection_experimental" => {
            BalancingConfig::OutlierDetection { rules: read_rules(config)?, child: read_child(config)? }
        }
        _ => return Ok(None),
    }))
}

fn read_child(config: &ConfigNode<'_>) -> Result<Box<BalancingConfig>> {
    read_policies(&config.require("childPolicy", "a list of policies")?).map(Box::new)
}

fn read_reports(config: &ConfigNode<'_>) -> Result<ReportSettings> {
    let usual = ReportSettings::default();
    Ok(ReportSettings {
        blackout: config.or("blackoutPeriod", usual.blackout, |node| node.duration())?,
        expiry: config.or("weightExpirationPeriod", usual.expiry, |node| node.duration())?,
        update: config.or("weightUpdatePeriod", usual.update, |node| node.duration())?.max(UPDATE_MIN),
        failure_penalty: config.or("errorUtilizationPenalty", usual.failure_penalty, |node| node.not_negative())?,
    })
}

/// The least time between two computations of shares (gRFC A58).
const UPDATE_MIN: Duration = Duration::from_millis(100);

fn read_ring(config: &ConfigNode<'_>) -> Result<BalancingConfig> {
    let size = |node: ConfigNode<'_>| node.small(1..=8 << 20);
    let entries_min = config.or("minRingSize", 1_024, size)?;
    let entries_max = config.or("maxRingSize", RING_ENTRIES_MAX.max(entries_min), size)?;
    if entries_min > entries_max {
        return config.error(format!("minRingSize {entries_min} is more than maxRingSize {entries_max}"));
    }
    let key_header = config.optional("requestHashHeader", |node| node.text().map(str::to_ascii_lowercase))?;
    Ok(BalancingConfig::RingHash {
        entries_min: entries_min.min(RING_ENTRIES_MAX),
        entries_max: entries_max.min(RING_ENTRIES_MAX),
        key_header: key_header.filter(|header| !header.is_empty()),
    })
}

fn read_rules(config: &ConfigNode<'_>) -> Result<OutlierSettings> {
    let usual = OutlierSettings::default();
    let ejection = config.or("baseEjectionTime", usual.ejection, |node| node.duration())?;
    let rule = |name: &str, field: &str, (default, most, scale): (u32, u32, f32), calls_min: u32| {
        config.optional(name, |node| {
            let small = |node: ConfigNode<'_>| node.small(0..=u32::MAX);
            let percent = node.or("enforcementPercentage", 100, |node| node.small(0..=100))?;
            Ok(OutlierRule {
                threshold: node.or(field, default, |node| node.small(0..=most))? as f32 / scale,
                endpoints_min: node.or("minimumHosts", 5, small)? as usize,
                calls_min: node.or("requestVolume", calls_min, small)?,
                enforcement: percent as f32 / 100.0,
            })
        })
    };
    let ejected_percent = config.or("maxEjectionPercent", 10, |node| node.small(0..=100))?;
    Ok(OutlierSettings {
        sweep: config.or("interval", usual.sweep, |node| node.positive_duration())?,
        ejection,
        ejection_max: config.or("maxEjectionTime", usual.ejection_max.max(ejection), |node| node.duration())?,
        ejected_max: ejected_percent as f32 / 100.0,
        success_rate: rule("successRateEjection", "stdevFactor", (1_900, u32::MAX, 1000.0), 100)?,
        failures: rule("failurePercentageEjection", "threshold", (85, 100, 100.0), 50)?,
        ..usual
    })
}
