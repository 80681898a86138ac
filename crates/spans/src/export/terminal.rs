//! Waterfalls: traces as text, one line per span.

use std::{borrow::Cow, collections::HashMap, env, fmt::Write as _, io::IsTerminal as _};

use crate::{
    AttributeValue, Cycle, Link, Phase, Relation, Span, SpanKind, Stage, Status, Trace, TraceKind,
    attributes,
    figures::{duration, milliseconds},
    screen,
    text::clean,
};

/// Columns if neither the terminal nor `COLUMNS` gives a number.
const DEFAULT_WIDTH: usize = 100;
/// Fewest columns.
const MIN_WIDTH: usize = 60;
/// Columns of a duration: `1.90 ms`, and a space.
const DURATION: usize = 8;
/// Bars have at least this fraction of the width, as far as names then keep so many columns: those of the longest plugin's in its phase.
const BARS: usize = 3;
const NAMES: usize = 48;
/// Most lines of a message: those of a large cluster can be longer than a screen.
const MESSAGE_LINES: usize = 6;
/// A plugin's unremarkable span that is shorter than this fraction of its attempt has no line of its own.
const SHORT: u64 = 20;
/// Columns between two marks of the time axis, at least.
const TICK: usize = 8;
/// A mark of the time axis: its figure follows.
const MARK: char = '╷';
/// Events of queues that say that the Pod was created.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/scheduler/framework/events.go>
const CREATED: [&str; 3] = ["PodAdd", "UnscheduledPodAdd", "UnschedulablePodAdd"];
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
    /// Whether each plugin has its own line, unremarkable ones too.
    pub plugins: bool,
}

impl Style {
    /// The style of standard output: as wide as the terminal or `COLUMNS`; in colour on a terminal or with `CLICOLOR_FORCE`, but
    /// never with `NO_COLOR` (<https://no-color.org>, <https://bixense.com/clicolors>).
    #[must_use]
    pub fn of_stdout() -> Self {
        let stdout = screen::stdout();
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
            plugins: false,
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

/// Draws a trace: a head with the result, then one line per span with a bar, to scale.
#[must_use]
pub fn waterfall(trace: &Trace, style: &Style) -> String {
    let root = trace.root();
    let mut out = head(trace, *style);
    // The head contains the result already.
    let result = root.attribute(attributes::RESULT).map(ToString::to_string);
    if let Status::Error(reason) = &root.status
        && result.as_ref() != Some(reason)
    {
        out += &message(reason, *style);
    }
    let rows = rows(trace, *style);
    let widest = |of: fn(&Row<'_>) -> usize| rows.iter().map(of).max().unwrap_or_default();
    let note_width = widest(|row| row.note.chars().count()).min(style.width / 4);
    let notes = if note_width == 0 { 0 } else { note_width + 2 };
    let left = style.width.saturating_sub(2 + DURATION + notes);
    let most = left.saturating_sub(style.width / BARS).max(NAMES).min(style.width / 2);
    let name_width = widest(|row| row.tree.chars().count() + row.name.chars().count()).min(most);
    let bar_width = left.saturating_sub(name_width).max(1);
    let axis = style.paint(DIM, axis(root.duration_ns(), bar_width).trim_end());
    let _infallible = writeln!(out, "{}", format!("{:name_width$}  {axis}", "").trim_end());
    for Row { tree, name, times, note, tone, colour } in rows {
        let name = shortened(&name, name_width.saturating_sub(tree.chars().count()));
        let name = cut(&format!("{tree}{name}"), name_width);
        let colour = if tone == Tone::Failed { RED } else { colour };
        let duration_ns = times.iter().map(|(start, end)| end.saturating_sub(*start)).sum();
        let bar = style.paint(colour, &bar(&times, root, bar_width));
        let line = format!("{name:name_width$}  {bar}{:>DURATION$}", duration(duration_ns));
        let note = style.paint(tone.colour(), &cut(&note, note_width));
        let _infallible = writeln!(out, "{}", format!("{line}  {note}").trim_end());
    }
    out
}

fn head(trace: &Trace, style: Style) -> String {
    match trace.kind {
        TraceKind::Attempt
        | TraceKind::GroupAttempt
        | TraceKind::Lifecycle
        | TraceKind::PodStart
        | TraceKind::PodStorage
        | TraceKind::PodCreation
        | TraceKind::PodDeletion
        | TraceKind::PodEviction => pod(trace, style),
        TraceKind::Configuration => configuration(trace.root(), style),
        TraceKind::Reconcile => reconcile(trace, style),
        TraceKind::Command => command(trace, style),
    }
}

/// The head of an attempt or a lifecycle: Pod or group, and result.
fn pod(trace: &Trace, style: Style) -> String {
    let root = trace.root();
    let text = |key| root.attribute(key).map(|value| clean(&value.to_string()));
    let name = text(attributes::POD_NAME).or_else(|| text(attributes::POD_GROUP));
    let name =
        [text(attributes::POD_NAMESPACE), name].map(|name| name.unwrap_or_else(|| "?".to_owned())).join("/");
    let result = text(attributes::RESULT).or_else(|| text(attributes::LIFECYCLE_RESULT));
    let result = result.unwrap_or_else(|| done(trace.kind).unwrap_or("unknown").to_owned());
    let colour = match result.as_str() {
        "Success" | "Ready" | "Running" | "Succeeded" | "created" | "stored" => GREEN,
        "Unschedulable" | "Deleted" | "deleted" | "evicted" => YELLOW,
        _ => RED,
    };
    let mut parts = vec![(BOLD, name), (colour, result)];
    if let (Some(size), Some(bound)) =
        (text(attributes::POD_GROUP_SIZE), text(attributes::POD_GROUP_SCHEDULED))
    {
        let size_is_one = size == "1";
        parts.push((PLAIN, format!("{bound} of {size} pod{} bound", if size_is_one { "" } else { "s" })));
    }
    let node = text(attributes::SELECTED_NODE).or_else(|| text(attributes::NODE));
    parts.extend(node.map(|node| (PLAIN, format!("on {node}"))));
    parts.extend(text(attributes::ATTEMPT).map(|attempt| (PLAIN, format!("attempt {attempt}"))));
    parts.push((PLAIN, duration(root.duration_ns())));
    parts.extend(lifecycle(root).into_iter().map(|part| (PLAIN, part)));
    parts.extend(waits(root).into_iter().chain(nodes(root)).map(|part| (PLAIN, part)));
    parts.extend(Some(asked(root)).filter(|asked| !asked.is_empty()).map(|asked| (PLAIN, asked)));
    parts.push((DIM, format!("trace {}", id(trace.trace_id))));
    parts.extend(links(root));
    flow("", "  ", &parts, style)
}

/// What was done to a Pod, if the trace is about one request.
fn done(kind: TraceKind) -> Option<&'static str> {
    match kind {
        TraceKind::PodStorage => Some("stored"),
        TraceKind::PodCreation => Some("created"),
        TraceKind::PodDeletion => Some("deleted"),
        TraceKind::PodEviction => Some("evicted"),
        TraceKind::Attempt
        | TraceKind::GroupAttempt
        | TraceKind::Configuration
        | TraceKind::Lifecycle
        | TraceKind::Reconcile
        | TraceKind::PodStart
        | TraceKind::Command => None,
    }
}

/// The links of a root.
fn links(root: &Span) -> impl Iterator<Item = (&'static str, String)> {
    root.links.iter().map(|Link { context, relation }| {
        let what = match relation {
            Relation::Cause { .. } => "linked to",
            Relation::PreviousAttempt => "previous attempt",
            Relation::Attempt => "attempt",
            Relation::Configuration => "configuration",
            // What was done is the result.
            Relation::Request(_) => "by",
            Relation::Creator(_) => "created by",
            Relation::Writer(_) => "written by",
            Relation::Pod(_) => "Pod",
        };
        (DIM, format!("{what} {}", id(context.trace_id)))
    })
}

/// The head of a reconcile: key, work queue, and wait; of a controller request, controller and result.
fn reconcile(trace: &Trace, style: Style) -> String {
    let root = trace.root();
    let text = |key| root.attribute(key).map(|value| clean(&value.to_string()));
    let one_of = |keys: [_; 2]| keys.into_iter().find_map(text).unwrap_or_else(|| "?".to_owned());
    let mut parts = vec![
        (BOLD, one_of([attributes::WORKQUEUE_KEY, attributes::CONTROLLER_REQUEST])),
        (PLAIN, one_of([attributes::WORKQUEUE, attributes::CONTROLLER])),
    ];
    let colour = if root.status == Status::Unset { GREEN } else { RED };
    parts.extend(text(attributes::CONTROLLER_RESULT).map(|result| (colour, result)));
    if let Some(AttributeValue::Bool(true)) = root.attribute(attributes::WORKQUEUE_RETRIED) {
        parts.push((YELLOW, "retried".to_owned()));
    }
    parts.push((PLAIN, duration(root.duration_ns())));
    if let Some(AttributeValue::Double(waited)) = root.attribute(attributes::WORKQUEUE_WAIT_MS) {
        parts.push((PLAIN, format!("queued {}", milliseconds(*waited))));
    }
    parts.push((DIM, format!("trace {}", id(trace.trace_id))));
    parts.extend(links(root));
    flow("", "  ", &parts, style)
}

/// The head of a command: its arguments, and how far its Pods are.
fn command(trace: &Trace, style: Style) -> String {
    let root = trace.root();
    let result = root.attribute(attributes::LIFECYCLE_RESULT).map(|value| clean(&value.to_string()));
    let colour = if root.status == Status::Unset { GREEN } else { YELLOW };
    let mut parts = vec![(BOLD, clean(&root.name.as_str()))];
    parts.extend(result.map(|result| (colour, result)));
    parts.push((PLAIN, duration(root.duration_ns())));
    parts.push((DIM, format!("trace {}", id(trace.trace_id))));
    flow("", "  ", &parts, style)
}

/// The head of a configuration: profiles, and what changed.
fn configuration(root: &Span, style: Style) -> String {
    let (colour, change) = match root.attribute(attributes::CONFIG_CHANGED) {
        Some(AttributeValue::Bool(true)) => (YELLOW, "changed"),
        Some(_) => (GREEN, "unchanged"),
        None => (PLAIN, "not seen before"),
    };
    let list = |key| match root.attribute(key) {
        Some(AttributeValue::Strings(lines)) => lines.clone(),
        _ => Vec::new(),
    };
    let mut parts = vec![(BOLD, list(attributes::CONFIG_PROFILES).join(", ")), (colour, change.to_owned())];
    parts.extend(list(attributes::CONFIG_DIFFERENCE).into_iter().map(|line| (PLAIN, line)));
    let parts: Vec<_> = parts.into_iter().map(|(colour, text)| (colour, clean(&text))).collect();
    flow("", "  ", &parts, style)
}

fn id(trace_id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(trace_id))
}

/// Counts of attempts, restarts and volumes in a lifecycle.
fn lifecycle(root: &Span) -> Vec<String> {
    let count = |key, one: &str| match root.attribute(key) {
        Some(AttributeValue::Int(count)) if *count > 0 => Some(counted(*count, one)),
        _ => None,
    };
    let counts = [
        (attributes::LIFECYCLE_ATTEMPTS, "attempt"),
        (attributes::LIFECYCLE_RESTARTS, "restart"),
        (attributes::VOLUMES, "volume"),
    ];
    counts.into_iter().filter_map(|(key, one)| count(key, one)).collect()
}

/// A number of things.
fn counted(count: i64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Time of the Pod in each queue, and the event that ended it.
fn waits(root: &Span) -> Vec<String> {
    let moves = match root.attribute(attributes::QUEUE_MOVES) {
        Some(AttributeValue::Strings(moves)) => moves.iter().map(|entry| clean(entry)).collect(),
        _ => Vec::new(),
    };
    let moves: Vec<_> = moves.iter().filter_map(|entry| entry.split_once(": ")).collect();
    let mut parts = Vec::new();
    for (key, queue) in
        [(attributes::QUEUE_UNSCHEDULABLE_MS, "unschedulable"), (attributes::QUEUE_BACKOFF_MS, "backoff")]
    {
        let Some(AttributeValue::Double(waited)) = root.attribute(key) else { continue };
        let left =
            moves.iter().rposition(|(entered, _)| *entered == queue).and_then(|last| moves.get(last + 1));
        let until = left.map(|(_, event)| format!(" until {event}")).unwrap_or_default();
        parts.push(format!("{queue} {}{until}", milliseconds(*waited)));
    }
    if let Some(AttributeValue::Double(waited)) = root.attribute(attributes::QUEUE_WAIT_MS) {
        // The event is shown already if the Pod came from another queue.
        let by = moves.first().filter(|_| moves.len() == 1).map(|(_, event)| {
            if CREATED.contains(event) { " since created".to_owned() } else { format!(" by {event}") }
        });
        parts.push(format!("queued {}{}", milliseconds(*waited), by.unwrap_or_default()));
    }
    parts
}

/// Numbers of Nodes, and the Node of a preemption.
fn nodes(root: &Span) -> Vec<String> {
    let number = |key| match root.attribute(key) {
        Some(AttributeValue::Int(number)) => Some(*number),
        _ => None,
    };
    let text = |key| root.attribute(key).map(|value| clean(&value.to_string())).unwrap_or_default();
    let mut parts = Vec::new();
    if let (Some(evaluated), Some(feasible)) =
        (number(attributes::EVALUATED_NODES), number(attributes::FEASIBLE_NODES))
    {
        let fit = if feasible == 1 { "fits" } else { "fit" };
        parts.push(format!("{feasible} of {} {fit}", counted(evaluated, "node")));
    }
    parts.extend(
        number(attributes::RESTRICTED_TO_NODES)
            .map(|nodes| format!("restricted to {}", counted(nodes, "node"))),
    );
    if let Some(victims) = number(attributes::PREEMPTION_VICTIMS) {
        let names = text(attributes::PREEMPTION_VICTIM_NAMES);
        let names = if names.is_empty() { names } else { format!(" ({names})") };
        let node = text(attributes::PREEMPTION_NODE);
        parts.push(format!("preempts {} on {node}{names}", counted(victims, "pod")));
    }
    parts
}

/// Text in lines that are as wide as a waterfall. Those after the first are indented.
#[must_use]
pub fn paragraph(text: &str, style: &Style) -> String {
    let words: Vec<_> = text.split_whitespace().map(|word| (PLAIN, clean(word))).collect();
    flow("", " ", &words, *style)
}

/// The error message, in a few lines.
fn message(reason: &str, style: Style) -> String {
    let words = clean(reason);
    let words: Vec<_> = words.split(' ').map(|word| (PLAIN, word.to_owned())).collect();
    let text = flow("  ", " ", &words, style);
    let mut lines: Vec<_> = text.lines().collect();
    let more = lines.len() > MESSAGE_LINES;
    lines.truncate(MESSAGE_LINES);
    let last = lines.last_mut().filter(|_| more).map(|line| format!("{}…", cut(line, style.width - 1)));
    if let (Some(last), Some(line)) = (&last, lines.last_mut()) {
        *line = last.as_str();
    }
    lines.join("\n") + "\n"
}

/// Puts as many parts on a line as fit. Lines after the first are indented.
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

/// A line of the waterfall: one span, or several unremarkable ones.
struct Row<'a> {
    tree: String,
    name: Cow<'a, str>,
    /// Starts and ends, nanoseconds since the Unix epoch, in order and apart from each other. Several, where several spans are one
    /// line: their bars and their duration leave out what is between them.
    times: Vec<(u64, u64)>,
    note: String,
    tone: Tone,
    colour: &'static str,
}

/// How a line is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tone {
    /// As usual.
    Plain,
    /// Worth a look: a rejection, or an end that was not seen.
    Remarkable,
    Failed,
}

impl Tone {
    /// The colour of the note.
    fn colour(self) -> &'static str {
        match self {
            Self::Plain => DIM,
            Self::Remarkable => YELLOW,
            Self::Failed => RED,
        }
    }
}

/// The lines of a trace, in the order of the tree.
fn rows(trace: &Trace, style: Style) -> Vec<Row<'_>> {
    let mut children: HashMap<_, Vec<_>> = HashMap::new();
    for span in &trace.spans[1..] {
        children.entry(span.parent_id).or_default().push(span);
    }
    let root = trace.root();
    let short_ns = if style.plugins { 0 } else { root.duration_ns() / SHORT };
    let mut rows = vec![row(String::new(), root, BLUE)];
    descend(root, "", BLUE, short_ns, &mut children, &mut rows);
    // Calls that outlast the attempt are linked to it; stays in queues are not drawn.
    let parentless = children.remove(&None).unwrap_or_default();
    for span in parentless.into_iter().filter(|span| !span.links.is_empty()) {
        let mut row = row(String::new(), span, DIM);
        let after_ns = span.start_unix_ns.saturating_sub(root.end_unix_ns);
        if after_ns > 0 && row.note.is_empty() {
            row.note = format!("{} after the end", duration(after_ns).trim_start());
        }
        rows.push(row);
    }
    rows
}

fn descend<'a>(
    parent: &Span,
    lead: &str,
    colour: &'static str,
    short_ns: u64,
    children: &mut HashMap<Option<[u8; 8]>, Vec<&'a Span>>,
    rows: &mut Vec<Row<'a>>,
) {
    let below = children.remove(&Some(parent.span_id)).unwrap_or_default();
    let mut below = fold(below, short_ns).into_iter().peekable();
    while let Some(spans) = below.next() {
        let (mark, further) = if below.peek().is_some() { ("├─ ", "│  ") } else { ("└─ ", "   ") };
        let tree = format!("{lead}{mark}");
        match spans.as_slice() {
            [span] => {
                let colour = match span.kind {
                    SpanKind::Cycle(Cycle::Binding)
                    | SpanKind::Stage(
                        Stage::Kubelet
                        | Stage::Sandbox
                        | Stage::InitContainer
                        | Stage::Container
                        | Stage::Ready,
                    ) => CYAN,
                    SpanKind::Stage(Stage::Gated | Stage::Queued) => DIM,
                    SpanKind::Root(_)
                    | SpanKind::Cycle(Cycle::Scheduling)
                    | SpanKind::Phase(_)
                    | SpanKind::Plugin
                    | SpanKind::Share
                    | SpanKind::Extender
                    | SpanKind::ApiCall
                    | SpanKind::Victim
                    | SpanKind::Placement
                    | SpanKind::Trial
                    | SpanKind::QueueStay
                    | SpanKind::Stage(Stage::Attempt | Stage::VolumeClaims)
                    | SpanKind::Node(_)
                    | SpanKind::Api(_)
                    | SpanKind::Request
                    | SpanKind::Other => colour,
                };
                rows.push(row(tree, span, colour));
                descend(span, &format!("{lead}{further}"), colour, short_ns, children, rows);
            }
            several => rows.push(folded(tree, several, colour)),
        }
    }
}

/// Groups spans that become one line, at the place of the first.
fn fold(spans: Vec<&Span>, short_ns: u64) -> Vec<Vec<&Span>> {
    let mut lines: Vec<Vec<&Span>> = Vec::with_capacity(spans.len());
    let mut folded: HashMap<Fold, usize> = HashMap::new();
    let tried = spans.iter().any(|span| span.attribute(attributes::TRIAL_CHOSEN).is_some());
    for span in spans {
        let fold = folds(span, tried, short_ns);
        match fold.and_then(|fold| folded.get(&fold)) {
            Some(line) => lines[*line].push(span),
            None => {
                folded.extend(fold.map(|fold| (fold, lines.len())));
                lines.push(vec![span]);
            }
        }
    }
    lines
}

/// Spans that become one line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Fold {
    Plugins,
    /// Trials that were not chosen.
    Trials,
    /// The ends of trials.
    Unreserved,
}

/// Whether a span is unremarkable: a quick plugin that did not reject the Pod, or a trial of a group that was not chosen, and
/// its end.
fn folds(span: &Span, of_tried: bool, short_ns: u64) -> Option<Fold> {
    let result = span.attribute(attributes::RESULT).map(ToString::to_string);
    if short_ns == 0 || span.status != Status::Unset || incomplete(span) {
        return None;
    }
    if span.attribute(attributes::TRIAL_CHOSEN) == Some(&AttributeValue::Bool(false)) {
        return Some(Fold::Trials);
    }
    if of_tried && span.kind == SpanKind::Phase(Phase::Unreserve) {
        return Some(Fold::Unreserved);
    }
    let plain = result.is_none_or(|result| ["Success", "Skip"].contains(&result.as_str()));
    let is_plugin = matches!(span.kind, SpanKind::Plugin | SpanKind::Share);
    (is_plugin && span.duration_ns() < short_ns && plain).then_some(Fold::Plugins)
}

fn folded<'a>(tree: String, spans: &[&Span], colour: &'static str) -> Row<'a> {
    let what = match spans[0] {
        trial if trial.attribute(attributes::TRIAL_CHOSEN).is_some() => "other trials".into(),
        plugin if matches!(plugin.kind, SpanKind::Plugin | SpanKind::Share) => "plugins".into(),
        span => span.name.as_str(),
    };
    let skip = |span: &&&Span| matches!(span.attribute(attributes::RESULT), Some(AttributeValue::String(result)) if result == "Skip");
    let skipped = spans.iter().filter(skip).count();
    Row {
        tree,
        name: format!("{} {what}", spans.len()).into(),
        times: apart(spans.iter().map(|span| (span.start_unix_ns, span.end_unix_ns)).collect()),
        note: if skipped == 0 { String::new() } else { format!("{skipped} Skip") },
        tone: Tone::Plain,
        colour,
    }
}

/// The times in which at least one of these is, in order.
fn apart(mut times: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    times.sort_unstable();
    let mut apart: Vec<(u64, u64)> = Vec::with_capacity(times.len());
    for (start, end) in times {
        match apart.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => apart.push((start, end)),
        }
    }
    apart
}

fn row<'a>(tree: String, span: &'a Span, colour: &'static str) -> Row<'a> {
    let result = span.attribute(attributes::RESULT).map(|result| clean(&result.to_string()));
    let note = match (&span.status, result) {
        // The root's result is in the head.
        _ if span.parent_id.is_none() && matches!(span.kind, SpanKind::Root(_)) => String::new(),
        (Status::Error(reason), _) if !reason.is_empty() => clean(reason),
        (_, Some(result)) if result != "Success" => result,
        _ if span.kind == SpanKind::Share => share(span),
        // A Pod of a group, or an attempt of a lifecycle.
        _ if is_attempt(span) => {
            let node = span.attribute(attributes::SELECTED_NODE);
            node.map(|node| format!("on {}", clean(&node.to_string()))).unwrap_or_default()
        }
        _ if span.kind == SpanKind::Root(TraceKind::Lifecycle) => lifecycle_end(span),
        _ if span.kind == SpanKind::Root(TraceKind::PodStorage) => asked(span),
        _ if is_by_reconcile(span.kind) => by(span),
        _ if span.attribute(attributes::IMAGE).is_some() => {
            span.attribute(attributes::IMAGE).map(|image| clean(&image.to_string())).unwrap_or_default()
        }
        _ => String::new(),
    };
    let usual = ["", "Success", "Skip"].map(|usual| Some(usual.to_owned()));
    let result = span.attribute(attributes::RESULT).map(ToString::to_string);
    let tone = if span.status != Status::Unset {
        Tone::Failed
    } else if incomplete(span) || (result.is_some() && !note.is_empty() && !usual.contains(&result)) {
        Tone::Remarkable
    } else {
        Tone::Plain
    };
    let note = if incomplete(span) { format!("incomplete {note}").trim_end().to_owned() } else { note };
    Row {
        tree,
        // A plugin's name is foreign text.
        name: format!("{}{}", clean(&span.name.as_str()), whose(span)).into(),
        times: vec![(span.start_unix_ns, span.end_unix_ns)],
        note,
        tone,
        colour,
    }
}

/// How a lifecycle within another trace ended, and where.
fn lifecycle_end(span: &Span) -> String {
    let text = |key| span.attribute(key).map(|value| clean(&value.to_string()));
    let node = text(attributes::NODE).map(|node| format!("on {node}"));
    text(attributes::LIFECYCLE_RESULT).into_iter().chain(node).collect::<Vec<_>>().join(" ")
}

/// Whether a span is a reconcile, or what one did to a Pod.
fn is_by_reconcile(kind: SpanKind) -> bool {
    matches!(kind, SpanKind::Root(kind) if kind == TraceKind::Reconcile || done(kind).is_some())
}

/// Queue and key, or controller and request, of a reconcile within another trace.
fn by(span: &Span) -> String {
    let text = |key| span.attribute(key).map(|value| clean(&value.to_string()));
    let name = text(attributes::WORKQUEUE).or_else(|| text(attributes::CONTROLLER));
    let key = text(attributes::WORKQUEUE_KEY).or_else(|| text(attributes::CONTROLLER_REQUEST));
    name.into_iter().chain(key).collect::<Vec<_>>().join(" ")
}

/// Who asked for a Pod: user and client.
fn asked(span: &Span) -> String {
    let text = |key| span.attribute(key).map(|value| clean(&value.to_string()));
    let [user, client] = [("by", attributes::USER), ("with", attributes::OBJECT_MANAGER)]
        .map(|(word, key)| text(key).map(|text| format!("{word} {text}")));
    user.into_iter().chain(client).collect::<Vec<_>>().join(" ")
}

/// What a plugin's share of a phase is, and what it is worth.
fn share(span: &Span) -> String {
    let text = |key| span.attribute(key).map(|value| clean(&value.to_string())).unwrap_or_default();
    let Some(AttributeValue::Double(share)) = span.attribute(attributes::SHARE) else { return String::new() };
    let (samples, of) = (text(attributes::SHARE_SAMPLES), text(attributes::SHARE_SAMPLES_OF_PHASE));
    // A narrow terminal cuts the end: the numbers, not what they are of.
    match text(attributes::SHARE_BASIS).as_str() {
        "profile" => format!("{:.0} % in the last minute: {samples} of {of}", 100.0 * share),
        "exact" => {
            let rejects = Some(text(attributes::REJECTED_NODES)).filter(|rejected| rejected != "0");
            let rejects = rejects.map(|rejected| format!(", rejects {rejected}")).unwrap_or_default();
            format!("{:.0} % exact: {} calls{rejects}", 100.0 * share, text(attributes::CALLS))
        }
        _ => format!("{:.0} %: {samples} of {of} samples", 100.0 * share),
    }
}

/// The Pod or the placement of a span in a group, or the victim.
fn whose(span: &Span) -> String {
    let is_victim = span.kind == SpanKind::Victim;
    let key = if is_attempt(span) || is_victim { attributes::POD_NAME } else { attributes::PLACEMENT };
    let name = span.attribute(key).filter(|_| span.parent_id.is_some() || is_victim);
    name.map(|name| format!(" {}", clean(&name.to_string()))).unwrap_or_default()
}

/// Whether a span is the attempt of one Pod, in a group or in a lifecycle.
fn is_attempt(span: &Span) -> bool {
    matches!(span.kind, SpanKind::Root(TraceKind::Attempt) | SpanKind::Stage(Stage::Attempt))
}

fn incomplete(span: &Span) -> bool {
    span.attribute(attributes::INCOMPLETE) == Some(&AttributeValue::Bool(true))
}

/// The time axis: a mark with its figure every 1, 2 or 5 units, as many as fit.
fn axis(total_ns: u64, width: usize) -> String {
    let total = total_ns.max(1);
    let fewest = total.div_ceil((width / TICK).max(1) as u64).max(1);
    let mut step = 10_u64.pow(fewest.ilog10());
    while step < fewest {
        // 1, 2, 5, 10.
        step = if step.to_string().starts_with('2') { step / 2 * 5 } else { step.saturating_mul(2) };
    }
    let mut axis = String::new();
    for at in (0..=total).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        let column = (u128::from(at) * width as u128 / u128::from(total)) as usize;
        let figure = if at == 0 { format!("{MARK}0") } else { format!("{MARK}{}", round(at)) };
        let used = axis.chars().count();
        if column < used || column + figure.chars().count() > width {
            continue;
        }
        axis += &" ".repeat(column - used);
        axis += &figure;
    }
    axis
}

/// A duration of few digits without those that are zero.
fn round(ns: u64) -> String {
    let text = duration(ns);
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}")
}

/// The bar of a line: each part's length to an eighth of a column, at least that; its start to a column, since no character has an
/// empty left part.
fn bar(times: &[(u64, u64)], root: &Span, width: usize) -> String {
    let total = u128::from(root.duration_ns().max(1));
    let eighth = |unix_ns: u64| {
        let offset = u128::from(unix_ns.saturating_sub(root.start_unix_ns)).min(total);
        (offset * 8 * width as u128 / total) as usize
    };
    let mut parts: Vec<(usize, usize)> = Vec::with_capacity(times.len());
    for (start, end) in times.iter().map(|(start, end)| (eighth(*start), eighth(*end))) {
        match parts.last_mut() {
            // Less than a column between two parts cannot be drawn.
            Some((_, last)) if start < *last + 8 => *last = end.max(*last),
            _ => parts.push((start, end)),
        }
    }
    let mut bar: Vec<&str> = Vec::with_capacity(width);
    for (start, end) in parts {
        let column = ((start + 4) / 8).clamp(bar.len(), (width - 1).max(bar.len()));
        let length = end.saturating_sub(start).clamp(1, (width.saturating_sub(column) * 8).max(1));
        bar.resize(column, " ");
        bar.resize(column + length / 8, "█");
        bar.extend(Some(EIGHTHS[length % 8]).filter(|eighths| !eighths.is_empty()));
    }
    bar.truncate(width);
    bar.resize(width, " ");
    bar.concat()
}

/// A name without what is in its middle, if it is too long. Most of its end stays: many begin alike.
fn shortened(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let kept = width.saturating_sub(1);
    let first = kept / 3;
    name.chars().take(first).chain(['…']).chain(name.chars().skip(length - (kept - first))).collect()
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
pub(super) mod tests;
