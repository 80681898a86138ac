//! `schedspan lifecycle`: the lifecycle of a Pod, from the spans of all sources.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use spandiff::joined::joined;
use spans::{
    export::{Style, waterfall},
    screen,
};

/// Options of `lifecycle`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Name of the Pod
    pod: String,
    /// Spans that a Collector received: OTLP as JSON lines, or as protobuf
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Namespace of the Pod
    #[arg(long, short, default_value = "default")]
    namespace: String,
}

/// Runs the command.
///
/// # Errors
///
/// When a file cannot be read, or has no `PodLifecycle` of the Pod.
pub fn run(options: &Options) -> Result<()> {
    let Options { pod, files, namespace } = options;
    let mut spans = Vec::new();
    for file in files {
        spans.append(&mut spandiff::file(file, None)?);
    }
    let trace = joined(&spans, namespace, pod).with_context(|| {
        format!("no span PodLifecycle is of {namespace}/{pod}: `schedspan run --lifecycle` makes it once the Pod is Ready")
    })?;
    screen::print_coloured(&waterfall(&trace, &Style::of_stdout())).context("cannot write to stdout")
}
