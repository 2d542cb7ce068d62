//! The load of a server in the trailers of its answers: `OrcaLoadReport` of xDS (gRFC A51).

use std::collections::HashMap;

use frpc_balance::ServerReport;
use prost::Message;

use super::metadata::Metadata;

/// The fields of `xds.data.orca.v3.OrcaLoadReport` in use.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LoadReport {
    #[prost(double, tag = "1")]
    pub(crate) cpu_utilization: f64,
    #[prost(double, tag = "6")]
    pub(crate) calls_per_second: f64,
    #[prost(double, tag = "7")]
    pub(crate) failures_per_second: f64,
    #[prost(map = "string, double", tag = "8")]
    pub(crate) named: HashMap<String, f64>,
    #[prost(double, tag = "9")]
    pub(crate) application_utilization: f64,
}

impl LoadReport {
    pub(crate) fn with_in_flight(self, in_flight: u32) -> Self {
        Self { named: HashMap::from([(IN_FLIGHT.to_owned(), in_flight.into())]), ..self }
    }

    /// Adds an encoded report to trailers.
    pub(crate) fn put(report: &[u8], trailers: &mut Metadata) {
        // The name is valid.
        let _ = trailers.insert_bin(NAME, report);
    }

    /// Reads the report in trailers.
    pub(crate) fn read(trailers: &Metadata) -> Option<ServerReport> {
        if trailers.is_empty() {
            return None;
        }
        let report = Self::decode(trailers.get_bin(NAME)?).ok()?;
        let own = report.application_utilization;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
        let in_flight = report.named.get(IN_FLIGHT).map(|number| *number as u32);
        Some(ServerReport {
            utilization: if own > 0.0 { own } else { report.cpu_utilization },
            calls_per_second: report.calls_per_second,
            failures_per_second: report.failures_per_second,
            in_flight,
        })
    }
}

/// The name of the trailer.
const NAME: &str = "endpoint-load-metrics-bin";
/// The name of the metric with the number of calls in flight.
const IN_FLIGHT: &str = "frpc.in_flight";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_another_implementation_is_read() {
        // cpu_utilization 0.5, rps_fractional 100, eps 1, named_metrics {"x": 2}, application_utilization 0, unknown 15.
        let mut trailers = Metadata::new();
        let bytes = [
            &[9][..],
            &0.5_f64.to_le_bytes(),
            &[49],
            &100_f64.to_le_bytes(),
            &[57],
            &1_f64.to_le_bytes(),
            &[66, 12, 10, 1, b'x', 17],
            &2_f64.to_le_bytes(),
            &[120, 1],
        ]
        .concat();
        LoadReport::put(&bytes, &mut trailers);
        let expected =
            ServerReport { utilization: 0.5, calls_per_second: 100.0, failures_per_second: 1.0, in_flight: None };
        assert_eq!(LoadReport::read(&trailers), Some(expected));
    }

    #[test]
    fn trailers_without_a_valid_report_have_none() {
        let mut trailers = Metadata::new();
        assert_eq!(LoadReport::read(&trailers), None);
        LoadReport::put(&[9, 1], &mut trailers);
        assert_eq!(LoadReport::read(&trailers), None);
        LoadReport::put(&LoadReport::default().with_in_flight(7).encode_to_vec(), &mut trailers);
        assert_eq!(LoadReport::read(&trailers).and_then(|report| report.in_flight), Some(7));
    }
}
