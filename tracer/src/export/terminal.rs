//! Waterfalls: a trace as a person reads it at a glance.

use std::{collections::HashMap, env, fmt::Write as _, io::IsTerminal as _};

use crate::trace::{AttributeValue, Link, Span, Status, Trace, attributes};

/// Columns where nothing says how many there are.
const DEFAULT_WIDTH: usize = 100;
/// Columns below which there is no sense in saving more.
const MIN_WIDTH: usize = 60;
/// Columns of a duration: `1.90 ms`, and a space.
const DURATION: usize = 8;
/// Eighths of a block, from the left.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

const PLAIN: &str = "";
const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const BLUE: &str = "34";
const CYAN: &str = "36";

/// How waterfalls are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns that a line may fill.
    pub width: usize,
    /// Whether to colour.
    pub colour: bool,
}

impl Style {
    /// As suits standard output: as wide as the terminal, or as `COLUMNS` says; in colour on a terminal or
    /// with `CLICOLOR_FORCE`, but never with `NO_COLOR` (<https://no-color.org>,
    /// <https://bixense.com/clicolors>).
    #[must_use]
    pub fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        let columns = rustix::termios::tcgetwinsize(&stdout).ok().map(|size| size.ws_col.into());
        Self::of(columns, stdout.is_terminal(), |name| env::var(name).ok())
    }

    fn of(columns: Option<usize>, terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Self {
        let columns = columns.filter(|columns| *columns > 0);
        let width = columns.or_else(|| variable("COLUMNS")?.parse().ok()).unwrap_or(DEFAULT_WIDTH);
        let set = |name, unset| variable(name).is_some_and(|value| value != unset && !value.is_empty());
        Self {
            width: width.clamp(MIN_WIDTH, 1000),
            colour: (terminal || set("CLICOLOR_FORCE", "0")) && !set("NO_COLOR", ""),
        }
    }

    fn paint(self, colour: &str, text: &str) -> String {
        if self.colour && !colour.is_empty() && !text.is_empty() {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Draws a trace: a head with what became of the Pod, and then a line per span with a bar, to scale over the
/// attempt.
#[must_use]
pub fn waterfall(trace: &Trace, style: &Style) -> String {
    let root = trace.root();
    let mut out = head(trace, *style);
    // The head says the result already.
    let result = root.attribute(attributes::RESULT).map(ToString::to_string);
    if let Status::Error(reason) = &root.status
        && result.as_ref() != Some(reason)
    {
        let words = clean(reason);
        let words: Vec<_> = words.split(' ').map(|word| (PLAIN, word.to_owned())).collect();
        out += &flow("  ", " ", &words, *style);
    }
    let rows = rows(trace);
    let widest = |of: fn(&Row<'_>) -> usize| rows.iter().map(of).max().unwrap_or_default();
    let name_width =
        widest(|row| row.tree.chars().count() + row.span.name.chars().count()).min(style.width / 2);
    let note_width = widest(|row| row.note.chars().count()).min(style.width / 4);
    let notes = if note_width == 0 { 0 } else { note_width + 2 };
    let bar_width = style.width.saturating_sub(name_width + 2 + DURATION + notes).max(1);
    for Row { tree, span, note, colour } in rows {
        let name = cut(&format!("{tree}{}", span.name), name_width);
        let bar = style.paint(colour, &bar(span, root, bar_width));
        let line = format!("{name:name_width$}  {bar}{:>DURATION$}", duration(span.duration_ns()));
        let note =
            style.paint(if span.status == Status::Unset { YELLOW } else { RED }, &cut(&note, note_width));
        let _infallible = writeln!(out, "{}", format!("{line}  {note}").trim_end());
    }
    out
}

fn head(trace: &Trace, style: Style) -> String {
    let root = trace.root();
    let text = |key| root.attribute(key).map(|value| clean(&value.to_string()));
    let pod = [attributes::POD_NAMESPACE, attributes::POD_NAME]
        .map(|key| text(key).unwrap_or_else(|| "?".to_owned()));
    let result = text(attributes::RESULT).unwrap_or_else(|| "unknown".to_owned());
    let colour = match result.as_str() {
        "Success" => GREEN,
        "Unschedulable" => YELLOW,
        _ => RED,
    };
    let mut parts = vec![(BOLD, pod.join("/")), (colour, result)];
    parts.extend(text(attributes::SELECTED_NODE).map(|node| (PLAIN, format!("on {node}"))));
    parts.extend(text(attributes::ATTEMPT).map(|attempt| (PLAIN, format!("attempt {attempt}"))));
    parts.push((PLAIN, duration(root.duration_ns())));
    if let Some(AttributeValue::Double(waited)) = root.attribute(attributes::QUEUE_WAIT_MS) {
        parts.push((PLAIN, format!("queued {}", duration((waited * 1e6) as u64))));
    }
    parts.push((DIM, format!("trace {}", id(trace.trace_id))));
    parts.extend(root.links.iter().map(|Link { context, relation }| {
        (DIM, format!("{} {}", relation.unwrap_or("linked to"), id(context.trace_id)))
    }));
    flow("", "  ", &parts, style)
}

fn id(trace_id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(trace_id))
}

/// Sets parts next to each other, as many on a line as fit; the lines after the first are indented.
fn flow(indent: &str, separator: &str, parts: &[(&str, String)], style: Style) -> String {
    let (mut out, mut column) = (indent.to_owned(), indent.len());
    let mut first = true;
    for (colour, part) in parts {
        let part = cut(part, style.width - 2);
        let length = part.chars().count();
        if !first && column + separator.len() + length > style.width {
            out += "\n  ";
            column = 2;
        } else if !first {
            out += separator;
            column += separator.len();
        }
        out += &style.paint(colour, &part);
        column += length;
        first = false;
    }
    out + "\n"
}

struct Row<'a> {
    tree: String,
    span: &'a Span,
    note: String,
    colour: &'static str,
}

/// The spans as a tree, in the order in which they are drawn.
fn rows(trace: &Trace) -> Vec<Row<'_>> {
    let mut children: HashMap<_, Vec<_>> = HashMap::new();
    for span in &trace.spans[1..] {
        children.entry(span.parent_id).or_default().push(span);
    }
    let mut rows = vec![row(String::new(), trace.root(), BLUE)];
    descend(trace.root(), "", BLUE, &mut children, &mut rows);
    rows
}

fn descend<'a>(
    parent: &Span,
    lead: &str,
    colour: &'static str,
    children: &mut HashMap<Option<[u8; 8]>, Vec<&'a Span>>,
    rows: &mut Vec<Row<'a>>,
) {
    let mut below = children.remove(&Some(parent.span_id)).unwrap_or_default().into_iter().peekable();
    while let Some(span) = below.next() {
        let (mark, further) = if below.peek().is_some() { ("├─ ", "│  ") } else { ("└─ ", "   ") };
        let colour = if span.name == "bindingCycle" { CYAN } else { colour };
        rows.push(row(format!("{lead}{mark}"), span, colour));
        descend(span, &format!("{lead}{further}"), colour, children, rows);
    }
}

fn row<'a>(tree: String, span: &'a Span, colour: &'static str) -> Row<'a> {
    let result = span.attribute(attributes::RESULT).map(|result| clean(&result.to_string()));
    let note = match (&span.status, result) {
        // The root's is in the head.
        _ if span.parent_id.is_none() => String::new(),
        (Status::Error(reason), _) if !reason.is_empty() => clean(reason),
        (_, Some(result)) if result != "Success" => result,
        _ => String::new(),
    };
    let incomplete = span.attribute(attributes::INCOMPLETE) == Some(&AttributeValue::Bool(true));
    let note = if incomplete { format!("incomplete {note}").trim_end().to_owned() } else { note };
    Row { tree, note, colour: if span.status == Status::Unset { colour } else { RED }, span }
}

/// As long as the span is, to an eighth of a column, but at least that, so that nothing is invisible; and
/// from where it starts, to a column, since no character leaves its left side empty.
fn bar(span: &Span, root: &Span, width: usize) -> String {
    let total = u128::from(root.duration_ns().max(1));
    let eighth = |unix_ns: u64| {
        let offset = u128::from(unix_ns.saturating_sub(root.start_unix_ns)).min(total);
        (offset * 8 * width as u128 / total) as usize
    };
    let (start, end) = (eighth(span.start_unix_ns), eighth(span.end_unix_ns));
    let column = ((start + 4) / 8).min(width - 1);
    let length = end.saturating_sub(start).clamp(1, (width - column) * 8);
    let bar = format!("{}{}{}", " ".repeat(column), "█".repeat(length / 8), EIGHTHS[length % 8]);
    format!("{bar:width$}")
}

/// Three digits and a unit.
fn duration(ns: u64) -> String {
    let ns = ns as f64;
    let (scale, unit) = match ns {
        ..999.5 => return format!("{ns} ns"),
        ..999.5e3 => (1e3, "us"),
        ..999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let number = ns / scale;
    let decimals = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
    format!("{number:.decimals$} {unit}")
}

/// Words of the traced process go to a terminal: no control characters, and nothing of unknown width.
fn clean(text: &str) -> String {
    let safe = |c: char| if c.is_whitespace() { ' ' } else { '?' };
    text.chars().map(|c| if c.is_ascii_graphic() { c } else { safe(c) }).collect()
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
