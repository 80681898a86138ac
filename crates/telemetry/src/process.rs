//! CPU time, memory and files of this process, under the names that all of Prometheus' libraries use:
//! <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>.

use std::{
    fmt, fs,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};
use rustix::time::{ClockId, clock_gettime};

/// Metrics of this process, read at each request.
#[derive(Debug)]
pub(crate) struct Process {
    /// In seconds since 1970.
    started: f64,
}

impl Default for Process {
    fn default() -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: started.as_secs_f64() }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut figure = |name: &str, help: &str, unit: Option<Unit>, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?)
        };
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        figure("process_cpu", "CPU time of schedspan", Some(Unit::Seconds), &ConstCounter::new(cpu))?;
        if let Some(bytes) = resident() {
            let help = "Memory of schedspan that is resident";
            figure("process_resident_memory", help, Some(Unit::Bytes), &ConstGauge::new(bytes))?;
        }
        let files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        figure("process_open_fds", "Files that schedspan has open", None, &ConstGauge::new(files as i64))?;
        let help = "When schedspan started, since 1970";
        figure("process_start_time", help, Some(Unit::Seconds), &ConstGauge::new(self.started))
    }
}

fn resident() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"))?;
    Some(kib.trim().parse::<i64>().ok()? * 1024)
}
