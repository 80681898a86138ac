//! `cargo xtask matrix schedulers`: runs `schedspan inspect` on each scheduler, and measures it.

use std::{
    fs,
    path::{self, Path},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use harness::schedulers::{self, Scheduler};
use serde::Deserialize;
use xtask::{
    build,
    components::{Component, SCHEDULER},
    paths,
};

use crate::{
    oracle::{self, Comparison, Layout, Signature},
    peak,
};

/// Runs for each file.
const READINGS: usize = 5;

/// The text above the Markdown table.
const PAGE: &str = "\
# Schedulers that schedspan reads

Made by `cargo xtask matrix schedulers --output markdown`, which builds each of these schedulers and lets `schedspan inspect` read it
five times. MB is the size of the file, ms the median of the times, and MiB the peak of resident memory. DWARF is how many fields and
functions were compared with the file's own debug information. Oracle is how many registers and offsets were compared with values that
are known from the source and from debuggers.
";

/// Headings, and their widths on a terminal.
const COLUMNS: [(&str, usize); 11] = [
    ("scheduler", 24),
    ("Go", 9),
    ("build", 8),
    ("MB", 3),
    ("sites", 5),
    ("single-stepped", 14),
    ("ms", 4),
    ("MiB", 4),
    ("DWARF", 12),
    ("oracle", 12),
    ("plan", 4),
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How to print the rows
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Write docs/schedulers.md, and the number of schedulers into docs/figures.tsv
    #[arg(long, conflicts_with_all = ["output", "names", "few"])]
    store: bool,
    /// Which schedulers, by the names that `cargo xtask schedulers --list` prints [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Only the few that `cargo xtask test` reads
    #[arg(long, hide = true, conflicts_with = "names")]
    few: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// For a terminal
    Table,
    /// The whole of docs/schedulers.md
    Markdown,
}

/// The part of `inspect --output json` that a row shows.
#[derive(Deserialize)]
struct Plan {
    complete: bool,
    missing: Vec<Missing>,
    sites: Vec<Site>,
    /// Absent if the file has no DWARF.
    dwarf: Option<Dwarf>,
    identity: Identity,
    signatures: Vec<Signature>,
    layouts: Vec<Layout>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    kubernetes_version: Option<String>,
    machine: String,
}

#[derive(Deserialize)]
struct Missing {
    function: String,
}

#[derive(Deserialize)]
struct Site {
    class: String,
}

/// The comparison of findings without DWARF with the file's DWARF.
#[derive(Deserialize)]
struct Dwarf {
    compared: usize,
    disagreements: usize,
}

/// The plan of a file, and the cost of reading it.
struct Reading {
    megabytes: f64,
    plan: Plan,
    oracle: Comparison,
    milliseconds: f64,
    peak_mib: f64,
}

pub(crate) fn main(Options { output, store, names, few }: &Options) -> Result<()> {
    let schedulers = if *few { schedulers::few()? } else { schedulers::chosen(names)? };
    let output = if *store { Output::Markdown } else { *output };
    let page = check(output, &schedulers)?;
    if *store {
        let file = paths::repository().join("docs/schedulers.md");
        fs::write(&file, page).with_context(|| format!("cannot write `{}`", file.display()))?;
        facts::store(&[("schedulers.builds", schedulers.len().to_string())])?;
    }
    Ok(())
}

/// Reads each and prints a row about it. Returns all that is printed.
fn check(output: Output, schedulers: &[Scheduler]) -> Result<String> {
    let schedspan = path::absolute(build::build()?)?;
    // Builds must not run beside the measurements.
    let build = |Scheduler { name, component, .. }: &Scheduler| {
        component.executable().with_context(|| format!("cannot build {name}"))
    };
    let executables: Vec<_> = schedulers.iter().map(build).collect::<Result<_>>()?;

    let mut page = String::new();
    let mut print = |text: String| {
        println!("{text}");
        page += &(text + "\n");
    };
    let headings = line(output, &COLUMNS.map(|(heading, _)| heading.to_owned()));
    match output {
        Output::Table => print(headings),
        Output::Markdown => {
            print(PAGE.to_owned());
            print(headings);
            print(format!("|{}", "---|".repeat(COLUMNS.len())));
        }
    }
    let mut failed = Vec::new();
    for (scheduler, executable) in schedulers.iter().zip(&executables) {
        let reading = read(&schedspan, executable);
        for difference in reading.iter().flat_map(|reading| &reading.oracle.differences) {
            eprintln!("differs  {}: {difference}", scheduler.name);
        }
        if !reading.as_ref().is_ok_and(Reading::passes) {
            failed.push(scheduler.name.as_str());
        }
        print(line(output, &row(scheduler, reading)));
    }
    ensure!(failed.is_empty(), "cannot be traced completely: {}", failed.join(", "));
    Ok(page)
}

/// Inspects a file several times.
fn read(schedspan: &Path, file: &Path) -> Result<Reading> {
    // Runs in the file's folder, so that errors have the short name.
    let mut inspect = Command::new(schedspan);
    inspect.args(["inspect", "--output", "json"]).arg(file.file_name().context("not a file")?);
    inspect.current_dir(file.parent().context("not in a folder")?);
    let mut readings = Vec::new();
    for _ in 0..READINGS {
        let reading = peak::run(&mut inspect)?;
        if !reading.success {
            bail!("{}", reading.stderr.trim_start_matches("schedspan: "));
        }
        readings.push(reading);
    }
    readings.sort_by(|one, other| one.milliseconds.total_cmp(&other.milliseconds));
    let median = &readings[READINGS / 2];
    let plan: Plan = serde_json::from_str(&median.stdout).context("`schedspan inspect` printed no plan")?;
    let Identity { kubernetes_version, machine } = &plan.identity;
    let version = kubernetes_version.as_deref().context("its version of Kubernetes is not known")?;
    Ok(Reading {
        megabytes: fs::metadata(file)?.len() as f64 / 1e6,
        oracle: oracle::compare(version, machine, &plan.signatures, &plan.layouts)?,
        plan,
        milliseconds: median.milliseconds,
        peak_mib: readings.iter().map(|reading| reading.peak_mib).fold(0.0, f64::max),
    })
}

/// The cells of a row.
fn row(Scheduler { go, component, .. }: &Scheduler, reading: Result<Reading>) -> Vec<String> {
    let Component { name, version, kind, .. } = component;
    let scheduler = if *name == SCHEDULER.name { (*version).to_owned() } else { format!("{name} {version}") };
    let mut cells = vec![scheduler, go.clone(), kind.name.to_owned()];
    match reading {
        Ok(Reading { megabytes, plan, oracle, milliseconds, peak_mib }) => cells.extend([
            format!("{megabytes:.0}"),
            plan.sites.len().to_string(),
            plan.sites.iter().filter(|site| site.class == "single-stepped").count().to_string(),
            format!("{milliseconds:.0}"),
            format!("{peak_mib:.0}"),
            plan.dwarf.as_ref().map_or_else(|| "-".to_owned(), Dwarf::sentence),
            differ(oracle.compared, oracle.differences.len()),
            plan.sentence(),
        ]),
        Err(error) => {
            cells.resize(COLUMNS.len() - 1, "-".to_owned());
            cells.push(format!("{error:#}").lines().next().unwrap_or_default().to_owned());
        }
    }
    cells
}

impl Reading {
    /// A comparison without any place does not pass.
    fn passes(&self) -> bool {
        let Self { plan, oracle, .. } = self;
        let agrees = |dwarf: &Dwarf| dwarf.compared > 0 && dwarf.disagreements == 0;
        plan.complete
            && plan.dwarf.as_ref().is_none_or(agrees)
            && oracle.compared > 0
            && oracle.differences.is_empty()
    }
}

impl Plan {
    fn sentence(&self) -> String {
        if self.complete {
            return "complete".to_owned();
        }
        let missing: Vec<_> = self.missing.iter().map(|missing| missing.function.as_str()).collect();
        format!("without {}", missing.join(", "))
    }
}

impl Dwarf {
    fn sentence(&self) -> String {
        differ(self.compared, self.disagreements)
    }
}

fn differ(compared: usize, differences: usize) -> String {
    format!("{compared}, {differences} differ")
}

fn line(output: Output, cells: &[String]) -> String {
    match output {
        Output::Table => {
            let padded = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| format!("{cell:<width$}  "));
            padded.collect::<String>().trim_end().to_owned()
        }
        Output::Markdown => format!("| {} |", cells.join(" | ")),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    fn scheduler() -> Scheduler {
        Scheduler { name: "1.36.4-go1.26.8".to_owned(), go: "go1.26.8".to_owned(), component: SCHEDULER }
    }

    fn reading(plan: &str) -> Reading {
        let identity = r#""identity": {"kubernetesVersion": "v1.36.4", "machine": "amd64"}, "signatures": [], "layouts": []"#;
        let plan = serde_json::from_str(&format!("{{{identity}, {plan}}}")).unwrap();
        let oracle = Comparison { compared: 77, differences: vec![] };
        Reading { megabytes: 49.2, plan, oracle, milliseconds: 38.4, peak_mib: 70.6 }
    }

    fn cells(plan: &str) -> Vec<String> {
        row(&scheduler(), Ok(reading(plan)))
    }

    #[test]
    fn a_row_counts_the_sites() {
        let plan = r#""complete": true, "missing": [], "sites": [{"class": "emulated"}, {"class": "single-stepped"}]"#;
        let expected =
            ["1.36.4", "go1.26.8", "stripped", "49", "2", "1", "38", "71", "-", "77, 0 differ", "complete"];
        assert_eq!(cells(plan), expected);
    }

    #[test]
    fn a_row_names_what_is_missing_and_how_far_dwarf_agrees() {
        let plan = r#""complete": false, "missing": [{"function": "bind"}, {"function": "pop"}], "sites": [],
            "dwarf": {"compared": 40, "disagreements": 1}"#;
        assert_eq!(cells(plan)[8..], ["40, 1 differ", "77, 0 differ", "without bind, pop"]);
    }

    #[test]
    fn a_row_of_an_error_is_its_first_line() {
        let cells = row(&scheduler(), Err(anyhow!("the first line\nand more")));
        assert_eq!(cells.len(), COLUMNS.len());
        assert_eq!(cells[2..4], ["stripped", "-"]);
        assert_eq!(cells.last().unwrap(), "the first line");
    }

    #[test]
    fn a_plan_passes_only_if_neither_dwarf_nor_the_oracle_contradicts_it() {
        let reading = |dwarf: &str| {
            reading(&format!(r#""complete": true, "missing": [], "sites": [], "dwarf": {dwarf}"#))
        };
        assert!(reading("null").passes() && reading(r#"{"compared": 40, "disagreements": 0}"#).passes());
        assert!(!reading(r#"{"compared": 40, "disagreements": 1}"#).passes());
        assert!(!reading(r#"{"compared": 0, "disagreements": 0}"#).passes());
        let differs = Comparison { compared: 77, differences: vec!["one".to_owned()] };
        assert!(!Reading { oracle: differs, ..reading("null") }.passes());
    }
}
