//! A profile as a flame graph: one SVG file, without scripts or fonts of its own.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fmt::Write as _,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use spans::text::clean;

use crate::{Taken, by::NO_ATTEMPT, share};

const WIDTH: f64 = 1_400.0;
const ROW: f64 = 18.0;
const MARGIN: f64 = 10.0;
/// Height of the heading.
const HEAD: f64 = 34.0;
/// Narrower boxes are left out.
const NARROWEST: f64 = 0.5;
/// Width of a character.
const CHARACTER: f64 = 6.7;
/// Boxes above functions: all, phase, plugin; with groups one more.
const CLASSES: usize = 3;
/// Difference from which on a box is wholly red or blue, points.
const STRONGEST: f64 = 10.0;

#[derive(Default)]
struct Node<'a> {
    count: u64,
    /// In the earlier profile.
    before: u64,
    below: BTreeMap<&'a str, Node<'a>>,
}

impl<'a> Node<'a> {
    fn add(&mut self, path: impl Iterator<Item = &'a str>, (count, before): (u64, u64)) {
        let mut node = self;
        node.count += count;
        node.before += before;
        for name in path {
            node = node.below.entry(name).or_default();
            node.count += count;
            node.before += before;
        }
    }

    /// Adds the stacks of a profile, by what these numbers are to be of a number of samples.
    fn add_all(&mut self, taken: &'a Taken, counts: impl Fn(u64) -> (u64, u64)) {
        for (stack, count) in &taken.profile.stacks {
            let group = taken.groups.is_some().then(|| stack.group.as_deref().unwrap_or(NO_ATTEMPT));
            let classes = [&*stack.whole, stack.part.as_deref().unwrap_or("no plugin")];
            let functions = stack.functions.iter().rev().map(|name| &**name);
            self.add(group.into_iter().chain(classes).chain(functions), counts(*count));
        }
    }
}

/// Draws a profile as a flame graph that grows downwards: all, the groups if there are some, the phases, their plugins, and the
/// functions below them, callers above callees.
///
/// Beside an earlier profile, colours are differences of shares: red is more than then, and blue is less. A box is as wide as the
/// mean of its two shares, so that what is gone is seen.
#[must_use]
pub fn flame(taken: &Taken, base: Option<&Taken>) -> String {
    let mut root = Node::default();
    root.add_all(taken, |count| (count, 0));
    base.into_iter().for_each(|base| root.add_all(base, |before| (0, before)));
    let mut chart = Chart {
        taken,
        totals: (root.count, base.map(|_| root.before)),
        classes: CLASSES + usize::from(taken.groups.is_some()),
        svg: String::new(),
    };
    let height = HEAD + chart.depth(&root) as f64 * ROW + MARGIN;
    let heading = format!(
        "{:.1} s of CPU time in {:.1} s, {} samples{}",
        taken.seconds(root.count),
        taken.duration.as_secs_f64(),
        root.count,
        if base.is_some() { "; red is more than then, blue is less" } else { "" },
    );
    chart.svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"22\" font-size=\"14\" font-weight=\"bold\">{heading}</text>\n",
    );
    chart.draw("all", &root, 0, MARGIN);
    chart.svg + "</svg>\n"
}

struct Chart<'a> {
    taken: &'a Taken,
    /// All samples, and those of the earlier profile.
    totals: (u64, Option<u64>),
    /// Rows that are no functions.
    classes: usize,
    svg: String,
}

impl Chart<'_> {
    /// A node's share of all samples, and of those of the earlier profile, percent.
    fn shares(&self, node: &Node<'_>) -> (f64, Option<f64>) {
        let (total, before) = self.totals;
        (share(node.count, total), before.map(|before| share(node.before, before)))
    }

    fn width(&self, node: &Node<'_>) -> f64 {
        let (now, then) = self.shares(node);
        (WIDTH - 2.0 * MARGIN) / 100.0 * then.map_or(now, |then| f64::midpoint(now, then))
    }

    /// Rows that are drawn.
    fn depth(&self, node: &Node<'_>) -> usize {
        let drawn = node.below.values().filter(|node| self.width(node) >= NARROWEST);
        1 + drawn.map(|node| self.depth(node)).max().unwrap_or_default()
    }

    fn draw(&mut self, name: &str, node: &Node<'_>, row: usize, left: f64) {
        let width = self.width(node);
        let top = HEAD + row as f64 * ROW;
        let name = escape(&clean(name));
        let (now, then) = self.shares(node);
        let seconds = self.taken.seconds(node.count);
        let (title, figure, colour) = match then {
            None => (format!("{now:.1} %, {seconds:.2} s"), format!("{now:.0}%"), self.colour(&name, row)),
            Some(then) => {
                let points = now - then;
                let title = format!("{then:.1} % then, {now:.1} % now, {points:+.1} points");
                (title, format!("{points:+.1}"), difference(points))
            }
        };
        let is_function = row >= self.classes;
        let _ = writeln!(
            self.svg,
            "<g><title>{name}: {title}</title><rect x=\"{left:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"{}\" rx=\"1\" fill=\"{colour}\"/>{}</g>",
            (width - 0.4).max(0.2),
            ROW - 1.0,
            label(&name, &figure, is_function, left, top, width),
        );
        let mut left = left;
        let mut below: Vec<_> = node.below.iter().collect();
        if row + 1 < self.classes {
            below.sort_by_key(|(_, node)| Reverse(node.count + node.before));
        }
        for (name, node) in below {
            let width = self.width(node);
            if width >= NARROWEST {
                self.draw(name, node, row + 1, left);
            }
            left += width;
        }
    }

    /// Groups are violet, classes blue and green; functions are warm, those of Go's runtime grey.
    fn colour(&self, name: &str, row: usize) -> String {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let shade = hasher.finish() % 24;
        match (row, self.classes - row.min(self.classes)) {
            (0, _) => "#d0d7de".to_owned(),
            (_, 0) if name.starts_with("runtime.") => format!("hsl(220,8%,{}%)", 74 + shade / 2),
            (_, 0) => format!("hsl({},80%,{}%)", 20 + shade, 66 + shade / 3),
            (_, 1) => format!("hsl(150,45%,{}%)", 66 + shade / 2),
            (_, 2) => format!("hsl(210,60%,{}%)", 66 + shade / 2),
            _ => format!("hsl(270,45%,{}%)", 70 + shade / 2),
        }
    }
}

/// Red for more, blue for less, and the paler the smaller the difference.
fn difference(points: f64) -> String {
    let strength = (points.abs() / STRONGEST).min(1.0);
    format!("hsl({},75%,{:.0}%)", if points < 0.0 { 215 } else { 5 }, 95.0 - 35.0 * strength)
}

/// The text in a box, as far as there is room: of a function without the path of its package.
fn label(name: &str, figure: &str, is_function: bool, left: f64, top: f64, width: f64) -> String {
    let room = ((width - 6.0) / CHARACTER) as usize;
    let name = if is_function { name.rsplit('/').next().unwrap_or(name) } else { name };
    let full = format!("{name} {figure}");
    // An escaped character is cut nowhere.
    let text = match full.chars().count() {
        length if length <= room => full,
        _ if name.contains('&') || room < 4 => return String::new(),
        _ => name.chars().take(room - 1).chain(['…']).collect(),
    };
    format!("<text x=\"{:.2}\" y=\"{}\">{text}</text>", left + 3.0, top + 12.5)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use gotrace::profiler::Stack;

    use super::*;
    use crate::fixture::{by_result, taken};

    #[test]
    fn each_phase_plugin_and_function_has_a_box() {
        let svg = flame(&taken(), None);
        for title in [
            "all: 100.0 %, 1.00 s",
            "filter: 60.0 %, 0.60 s",
            "Fit: 50.0 %, 0.50 s",
            "noderesources.(*Fit).Filter: 50.0 %, 0.50 s",
            "noderesources.fitsRequest: 30.0 %, 0.30 s",
            "outside: 1.0 %, 0.01 s",
        ] {
            assert!(svg.contains(&format!("<title>{title}</title>")), "{title} is not in {svg}");
        }
        assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
    }

    #[test]
    fn groups_are_above_the_phases() {
        let svg = flame(&by_result(), None);
        let depth = |title: &str| {
            let row =
                svg.lines().find(|line| line.contains(&format!("<title>{title}"))).expect("it is there");
            row.split("y=\"")
                .nth(1)
                .and_then(|rest| rest.split('"').next())
                .expect("it has a place")
                .to_owned()
        };
        let rows = ["all: 100.0", "Success: 40.0", "filter: 40.0", "Fit: 30.0"].map(depth);
        assert_eq!(rows, ["34", "52", "70", "88"]);
        assert_eq!(depth("no attempt: 40.0 %"), "52");
    }

    #[test]
    fn what_has_grown_is_red_and_what_has_shrunk_is_blue() {
        let mut grown = taken();
        for (stack, count) in &mut grown.profile.stacks {
            *count *= if &*stack.whole == "filter" { 1 } else { 3 };
        }
        grown.profile.stacks.retain(|stack, _| &*stack.whole != "outside");
        let svg = flame(&grown, Some(&taken()));
        let row = |name: &str| {
            let title = format!("<title>{name}: ");
            svg.lines().find(|line| line.contains(&title)).expect("it is there").to_owned()
        };
        let garbage = row("garbageCollector");
        assert!(garbage.contains("39.0 % then, 66.1 % now, +27.1 points"), "{garbage}");
        assert!(garbage.contains("fill=\"hsl(5,75%,60%)\""), "{garbage}");
        assert!(row("filter").contains("fill=\"hsl(215,"), "{}", row("filter"));
        // What is gone has a box too.
        assert!(row("outside").contains("1.0 % then, 0.0 % now, -1.0 points"));
        assert!(row("all").contains("100.0 % then, 100.0 % now, +0.0 points"));
    }

    #[test]
    fn boxes_lie_within_the_one_above() {
        for svg in [flame(&taken(), None), flame(&by_result(), None), flame(&taken(), Some(&taken()))] {
            let number = |line: &str, key: &str| -> f64 {
                let rest = line.split(&format!(" {key}=\"")).nth(1).expect("it is there");
                rest.split('"').next().and_then(|number| number.parse().ok()).expect("it is a number")
            };
            for line in svg.lines().filter(|line| line.starts_with("<g>")) {
                assert!(
                    number(line, "x") >= MARGIN
                        && number(line, "x") + number(line, "width") <= WIDTH - MARGIN
                );
            }
        }
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let mut taken = taken();
        let stack = Stack {
            group: None,
            whole: "</text><script>".into(),
            part: None,
            functions: vec!["a&b[go.shape.int]".into()],
        };
        taken.profile.stacks.insert(stack.into(), 1_000);
        let svg = flame(&taken, None);
        assert!(!svg.contains("<script>") && svg.contains("a&amp;b"));
    }
}
