//! The probed instructions in a scheduler's memory.

use std::{
    collections::BTreeSet, fs::File, os::unix::fs::FileExt as _, process::Command, thread, time::Duration,
};

use anyhow::{Result, ensure};
use harness::{schedspan::Schedspan, stage::Stage, wait::wait_until};
use serde_json::Value;
use xtask::process;

use crate::checks::probed_sites;

/// The instruction int3, which the kernel writes at a probe.
const BREAKPOINT: u8 = 0xcc;
/// The limit for the kernel to remove the probes of a process that has ended.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time in which the kernel removes the other probes of a process that was killed while it attached.
const REMOVAL: Duration = Duration::from_secs(3);
/// What the kernel logs when it is interrupted while it removes a probe, and gives it up: if a process is killed while it attaches.
/// <https://github.com/torvalds/linux/blob/v6.18/kernel/events/uprobes.c>, `uprobe_unregister_nosync`
const GIVEN_UP: &str = "leaking uprobe";

pub(super) struct Sites {
    memory: File,
    offsets: BTreeSet<u64>,
}

impl Sites {
    /// The sites that schedspan plans for the cluster's own scheduler.
    pub(super) fn of(stage: &Stage) -> Result<Self> {
        let pid = stage.cluster.scheduler()?.pid;
        let mut inspect = Command::new(&stage.executable);
        let plan = process::output(inspect.args(["inspect", "--output", "json", &pid.to_string()]))?;
        let plan: Value = serde_json::from_str(&plan)?;
        let offsets = probed_sites(&plan)?;
        Ok(Self { memory: File::open(format!("/proc/{pid}/mem"))?, offsets })
    }

    /// Checks that there is a breakpoint at each site.
    pub(super) fn all_probed(&self) -> Result<()> {
        let probed = self.probed()?;
        ensure!(probed == self.offsets.len(), "{probed} of {} sites have a breakpoint", self.offsets.len());
        Ok(())
    }

    /// Waits until there is no breakpoint.
    pub(super) fn wait_for_none(&self) -> Result<()> {
        wait_until("the probes of a killed schedspan to be gone", TIMEOUT, || {
            Ok((self.probed()? == 0).then_some(()))
        })
    }

    /// Waits until there is no breakpoint after schedspan was killed. Those that the kernel has given up must be gone after another schedspan
    /// has ended in order. Returns whether there were any.
    pub(super) fn wait_for_none_after_kill(&self, stage: &Stage, given_up: &mut usize) -> Result<bool> {
        let before = std::mem::replace(given_up, kernel_gave_up()?);
        if *given_up == before {
            return self.wait_for_none().map(|()| false);
        }
        // It may have given up a probe whose breakpoint was not there yet.
        thread::sleep(REMOVAL);
        if self.probed()? == 0 {
            return Ok(false);
        }
        let schedspan: Schedspan = stage.trace()?;
        self.all_probed()?;
        schedspan.stop()?;
        self.wait_for_none()?;
        Ok(true)
    }

    /// The number of breakpoints now.
    fn probed(&self) -> Result<usize> {
        let mut found = 0;
        for offset in &self.offsets {
            let mut byte = [0];
            self.memory.read_exact_at(&mut byte, *offset)?;
            found += usize::from(byte[0] == BREAKPOINT);
        }
        Ok(found)
    }
}

/// How many probes the kernel says it has given up.
pub(super) fn kernel_gave_up() -> Result<usize> {
    Ok(process::output(&mut Command::new("dmesg"))?.matches(GIVEN_UP).count())
}
