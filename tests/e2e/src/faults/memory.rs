//! schedspan has 64 MiB, which are enough; then another process of its cgroup takes them, and the kernel kills schedspan.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    schedspan::{Options, Schedspan},
    stage::Stage,
    wait::wait_until,
};
use rustix::process::Signal;

use super::{TIMEOUT, load, sites::Sites, write_script};

const LIMIT: u64 = 64 << 20;
/// Time under load within the limit.
const LOAD: Duration = Duration::from_secs(10);

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    let group = Group::create()?;
    let executable = group.entering(stage, &stage.executable)?;
    let mut schedspan = Schedspan::start(&Options { executable: &executable, ..stage.options()? })?;
    let sites = Sites::of(stage)?;
    sites.all_probed()?;
    let (peak, created) = load::during(stage, "memory", || {
        std::thread::sleep(LOAD);
        crate::checks::nothing_lost(&schedspan.metrics()?)?;
        ensure!(group.killed()? == 0, "64 MiB do not suffice");
        let peak = group.peak()?;
        // The kernel chooses it before the process that takes the memory.
        fs::write(format!("/proc/{}/oom_score_adj", schedspan.pid()), "1000")?;
        let mut hog = group.hog(stage)?;
        let status = schedspan.wait_for_end(TIMEOUT)?;
        ensure!(status.signal() == Some(Signal::KILL.as_raw()), "schedspan ended with {status}");
        sites.wait_for_none()?;
        // It meets the limit as well.
        wait_until("the end of the process that takes memory", TIMEOUT, || Ok(hog.try_wait()?))?;
        Ok(peak)
    })?;
    ensure!(group.killed()? > 0, "the kernel counts no kill for memory");
    stage.cluster.check()?;
    let mib = peak as f64 / f64::from(1 << 20);
    println!("         peak of {mib:.1} MiB; killed for memory, {created} Pods bound, no probe left");
    Ok(())
}

/// A cgroup with a limit of memory. It is removed when it is dropped.
struct Group {
    dir: PathBuf,
    names: &'static Names,
}

/// Files of the memory controller.
struct Names {
    root: &'static str,
    limit: &'static str,
    peak: &'static str,
    /// Has a line `oom_kill NUMBER`.
    events: &'static str,
}

/// <https://www.kernel.org/doc/html/v6.12/admin-guide/cgroup-v2.html#memory-interface-files>
const V2: Names =
    Names { root: "/sys/fs/cgroup", limit: "memory.max", peak: "memory.peak", events: "memory.events" };
/// <https://www.kernel.org/doc/html/v6.12/admin-guide/cgroup-v1/memory.html>
const V1: Names = Names {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
    events: "memory.oom_control",
};

impl Group {
    fn create() -> Result<Self> {
        let is_v2 = Path::new(V2.root).join("cgroup.controllers").exists();
        let names = if is_v2 { &V2 } else { &V1 };
        let group =
            Self { dir: Path::new(names.root).join(format!("schedspan-{}", std::process::id())), names };
        fs::create_dir(&group.dir).with_context(|| format!("cannot create {}", group.dir.display()))?;
        fs::write(group.dir.join(names.limit), LIMIT.to_string())
            .context("cannot limit the memory of a cgroup")?;
        Ok(group)
    }

    /// A script that enters the cgroup and then becomes this program.
    fn entering(&self, stage: &Stage, program: &Path) -> Result<PathBuf> {
        let name = program.file_name().context("a program has a name")?;
        let script = stage.cluster.dir().join(format!("enter-{}", name.display()));
        let text = format!(
            "#!/bin/sh\necho $$ >{}/cgroup.procs\nexec {} \"$@\"\n",
            self.dir.display(),
            program.display()
        );
        write_script(&script, &text)?;
        Ok(script)
    }

    /// Starts a process that takes memory until it is killed.
    fn hog(&self, stage: &Stage) -> Result<Child> {
        // It keeps the last line of its input, which has no end.
        let script = self.entering(stage, Path::new("/usr/bin/tail"))?;
        Ok(Command::new(script).arg("/dev/zero").stdout(Stdio::null()).spawn()?)
    }

    fn peak(&self) -> Result<u64> {
        let text = fs::read_to_string(self.dir.join(self.names.peak))?;
        text.trim().parse().with_context(|| format!("{} is {text}", self.names.peak))
    }

    /// The number of processes that were killed for memory.
    fn killed(&self) -> Result<u64> {
        let text = fs::read_to_string(self.dir.join(self.names.events))?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.parse().ok()).with_context(|| format!("{} is {text}", self.names.events))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A cgroup can be removed when the last of its processes is gone.
        let removed = wait_until("the cgroup to be empty", TIMEOUT, || Ok(fs::remove_dir(&self.dir).ok()));
        if let Err(error) = removed {
            eprintln!("cannot remove {}: {error:#}", self.dir.display());
        }
    }
}
