//! `schedspan profile`: where schedulers spend their CPU time.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool, atomic::Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use gotrace::{
    Detail,
    probe::Limits,
    profiler::{Moments, Profile},
};
use profile::{By, Cycles, Earlier, Taken};
use spans::{Origin, story::Extras};
use status::Health;
use tokio::{
    signal::ctrl_c,
    sync::mpsc::{self, Receiver},
    time::timeout,
};
use tracing::info;

use crate::{
    admission::{self, Admission},
    daemon::QUEUE,
    metrics::Metrics,
    programs::{DEFAULT, Worker, named},
    supervisor::{Message, Supervisor},
};

/// Options of `profile`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Profile this process, trusted or not; all trusted schedulers without it
    #[arg(conflicts_with = "from")]
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
/// When samples cannot be taken, no scheduler is found, an earlier profile cannot be read, or the profile cannot be written.
pub async fn run(options: Options) -> Result<()> {
    let Earlier { base, from } = options.profile.earlier()?;
    let taken = match from {
        Some(from) => from,
        None => take(&options).await?,
    };
    options.profile.write(&taken, base.as_ref()).context("cannot write the profile")
}

async fn take(Options { pid, trust, profile, ebpf_object }: &Options) -> Result<Taken> {
    let moments = profile.by.map(|_| Moments::default());
    let collected = Arc::new(Mutex::new(Profile { moments, ..Profile::default() }));
    let program = named(DEFAULT).context("there is no program")?;
    let mut workers: Vec<Box<Worker>> = vec![(program.profiler)(Arc::clone(&collected))];
    // At this level it takes no samples: they are the profiler's.
    workers.extend(profile.by.map(|_| (program.worker)(Detail::Phases)));
    let admission = Admission::once(*pid, trust.trust.clone(), &workers).await;
    let limits = Limits { sample_hz: profile.hz, stacks: true, ..Limits::default() };
    let (object, (sender, receiver)) = (ebpf_object.as_deref(), mpsc::channel(QUEUE));
    let (metrics, health) = (Metrics::default(), Health::default());
    let supervisor = Supervisor::new(object, limits, admission, workers, sender, metrics.clone(), health)?;
    let cycles = profile.by.map(|by| tokio::spawn(cycles(by, receiver)));
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
    let mut samples = std::mem::take(&mut *collected.lock().unwrap_or_else(PoisonError::into_inner));
    ensure!(!samples.pids.is_empty(), "no kube-scheduler was found; `schedspan doctor` says which are there");
    let mut groups = None;
    if let Some(cycles) = cycles {
        let cycles = cycles.await.context("the task that takes attempts has panicked")?;
        groups = Some(cycles.divide(&mut samples, kube_scheduler::is_of_scheduling_cycle));
        for (cause, count) in metrics.losses().into_iter().filter(|(_, count)| *count > 0) {
            info!(cause, count, "lost");
        }
    }
    let start_unix_ns = u64::try_from(since.as_nanos()).unwrap_or_default();
    Ok(Taken { profile: samples, duration, start_unix_ns, groups })
}

/// The scheduling cycles of all attempts, until the supervisor ends.
async fn cycles(by: By, mut messages: Receiver<Message>) -> Cycles {
    let mut cycles = Cycles::new(by);
    while let Some(message) = messages.recv().await {
        match message {
            Message::Finished(story, anchor) => {
                cycles.add(&story.trace(anchor, Origin::default(), Extras::default()), anchor);
            }
            Message::Found(_) | Message::Gone(_) => {}
        }
    }
    cycles
}
