//! A report as one self-contained HTML page.

use std::fmt::Write as _;

use super::{Clock, Pair, Quantiles, Report, Row, table::signed};

/// Bins of a distribution: four per decade, from 100 ns to 10 ms, and one on each side.
const PER_DECADE: f64 = 4.0;
const FIRST_EDGE: f64 = 100.0;
const BINS: usize = 22;
/// Pixels.
const BIN: f64 = 11.0;
const HEIGHT: f64 = 42.0;
const PAIR_WIDTH: f64 = 760.0;

const HEAD: &str = r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>schedspan compare</title><style>
:root{--ink:#1f2328;--soft:#656d76;--line:#d0d7de;--paper:#fff;--a:#9ec5fe;--b:#0b5ed7;--bad:#cf222e}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#8d96a0;--line:#30363d;--paper:#0d1117;--a:#1f4a80;--b:#79b8ff;--bad:#ff7b72}}
body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2em auto;max-width:1180px;padding:0 1em}
h1{font-size:22px;margin:0}h2{font-size:16px;margin:2em 0 .5em}p{color:var(--soft);margin:.4em 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:3px 8px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:500}th:first-child,td:first-child{text-align:left}
.bad{color:var(--bad);font-weight:600}svg{display:block}text{fill:var(--soft);font-size:10px}
small{color:var(--soft);font-size:11px}.times td,.times th{text-align:left;padding:3px 6px}.pair{margin:0 0 1.1em}.pair b{font-weight:600}
.a{fill:var(--a)}.b{fill:var(--b)}.out{fill:var(--bad)}.axis{stroke:var(--line)}
</style></head><body>
"#;

/// The page.
#[must_use]
pub fn page(report: &Report, [a, b]: [&str; 2], failures: &[String]) -> String {
    let mut page = HEAD.to_owned();
    let clock = match report.clock {
        Clock::Monotonic => "Times by CLOCK_MONOTONIC.".to_owned(),
        Clock::Wall { offset } => format!("Times by the wall clock, less a constant {}.", signed(offset)),
    };
    let _ = write!(
        page,
        "<h1>{} twins</h1><p><b>A</b> {}: {} spans of {} attempts. <b>B</b> {}: {} spans of {} attempts. {clock}</p>",
        report.all.twins,
        escape(a),
        report.a.spans,
        report.a.attempts,
        escape(b),
        report.b.spans,
        report.b.attempts,
    );
    for failure in failures {
        let _ = write!(page, "<p class=bad>{}</p>", escape(failure));
    }
    page += "<h2>Which spans have a twin, and where twins differ</h2><table><tr><th>span<th>twins<th>not in A<th>not in B\
             <th>parents<th>status<th>attributes<th>outside";
    let rows = || {
        [("all", &report.all)].into_iter().chain(report.kinds.iter().map(|(kind, row)| (kind.as_str(), row)))
    };
    for (kind, row) in rows() {
        let _ = write!(page, "<tr><td>{}<td>{}", escape(kind), row.twins);
        for count in [
            row.missing_in_a,
            row.missing_in_b,
            row.parents_differ,
            row.status_differs,
            row.attributes_differ,
            row.outside,
        ] {
            let class = if count > 0 { " class=bad" } else { "" };
            let _ = write!(page, "<td{class}>{count}");
        }
    }
    page += "</table><h2>How much later B begins, how much earlier it ends, how much shorter it is</h2>\
             <p>Logarithmic, from 100 ns to 10 ms; red is what is below zero, outside of A.</p>\
             <table class=times><tr><th>span<th>begins later<th>ends earlier<th>is shorter";
    for (kind, Row { start, end, duration, .. }) in rows() {
        let _ = write!(page, "<tr><td>{}", escape(kind));
        for (index, Quantiles { p50, p90, p99, max, .. }) in [start, end, duration].into_iter().enumerate() {
            let [p50, p90, p99, max] = [p50, p90, p99, max].map(|ns| signed(*ns));
            let lists = report.differences.get(kind).filter(|lists| !lists[index].is_empty());
            let drawn = lists.map(|lists| distribution(&lists[index])).unwrap_or_default();
            let _ = write!(page, "<td>{drawn}<small>p50 {p50}, p90 {p90}, p99 {p99}, max {max}</small>");
        }
    }
    page += "</table><h2>The pairs that differ most</h2><p><svg width=300 height=12><rect class=a width=24 height=12></rect>\
             <text x=30 y=10>A</text><rect class=b x=60 y=3 width=24 height=6></rect><text x=90 y=10>B</text></svg></p>";
    report.worst.iter().for_each(|worst| page += &pair(worst));
    page + "</body></html>\n"
}

/// The bin of a difference: below zero, up to 100 ns, ..., above 10 ms.
fn bin(ns: i64) -> usize {
    let ns = ns as f64;
    if ns < 0.0 {
        return 0;
    }
    // A number below zero becomes zero.
    let bin = ((ns.max(1.0) / FIRST_EDGE).log10() * PER_DECADE).floor() + 1.0;
    1 + (bin as usize).min(BINS - 2)
}

fn distribution(list: &[i64]) -> String {
    let mut bins = [0_u32; BINS];
    list.iter().for_each(|ns| bins[bin(*ns)] += 1);
    let highest = bins.iter().copied().max().unwrap_or_default().max(1);
    let width = BINS as f64 * BIN;
    let mut svg = format!("<svg width={width} height={}>", HEIGHT + 14.0);
    for (index, count) in bins.iter().enumerate().filter(|(_, count)| **count > 0) {
        let height = (f64::from(*count) / f64::from(highest) * HEIGHT).max(1.0);
        let class = if index == 0 { "out" } else { "b" };
        let _ = write!(
            svg,
            "<rect class={class} x={:.1} y={:.1} width={:.1} height={height:.1}><title>{count}</title></rect>",
            index as f64 * BIN,
            HEIGHT - height,
            BIN - 1.0
        );
    }
    let _ = write!(svg, "<line class=axis x1=0 x2={width} y1={HEIGHT} y2={HEIGHT} />");
    for (decade, label) in ["100ns", "1us", "10us", "100us", "1ms"].iter().enumerate() {
        let x = (2.0 + decade as f64 * PER_DECADE) * BIN;
        let _ = write!(svg, "<text x={x} y={}>{label}</text>", HEIGHT + 11.0);
    }
    svg + "</svg>"
}

/// Two intervals, one over the other.
fn pair(Pair { kind, pod, attempt, a, b }: &Pair) -> String {
    let (first, last) = (a[0].min(b[0]), a[1].max(b[1]));
    let scale = PAIR_WIDTH / (last.saturating_sub(first).max(1) as f64);
    let bar = |class: &str, [start, end]: &[i64; 2], y: u32, height: u32| {
        let (x, width) =
            (start.saturating_sub(first) as f64 * scale, end.saturating_sub(*start) as f64 * scale);
        format!("<rect class={class} x={x:.2} y={y} width={:.2} height={height}></rect>", width.max(0.5))
    };
    let long = |times: &[i64; 2]| signed(times[1].saturating_sub(times[0]));
    format!(
        "<div class=pair><b>{}</b>: {} and {}; B begins {} later and ends {} earlier <span style=\"color:var(--soft)\">attempt {} of Pod {}</span>\
         <svg width={PAIR_WIDTH} height=22>{}{}</svg></div>",
        escape(kind),
        long(a),
        long(b),
        signed(b[0].saturating_sub(a[0])),
        signed(a[1].saturating_sub(b[1])),
        escape(attempt),
        escape(pod),
        bar("a", a, 1, 20),
        bar("b", b, 6, 10),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
