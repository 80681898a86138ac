//! `schedspan profile`: where schedulers spend their CPU time.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool, atomic::Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use gotrace::{probe::Limits, profiler::Profile};
use profile::Taken;
use status::Health;
use tokio::{signal::ctrl_c, sync::mpsc, time::timeout};

use crate::{
    admission::{self, Admission},
    metrics::Metrics,
    programs::{DEFAULT, Worker, named},
    supervisor::Supervisor,
};

/// Options of `profile`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Profile this process, trusted or not; all trusted schedulers without it
    pid: Option<u32>,
    #[command(flatten)]
    trust: admission::Options,
    #[command(flatten)]
    profile: profile::Options,
    /// Load this eBPF object instead of the built-in one
    #[arg(long, env = "SCHEDSPAN_EBPF_OBJECT", value_name = "FILE")]
    ebpf_object: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
///
/// When samples cannot be taken, no scheduler is found, or the profile cannot be written.
pub async fn run(options: Options) -> Result<()> {
    let Options { pid, trust, profile, ebpf_object } = options;
    let collected = Arc::new(Mutex::new(Profile::default()));
    let profiler = named(DEFAULT).context("there is no program")?.profiler;
    let workers: Vec<Box<Worker>> = vec![profiler(Arc::clone(&collected))];
    let admission = Admission::once(pid, trust.trust, &workers).await;
    let limits = Limits { sample_hz: profile.hz, stacks: true, ..Limits::default() };
    let (object, (sender, _)) = (ebpf_object.as_deref(), mpsc::channel(1));
    let (metrics, health) = (Metrics::default(), Health::default());
    let supervisor = Supervisor::new(object, limits, admission, workers, sender, metrics, health)?;
    let stop = Arc::new(AtomicBool::new(false));
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start = Instant::now();
    let supervisor = tokio::task::spawn_blocking({
        let stop = Arc::clone(&stop);
        move || supervisor.run(&stop)
    });
    // Ctrl-C ends it earlier.
    let _ended = timeout(profile.duration, ctrl_c()).await;
    stop.store(true, Ordering::Relaxed);
    let duration = start.elapsed();
    supervisor.await.context("the supervisor's thread has panicked")?;
    let samples = std::mem::take(&mut *collected.lock().unwrap_or_else(PoisonError::into_inner));
    ensure!(!samples.pids.is_empty(), "no kube-scheduler was found; `schedspan doctor` says which are there");
    let start_unix_ns = u64::try_from(since.as_nanos()).unwrap_or_default();
    profile.write(&Taken { profile: samples, duration, start_unix_ns }).context("cannot write the profile")
}
