//! `schedspan inspect`: what would be probed in an executable, and what not.

use std::{
    io::{self, Write as _},
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use goexe::Class;
use serde::Serialize;

use crate::{
    plan::{
        self, CrossCheck, Function, FunctionSignature, Identity, Layout, Missing, Plan, Plugin, Role, name,
    },
    target,
};

/// Show what is probed in a scheduler, what each hit costs, and what is missing and why
#[derive(clap::Args, Debug)]
pub struct Options {
    /// A process id or the path of an executable
    #[arg(value_name = "PID|FILE")]
    what: String,
    /// How to print it
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Show the machine code around the sites of a function instead: `preFilter`, or `RunPreFilterPlugins`
    #[arg(long, value_name = "FUNCTION", conflicts_with = "output")]
    explain: Option<String>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, Default)]
enum Output {
    /// For people
    #[default]
    Text,
    /// For programs: one object, with `complete` and `missing` at its top
    Json,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    complete: bool,
    missing: &'a [Missing],
    not_in_this_version: &'a [Function],
    identity: &'a Identity,
    sites: Vec<Site<'a>>,
    layouts: &'a [Layout],
    dwarf: Option<&'a CrossCheck>,
    plugins: &'a [Plugin],
    signatures: &'a [FunctionSignature],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Site<'a> {
    function: Function,
    role: Role,
    class: &'static str,
    address: String,
    file_offset: u64,
    symbol: &'a str,
    reads: Vec<plan::Value>,
}

/// Runs the command.
///
/// # Errors
///
/// When there is no such process or file, or it is no kube-scheduler.
pub fn run(options: &Options) -> Result<()> {
    let what = &options.what;
    let (path, hint) = match what.parse::<u32>() {
        Ok(pid) => {
            (PathBuf::from(format!("/proc/{pid}/exe")), "no such process, or no right to read it; try sudo")
        }
        Err(_) => (PathBuf::from(what), "give the path of an executable or a process id"),
    };
    let data = target::open_executable(&path).with_context(|| format!("cannot read `{what}`: {hint}"))?;
    let cannot_trace = || format!("cannot trace `{what}`");
    let plan = || Plan::checked(&data).with_context(cannot_trace);
    let shown = match (&options.explain, options.output) {
        (Some(function), _) => plan::explain(&data, function).with_context(cannot_trace)?,
        (None, Output::Json) => serde_json::to_string_pretty(&report(&plan()?))? + "\n",
        (None, Output::Text) => text(&plan()?),
    };
    match io::stdout().write_all(shown.as_bytes()) {
        // Whoever reads, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

fn report(plan: &Plan) -> Report<'_> {
    Report {
        complete: plan.complete(),
        missing: &plan.missing,
        not_in_this_version: &plan.not_yet,
        identity: &plan.identity,
        layouts: &plan.layouts,
        dwarf: plan.debug_info.as_ref(),
        plugins: &plan.plugins,
        signatures: &plan.signatures,
        sites: plan
            .sites
            .iter()
            .map(|site| Site {
                function: site.function,
                role: site.role,
                class: class(site.class),
                address: format!("{:#x}", site.address),
                file_offset: site.file_offset,
                symbol: &site.symbol,
                reads: site.values.iter().map(|(value, _)| *value).collect(),
            })
            .collect(),
    }
}

fn class(class: Class) -> &'static str {
    match class {
        Class::Emulated => "emulated",
        Class::SingleStepped => "single-stepped",
    }
}

fn text(plan: &Plan) -> String {
    use std::fmt::Write as _;

    let Identity { kubernetes_version, go_version, build_id, machine, link_mode, stripped, .. } =
        &plan.identity;
    let mut out = String::new();
    let unknown = || "unknown".to_owned();
    let symbols = if *stripped { "stripped" } else { "with symbols" };
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(format!("Kubernetes  {}", kubernetes_version.clone().unwrap_or_else(unknown)));
    line(format!("Go          {go_version}, {machine}, {link_mode}, {symbols}"));
    line(format!("Build id    {}", build_id.clone().unwrap_or_else(unknown)));
    line(String::new());
    line(format!("{:<18} {:<12} {:<15} {:>10}  IN", "FUNCTION", "ROLE", "CLASS", "ADDRESS"));
    for site in &plan.sites {
        let short = site.symbol.rsplit('/').next().unwrap_or(&site.symbol);
        line(format!(
            "{:<18} {:<12} {:<15} {:>#10x}  {short}",
            name(site.function),
            name(site.role),
            class(site.class),
            site.address
        ));
    }
    line(String::new());
    let single = plan.sites.iter().filter(|site| site.class == Class::SingleStepped);
    let dear: std::collections::BTreeSet<_> = single.map(|site| name(site.function)).collect();
    let dear = if dear.is_empty() {
        "all emulated".to_owned()
    } else {
        format!("all emulated but those of {}", dear.into_iter().collect::<Vec<_>>().join(", "))
    };
    line(format!("{} sites, {dear}.", plan.sites.len()));
    line("A hit on an emulated instruction costs well under a microsecond, on a single-stepped one 2 to 20 times".into());
    line(
        "that. A successful attempt makes about 50 hits; `docs/performance.md` has the measured cost.".into(),
    );
    line(String::new());
    let width = plan.plugins.iter().map(|plugin| plugin.name.len()).max().unwrap_or_default();
    line(format!("{:<width$}  EXTENSION POINTS", "PLUGIN"));
    for Plugin { name, extension_points, module, .. } in &plan.plugins {
        // Where all come from is said once.
        let module = module.as_deref().filter(|module| !module.starts_with("k8s.io/kubernetes "));
        let from = module.map(|module| format!("  (from {module})")).unwrap_or_default();
        line(format!("{name:<width$}  {}{from}", extension_points.join(", ")));
    }
    line(String::new());
    let read = plan.layouts.iter().filter(|layout| layout.read).count();
    line(format!("{read} fields are read, at the offsets that the type descriptors give."));
    if let Some(CrossCheck { compared, disagreements, details }) = &plan.debug_info {
        line(format!(
            "Debug information agrees on {} of {compared} fields and functions.",
            compared - disagreements
        ));
        details.iter().for_each(|detail| line(format!("DISAGREEMENT {detail}")));
    }
    for function in &plan.not_yet {
        line(format!("{} does not exist in this version of Kubernetes.", name(function)));
    }
    if plan.complete() {
        line("Everything can be traced.".into());
    } else {
        for Missing { function, why, without } in &plan.missing {
            line(format!("MISSING {}: {why}; so there is {without}.", name(function)));
        }
        let _ = writeln!(out, "Not everything can be traced: {} missing.", plan.missing.len());
    }
    out
}
