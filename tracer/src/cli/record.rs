//! `schedspan record`: records events into a file.

use std::{
    fs::File,
    io::{BufWriter, stdout},
    os::fd::AsFd as _,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use gotrace::{
    Detail,
    discover::MAX_EXECUTABLE,
    plan::Plan,
    probe::Limits,
    recording::{Recorder, Summary},
    worker::ProgramWorker,
};
use kube_scheduler::KubeScheduler;
use spans::{
    figures::{parse_bytes, parse_duration},
    screen,
};
use status::Health;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::sleep,
};
use tracing::{info, warn};

use crate::{
    admission::{self, Admission},
    metrics::Metrics,
    programs::{Worker, story},
    supervisor::Supervisor,
};

/// Room for some hundred events. A smaller file is full at once.
const SMALLEST: u64 = 64 << 10;

/// Options of `record`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// File to write, which must not exist yet; `-` is standard output
    file: PathBuf,
    /// Record only this process, trusted or not
    #[arg(long)]
    pid: Option<u32>,
    #[command(flatten)]
    trust: admission::Options,
    /// Stop after this time, such as `30s`
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Replace the names of Pods, namespaces, Nodes and profiles, UIDs and messages by pseudonyms
    ///
    /// Equal names get equal pseudonyms. Messages and reasons are replaced completely, since they quote names. Names of
    /// plugins, functions and queue events are kept, and so are all times.
    #[arg(long)]
    redact: bool,
    /// Stop at this file size, such as `64KiB` or `1GiB`
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    max_size: u64,
    /// Time each call of `Filter` and `Score` plugins in at most one of so many attempts; 0 for none
    #[arg(long, default_value_t = 0, value_name = "ATTEMPTS")]
    exact_windows: u64,
    /// Load this eBPF object instead of the built-in one
    #[arg(long, env = "SCHEDSPAN_EBPF_OBJECT", value_name = "FILE")]
    ebpf_object: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
///
/// When the file exists already or cannot be written; when probes cannot be loaded; when the process of `--pid` is not
/// a scheduler.
pub async fn run(options: Options) -> Result<()> {
    let Options { file, pid, trust, duration, redact, max_size, exact_windows, ebpf_object } = options;
    if let Some(pid) = pid {
        let executable = goexe::File::open(format!("/proc/{pid}/exe").as_ref(), MAX_EXECUTABLE);
        let known = executable.is_ok_and(|file| Plan::<KubeScheduler>::of(&file).is_ok());
        ensure!(known, "process {pid} is not a kube-scheduler; `pgrep -a kube-scheduler` lists them");
    }
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let name = file.display();
    // Creates the file exclusively: never overwrites a recording, nor follows a link in a world-writable folder.
    let out = if file.as_os_str() == "-" {
        // It holds names of a traced process, and a terminal obeys what is in them.
        ensure!(!screen::is_terminal(), "a recording is not for a terminal: redirect standard output");
        #[expect(clippy::disallowed_methods, reason = "a recording is not text")]
        let stdout = stdout();
        stdout.as_fd().try_clone_to_owned().map(File::from)
    } else {
        File::create_new(&file)
    };
    let out = out.with_context(|| format!("cannot create `{name}`"))?;
    let recorder =
        Recorder::<_, KubeScheduler>::new(BufWriter::with_capacity(1 << 20, out), max_size, redact)
            .with_context(|| format!("`{name}`"))?;
    let recorder = Arc::new(Mutex::new(recorder));
    let stop = Arc::new(AtomicBool::new(false));
    let worker = ProgramWorker::new(Detail::Full, story::<KubeScheduler>).observed({
        let (recorder, stop) = (Arc::clone(&recorder), Arc::clone(&stop));
        Box::new(move |line| {
            if !recorder.lock().unwrap_or_else(PoisonError::into_inner).take(line) {
                stop.store(true, Ordering::Relaxed);
            }
        })
    });
    // Traces are not needed here.
    let (sender, _) = mpsc::channel(1);
    let (metrics, health) = (Metrics::default(), Health::default());
    let workers: Vec<Box<Worker>> = vec![Box::new(worker)];
    let admission = Admission::once(pid, trust.trust, &workers).await;
    let object = ebpf_object.as_deref();
    let limits = Limits { window_every: exact_windows, ..Limits::default() };
    let supervisor = Supervisor::new(object, limits, admission, workers, sender, metrics, health)?;
    let mut supervisor = tokio::task::spawn_blocking({
        let stop = Arc::clone(&stop);
        move || supervisor.run(&stop)
    });
    let time_is_up = async {
        match duration {
            Some(duration) => sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        // The file is full, or a write failed.
        result = &mut supervisor => Some(result),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        () = time_is_up => None,
    };
    stop.store(true, Ordering::Relaxed);
    match ended {
        Some(result) => result,
        None => supervisor.await,
    }
    .context("the supervisor's thread has panicked")?;
    let Summary { processes, events, left_out, bytes } = recorder
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .finish()
        .with_context(|| format!("`{name}`"))?;
    info!("{name}: {events} events of {processes} schedulers, {bytes} bytes");
    if left_out > 0 {
        warn!("{left_out} events more came when the file was full: see --max-size");
    }
    if processes == 0 {
        warn!("no kube-scheduler was found: `schedspan record` needs one that runs");
    }
    Ok(())
}

/// Parses a size such as `64KiB`, `256MiB` or `1GiB`.
fn size(text: &str) -> Result<u64, String> {
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        return Err("give a whole number with the unit KiB, MiB or GiB".to_owned());
    }
    let size = parse_bytes(text)?.ok_or_else(|| format!("`{text}` is no whole number, or too large"))?;
    if size < SMALLEST { Err("64KiB is the smallest".to_owned()) } else { Ok(size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_and_are_not_too_small() {
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("256MiB"), Ok(256 << 20));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        for wrong in ["", "10", "MiB", "1.5GiB", "-1GiB", "63KiB", "5MB", "99999999999999GiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
