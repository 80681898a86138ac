//! `cargo xtask matrix schedulers`: runs `schedspan inspect` on each scheduler, and measures it.

use std::{
    fs,
    ops::Range,
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

/// The page, from the root of the repository.
const FILE: &str = "docs/schedulers.md";

/// The text above the Markdown table.
const PAGE: &str = "\
# Schedulers that schedspan reads

Made by `cargo xtask matrix schedulers --store`, which builds each of these schedulers and lets `schedspan inspect` read it five times. Without
`--store` it fails where this page says something else. MB is the size of the file, ms the least of the times, and MiB the peak of resident
memory. DWARF is how many fields and functions were compared with the file's own debug information. Oracle is how many registers and offsets
were compared with values that are known from the source and from debuggers.
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

/// The columns that name a row, which no two rows have in common.
const NAME: Range<usize> = 0..3;
/// The columns that a busy machine changes: a row may differ from the page in these.
const MEASURED: [&str; 3] = ["MB", "ms", "MiB"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How to print the rows
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Write docs/schedulers.md, and the number of schedulers into docs/figures.tsv; of those that are named, their rows alone
    #[arg(long, conflicts_with_all = ["output", "few"])]
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
    let rows = read_all(output, &schedulers)?;
    let file = paths::repository().join(FILE);
    let stored = stored(&fs::read_to_string(&file).with_context(|| format!("cannot read `{FILE}`"))?);
    if !store {
        let differing: Vec<_> = rows.iter().filter_map(|row| difference(row, &stored)).collect();
        ensure!(
            differing.is_empty(),
            "{FILE} is not current: `cargo xtask matrix schedulers --store` writes it:\n{}",
            differing.join("\n")
        );
        return Ok(());
    }
    let rows = if names.is_empty() { rows } else { replaced(stored, rows) };
    fs::write(&file, page(&rows)).with_context(|| format!("cannot write `{FILE}`"))?;
    facts::store(&[("schedulers.builds", rows.len().to_string())])
}

/// The whole page with these rows.
fn page(rows: &[Vec<String>]) -> String {
    let heading = [headings(Output::Markdown), format!("|{}", "---|".repeat(COLUMNS.len()))];
    let lines = heading.into_iter().chain(rows.iter().map(|row| line(Output::Markdown, row)));
    lines.fold(format!("{PAGE}\n"), |page, line| page + &line + "\n")
}

/// The rows of a page.
fn stored(page: &str) -> Vec<Vec<String>> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.skip(1).map(|row| row.split(" | ").map(str::to_owned).collect()).collect()
}

/// How a row differs from that of the page, apart from what is measured.
fn difference(row: &[String], stored: &[Vec<String>]) -> Option<String> {
    let name = row[NAME].join(" ");
    let Some(stored) = stored.iter().find(|stored| stored.get(NAME) == Some(&row[NAME])) else {
        return Some(format!("{name}: no row"));
    };
    let mut cells = COLUMNS.iter().zip(row.iter().zip(stored));
    let ((column, _), (found, stated)) =
        cells.find(|((column, _), (found, stated))| !MEASURED.contains(column) && found != stated)?;
    Some(format!("{name}: {column} is `{found}`, not `{stated}`"))
}

/// The stored rows with the new ones in their places, and those that have none at the end.
fn replaced(mut stored: Vec<Vec<String>>, rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    for row in rows {
        match stored.iter_mut().find(|stored| stored.get(NAME) == Some(&row[NAME])) {
            Some(place) => *place = row,
            None => stored.push(row),
        }
    }
    stored
}

/// Reads each and prints a row about it. Returns the rows.
///
/// # Errors
///
/// If one cannot be traced completely.
fn read_all(output: Output, schedulers: &[Scheduler]) -> Result<Vec<Vec<String>>> {
    let schedspan = path::absolute(build::build()?)?;
    // Builds must not run beside the measurements.
    let build = |Scheduler { name, component, .. }: &Scheduler| {
        component.executable().with_context(|| format!("cannot build {name}"))
    };
    let executables: Vec<_> = schedulers.iter().map(build).collect::<Result<_>>()?;

    match output {
        Output::Table => println!("{}", headings(output)),
        Output::Markdown => print!("{}", page(&[])),
    }
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for (scheduler, executable) in schedulers.iter().zip(&executables) {
        let reading = read(&schedspan, executable);
        for difference in reading.iter().flat_map(|reading| &reading.oracle.differences) {
            eprintln!("differs  {}: {difference}", scheduler.name);
        }
        if !reading.as_ref().is_ok_and(Reading::passes) {
            failed.push(scheduler.name.as_str());
        }
        let row = row(scheduler, reading);
        println!("{}", line(output, &row));
        rows.push(row);
    }
    ensure!(failed.is_empty(), "cannot be traced completely: {}", failed.join(", "));
    Ok(rows)
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
    // Other load on the machine only adds to a time.
    readings.sort_by(|one, other| one.milliseconds.total_cmp(&other.milliseconds));
    let quickest = &readings[0];
    let plan: Plan = serde_json::from_str(&quickest.stdout).context("`schedspan inspect` printed no plan")?;
    let Identity { kubernetes_version, machine } = &plan.identity;
    let version = kubernetes_version.as_deref().context("its version of Kubernetes is not known")?;
    Ok(Reading {
        megabytes: fs::metadata(file)?.len() as f64 / 1e6,
        oracle: oracle::compare(version, machine, &plan.signatures, &plan.layouts)?,
        plan,
        milliseconds: quickest.milliseconds,
        peak_mib: readings.iter().map(|reading| reading.peak_mib).fold(0.0, f64::max),
    })
}

/// What the first cell of a row says: the version, after the name of another project.
fn title(Component { name, version, .. }: &Component) -> String {
    if *name == SCHEDULER.name { (*version).to_owned() } else { format!("{name} {version}") }
}

/// The cells of a row.
fn row(Scheduler { go, component, .. }: &Scheduler, reading: Result<Reading>) -> Vec<String> {
    let mut cells = vec![title(component), go.clone(), component.kind.name.to_owned()];
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

fn headings(output: Output) -> String {
    line(output, &COLUMNS.map(|(heading, _)| heading.to_owned()))
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

    fn rows() -> Vec<Vec<String>> {
        let row = |version: &str, sites: &str| {
            let mut row = cells(r#""complete": true, "missing": [], "sites": []"#);
            (row[0], row[4]) = (version.to_owned(), sites.to_owned());
            row
        };
        vec![row("1.29.15", "76"), row("1.36.4", "116")]
    }

    #[test]
    fn a_page_has_its_rows_and_a_row_may_differ_from_it_in_what_is_measured() {
        let (all, stored) = (rows(), stored(&page(&rows())));
        assert_eq!(stored, all);
        let mut row = all[1].clone();
        row[6] = "1000".to_owned();
        assert_eq!(difference(&row, &stored), None);
        row[4] = "117".to_owned();
        let expected = "1.36.4 go1.26.8 stripped: sites is `117`, not `116`";
        assert_eq!(difference(&row, &stored).as_deref(), Some(expected));
        row[2] = "pie".to_owned();
        assert_eq!(difference(&row, &stored).as_deref(), Some("1.36.4 go1.26.8 pie: no row"));
    }

    #[test]
    fn a_new_row_takes_the_place_of_the_old_one() {
        let mut row = rows().remove(0);
        row[4] = "77".to_owned();
        let mut other = row.clone();
        other[2] = "pie".to_owned();
        let after = replaced(rows(), vec![row.clone(), other.clone()]);
        assert_eq!(after, [row, rows().remove(1), other]);
    }

    /// What a plan's text counts: its lines of sites.
    fn sites(plan: &str) -> (usize, usize) {
        let of = |end: &str| plan.lines().filter(|line| line.contains(end)).count();
        let (emulated, single_stepped) = (of(") Emulated in "), of(") SingleStepped in "));
        (emulated + single_stepped, single_stepped)
    }

    /// `tests/plans` are compared with the executables by the test `plans`.
    #[test]
    fn the_page_in_the_tree_has_all_schedulers_and_the_sites_of_the_stored_plans() {
        let stored = stored(&fs::read_to_string(paths::repository().join(FILE)).unwrap());
        let names: Vec<_> = stored.iter().map(|row| (row[0].clone(), row[2].as_str())).collect();
        let all = schedulers::ALL.iter().map(|component| (title(component), component.kind.name));
        assert_eq!(names, all.collect::<Vec<_>>());
        let mut compared = 0;
        for row in &stored {
            let name = row[NAME].join("-").replace(' ', "-");
            let name = name.trim_end_matches("-stripped");
            let plan = paths::repository().join("tests/plans").join(format!("{name}.txt"));
            let Ok(plan) = fs::read_to_string(plan) else { continue };
            let (all, single_stepped) = sites(&plan);
            let stated = (row[4].parse().unwrap(), row[5].parse().unwrap());
            assert_eq!(stated, (all, single_stepped), "`cargo xtask matrix schedulers --store {name}`");
            compared += 1;
        }
        assert!(compared >= 6, "{compared}");
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
