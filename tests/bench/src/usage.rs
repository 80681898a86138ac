//! CPU time and memory of a process.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use xtask::process;

/// The CPU time of a process, summed over its threads: Go's and tokio's workers do not end. `/proc/PID/stat` includes ended
/// threads, but counts in steps of 10 ms.
pub(crate) fn cpu_ms(pid: u32) -> Result<f64> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has just ended is missing from the next reading as well.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let time = text.split(' ').next().and_then(|word| word.parse::<u64>().ok());
        nanoseconds += time.with_context(|| format!("/proc/{pid}/task/*/schedstat begins with no number"))?;
    }
    ensure!(nanoseconds > 0, "process {pid} has no schedstat: it needs a kernel with CONFIG_SCHED_INFO");
    Ok(nanoseconds as f64 / 1e6)
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

#[cfg(test)]
mod tests {
    use std::{process::Command, time::Duration};

    use harness::wait::wait_until;

    use super::*;

    #[test]
    fn the_cpu_time_of_a_busy_process_grows() {
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let before = cpu_ms(busy.id()).unwrap_or_default();
        let grown = wait_until("CPU time to pass", Duration::from_secs(10), || {
            Ok(cpu_ms(busy.id()).is_ok_and(|now| now > before).then_some(()))
        });
        busy.kill().unwrap();
        busy.wait().unwrap();
        grown.unwrap();
    }
}
