//! `schedspan run`: the daemon.

use std::path::PathBuf;

use anyhow::Result;
use clap::{ValueEnum, builder::PossibleValuesParser};
use pods::{context, reinject};
use spans::{
    export::{Filter, Output, SpoolOptions},
    figures::parse_bytes,
    identity::LifecycleTrace,
    sample,
};

use gotrace::{Detail, probe::Limits};

use crate::{
    admission, daemon,
    programs::{DEFAULT, PROGRAMS},
    serve,
};

/// Text form of [`wire::RING_BYTES`].
const RING_BUFFER: &str = "4MiB";
/// Text form of [`wire::RECORD_LIMIT`].
const RECORD_LIMIT: &str = "32MiB";
/// The part of a program's CPU time that tracing may cost.
const BUDGET: &str = "5%";

/// Headings of the help.
const SCHEDULERS: &str = "Which schedulers";
const PROBES: &str = "Probes";
const LINKS: &str = "Links to who made the Pod";
const SAMPLING: &str = "Which traces";
const SPANS: &str = "Which spans";
const EXPORT: &str = "Export";
const SERVERS: &str = "Servers";

/// Which programs are traced.
#[derive(clap::Args, Debug)]
pub struct Programs {
    /// Program to trace; may be given several times
    #[arg(long = "program", env = "SCHEDSPAN_PROGRAM", value_delimiter = ',', default_value = DEFAULT, value_name = "PROGRAM", value_parser = names())]
    pub programs: Vec<String>,
}

/// Common options of `run` and `trace`.
#[derive(clap::Args, Debug)]
pub struct Common {
    /// How the trace contexts of Pods are read.
    #[command(flatten, next_help_heading = LINKS)]
    pub context: context::Options,
    /// Processes that the operator trusts.
    #[command(flatten, next_help_heading = SCHEDULERS)]
    pub trust: admission::Options,
    /// The traced programs.
    #[command(flatten, next_help_heading = SCHEDULERS)]
    pub programs: Programs,
    /// Level of detail
    #[arg(long, value_enum, default_value_t, value_name = "LEVEL", help_heading = PROBES)]
    pub detail: Level,
    /// Size of the ring buffer between the probes and this program: a power of two, 4KiB to 1GiB
    #[arg(long, default_value = RING_BUFFER, value_name = "SIZE", value_parser = ring_bytes, help_heading = PROBES)]
    pub ring_buffer: u32,
    /// How much the probes may send of one process per second; what is more is lost, and counted
    ///
    /// A scheduler that schedules 1,000 Pods a second needs 14 MB. While the ring buffer is nearly full, each of several processes has a
    /// sixteenth of it per 134 ms at most.
    #[arg(long, default_value = RECORD_LIMIT, value_name = "SIZE", value_parser = record_limit, help_heading = PROBES)]
    pub record_limit: u64,
    /// How much of a scheduler's CPU time tracing may cost, such as 2%; what exceeds it is cut, and comes back. 100% cuts nothing
    ///
    /// The cost is measured. Cut are, in this order: exact windows, half of the samples, samples, queue moves, calls of plugins, phases.
    /// Attempts and their results are never cut.
    #[arg(long, default_value = BUDGET, value_name = "PERCENT", value_parser = budget, help_heading = PROBES)]
    pub budget: f64,
    /// Samples per second and CPU, for the shares of `Filter` and `Score` plugins; 0 takes none
    #[arg(long, default_value_t = wire::SAMPLE_HZ, value_name = "HZ", value_parser = clap::value_parser!(u32).range(0..=1_000), help_heading = PROBES)]
    pub sample_hz: u32,
    /// Time each call of `Filter` and `Score` plugins in at most one of so many attempts, which makes that attempt slower; 0 for none
    ///
    /// Such an attempt says which plugin waits, which samples cannot see, and how many Nodes each plugin rejects. Needs Linux 6.6 and x86-64.
    #[arg(long, default_value_t = 0, value_name = "ATTEMPTS", help_heading = PROBES)]
    pub exact_windows: u64,
    /// Show one line for each plugin in waterfalls, even if it was quick
    #[arg(long, help_heading = SPANS)]
    pub wide: bool,
    /// Which reconciles have a trace: of the others nothing came, and they are counted
    #[arg(long, env = "SCHEDSPAN_RECONCILES", value_enum, default_value_t, value_name = "WHICH", help_heading = SAMPLING)]
    pub reconciles: Reconciles,
    /// Load this eBPF object instead of the built-in one
    #[arg(long, env = "SCHEDSPAN_EBPF_OBJECT", value_name = "FILE", help_heading = PROBES)]
    pub ebpf_object: Option<PathBuf>,
}

/// Options of `run`.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten, next_help_heading = SAMPLING)]
    sample: sample::Options,
    #[command(flatten, next_help_heading = LINKS)]
    reinject: reinject::Options,
    /// Destination of spans; may be given several times
    #[arg(long, short, value_enum, value_delimiter = ',', default_value = "otlp", help_heading = EXPORT)]
    output: Vec<Output>,
    #[command(flatten, next_help_heading = EXPORT)]
    spool: SpoolOptions,
    /// Make a span of each stay of a Pod in a queue, before the root
    #[arg(long, help_heading = SPANS)]
    queue_spans: bool,
    /// Make a trace of the lifecycle of each Pod until it is Ready, `PodLifecycle`; reads complete Pods
    #[arg(long, env = "SCHEDSPAN_LIFECYCLE", help_heading = SPANS)]
    lifecycle: bool,
    /// Whose trace lifecycles are in, with what other programs than `kube-scheduler` show of a Pod's creation and start; all daemons need the
    /// same
    #[arg(
        long,
        value_enum,
        default_value = "pod",
        env = "SCHEDSPAN_LIFECYCLE_TRACE",
        value_name = "WHOSE",
        help_heading = SPANS
    )]
    lifecycle_trace: LifecycleTrace,
    /// Add the start and end by CLOCK_MONOTONIC to each span, for `schedspan compare`
    #[arg(long, help_heading = SPANS)]
    monotonic: bool,
    #[command(flatten, next_help_heading = SERVERS)]
    status: status::Options,
    #[command(flatten, next_help_heading = SERVERS)]
    debug: serve::Options,
    /// Number of attempts to keep for `schedspan explain`, within 16 MiB; 0 keeps none
    #[arg(long, default_value_t = 1024, value_name = "ATTEMPTS", help_heading = SERVERS)]
    history: usize,
}

/// Runs the command.
///
/// # Errors
///
/// Those of [`daemon::run`].
pub async fn run(options: Options) -> Result<()> {
    let Options {
        common,
        sample,
        reinject,
        output,
        spool,
        queue_spans,
        lifecycle,
        lifecycle_trace,
        monotonic,
        status,
        debug,
        history,
    } = options;
    let options = common.daemon(output, Filter::default());
    daemon::run(daemon::Options {
        sample,
        reinject,
        spool,
        history,
        queue_spans,
        lifecycle,
        lifecycle_trace,
        monotonic,
        status,
        debug: debug.address(),
        ..options
    })
    .await
}

impl Common {
    pub(super) fn daemon(self, outputs: Vec<Output>, filter: Filter) -> daemon::Options {
        let Self {
            context,
            trust,
            programs,
            detail,
            ring_buffer,
            record_limit,
            budget,
            sample_hz,
            exact_windows,
            wide,
            reconciles,
            ebpf_object,
        } = self;
        daemon::Options {
            outputs,
            wide,
            filter,
            context,
            sample: sample::Options::default(),
            reinject: reinject::Options::default(),
            spool: SpoolOptions::default(),
            status: status::Options::default(),
            debug: None,
            history: 0,
            ebpf_object,
            trust: trust.trust,
            limits: Limits {
                ring_bytes: ring_buffer,
                record_limit,
                budget: Some(budget),
                sample_hz,
                stacks: false,
                window_every: exact_windows,
            },
            programs: programs.programs,
            detail: detail.into(),
            idle: reconciles == Reconciles::All,
            queue_spans: false,
            lifecycle: false,
            lifecycle_trace: LifecycleTrace::default(),
            monotonic: false,
        }
    }
}

/// Accepts the names of all programs.
pub(crate) fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(PROGRAMS.iter().map(|program| program.name))
}

/// Which reconciles have a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Reconciles {
    /// Those that write, fail, or ask to be called again
    #[default]
    Writes,
    /// All
    All,
}

/// Command-line values of [`Detail`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Attempts with Pod, result, Node and duration, and no phases
    Attempts,
    /// Adds their phases, and why they failed
    Phases,
    /// Adds the calls of each plugin, and preemption
    Plugins,
    /// Adds queue moves, top Nodes and rejections per plugin
    #[default]
    Full,
    /// Adds the Nodes that a scheduled Pod did not fit: one more hit an attempt, and the time to read up to 1,024 Nodes
    Nodes,
}

impl From<Level> for Detail {
    fn from(level: Level) -> Self {
        match level {
            Level::Attempts => Self::Attempts,
            Level::Phases => Self::Phases,
            Level::Plugins => Self::Plugins,
            Level::Full => Self::Full,
            Level::Nodes => Self::Maps,
        }
    }
}

/// Parses a size that the kernel accepts for a ring buffer.
fn ring_bytes(text: &str) -> Result<u32, String> {
    parse_bytes(text)?
        .and_then(|bytes| u32::try_from(bytes).ok())
        .filter(|bytes| bytes.is_power_of_two() && (4 << 10..=1 << 30).contains(bytes))
        .ok_or_else(|| "a power of two from 4KiB to 1GiB is needed, such as 8MiB".to_owned())
}

/// Parses a part of the CPU time.
fn budget(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    percent
        .filter(|percent| (0.1..=100.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "a part from 0.1% to 100% is needed, such as 2%".to_owned())
}

/// Parses what a process may send.
fn record_limit(text: &str) -> Result<u64, String> {
    parse_bytes(text)?
        .filter(|bytes| (64 << 10..1 << 32).contains(bytes))
        .ok_or_else(|| "a size from 64KiB to 3GiB is needed, such as 64MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{BUDGET, RECORD_LIMIT, RING_BUFFER, budget, record_limit, ring_bytes};

    #[test]
    fn a_budget_is_a_part() {
        assert!(budget(BUDGET).is_ok());
        assert_eq!(budget("2%"), Ok(0.02));
        assert_eq!(budget("0.5%"), Ok(0.005));
        assert_eq!(budget("100%"), Ok(1.0));
        for bad in ["", "2", "%", "0%", "101%", "-1%", "NaN%", "inf%", "32MiB"] {
            assert!(budget(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_limit_of_records_is_a_size() {
        assert_eq!(record_limit(RECORD_LIMIT), Ok(wire::RECORD_LIMIT));
        assert_eq!(record_limit("100000"), Ok(100_000));
        assert_eq!(record_limit("3GiB"), Ok(3 << 30));
        for bad in ["", "0", "1KiB", "4GiB", "32MB", "-1"] {
            assert!(record_limit(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_ring_buffer_has_a_size_that_the_kernel_takes() {
        assert_eq!(ring_bytes(RING_BUFFER), Ok(wire::RING_BYTES));
        assert_eq!(ring_bytes("8MiB"), Ok(8 << 20));
        assert_eq!(ring_bytes("65536"), Ok(65_536));
        assert_eq!(ring_bytes("64Ki"), Ok(65_536));
        for bad in ["", "3MiB", "2KiB", "2GiB", "8 MiB", "8MB", "99999999999"] {
            assert!(ring_bytes(bad).is_err(), "{bad}");
        }
    }
}
