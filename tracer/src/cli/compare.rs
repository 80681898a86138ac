//! `schedspan compare`: compares spans with those of another source.

use std::{
    fs, io,
    io::Read as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use spandiff::{Limits, Report, Span};
use spans::{figures::parse_duration, screen};

/// Largest metrics file. A scheduler exports some hundred kilobytes.
const MAX_METRICS: u64 = 64 << 20;

/// Options of `compare`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Spans of side A: OTLP as JSON lines, or as protobuf
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Spans of side B
    #[arg(value_name = "B", required_unless_present = "metrics")]
    b: Option<PathBuf>,
    /// Read only this instrumentation scope of A, for a file that holds both sides
    #[arg(long, value_name = "SCOPE")]
    scope_a: Option<String>,
    /// Read only this instrumentation scope of B
    #[arg(long, value_name = "SCOPE")]
    scope_b: Option<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Write an HTML page with the distributions and the pairs that differ most
    #[arg(long, value_name = "FILE", requires = "b")]
    html: Option<PathBuf>,
    /// Compare A with the scheduler's own metrics, in Prometheus' text format; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "b")]
    metrics: Option<PathBuf>,
    /// The same metrics at the start of A; not needed if A starts with the scheduler
    #[arg(long, value_name = "FILE", requires = "metrics")]
    metrics_before: Option<PathBuf>,
    #[command(flatten)]
    bounds: Bounds,
}

/// Limits of the differences. Beyond one of them, the exit code is 1.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Limits: beyond one of them the exit code is 1")]
struct Bounds {
    /// Spans without a twin, of kinds that both sides have; with --metrics, attempts or calls that only one side has
    #[arg(long, value_name = "N")]
    max_missing: Option<u64>,
    /// Twins whose parents differ in kind
    #[arg(long, value_name = "N")]
    max_parents: Option<u64>,
    /// Twins of which only one is an error
    #[arg(long, value_name = "N")]
    max_status: Option<u64>,
    /// Twins whose common attributes differ in a value
    #[arg(long, value_name = "N")]
    max_attributes: Option<u64>,
    /// Twins where B's interval is outside A's
    #[arg(long, value_name = "N")]
    max_outside: Option<u64>,
    /// Difference of the start times of twins, median
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    max_start_p50: Option<Duration>,
    /// Difference of the end times of twins, median
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    max_end_p50: Option<Duration>,
    /// Difference of the durations of twins, median
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    max_duration_p50: Option<Duration>,
    /// Difference of the durations of twins, 99th percentile
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    max_duration_p99: Option<Duration>,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Output {
    /// Readable table
    #[default]
    Table,
    /// One JSON object
    Json,
}

/// Runs the command. Returns whether the two sides agree within the limits.
///
/// # Errors
///
/// When a file cannot be read, parsed or written.
pub fn run(options: &Options) -> Result<bool> {
    let Options { a, b, scope_a, scope_b, output, html, metrics, metrics_before, bounds } = options;
    let spans = read(a, scope_a.as_deref())?;
    let limits = bounds.limits();
    let (shown, failures) = match (b, metrics) {
        (Some(b), _) => {
            let report = spandiff::compare(&spans, &read(b, scope_b.as_deref())?);
            let failures = report.failures(&limits);
            let names = [side(a, scope_a.as_deref()), side(b, scope_b.as_deref())];
            let names = [names[0].as_str(), names[1].as_str()];
            if let Some(file) = html {
                fs::write(file, spandiff::page(&report, names, &failures))
                    .with_context(|| format!("cannot write `{}`", file.display()))?;
            }
            (show(&report, names, *output)?, failures)
        }
        (None, Some(file)) => against_metrics(&spans, file, metrics_before.as_deref(), *output, &limits)?,
        (None, None) => anyhow::bail!("nothing to compare with: give B or --metrics"),
    };
    let printed = match output {
        Output::Table => screen::print(&shown),
        Output::Json => screen::print_json(&shown),
    };
    printed.context("cannot write to stdout")?;
    for failure in &failures {
        screen::complain(&format!("schedspan: {failure}"));
    }
    Ok(failures.is_empty())
}

fn show(report: &Report, names: [&str; 2], output: Output) -> Result<String> {
    Ok(match output {
        Output::Table => spandiff::table(report, names),
        Output::Json => serde_json::to_string_pretty(report)? + "\n",
    })
}

fn against_metrics(
    spans: &[Span],
    file: &Path,
    before: Option<&Path>,
    output: Output,
    limits: &Limits,
) -> Result<(String, Vec<String>)> {
    let name = |file: &Path| file.display().to_string();
    let before = before.map(|file| anyhow::Ok((name(file), text(file)?))).transpose()?;
    let before = before.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    let figures = spandiff::figures(spans, (&name(file), &text(file)?), before)?;
    let differ: f64 = figures.iter().map(|figure| (figure.spans - figure.metric).abs()).sum();
    let limit = limits.missing.filter(|limit| differ > *limit as f64);
    let failures =
        limit.map(|limit| format!("{differ} attempts or calls that one side has more, {limit} at most"));
    let shown = match output {
        Output::Table => spandiff::metrics_table(&figures),
        Output::Json => serde_json::to_string_pretty(&figures)? + "\n",
    };
    Ok((shown, failures.into_iter().collect()))
}

fn read(file: &Path, scope: Option<&str>) -> Result<Vec<Span>> {
    let spans = spandiff::file(file, scope)?;
    ensure!(!spans.is_empty(), "there are no spans in {}", side(file, scope));
    Ok(spans)
}

fn text(file: &Path) -> Result<String> {
    let shown = file.display();
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        io::stdin().take(MAX_METRICS).read_to_string(&mut text)
    } else {
        fs::File::open(file).and_then(|file| file.take(MAX_METRICS).read_to_string(&mut text))
    };
    let length = read.with_context(|| format!("cannot read `{shown}`"))?;
    ensure!(
        (length as u64) < MAX_METRICS,
        "`{shown}` is longer than {MAX_METRICS} bytes: not the metrics of a scheduler"
    );
    Ok(text)
}

/// Name of a side in messages: the file, and the scope if there is one.
fn side(file: &Path, scope: Option<&str>) -> String {
    let scope = scope.map(|scope| format!(", scope {scope}")).unwrap_or_default();
    format!("{}{scope}", file.display())
}

impl Bounds {
    fn limits(&self) -> Limits {
        let ns =
            |limit: Option<Duration>| limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        Limits {
            missing: self.max_missing,
            parents: self.max_parents,
            status: self.max_status,
            attributes: self.max_attributes,
            outside: self.max_outside,
            start_p50: ns(self.max_start_p50),
            end_p50: ns(self.max_end_p50),
            duration_p50: ns(self.max_duration_p50),
            duration_p99: ns(self.max_duration_p99),
        }
    }
}
