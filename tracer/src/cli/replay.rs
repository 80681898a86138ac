//! `schedspan replay`: shows the traces of a recording.

use std::{fs::File, io::BufReader, path::PathBuf, time::Duration};

use anyhow::{Context as _, Error, Result, ensure};
use gotrace::recording::{Replay, Step};
use kube_scheduler::{KubeScheduler, attempt::Subject};
use spans::{
    Anchor, Origin, Source, Story as _,
    export::{Filter, Output, SpoolOptions},
    sample::Sampler,
    screen,
    story::Extras,
};

use crate::{
    daemon::{Outlet, resource},
    metrics::Metrics,
};

/// Time to write the last traces. A pager such as `less` may block for long.
const FLUSH: Duration = Duration::from_secs(24 * 60 * 60);

/// The cause of a loss if standard output cannot be written to.
const FAILED: &str = "output_failed";

/// Options of `replay`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// File with the recording
    file: PathBuf,
    #[command(flatten)]
    filter: Filter,
    /// Output format; may be given several times
    #[arg(long, short, value_enum, value_delimiter = ',', default_value = "terminal")]
    output: Vec<Output>,
    /// Show one line for each plugin in waterfalls, even if it was quick
    #[arg(long)]
    wide: bool,
    /// Make a span of each stay of a Pod in a queue, before the root
    #[arg(long)]
    queue_spans: bool,
}

/// Runs the command.
///
/// # Errors
///
/// When the file cannot be read, or is not a complete recording. Attempts before the fault are shown.
pub async fn run(options: Options) -> Result<()> {
    let Options { file, filter, output, wide, queue_spans } = options;
    let filter = filter.of_attempts().map_err(Error::msg)?;
    let name = file.display();
    let input = File::open(&file).with_context(|| format!("cannot read `{name}`"))?;
    let metrics = Metrics::default();
    let mut replay =
        Replay::<_, KubeScheduler>::new(BufReader::new(input)).with_context(|| format!("`{name}`"))?;
    let mut outlet =
        Outlet::start(&output, wide, &SpoolOptions::default(), filter, Sampler::default(), &metrics)?;
    let for_reader = output.iter().any(|output| output.is_for_reader());
    let (mut attempts, mut spans) = (0, 0);
    let mut result = Ok(());
    for message in replay.by_ref() {
        match message {
            Ok(Step::Finished(attempt, clocks)) => {
                let anchor = Anchor { unix_ns_at_zero: clocks.unix_ns_at_zero };
                let trace =
                    attempt.trace(anchor, Origin::default(), Extras { queue_spans, ..Extras::default() });
                attempts += usize::from(!matches!(attempt.subject, Subject::Group { .. }));
                spans += trace.spans.len();
                outlet.sinks.room().await;
                outlet.trace(trace);
            }
            Ok(Step::Found(found)) => {
                // Recordings are of schedulers.
                let mut resource = resource(&found);
                // The events come from another host.
                resource.attributes.retain(|(key, _)| *key != "host.name");
                outlet.sinks.register(&resource);
            }
            Ok(Step::Gone(target)) => outlet.sinks.forget(Source::Process(target)),
            Err(error) => {
                result = Err(error);
                break;
            }
        }
        // The reader, such as `head`, has closed the pipe.
        if for_reader && outlet.sinks.ended() {
            return Ok(());
        }
    }
    outlet.rest();
    outlet.sinks.shutdown(FLUSH).await;
    result.with_context(|| format!("`{name}`"))?;
    screen::complain(&format!("{name}: {} events, {attempts} attempts, {spans} spans", replay.events()));
    let failed = metrics.losses().iter().any(|(cause, lost)| *cause == FAILED && *lost > 0);
    let losses = replay.losses().chain(metrics.losses());
    for (cause, lost) in losses.filter(|(_, lost)| *lost > 0) {
        screen::complain(&format!("lost: {lost} {cause}"));
    }
    if let Some(end) = replay.end().filter(|end| end.left_out > 0) {
        screen::complain(&format!("the recording was full when {} events more came", end.left_out));
    }
    ensure!(!failed, "not all spans could be written to stdout");
    Ok(())
}
