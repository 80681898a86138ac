//! CPU time and memory of a process.

use std::fs;

use anyhow::{Context as _, Result};
use harness::{cost::Usage, processes::cpu_ms};
use xtask::process;

pub(crate) fn usage(pid: u32) -> Result<Usage> {
    Ok(Usage { cpu_ms: cpu_ms(pid)?, resident_mib: resident_mib(pid)? })
}

pub(crate) fn resident_mib(pid: u32) -> Result<f64> {
    let bytes = process::resident(pid).with_context(|| format!("process {pid} has ended"))?;
    Ok(bytes as f64 / f64::from(1 << 20))
}

/// The resident memory of a process with each page counted once. `VmRSS` counts the ring buffer twice, which is mapped twice.
/// No other process maps the same pages, so this is `Pss` of <https://docs.kernel.org/filesystems/proc.html>.
pub(crate) fn resident_once_mib(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{path}`"))?;
    let kib = text.lines().find_map(|line| line.strip_prefix("Pss:")?.strip_suffix("kB"));
    let kib = kib.with_context(|| format!("no `Pss` in `{path}`"))?.trim().parse::<f64>()?;
    Ok(kib / 1024.0)
}
