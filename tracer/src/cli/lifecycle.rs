//! `schedspan lifecycle`: the lifecycle of a Pod, or of a workload's Pods, from the spans of all sources.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use reach::Output;
use serde_json::json;
use spandiff::{
    explained::{Explained, explained},
    joined::joined,
    owned::{Owned, owned},
};
use spans::{
    export::{Pods, Style, paragraph, waterfall},
    screen,
};

/// Version of the JSON document.
const SCHEMA_VERSION: u32 = 1;
/// Most Pods that are named where none is the right one.
const OTHERS: usize = 5;

/// Options of `lifecycle`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Name of the Pod; with a `*` at its end, or as that of a workload, such as `job/once`, of several: the slowest twelve
    #[arg(value_name = "POD|PREFIX*|KIND/NAME")]
    pods: Pods,
    /// Spans that a Collector received: OTLP as JSON lines, or as protobuf
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Namespace of the Pods
    #[arg(long, short, default_value = "default")]
    namespace: String,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

/// Runs the command.
///
/// # Errors
///
/// When a file cannot be read, or has no `PodLifecycle` of the Pods.
pub fn run(options: &Options) -> Result<()> {
    let Options { pods, files, namespace, output } = options;
    let mut spans = Vec::new();
    for file in files {
        spans.append(&mut spandiff::file(file, None)?);
    }
    let none = || {
        let others: Vec<_> = spandiff::pods(&spans).into_iter().take(OTHERS).collect();
        let hint = if others.is_empty() {
            "`schedspan run --lifecycle` makes it once a Pod is Ready".to_owned()
        } else {
            format!("there is one of {}", others.join(", "))
        };
        format!("no span `PodLifecycle` of {namespace}/{pods} in the files: {hint}")
    };
    let Owned { trace, pods: said, results, further } = if let Pods::Named(pod) = pods {
        let said = explained(&spans, namespace, pod).with_context(none)?;
        let trace = joined(&spans, namespace, pod).with_context(none)?;
        Owned { trace, results: [(said.result.clone(), 1)].into(), pods: vec![said], further: 0 }
    } else {
        owned(&spans, namespace, pods).with_context(none)?
    };
    if let Output::Text | Output::Wide = output {
        let style = Style::of_stdout();
        let first = said.first().map(|slowest| sentence(slowest, said.len() > 1)).unwrap_or_default();
        let text = paragraph(&first, &style) + &waterfall(&trace, &style);
        return screen::print_coloured(&text).context("cannot write to stdout");
    }
    let names: Vec<_> = said.iter().map(|pod| format!("pod/{}", pod.pod)).collect();
    let data =
        json!({ "schemaVersion": SCHEMA_VERSION, "results": results, "pods": said, "further": further });
    output.print(&data, String::new, &names)
}

fn sentence(pod: &Explained, among_others: bool) -> String {
    let whose = if among_others { format!("The slowest, {}: ", pod.pod) } else { String::new() };
    format!("{whose}{}", pod.sentence)
}
