//! Draws the result: for each way a dot for the ratio to the untraced scheduler, with its interval.

use std::fmt::Write as _;

use harness::cost::{Costs, Mean};

use crate::report::Report;

/// Pixels.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 165.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 74.0;
const LINE: f64 = 24.0;
const GAP: f64 = 14.0;
const BOTTOM: f64 = 66.0;
/// The distance of marks on the axis.
const STEP: f64 = 0.05;
/// Standard errors on either side of the mean: an interval of 95 %.
const INTERVAL: f64 = 1.96;

/// Colours: in light and in dark. A browser takes those of its own theme.
const STYLE: &str = "<style>.ground{fill:#ffffff;stroke:#d0d7de}.ink{fill:#1f2328}.soft{fill:#59636e}.grid{stroke:#e6e9ed}.one{stroke:#59636e}\
     .scheduler{fill:#0969da;stroke:#0969da}.both{fill:#bc4c00;stroke:#bc4c00}\
     @media(prefers-color-scheme:dark){.ground{fill:#0d1117;stroke:#30363d}.ink{fill:#e6edf3}.soft{fill:#9198a1}.grid{stroke:#21262d}.one{stroke:#9198a1}\
     .scheduler{fill:#58a6ff;stroke:#58a6ff}.both{fill:#f0883e;stroke:#f0883e}}</style>";

/// What the picture shows.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) rows: Vec<Row>,
    /// How it was measured, in one line.
    pub(super) measured: String,
}

/// A way to trace, and the ratios of CPU time to that of the untraced scheduler.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) way: String,
    pub(super) scheduler: Ratio,
    /// With the CPU time of schedspan itself.
    pub(super) both: Option<Ratio>,
}

/// A mean and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    pub(super) mean: f64,
    pub(super) error: f64,
}

impl Figures {
    /// Those of a benchmark, in etcd's time.
    pub(super) fn of(report: &Report) -> Self {
        let Report { nodes, pace, costs: Costs { pods, rounds, ways, .. }, .. } = report;
        let ratio = |Mean { mean, standard_error }: &Mean| {
            let error = mean * standard_error.unwrap_or_default();
            Ratio { mean: *mean, error }
        };
        let rows = ways.iter().skip(1).map(|cost| Row {
            way: cost.way.clone(),
            scheduler: ratio(&cost.program_cpu_ratio.in_etcds_time),
            both: cost.daemon_cpu_ms_per_pod.as_ref().map(|_| ratio(&cost.cpu_ratio.in_etcds_time)),
        });
        let measured =
            format!("{nodes} Nodes; {rounds} rounds in turns, {pods} Pods each at {pace} a second");
        Self { rows: rows.collect(), measured }
    }
}

/// Draws the picture as SVG.
pub(super) fn draw(Figures { rows, measured }: &Figures) -> String {
    let ratios = || rows.iter().flat_map(|row| [Some(row.scheduler), row.both]).flatten();
    let ends = |sign: f64| ratios().map(move |Ratio { mean, error }| mean + sign * INTERVAL * error);
    let low = (ends(-1.0).fold(1.0, f64::min) / STEP).floor();
    let high = (ends(1.0).fold(1.0, f64::max) / STEP).ceil();
    let place = |ratio: f64| LEFT + (ratio / STEP - low) / (high - low).max(1.0) * (WIDTH - LEFT - RIGHT);
    let lines = ratios().count() as f64;
    let body = lines * LINE + rows.len() as f64 * GAP;
    let height = TOP + body + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif\" font-size=\"13\">\n{STYLE}\n\
         <rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
        WIDTH - 1.0,
        height - 1.0
    );
    let mut text = |x: f64, y: f64, attributes: &str, text: &str| {
        let _infallible = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{text}</text>");
    };
    text(
        18.0,
        28.0,
        "class=\"ink\" font-weight=\"600\" font-size=\"15\"",
        "CPU time per Pod, relative to the untraced scheduler",
    );
    text(36.0, 51.0, "class=\"ink\"", "the scheduler");
    text(156.0, 51.0, "class=\"ink\"", "scheduler and schedspan together");
    text(
        18.0,
        height - 16.0,
        "class=\"soft\" font-size=\"12\"",
        &format!("{measured}. Means and their 95 % intervals, in etcd's time."),
    );
    let mut shape = String::new();
    let _infallible = writeln!(
        shape,
        "<circle class=\"scheduler\" cx=\"24\" cy=\"46.5\" r=\"5\"/>\n<circle class=\"both\" cx=\"144\" cy=\"46.5\" r=\"5\"/>"
    );
    for mark in low as i64..=high as i64 {
        let ratio = mark as f64 * STEP;
        let x = place(ratio);
        let class = if (ratio - 1.0).abs() < STEP / 2.0 { "one" } else { "grid" };
        let _infallible = writeln!(
            shape,
            "<path class=\"{class}\" d=\"M{x:.1} {:.1}V{:.1}\"/>\n<text x=\"{x:.1}\" y=\"{:.1}\" class=\"soft\" font-size=\"12\" text-anchor=\"middle\">{ratio:.2}</text>",
            TOP - 8.0,
            TOP + body,
            TOP + body + 16.0
        );
    }
    let mut y = TOP + GAP / 2.0;
    for Row { way, scheduler, both } in rows {
        let ratios: Vec<_> = [("scheduler", Some(*scheduler)), ("both", *both)]
            .into_iter()
            .filter_map(|(class, ratio)| Some((class, ratio?)))
            .collect();
        let middle = y + ratios.len() as f64 * LINE / 2.0 + 4.5;
        let _infallible = writeln!(
            shape,
            "<text x=\"{:.1}\" y=\"{middle:.1}\" class=\"ink\" text-anchor=\"end\">{way}</text>",
            LEFT - 14.0
        );
        for (class, Ratio { mean, error }) in ratios {
            let centre = y + LINE / 2.0;
            let (from, to) = (mean - INTERVAL * error, mean + INTERVAL * error);
            let _infallible = writeln!(
                shape,
                "<path class=\"{class}\" stroke-width=\"2\" d=\"M{:.1} {centre:.1}H{:.1}\"/>\n<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{centre:.1}\" r=\"5\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" class=\"ink\">{mean:.2}<tspan class=\"soft\">  ({from:.2} to {to:.2})</tspan></text>",
                place(from),
                place(to),
                place(mean),
                WIDTH - RIGHT + 16.0,
                centre + 4.5
            );
            y += LINE;
        }
        y += GAP;
    }
    svg + &shape + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use xtask::paths;

    use super::*;

    /// The cells of the line of a table that begins with this.
    fn cells<'a>(page: &'a str, line: &str) -> Vec<&'a str> {
        let found = page.lines().find(|found| found.starts_with(line)).expect("the page has this line");
        found.trim_matches('|').split('|').skip(1).map(str::trim).collect()
    }

    fn ratio(cell: &str) -> Ratio {
        let (mean, error) = cell.split_once(" ± ").expect("a ratio has an error");
        Ratio { mean: mean.parse().expect("it is a number"), error: error.parse().expect("it is a number") }
    }

    /// The picture agrees with the tables beside it: it is drawn from them. `UPDATE_DOCS=1` writes it.
    #[test]
    fn the_picture_shows_the_figures_of_its_page() {
        let docs = paths::repository().join("docs");
        let page = fs::read_to_string(docs.join("performance.md")).expect("the page is in the tree");
        let (_, less) = page.split_once("## What less detail saves").expect("there is such a part");
        // The second column is that of 1,000 Nodes. The first of such lines is the one of the in-process spans.
        let inside = ratio(cells(&page, "| ... in etcd's time |")[1]);
        let levels = cells(less, "| `--detail` |");
        let of = |line| cells(less, line).into_iter().map(ratio);
        let schedspan = levels
            .into_iter()
            .zip(of("| to untraced, the scheduler |").zip(of("| to untraced, scheduler and daemon |")));
        let mut rows = vec![Row { way: "OpenTelemetry SDK".to_owned(), scheduler: inside, both: None }];
        rows.extend(schedspan.map(|(level, (scheduler, both))| Row {
            way: format!("schedspan, {}", level.trim_matches('`')),
            scheduler,
            both: Some(both),
        }));
        let rounds = cells(&page, "| rounds of each way, 150 Pods each |")[1];
        let measured = format!("1000 Nodes; {rounds} rounds in turns, 150 Pods each at 50 a second");
        let made = draw(&Figures { rows, measured });
        let file = docs.join("cost.svg");
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&file, &made).expect("the file can be written");
        }
        let stored = fs::read_to_string(file).expect("the picture is in the tree");
        assert!(stored == made, "docs/cost.svg differs from docs/performance.md; UPDATE_DOCS=1 writes it");
    }
}
