//! Draws a terminal's text with its colours as SVG.

use std::fmt::Write as _;

/// The size of a character cell and of the margin, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 16.0;
/// Partial blocks, from one eighth of a cell to seven.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

const BACKGROUND: &str = "#0d1117";
/// Colour and weight of the `Select Graphic Rendition` codes in a waterfall.
const STYLES: [(&str, &str, &str); 8] = [
    ("0", "#c9d1d9", "normal"),
    ("1", "#f0f6fc", "bold"),
    ("2", "#8b949e", "normal"),
    ("31", "#ff7b72", "normal"),
    ("32", "#7ee787", "normal"),
    ("33", "#d29922", "normal"),
    ("34", "#79c0ff", "normal"),
    ("36", "#56d4dd", "normal"),
];

/// Draws text with colour codes as SVG.
pub(crate) fn draw(text: &str) -> String {
    let lines: Vec<Vec<(char, usize)>> = text.trim_end().lines().map(cells).collect();
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width = columns as f64 * CELL.0 + 2.0 * MARGIN;
    let height = lines.len() as f64 * CELL.1 + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" \
         font-size=\"14\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    for (row, line) in lines.iter().enumerate() {
        let top = MARGIN + row as f64 * CELL.1;
        let mut column = 0;
        for run in line.chunk_by(|a, b| a.1 == b.1 && eighths(a.0).is_some() == eighths(b.0).is_some()) {
            let left = MARGIN + column as f64 * CELL.0;
            column += run.len();
            let (_, colour, weight) = STYLES[run[0].1];
            if let Some(filled) = run.iter().map(|(c, _)| eighths(*c)).sum::<Option<u32>>() {
                let width = f64::from(filled) / 8.0 * CELL.0;
                let (top, height) = (top + 3.0, CELL.1 - 6.0);
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
                );
            } else if run.iter().any(|(c, _)| *c != ' ') {
                let text: String = run.iter().map(|(c, _)| *c).collect();
                let (baseline, length) = (top + 13.5, run.len() as f64 * CELL.0);
                let _ = writeln!(
                    svg,
                    "<text x=\"{left:.1}\" y=\"{baseline:.1}\" textLength=\"{length:.1}\" fill=\"{colour}\" \
                     font-weight=\"{weight}\" xml:space=\"preserve\">{}</text>",
                    escape(&text)
                );
            }
        }
    }
    svg + "</svg>\n"
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
}
