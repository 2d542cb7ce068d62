//! The field `loadBalancingConfig` of a service config.

use std::time::Duration;

use super::value::{ConfigNode, Result};

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
    WeightedRoundRobin {
        /// The time before reports of a new endpoint count. Default 10 s.
        blackout: Duration,
        /// The time after which a report is forgotten. Default 3 min.
        expiry: Duration,
    },
    /// A random part of the endpoints: `random_subsetting` (A68).
    RandomSubset {
        /// The number of endpoints in the part.
        len: u32,
        /// The choice within the part.
        child: Box<BalancingConfig>,
    },
    /// Ejection of outliers: `outlier_detection_experimental` (A50).
    OutlierDetection {
        /// The rules for outliers.
        rules: OutlierRules,
        /// The choice among the remaining endpoints.
        child: Box<BalancingConfig>,
    },
}

/// The rules of `outlier_detection_experimental`, with the names and defaults of gRFC A50.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlierRules {
    /// The time between two sweeps. Default 10 s.
    pub interval: Duration,
    /// The length of the first ejection. Default 30 s.
    pub ejection: Duration,
    /// The maximum length of an ejection. Default 300 s, or the first ejection if this is longer.
    pub ejection_max: Duration,
    /// The maximum percentage of ejected endpoints. Default 10.
    pub ejected_percent: u32,
    /// Ejection by the distance from the mean success rate. Default none. Its factor is in thousandths of a standard
    /// deviation, 1,900 by default.
    pub success_rate: Option<EjectionRule>,
    /// Ejection by the percentage of failures. Default none. Its threshold is 85 by default.
    pub failure_percentage: Option<EjectionRule>,
}

impl Default for OutlierRules {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            ejection: Duration::from_secs(30),
            ejection_max: Duration::from_secs(300),
            ejected_percent: 10,
            success_rate: None,
            failure_percentage: None,
        }
    }
}

/// One of the two rules of gRFC A50.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectionRule {
    /// The `stdevFactor` or the `threshold`.
    pub threshold: u32,
    /// The chance of the ejection of an outlier in percent. Default 100.
    pub enforcement_percent: u32,
    /// The minimum number of endpoints with enough calls. Default 5.
    pub endpoints_min: u32,
    /// The minimum number of calls of an endpoint between two sweeps. Default 100 for the success rate, 50 for the
    /// percentage of failures.
    pub calls_min: u32,
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
        "weighted_round_robin" => BalancingConfig::WeightedRoundRobin {
            blackout: config.or("blackoutPeriod", Duration::from_secs(10), |node| node.duration())?,
            expiry: config.or("weightExpirationPeriod", Duration::from_secs(180), |node| node.duration())?,
        },
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

fn read_rules(config: &ConfigNode<'_>) -> Result<OutlierRules> {
    let usual = OutlierRules::default();
    let ejection = config.or("baseEjectionTime", usual.ejection, |node| node.duration())?;
    let rule = |name: &str, threshold: (&str, u32, u32), calls_min: u32| {
        let (field, default, most) = threshold;
        config.optional(name, |node| {
            Ok(EjectionRule {
                threshold: node.or(field, default, |node| node.small(0..=most))?,
                enforcement_percent: node.or("enforcementPercentage", 100, |node| node.small(0..=100))?,
                endpoints_min: node.or("minimumHosts", 5, |node| node.small(0..=u32::MAX))?,
                calls_min: node.or("requestVolume", calls_min, |node| node.small(0..=u32::MAX))?,
            })
        })
    };
    Ok(OutlierRules {
        interval: config.or("interval", usual.interval, |node| node.positive_duration())?,
        ejection,
        ejection_max: config.or("maxEjectionTime", usual.ejection_max.max(ejection), |node| node.duration())?,
        ejected_percent: config.or("maxEjectionPercent", usual.ejected_percent, |node| node.small(0..=100))?,
        success_rate: rule("successRateEjection", ("stdevFactor", 1_900, u32::MAX), 100)?,
        failure_percentage: rule("failurePercentageEjection", ("threshold", 85, 100), 50)?,
    })
}
