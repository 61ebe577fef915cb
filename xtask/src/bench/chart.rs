//! Horizontal bars as SVG, in groups; nothing but text and rectangles.

use std::fmt::Write as _;

/// Pixels.
const WIDTH: usize = 860;
const LABEL: usize = 260;
const VALUE: usize = 90;
const BAR: usize = 16;
const GAP: usize = 5;
const HEAD: usize = 44;
const GROUP_HEAD: usize = 28;

/// Whose bar it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    Ours,
    Pump,
    Peer,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Colour::Ours => "#c2561a",
            Colour::Pump => "#b9b9b9",
            Colour::Peer => "#4a78a8",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: f64,
    /// The value in words.
    pub(super) shown: String,
    pub(super) colour: Colour,
}

/// Bars under a common heading.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) bars: Vec<Bar>,
}

/// Draws the groups one below the other, all on one linear scale from zero.
pub(super) fn svg(title: &str, groups: &[Group]) -> String {
    let bars: usize = groups.iter().map(|group| group.bars.len()).sum();
    let height = HEAD + groups.len() * GROUP_HEAD + bars * (BAR + GAP) + GAP;
    let largest = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.value).fold(0.0, f64::max);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"24\" font-size=\"16\">{}</text>\n",
        escaped(title)
    );
    let mut top = HEAD;
    for group in groups {
        let _ =
            writeln!(text, "<text x=\"10\" y=\"{}\" font-weight=\"bold\">{}</text>", top + 16, escaped(&group.name));
        top += GROUP_HEAD;
        for bar in &group.bars {
            text += &drawn(bar, top, largest);
            top += BAR + GAP;
        }
    }
    text + "</svg>\n"
}

fn drawn(bar: &Bar, top: usize, largest: f64) -> String {
    let (base, label_end) = (top + 12, LABEL - 8);
    let width = width(bar.value, largest);
    let value_at = LABEL + width + 6;
    format!(
        "<text x=\"{label_end}\" y=\"{base}\" text-anchor=\"end\">{}</text>\
         <rect x=\"{LABEL}\" y=\"{top}\" width=\"{width}\" height=\"{BAR}\" fill=\"{}\"/>\
         <text x=\"{value_at}\" y=\"{base}\">{}</text>\n",
        escaped(&bar.label),
        bar.colour.code(),
        escaped(&bar.shown),
    )
}

/// In pixels; what is there is seen.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "pixels of a picture"
)]
fn width(value: f64, largest: f64) -> usize {
    let room = (WIDTH - LABEL - VALUE) as f64;
    if largest > 0.0 { ((value / largest * room).round() as usize).max(1) } else { 1 }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        assert_eq!([width(50.0, 100.0), width(100.0, 100.0), width(0.001, 100.0)], [255, 510, 1]);
        assert_eq!(width(0.0, 0.0), 1);
    }

    #[test]
    fn a_chart_names_its_groups_and_bars() {
        let bar = |label: &str, value| Bar {
            label: label.to_owned(),
            value,
            shown: format!("{value}"),
            colour: Colour::Ours,
        };
        let groups = [Group { name: "w1 & more".to_owned(), bars: vec![bar("a", 1.0), bar("b", 2.0)] }];
        let text = svg("Speed", &groups);
        assert_eq!(text.matches("<rect").count(), 3, "a background and two bars");
        assert!(text.contains("w1 &amp; more") && text.ends_with("</svg>\n"), "{text}");
    }
}
