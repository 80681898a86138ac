//! Draws a terminal's text with its colours as SVG, for light and dark pages.

use std::fmt::Write as _;

/// The size of a character cell and of the margin, in pixels.
const CELL: (f64, f64) = (8.4, 17.0);
const MARGIN: f64 = 16.0;
/// Partial blocks, from one eighth of a cell to seven.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// A mark of the time axis: drawn as a line down to the end of the waterfall.
const MARK: char = '╷';

/// Weight and colours, light and dark, of the `Select Graphic Rendition` codes in a waterfall.
const STYLES: [(&str, &str, &str, &str); 8] = [
    ("0", "normal", "#1f2328", "#d1d7e0"),
    ("1", "bold", "#1f2328", "#f0f6fc"),
    ("2", "normal", "#59636e", "#9198a1"),
    ("31", "normal", "#cf222e", "#ff7b72"),
    ("32", "normal", "#1a7f37", "#7ee787"),
    ("33", "normal", "#9a6700", "#d29922"),
    ("34", "normal", "#0969da", "#58a6ff"),
    ("36", "normal", "#1b7c83", "#56d4dd"),
];
/// Background, border and marks of the axis, light and dark.
const GROUND: [(&str, &str, &str); 3] =
    [("fill", "#ffffff", "#0d1117"), ("stroke", "#d0d7de", "#30363d"), ("stroke", "#d8dee4", "#30363d")];

/// Draws text with colour codes as SVG. A browser takes the colours of its own theme.
pub(crate) fn draw(text: &str) -> String {
    let lines: Vec<Vec<(char, usize)>> = text.trim_end().lines().map(cells).collect();
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width = columns as f64 * CELL.0 + 2.0 * MARGIN;
    let height = lines.len() as f64 * CELL.1 + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" \
         font-size=\"14\">\n{}<rect class=\"g0 g1\" x=\"0.5\" y=\"0.5\" width=\"{:.0}\" height=\"{:.0}\" rx=\"8\"/>\n",
        style(),
        width - 1.0,
        height - 1.0
    );
    marks(&mut svg, &lines);
    for (row, line) in lines.iter().enumerate() {
        let top = MARGIN + row as f64 * CELL.1;
        let mut column = 0;
        let kind = |c: char| (eighths(c).is_some(), c == MARK);
        for run in line.chunk_by(|a, b| a.1 == b.1 && kind(a.0) == kind(b.0)) {
            let left = MARGIN + column as f64 * CELL.0;
            column += run.len();
            let class = run[0].1;
            if let Some(filled) = run.iter().map(|(c, _)| eighths(*c)).sum::<Option<u32>>() {
                let width = f64::from(filled) / 8.0 * CELL.0;
                let (top, height) = (top + 3.0, CELL.1 - 6.0);
                let _infallible = writeln!(
                    svg,
                    "<rect class=\"c{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
                );
            } else if run.iter().any(|(c, _)| *c != ' ' && *c != MARK) {
                let text: String = run.iter().map(|(c, _)| *c).collect();
                let (baseline, length) = (top + 13.0, run.len() as f64 * CELL.0);
                let _infallible = writeln!(
                    svg,
                    "<text class=\"c{class}\" x=\"{left:.1}\" y=\"{baseline:.1}\" textLength=\"{length:.1}\" xml:space=\"preserve\">{}</text>",
                    escape(&text)
                );
            }
        }
    }
    svg + "</svg>\n"
}

/// The classes of all colours.
fn style() -> String {
    let (mut light, mut dark) = (String::new(), String::new());
    for (class, (_, weight, in_light, in_dark)) in STYLES.iter().enumerate() {
        let _infallible = write!(light, ".c{class}{{fill:{in_light};font-weight:{weight}}}");
        let _infallible = write!(dark, ".c{class}{{fill:{in_dark}}}");
    }
    for (class, (what, in_light, in_dark)) in GROUND.iter().enumerate() {
        let _infallible = write!(light, ".g{class}{{{what}:{in_light}}}");
        let _infallible = write!(dark, ".g{class}{{{what}:{in_dark}}}");
    }
    format!("<style>{light}@media(prefers-color-scheme:dark){{{dark}}}</style>\n")
}

/// A line for each mark of an axis, down to the next empty line, behind everything else.
fn marks(svg: &mut String, lines: &[Vec<(char, usize)>]) {
    for (row, line) in lines.iter().enumerate() {
        let below = lines[row..].iter().take_while(|line| !line.is_empty()).count();
        let (from, to) = (MARGIN + (row as f64 + 0.2) * CELL.1, MARGIN + (row + below) as f64 * CELL.1);
        for (column, _) in line.iter().enumerate().filter(|(_, (c, _))| *c == MARK) {
            let x = MARGIN + column as f64 * CELL.0;
            let _infallible = writeln!(svg, "<path class=\"g2\" d=\"M{x:.1} {from:.1}V{to:.1}\"/>");
        }
    }
}

/// The part of a cell that a block fills.
fn eighths(c: char) -> Option<u32> {
    if c == '█' {
        return Some(8);
    }
    EIGHTHS.iter().position(|eighth| *eighth == c).map(|place| place as u32 + 1)
}

/// The characters of a line, each with the index of its style.
fn cells(line: &str) -> Vec<(char, usize)> {
    let mut cells = Vec::new();
    let mut style = 0;
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if let Some((code, after)) = rest.strip_prefix("\x1b[").and_then(|codes| codes.split_once('m')) {
            style = STYLES.iter().position(|(known, ..)| *known == code).unwrap_or(0);
            rest = after;
        } else {
            cells.push((c, style));
            rest = &rest[c.len_utf8()..];
        }
    }
    cells
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_codes_become_styles_without_width() {
        let cells = cells("\x1b[31mab\x1b[0mc");
        let red = STYLES.iter().position(|(code, ..)| *code == "31").expect("it is one");
        assert_eq!(cells, [('a', red), ('b', red), ('c', 0)]);
    }

    #[test]
    fn blocks_become_rectangles_and_markup_is_escaped() {
        let svg = draw("a<b \x1b[34m█▌\x1b[0m\n");
        assert!(svg.contains("a&lt;b "), "{svg}");
        assert!(svg.contains("width=\"12.6\""), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 2, "{svg}");
    }

    #[test]
    fn a_mark_of_the_axis_is_a_line_to_the_end_of_the_waterfall() {
        let svg = draw("head\n  ╷0\n██\n██\n\nnext\n");
        let top = MARGIN + 1.2 * CELL.1;
        let line = format!("d=\"M{:.1} {top:.1}V{:.1}\"", MARGIN + 2.0 * CELL.0, MARGIN + 4.0 * CELL.1);
        assert!(svg.contains(&line) && !svg.contains(MARK), "{svg}");
    }
}
