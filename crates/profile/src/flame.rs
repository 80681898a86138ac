//! A profile as a flame graph: one SVG file, without scripts or fonts of its own.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use gotrace::profiler::Stack;
use spans::text::clean;

use crate::Taken;

const WIDTH: f64 = 1_400.0;
const ROW: f64 = 18.0;
const MARGIN: f64 = 10.0;
/// Height of the heading.
const HEAD: f64 = 34.0;
/// Narrower boxes are left out.
const NARROWEST: f64 = 0.5;
/// Width of a character.
const CHARACTER: f64 = 6.7;
/// Boxes above functions: all, phase, plugin.
const CLASSES: usize = 3;

#[derive(Default)]
struct Node<'a> {
    count: u64,
    below: BTreeMap<&'a str, Node<'a>>,
}

impl<'a> Node<'a> {
    fn add(&mut self, path: impl Iterator<Item = &'a str>, count: u64) {
        self.count += count;
        let mut node = self;
        for name in path {
            node = node.below.entry(name).or_default();
            node.count += count;
        }
    }

    /// Rows that are drawn.
    fn depth(&self, scale: f64) -> usize {
        let drawn = self.below.values().filter(|node| node.count as f64 * scale >= NARROWEST);
        1 + drawn.map(|node| node.depth(scale)).max().unwrap_or_default()
    }
}

/// Draws a profile as a flame graph that grows downwards: all, the phases, their plugins, and the functions below them, callers
/// above callees.
#[must_use]
pub fn flame(taken: &Taken) -> String {
    let mut root = Node::default();
    for (Stack { whole, part, functions }, count) in &taken.profile.stacks {
        let classes = [&**whole, part.as_deref().unwrap_or("no plugin")];
        root.add(classes.into_iter().chain(functions.iter().rev().map(|name| &**name)), *count);
    }
    let scale = (WIDTH - 2.0 * MARGIN) / root.count.max(1) as f64;
    let height = HEAD + root.depth(scale) as f64 * ROW + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"22\" font-size=\"14\" font-weight=\"bold\">{:.1} s of CPU time in {:.1} s, {} samples</text>\n",
        taken.seconds(root.count),
        taken.duration.as_secs_f64(),
        root.count,
    );
    let total = root.count;
    draw(&mut svg, "all", &root, 0, MARGIN, scale, total, taken);
    svg + "</svg>\n"
}

#[expect(clippy::too_many_arguments, reason = "what changes on the way down, and what stays")]
fn draw(
    svg: &mut String,
    name: &str,
    node: &Node<'_>,
    row: usize,
    left: f64,
    scale: f64,
    total: u64,
    taken: &Taken,
) {
    let width = node.count as f64 * scale;
    let top = HEAD + row as f64 * ROW;
    let name = escape(&clean(name));
    let share = 100.0 * node.count as f64 / total.max(1) as f64;
    let _ = writeln!(
        svg,
        "<g><title>{name}: {share:.1} %, {:.2} s</title><rect x=\"{left:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"{}\" rx=\"1\" fill=\"{}\"/>{}</g>",
        taken.seconds(node.count),
        (width - 0.4).max(0.2),
        ROW - 1.0,
        colour(&name, row),
        label(&name, share, row, left, top, width),
    );
    let mut left = left;
    let mut below: Vec<_> = node.below.iter().collect();
    if row < CLASSES - 1 {
        below.sort_by_key(|(_, node)| std::cmp::Reverse(node.count));
    }
    for (name, node) in below {
        if node.count as f64 * scale >= NARROWEST {
            draw(svg, name, node, row + 1, left, scale, total, taken);
        }
        left += node.count as f64 * scale;
    }
}

/// The text in a box, as far as there is room: of a function without the path of its package.
fn label(name: &str, share: f64, row: usize, left: f64, top: f64, width: f64) -> String {
    let room = ((width - 6.0) / CHARACTER) as usize;
    let name = if row < CLASSES { name } else { name.rsplit('/').next().unwrap_or(name) };
    let full = format!("{name} {share:.0}%");
    // An escaped character is cut nowhere.
    let text = match full.chars().count() {
        length if length <= room => full,
        _ if name.contains('&') || room < 4 => return String::new(),
        _ => name.chars().take(room - 1).chain(['…']).collect(),
    };
    format!("<text x=\"{:.2}\" y=\"{}\">{text}</text>", left + 3.0, top + 12.5)
}

/// Classes are blue and green; functions are warm, those of Go's runtime grey.
fn colour(name: &str, row: usize) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let shade = hasher.finish() % 24;
    match row {
        0 => "#d0d7de".to_owned(),
        1 => format!("hsl(210,60%,{}%)", 66 + shade / 2),
        2 => format!("hsl(150,45%,{}%)", 66 + shade / 2),
        _ if name.starts_with("runtime.") => format!("hsl(220,8%,{}%)", 74 + shade / 2),
        _ => format!("hsl({},80%,{}%)", 20 + shade, 66 + shade / 3),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::taken;

    #[test]
    fn each_phase_plugin_and_function_has_a_box() {
        let svg = flame(&taken());
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
    fn names_cannot_leave_their_place() {
        let mut taken = taken();
        let stack = Stack {
            whole: "</text><script>".into(),
            part: None,
            functions: vec!["a&b[go.shape.int]".into()],
        };
        taken.profile.stacks.insert(stack, 1_000);
        let svg = flame(&taken);
        assert!(!svg.contains("<script>") && svg.contains("a&amp;b"));
    }
}
