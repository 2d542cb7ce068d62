use std::io;
use std::time::Duration;

use benches::Contender;
use load::{Report, process};
use serde::{Deserialize, Serialize};

use crate::noise::Ticks;
use crate::plan::Plan;
use crate::workload::Workload;

/// The results of one run of one contender.
#[derive(Deserialize, Serialize)]
pub(crate) struct Sample {
    pub(crate) report: Report,
    /// For the whole run, including the warm-up.
    server_cpu_s: f64,
    /// For the whole run, including the warm-up.
    server_context_switches: u64,
    /// The peak resident memory.
    server_memory_kib: u64,
    /// The share of the machine used by other work during the run.
    pub(crate) noise: f64,
}

impl Sample {
    /// Runs the client once. Fails if no call completes.
    pub(crate) fn measure(contender: &Contender, workload: &Workload, plan: &Plan) -> io::Result<Self> {
        let ticks = Ticks::now()?;
        let (server_cores, client_cores) = workload.cores()?.unzip();
        let server = contender.start_server(Duration::from_micros(workload.sleep_us), server_cores.as_deref())?;
        let cpu_before = process::cpu_time(server.pid())?;
        let switches_before = process::context_switches(server.pid())?;
        let report =
            contender.run_client(&workload.args(server.addr, plan.seconds, plan.warmup), client_cores.as_deref())?;
        let server_cpu_s = (process::cpu_time(server.pid())? - cpu_before).as_secs_f64();
        let server_context_switches = process::context_switches(server.pid())?.saturating_sub(switches_before);
        let server_memory_kib = process::memory_kib(server.pid(), "VmHWM")?;
        // The kernel adds the time of a child to its parent when the child is gone.
        drop(server);
        let noise = Ticks::now()?.others_since(&ticks);
        if report.rpcs == 0 {
            let error = report.first_error.unwrap_or_else(|| "no call completed".to_owned());
            return Err(io::Error::other(error));
        }
        Ok(Self { report, server_cpu_s, server_context_switches, server_memory_kib, noise })
    }

    pub(crate) fn server_cpu_per_million(&self) -> f64 {
        self.server_cpu_s * 1e6 / self.report.rpcs_total as f64
    }

    pub(crate) fn client_cpu_per_million(&self) -> f64 {
        self.report.client_cpu_s * 1e6 / self.report.rpcs as f64
    }

    pub(crate) fn server_switches_per_call(&self) -> f64 {
        self.server_context_switches as f64 / self.report.rpcs_total as f64
    }

    pub(crate) fn client_switches_per_call(&self) -> f64 {
        self.report.client_context_switches as f64 / self.report.rpcs as f64
    }

    pub(crate) fn server_mib(&self) -> f64 {
        self.server_memory_kib as f64 / 1024.0
    }
}
