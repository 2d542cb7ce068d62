//! The choice among the endpoints of a cluster.

use std::time::Duration;

use frpc::fleet::{PickPolicy, ReportSettings, RingSize};

use super::fields::{duration, type_name, unpack};
use crate::protos::frpc::xds::v3::{self as proto, cluster::LbPolicy, ring_hash, ring_hash_lb_config};

/// The choice among the endpoints of a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClusterBalancing {
    pub(crate) policy: PickPolicy,
    /// The use of load reports, for [`PickPolicy::Reported`].
    pub(crate) reports: Option<ReportSettings>,
    pub(crate) ring: Option<RingSize>,
}

impl ClusterBalancing {
    pub(super) fn read(cluster: &proto::Cluster) -> Result<Self, String> {
        if let Some(policies) = &cluster.load_balancing_policy {
            return read_policies(policies, 0);
        }
        match LbPolicy::try_from(cluster.lb_policy) {
            Ok(LbPolicy::RoundRobin) => Ok(PickPolicy::RoundRobin.into()),
            Ok(LbPolicy::LeastRequest) => {
                least_request(cluster.least_request_lb_config.as_ref().and_then(|config| config.choice_count))
            }
            Ok(LbPolicy::RingHash) => {
                let config = cluster.ring_hash_lb_config.unwrap_or_default();
                let ring = read_ring(config.minimum_ring_size, config.maximum_ring_size)?;
                match config.hash_function == ring_hash_lb_config::HashFunction::XxHash as i32 {
                    true => Ok(ring),
                    false => Err("ring_hash_lb_config.hash_function is not XX_HASH".to_owned()),
                }
            }
            Ok(other) => Err(format!("lb_policy {} is not supported", other.as_str_name())),
            Err(_) => Err(format!("lb_policy {} is unknown", cluster.lb_policy)),
        }
    }
}

impl From<PickPolicy> for ClusterBalancing {
    fn from(policy: PickPolicy) -> Self {
        Self { policy, reports: None, ring: None }
    }
}

/// Reads the first known policy (gRFC A52).
fn read_policies(policies: &proto::LoadBalancingPolicy, depth: usize) -> Result<ClusterBalancing, String> {
    if depth >= DEPTH_MAX {
        return Err(format!("load_balancing_policy is nested more than {DEPTH_MAX} times"));
    }
    let mut unknown = Vec::new();
    let configs = policies.policies.iter().filter_map(|policy| policy.typed_extension_config.as_ref());
    for config in configs.filter_map(|extension| extension.typed_config.as_ref()) {
        let name = type_name(config);
        let Some(kind) = name.strip_prefix(PREFIX) else {
            unknown.push(name);
            continue;
        };
        match kind {
            "round_robin.v3.RoundRobin" => return Ok(PickPolicy::RoundRobin.into()),
            "pick_first.v3.PickFirst" => return Ok(PickPolicy::First.into()),
            "least_request.v3.LeastRequest" => {
                let config: proto::LeastRequest = unpack("least_request", config, name)?;
                return least_request(config.choice_count);
            }
            "ring_hash.v3.RingHash" => {
                let config: proto::RingHash = unpack("ring_hash", config, name)?;
                let ring = read_ring(config.minimum_ring_size, config.maximum_ring_size)?;
                return match config.hash_function == ring_hash::HashFunction::MurmurHash2 as i32 {
                    false => Ok(ring),
                    true => Err("ring_hash.hash_function is not XX_HASH".to_owned()),
                };
            }
            // The weights of localities apply to all policies.
            "wrr_locality.v3.WrrLocality" => {
                let config: proto::WrrLocality = unpack("wrr_locality", config, name)?;
                return read_policies(&config.endpoint_picking_policy.unwrap_or_default(), depth + 1);
            }
            "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin" => {
                return read_reports(&unpack("client_side_weighted_round_robin", config, name)?);
            }
            _ => unknown.push(name),
        }
    }
    Err(format!("load_balancing_policy has no known policy among [{}]", unknown.join(", ")))
}

fn least_request(choices: Option<u32>) -> Result<ClusterBalancing, String> {
    match choices.unwrap_or(2) {
        choices @ 2.. => Ok(PickPolicy::of_choices(choices).into()),
        choices => Err(format!("choice_count is {choices}, less than 2")),
    }
}

fn read_ring(min: Option<u64>, max: Option<u64>) -> Result<ClusterBalancing, String> {
    let (min, max) = (min.unwrap_or(1_024), max.unwrap_or(RING_MAX));
    if min > max || max > RING_MAX {
        return Err(format!("the ring size from {min} to {max} is invalid"));
    }
    let [min, max] = [min, max].map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    Ok(ClusterBalancing { ring: Some(RingSize { min, max }), ..PickPolicy::RingHash.into() })
}

fn read_reports(config: &proto::ClientSideWeightedRoundRobin) -> Result<ClusterBalancing, String> {
    let usual = ReportSettings::default();
    let time = |name, value, default| Ok::<_, String>(duration(name, value)?.unwrap_or(default));
    let penalty = config.error_utilization_penalty.unwrap_or(usual.failure_penalty);
    if !(penalty >= 0.0 && penalty.is_finite()) {
        return Err(format!("error_utilization_penalty is {penalty}"));
    }
    let reports = ReportSettings {
        blackout: time("blackout_period", config.blackout_period, usual.blackout)?,
        expiry: time("weight_expiration_period", config.weight_expiration_period, usual.expiry)?,
        update: time("weight_update_period", config.weight_update_period, usual.update)?.max(UPDATE_MIN),
        failure_penalty: penalty,
    };
    Ok(ClusterBalancing { reports: Some(reports), ..PickPolicy::Reported.into() })
}

const PREFIX: &str = "envoy.extensions.load_balancing_policies.";
/// The maximum nesting of policies.
const DEPTH_MAX: usize = 16;
/// The maximum size of a ring in a config.
const RING_MAX: u64 = 8 << 20;
/// The minimum time between two computations of shares (gRFC A58).
const UPDATE_MIN: Duration = Duration::from_millis(100);
