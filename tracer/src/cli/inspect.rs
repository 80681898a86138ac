//! `schedspan inspect`: lists the probes for an executable, and what is missing.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use goexe::{File, Source};
use gotrace::{
    discover::MAX_EXECUTABLE,
    plan::{self, CrossCheck, Identity, Missing, report::Report},
    program::Named,
};
use spans::screen;
use trust::Trust;

use crate::{
    admission,
    cli::run::names,
    programs::{PROGRAMS, Registration},
};

/// Show what is probed in an executable, what each hit costs, and what is missing and why
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Process id, or path of an executable
    #[arg(value_name = "PID|FILE")]
    what: String,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Show the machine code around the sites of a function instead, such as `preFilter` or `RunPreFilterPlugins`
    #[arg(long, value_name = "FUNCTION", conflicts_with = "output")]
    explain: Option<String>,
    /// Which program's probes, of those that the executable contains [default: the first of them]
    #[arg(long, value_name = "PROGRAM", value_parser = names())]
    program: Option<String>,
    #[command(flatten)]
    trust: admission::Options,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, Default)]
enum Output {
    /// Readable table
    #[default]
    Text,
    /// One JSON object, with `complete` and `missing` at its top
    Json,
}

/// Runs the command.
///
/// # Errors
///
/// When the process or file does not exist, or contains no supported program.
pub fn run(options: &Options) -> Result<()> {
    let what = &options.what;
    let (path, hint) = match what.parse::<u32>() {
        Ok(pid) => {
            (PathBuf::from(format!("/proc/{pid}/exe")), "no such process, or no right to read it; try sudo")
        }
        Err(_) => (PathBuf::from(what), "give the path of an executable or a process id"),
    };
    let file = File::open(&path, MAX_EXECUTABLE).with_context(|| format!("cannot read `{what}`: {hint}"))?;
    let chosen = options.program.as_deref();
    let cannot_trace = || format!("cannot trace `{what}`");
    let data = Source::from(&file);
    let shown = match (&options.explain, options.output) {
        (Some(function), _) => {
            first(chosen, |program| (program.explain)(data, function)).with_context(cannot_trace)?
        }
        (None, Output::Json) => {
            let report = first(chosen, |program| (program.report)(data)).with_context(cannot_trace)?;
            serde_json::to_string_pretty(&report)? + "\n"
        }
        (None, Output::Text) => {
            let report = first(chosen, |program| (program.report)(data)).with_context(cannot_trace)?;
            what.parse().map(|pid| trusted(options, pid)).unwrap_or_default() + &text(&report)
        }
    };
    let printed = match (&options.explain, options.output) {
        (None, Output::Json) => screen::print_json(&shown),
        (None, Output::Text) | (Some(_), _) => screen::print(&shown),
    };
    printed.context("cannot write to stdout")
}

/// Says whether `schedspan run` with the same rules would trace a process.
fn trusted(options: &Options, pid: u32) -> String {
    let trust = Trust::new(options.trust.trust.clone(), Box::new(|_| None));
    match trust.judge(pid) {
        Ok(rule) => format!("Trust       the rule `{rule}` names it\n"),
        Err(stranger) => format!("Trust       it is not traced: {stranger}\n"),
    }
}

/// Result for the first of these programs that the executable contains; if there is none, the error of the first program.
fn first<T>(
    chosen: Option<&str>,
    ask: impl Fn(&Registration) -> Result<T, plan::Error>,
) -> Result<T, plan::Error> {
    let mut refusal = None;
    for program in PROGRAMS.iter().filter(|program| chosen.is_none_or(|name| name == program.name)) {
        match ask(program) {
            Err(error @ plan::Error::AnotherProgram { .. }) => drop(refusal.get_or_insert(error)),
            answer => return answer,
        }
    }
    Err(refusal.expect("there is at least one program"))
}

fn text(report: &Report) -> String {
    use std::fmt::Write as _;

    let Identity { kubernetes_version, go_version, build_id, machine, link_mode, stripped, .. } =
        &report.identity;
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
    for site in &report.sites {
        let short = site.symbol.rsplit('/').next().unwrap_or(&site.symbol);
        line(format!(
            "{:<18} {:<12} {:<15} {:>10}  {short}",
            site.function,
            plan::name(site.role),
            site.class,
            site.address
        ));
    }
    line(String::new());
    let single = report.sites.iter().filter(|site| site.class != "emulated");
    let dear: std::collections::BTreeSet<_> = single.map(|site| site.function.as_str()).collect();
    let dear = if dear.is_empty() {
        "all emulated".to_owned()
    } else {
        format!("all emulated but those of {}", dear.into_iter().collect::<Vec<_>>().join(", "))
    };
    line(format!("{} sites, {dear}.", report.sites.len()));
    line(
        "A hit on an emulated instruction costs about a microsecond, on a single-stepped one 2 to 20 times"
            .into(),
    );
    line("that; `docs/performance.md` has the measured cost.".into());
    line(String::new());
    // Programs without plugins have no such list.
    if let Some(width) = report.names.iter().map(|plugin| plugin.name.len()).max() {
        line(format!("{:<width$}  EXTENSION POINTS", "PLUGIN"));
        for Named { name, extension_points, module, .. } in &report.names {
            // Modules of Kubernetes itself are in the header already.
            let module = module.as_deref().filter(|module| !module.starts_with("k8s.io/kubernetes "));
            let from = module.map(|module| format!("  (from {module})")).unwrap_or_default();
            line(format!("{name:<width$}  {}{from}", extension_points.join(", ")));
        }
        line(String::new());
    }
    let read = report.layouts.iter().filter(|layout| layout.read).count();
    line(format!("{read} fields are read, at the offsets that the type descriptors give."));
    if let Some(CrossCheck { compared, disagreements, details }) = &report.dwarf {
        line(format!(
            "Debug information agrees on {} of {compared} fields and functions.",
            compared - disagreements
        ));
        details.iter().for_each(|detail| line(format!("DISAGREEMENT {detail}")));
    }
    for function in &report.not_in_this_version {
        line(format!("{function} does not exist in this version of Kubernetes."));
    }
    if report.complete {
        line("Everything can be traced.".into());
    } else {
        for Missing { function, why, without } in &report.missing {
            line(format!("MISSING {function}: {why}; the result: {without}."));
        }
        let _ = writeln!(out, "Not everything can be traced: {} missing.", report.missing.len());
    }
    out
}
