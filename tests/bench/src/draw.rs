//! Draws the result: a bar for each way, the daemon's part after the scheduler's.

use std::fmt::Write as _;

use crate::report::{Cost, Report, Spread};

/// Pixels.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 140.0;
const RIGHT: f64 = 150.0;
const BAR: f64 = 22.0;
const ROW: f64 = 38.0;
const PANEL: f64 = 44.0;

const INK: &str = "#1f2328";
const SOFT: &str = "#656d76";
const SCHEDULER: &str = "#0b5ed7";
const DAEMON: &str = "#9ec5fe";

/// A panel: its title, the scheduler's part, the daemon's, both, and the unit.
type Panel =
    (&'static str, fn(&Cost) -> &Spread, fn(&Cost) -> Option<&Spread>, fn(&Cost) -> &Spread, &'static str);

const PANELS: [Panel; 3] = [
    (
        "CPU time per Pod: scheduler, and schedspan beside it",
        |cost| &cost.scheduler_cpu_ms_per_pod,
        |cost| cost.daemon_cpu_ms_per_pod.as_ref(),
        |cost| &cost.cpu_ms_per_pod,
        "ms",
    ),
    (
        "Memory: scheduler, and schedspan beside it",
        |cost| &cost.scheduler_resident_mib,
        |cost| cost.daemon_resident_mib.as_ref(),
        |cost| &cost.resident_mib,
        "MiB",
    ),
    (
        "A scheduling attempt, 99th percentile",
        |cost| &cost.attempt_p99_ms,
        |_| None,
        |cost| &cost.attempt_p99_ms,
        "ms",
    ),
];

/// Draws the picture as SVG.
pub(super) fn draw(report: &Report) -> String {
    let Report { nodes, pods, pace, rounds, ways, .. } = report;
    let panel = PANEL + ways.len() as f64 * ROW;
    let height = PANELS.len() as f64 * panel + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#ffffff\"/>\n"
    );
    for (number, (title, scheduler, daemon, both, unit)) in PANELS.iter().enumerate() {
        let top = number as f64 * panel + 28.0;
        let _ =
            writeln!(svg, "<text x=\"16\" y=\"{top:.1}\" fill=\"{INK}\" font-weight=\"600\">{title}</text>");
        let largest = ways.iter().map(|cost| both(cost).max).fold(f64::MIN_POSITIVE, f64::max);
        let scale = (WIDTH - LEFT - RIGHT) / largest;
        for (row, cost) in ways.iter().enumerate() {
            let y = top + 14.0 + row as f64 * ROW;
            let (own, all) = (scheduler(cost).median, both(cost));
            let mut x = LEFT;
            for (value, colour) in
                [(own, SCHEDULER), (daemon(cost).map_or(0.0, |spread| spread.median), DAEMON)]
            {
                let width = value * scale;
                if width > 0.0 {
                    let _ = writeln!(
                        svg,
                        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>"
                    );
                }
                x += width;
            }
            let (low, high, middle) = (LEFT + all.min * scale, LEFT + all.max * scale, y + BAR / 2.0);
            let _ = writeln!(
                svg,
                "<path d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v8M{high:.1} {:.1}v8\" stroke=\"{INK}\" fill=\"none\"/>",
                middle - 4.0,
                middle - 4.0
            );
            let baseline = y + BAR / 2.0 + 4.5;
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{baseline:.1}\" fill=\"{INK}\" text-anchor=\"end\">{}</text>",
                LEFT - 10.0,
                cost.way
            );
            let ratio = match number {
                0 if row > 0 => format!(", {:.2} times", cost.steadied_cpu_ratio.mean),
                _ => String::new(),
            };
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{baseline:.1}\" fill=\"{INK}\">{} {unit}{ratio}</text>",
                high.max(x) + 10.0,
                three_digits(all.median)
            );
        }
    }
    let _ = writeln!(
        svg,
        "<text x=\"16\" y=\"{:.1}\" fill=\"{SOFT}\" font-size=\"11\">{nodes} Nodes, {pods} Pods a round at {pace} a second; \
         medians of {rounds} rounds in turns, lowest to highest; times as etcd counts</text>",
        height - 14.0
    );
    svg + "</svg>\n"
}

fn three_digits(value: f64) -> String {
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$}")
}
