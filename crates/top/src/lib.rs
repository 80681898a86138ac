//! Rendering of `schedspan top`, from figures to a screen.
//!
//! Pure: no terminal, no network.

#![forbid(unsafe_code)]

pub mod keys;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use kube_scheduler::{
    last_minute::{LastMinute, Overhead, Slow, Timing},
    terms::TermCost,
    waits::Wait,
};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Paragraph, Row, Table, Widget},
};
use spans::{figures::duration, names::ROOT, text::clean};

use self::{
    Column::{Figure, Rest, Words},
    keys::{HELP, Keys, Page},
};

/// Minimum rows of the slowest Pods, including their heading.
const SLOWEST: u16 = 6;
/// Most rows of terms: there are hardly more kinds.
const TERMS: usize = 16;
/// Most rows of terms on a screen of less than [`HIGH`] rows.
const FEW_TERMS: usize = 2;
/// Rows of waits elsewhere; on a screen of less than [`HIGH`] rows as few as of terms.
const WAITS: usize = 8;
/// Rows of a screen with room for all terms.
const HIGH: u16 = 40;
/// Minimum width for additional columns.
const WIDE: u16 = 120;
/// Rows of text at most: a daemon's tables have some hundred.
const MAX_ROWS: u16 = 2_000;
const WIDE_COLUMNS: [Column; 6] = [Rest, Figure(7), Figure(7), Figure(8), Figure(8), Figure(8)];
const HEADING: Style = Style::new().add_modifier(Modifier::BOLD);
const LABEL: Style = Style::new().fg(Color::Cyan);
const BAD: Style = Style::new().fg(Color::Red);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

/// Order of phases and plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By the total time of all calls.
    #[default]
    Time,
    /// By the 99th percentile.
    P99,
    /// By the number of calls.
    Calls,
    /// By name.
    Name,
}

impl Sort {
    const ALL: [(Self, char, &'static str); 4] = [
        (Self::Time, 't', "time"),
        (Self::P99, 'p', "p99"),
        (Self::Calls, 'c', "calls"),
        (Self::Name, 'n', "name"),
    ];

    /// The order that a key selects.
    #[must_use]
    pub fn of_key(key: char) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, _)| *known == key).map(|(sort, ..)| *sort)
    }

    /// The next order, in a cycle.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|(sort, ..)| *sort == self).unwrap_or_default();
        Self::ALL[(at + 1) % Self::ALL.len()].0
    }

    fn sort(self, timings: &mut [Timing]) {
        timings.sort_by_cached_key(|timing| {
            let figure = match self {
                Self::Time => timing.total_ns,
                Self::P99 => timing.p99_ns,
                Self::Calls => timing.count,
                Self::Name => 0,
            };
            (Reverse(figure), timing.name.clone(), timing.extension_point.clone())
        });
    }
}

/// The state that is rendered.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The figures; `None` before the first answer.
    pub recent: Option<&'a LastMinute>,
    /// Address of the daemon.
    pub server: &'a str,
    /// Error of the last request, if it failed.
    pub trouble: Option<&'a str>,
    /// What keys have selected.
    pub keys: &'a Keys,
    /// Whether there are keys: the last line says which.
    pub live: bool,
}

impl View<'_> {
    /// Renders all rows as plain text, `width` columns wide.
    #[must_use]
    pub fn text(&self, width: u16) -> String {
        let rows = self.recent.map_or(0, |recent| recent.phases.len().max(recent.plugins.len()));
        let slowest = self.recent.map_or(0, |recent| recent.slowest.len());
        let stalls = self.recent.map_or(0, |recent| recent.stalls.len());
        let terms = self.recent.map_or(0, |recent| recent.terms.len().min(TERMS) + 2);
        let waits = self.recent.map_or(0, |recent| recent.waits.len().min(WAITS) + 2);
        let height =
            u16::try_from(rows + slowest + stalls + terms + waits + 14).unwrap_or(u16::MAX).min(MAX_ROWS);
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        self.render(area, &mut buffer);
        let lines: Vec<String> = (0..height)
            .map(|y| {
                let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
                line.trim_end().to_owned()
            })
            .collect();
        let mut text = lines.join("\n");
        while text.contains("\n\n\n") {
            text = text.replace("\n\n\n", "\n\n");
        }
        text.trim_end().to_owned() + "\n"
    }
}

impl Widget for &View<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let View { recent, server, trouble, keys, live } = self;
        let Keys { sort, filter, typing, selected, page } = keys;
        match page {
            None => {}
            Some(Page::Help) => return Paragraph::new(HELP).render(area, buffer),
            Some(Page::Pod(explained)) => {
                return Paragraph::new(explained.shown()).scroll((explained.top, 0)).render(area, buffer);
            }
        }
        let head = head(*recent, server, *trouble);
        let below = u16::from(*live);
        let most = if *live && area.height < HIGH { FEW_TERMS } else { TERMS };
        let dearest = recent.map_or(&[][..], |recent| &recent.terms[..recent.terms.len().min(most)]);
        let of_terms = if dearest.is_empty() { 0 } else { dearest.len() + 1 };
        let longest =
            recent.map_or(&[][..], |recent| &recent.waits[..recent.waits.len().min(most.min(WAITS))]);
        let of_waits = if longest.is_empty() { 0 } else { longest.len() + 1 };
        let [top, _, middle, _, between, _, elsewhere, _, bottom, footer] = Layout::vertical([
            Constraint::Length(u16::try_from(head.len()).unwrap_or(u16::MAX)),
            Constraint::Length(1),
            Constraint::Fill(3),
            Constraint::Length(1),
            Constraint::Length(u16::try_from(of_terms).unwrap_or(u16::MAX)),
            Constraint::Length(u16::from(of_terms > 0)),
            Constraint::Length(u16::try_from(of_waits).unwrap_or(u16::MAX)),
            Constraint::Length(u16::from(of_waits > 0)),
            Constraint::Min(SLOWEST),
            Constraint::Length(below),
        ])
        .areas(area);
        Paragraph::new(head).render(top, buffer);
        if let Some(recent) = recent {
            let [left, _, right] =
                Layout::horizontal([Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)])
                    .areas(middle);
            phases(recent, *sort, left.width).render(left, buffer);
            plugins(recent, *sort, filter, right.width).render(right, buffer);
            if !dearest.is_empty() {
                terms(dearest, recent.seconds, between.width).render(between, buffer);
            }
            if !longest.is_empty() {
                waits(longest, recent.seconds).render(elsewhere, buffer);
            }
            slowest(&keys::shown(recent, filter), live.then_some(*selected), bottom.width)
                .render(bottom, buffer);
        }
        if *typing || (*live && !filter.is_empty()) {
            let filter = format!(
                "/{}{}",
                clean(filter),
                if *typing { "_   Enter keeps it   Esc shows all" } else { "   Esc shows all" }
            );
            Paragraph::new(filter).render(footer, buffer);
        } else if *live {
            let (_, _, by) = Sort::ALL.iter().find(|(known, ..)| known == sort).unwrap_or(&Sort::ALL[0]);
            let keys = format!("q quit   Enter explain   / filter   s sort, now by {by}   ? all keys");
            Paragraph::new(Line::styled(keys, FAINT)).render(footer, buffer);
        }
    }
}

/// Formats a rate per second.
fn rate(count: u64, seconds: u64) -> String {
    let rate = count as f64 / seconds.max(1) as f64;
    match rate {
        0.0 => "0".to_owned(),
        ..0.095 => format!("{rate:.2}"),
        ..99.95 => format!("{rate:.1}"),
        _ => format!("{rate:.0}"),
    }
}

fn head(recent: Option<&LastMinute>, server: &str, trouble: Option<&str>) -> Vec<Line<'static>> {
    let mut first = vec![Span::styled("schedspan top", HEADING), Span::raw(format!("  {}", clean(server)))];
    let Some(recent) = recent else {
        let trouble = trouble.unwrap_or("waiting for the first figures");
        return vec![Line::from(first), Line::styled(clean(trouble), BAD)];
    };
    let schedulers = if recent.schedulers == 1 { "scheduler" } else { "schedulers" };
    first.push(Span::raw(format!("  {} {schedulers}  last {} s", recent.schedulers, recent.seconds)));
    first.extend(trouble.map(|trouble| Span::styled(format!("  {}", clean(trouble)), BAD)));
    let figures = |label: &'static str, figures: Vec<(String, u64, bool)>| {
        let mut spans = vec![Span::styled(format!("{label:11}"), LABEL)];
        for (name, count, bad) in figures {
            let style = if bad && count > 0 { BAD } else { Style::new() };
            spans.push(Span::styled(format!("  {} {}", clean(&name), rate(count, recent.seconds)), style));
        }
        Line::from(spans)
    };
    let of =
        |name: &str| sum(recent.attempts.iter().filter(|count| count.name == name).map(|count| count.count));
    let attempts = ["Success", "Unschedulable", "Error", "unknown"]
        .map(|name| (name.to_owned(), of(name), name == "Error"));
    let entered =
        |queue: &str| sum(recent.moves.iter().filter(|entry| entry.queue == queue).map(|entry| entry.count));
    let moves = ["active", "backoff", "unschedulable"].map(|queue| (queue.to_owned(), entered(queue), false));
    let mut events: Vec<_> = recent.moves.iter().map(|entry| (entry.count, &entry.event)).collect();
    events.sort_by_key(|(count, event)| (Reverse(*count), *event));
    let events = events.iter().map(|(count, event)| ((*event).clone(), *count, false)).collect();
    let lost: Vec<_> = recent.losses.iter().filter(|loss| loss.count > 0).collect();
    let lost = if lost.is_empty() {
        Span::raw("  nothing since the daemon's start")
    } else {
        let lost: Vec<_> = lost.iter().map(|loss| format!("{} {}", clean(&loss.name), loss.count)).collect();
        Span::styled(format!("  {} since the daemon's start", lost.join("  ")), BAD)
    };
    let waiting: String =
        recent.waiting.iter().map(|count| format!("  {} {}", clean(&count.name), count.count)).collect();
    let mut lines = vec![Line::from(first)];
    lines.extend(recent.stalls.iter().map(|stall| Line::styled(clean(stall), BAD)));
    if !waiting.is_empty() {
        lines.push(Line::from(vec![Span::styled(format!("{:11}", "waiting"), LABEL), Span::raw(waiting)]));
    }
    if let Some(Overhead { ratio, budget, cut }) = &recent.overhead {
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        let is_cut = cut != "nothing";
        let cost = format!("  {} of {} of the CPU time", percent(*ratio), percent(*budget));
        let cut = if is_cut { format!("  cut: {}", clean(cut)) } else { String::new() };
        let label = Span::styled(format!("{:11}", "tracing"), LABEL);
        lines.push(Line::from(vec![label, Span::raw(cost), Span::styled(cut, BAD)]));
    }
    lines.extend([
        figures("attempts/s", attempts.to_vec()),
        figures("queues/s", moves.to_vec()),
        figures("events/s", events),
        Line::from(vec![Span::styled(format!("{:11}", "lost"), LABEL), lost]),
    ]);
    lines
}

/// Width and alignment of a column.
#[derive(Clone, Copy)]
enum Column {
    /// Text, in the remaining width.
    Rest,
    /// Text of this width, left-aligned.
    Words(u16),
    /// Figure of this width, right-aligned.
    Figure(u16),
}

fn table<const N: usize>(
    heading: [&'static str; N],
    columns: [Column; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Table<'static> {
    marked(heading, columns, rows, None)
}

/// A table with a selected row.
fn marked<const N: usize>(
    heading: [&'static str; N],
    columns: [Column; N],
    rows: impl Iterator<Item = [String; N]>,
    selected: Option<usize>,
) -> Table<'static> {
    let align = |cells: [String; N]| {
        let mut columns = columns.iter();
        cells.map(|cell| match columns.next() {
            Some(Figure(width)) => format!("{cell:>width$}", width = usize::from(*width)),
            _ => cell,
        })
    };
    let widths = columns.map(|column| match column {
        Rest => Constraint::Fill(1),
        Words(width) | Figure(width) => Constraint::Length(width),
    });
    let heading = Row::new(align(heading.map(ToOwned::to_owned))).style(HEADING);
    let row = |(number, cells)| {
        let style = if selected == Some(number) { SELECTED } else { Style::new() };
        Row::new(align(cells)).style(style)
    };
    Table::new(rows.enumerate().map(row).collect::<Vec<_>>(), widths).header(heading)
}

/// Total time of all attempts.
fn whole(recent: &LastMinute) -> u64 {
    recent.phases.iter().find(|timing| timing.name == ROOT).map_or(0, |root| root.total_ns)
}

/// Figures are a server's: their sum need not fit.
fn sum(figures: impl Iterator<Item = u64>) -> u64 {
    figures.fold(0, u64::saturating_add)
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}

/// A row of [`WIDE_COLUMNS`].
fn wide(name: String, timing: &Timing, seconds: u64, whole: u64) -> [String; 6] {
    [
        name,
        rate(timing.count, seconds),
        percent(timing.total_ns, whole),
        duration(timing.p50_ns),
        duration(timing.p99_ns),
        duration(timing.max_ns),
    ]
}

fn phases(recent: &LastMinute, sort: Sort, width: u16) -> Table<'static> {
    let mut timings = recent.phases.clone();
    sort.sort(&mut timings);
    let whole = whole(recent);
    let seconds = recent.seconds;
    let rows = timings.into_iter();
    if width * 2 < WIDE {
        let row = |timing: Timing| {
            [
                clean(&timing.name),
                rate(timing.count, seconds),
                duration(timing.p50_ns),
                duration(timing.p99_ns),
            ]
        };
        return table(["PHASE", "/s", "p50", "p99"], [Rest, Figure(5), Figure(7), Figure(7)], rows.map(row));
    }
    let row = |timing: Timing| wide(clean(&timing.name), &timing, seconds, whole);
    table(["PHASE", "/s", "TIME", "p50", "p99", "max"], WIDE_COLUMNS, rows.map(row))
}

fn plugins(recent: &LastMinute, sort: Sort, filter: &str, width: u16) -> Table<'static> {
    let mut timings = recent.plugins.clone();
    timings.retain(|timing| timing.name.contains(filter));
    sort.sort(&mut timings);
    let whole = whole(recent);
    let seconds = recent.seconds;
    let name = |timing: &Timing| format!("{} {}", clean(&timing.name), clean(&timing.extension_point));
    let rows = timings.into_iter();
    if width * 2 < WIDE {
        let row = |timing: Timing| [name(&timing), percent(timing.total_ns, whole), duration(timing.p99_ns)];
        return table(["PLUGIN", "TIME", "p99"], [Rest, Figure(6), Figure(7)], rows.map(row));
    }
    let row = |timing: Timing| wide(name(&timing), &timing, seconds, whole);
    table(["PLUGIN", "/s", "TIME", "p50", "p99", "max"], WIDE_COLUMNS, rows.map(row))
}

/// What attempts of Pods with a term take on average, and those of all others.
fn terms(costs: &[TermCost], seconds: u64, width: u16) -> Table<'static> {
    let wide = width >= WIDE;
    let rows = costs.iter().map(|TermCost { term, with, without, plugin, plugin_ns }| {
        let means = |means: Option<[u64; 2]>| {
            means.map_or_else(|| [(); 2].map(|()| "-".to_owned()), |of| of.map(duration))
        };
        let ([filter, score], [filter_without, score_without]) =
            (means(with.means()), means(without.means()));
        let mut mostly = clean(plugin);
        if wide && !mostly.is_empty() {
            mostly = format!("{mostly} {}", percent(*plugin_ns, with.total_ns()));
        }
        [clean(term), rate(with.attempts, seconds), filter, filter_without, score, score_without, mostly]
    });
    let columns = if wide {
        [Rest, Figure(7), Figure(9), Figure(9), Figure(9), Figure(9), Words(48)]
    } else {
        [Rest, Figure(4), Figure(7), Figure(7), Figure(7), Figure(7), Words(16)]
    };
    table(["PODS WITH", "/s", "FILTER", "WITHOUT", "SCORE", "WITHOUT", "MOSTLY"], columns, rows)
}

/// What takes long outside of schedulers.
fn waits(longest: &[Wait], seconds: u64) -> Table<'static> {
    let rows = longest.iter().map(|wait| {
        let Wait { what, name, count, total_ns: _, max_ns } = wait;
        let name = format!("{} {}", clean(what), clean(name));
        [name, rate(*count, seconds), duration(wait.mean_ns()), duration(*max_ns)]
    });
    table(["WAITS ELSEWHERE", "/s", "mean", "max"], [Rest, Figure(7), Figure(8), Figure(8)], rows)
}

fn slowest(slowest: &[&Slow], selected: Option<usize>, width: u16) -> Table<'static> {
    let last = slowest.len().saturating_sub(1);
    let rows = slowest.iter().map(|slow| {
        let pod = clean(&format!("{}/{}", slow.namespace, slow.pod));
        [pod, duration(slow.duration_ns), clean(&slow.result), clean(&slow.phase), clean(&slow.node)]
    });
    let columns = if width < WIDE {
        [Rest, Figure(7), Words(13), Words(13), Words(12)]
    } else {
        [Rest, Figure(9), Words(14), Words(24), Words(48)]
    };
    let heading = ["SLOWEST POD", "TOOK", "RESULT", "MOSTLY", "NODE"];
    marked(heading, columns, rows, selected.map(|selected| selected.min(last)))
}
