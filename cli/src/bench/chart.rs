//! The results as a self-contained SVG chart: for each row a bar for the prediction and one for the
//! measurement, on a logarithmic scale.

use super::report::Report;
use super::size::Size;
use crate::picture::{rate, time, xml};
use std::fmt::Write;

/// A row of the chart: its label, its prediction and its measurement.
struct Row {
    label: String,
    predicted: Option<u64>,
    measured: Option<u64>,
}

/// The chart as SVG text.
pub fn svg(report: &Report) -> String {
    let sum = |sum: &super::report::Sum| Row {
        label: Size::of(sum.bytes).map_or_else(|_| sum.bytes.to_string(), |size| size.to_string()),
        predicted: sum.predicted_us,
        measured: Some(sum.median_us),
    };
    let link = |link: &super::report::Link| Row {
        label: format!("{} to {}", report.named(link.from), report.named(link.to)),
        predicted: link.predicted_bps,
        measured: link.measured_bps,
    };
    let sums: Vec<Row> = report.sums.iter().map(sum).collect();
    let links: Vec<Row> = report.links.iter().map(link).collect();
    let mut body = String::new();
    let mut y = MARGIN;
    for (title, rows, shown) in [
        ("Sums, time of one", &sums, time as fn(u64) -> String),
        ("Links, payload rate of each direction", &links, rate),
    ] {
        y = panel(&mut body, y, title, rows, shown);
    }
    let title =
        format!("potluck bench: {} machines on the {} engine", report.members.len(), report.engine);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" width=\"{WIDTH}\" \
         height=\"{y}\" role=\"img\">\n<title>{}</title>\n{STYLE}<rect class=\"paper\" \
         width=\"100%\" height=\"100%\"/>\n{body}</svg>\n",
        xml(&title)
    )
}

/// Draws one panel from `y` on; returns where it ends.
fn panel(body: &mut String, y: f64, title: &str, rows: &[Row], shown: fn(u64) -> String) -> f64 {
    let _ = writeln!(
        body,
        "<text class=\"title\" x=\"{MARGIN}\" y=\"{:.1}\">{}: <tspan class=\"predicted\">predicted\
         </tspan> and <tspan class=\"measured\">measured</tspan></text>",
        y + LINE,
        xml(title)
    );
    let values = || rows.iter().flat_map(|row| [row.predicted, row.measured]).flatten();
    let (least, most) = (values().min().unwrap_or(1).max(1), values().max().unwrap_or(1).max(1));
    let mut y = y + 2.0 * LINE;
    for row in rows {
        let _ =
            writeln!(body, "<text x=\"{MARGIN}\" y=\"{:.1}\">{}</text>", y + LINE, xml(&row.label));
        for (class, value) in [("predicted", row.predicted), ("measured", row.measured)] {
            let width = value.map_or(0.0, |value| width(value, (least, most)));
            let text = value.map_or_else(|| "-".to_owned(), shown);
            let _ = writeln!(
                body,
                "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{width:.1}\" \
                 height=\"{BAR}\"/><text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                y,
                LEFT + width + 6.0,
                y + BAR - 2.0,
                xml(&text)
            );
            y += BAR + 2.0;
        }
        y += LINE / 2.0;
    }
    y + LINE
}

/// The length of a bar, logarithmic: a tenth of the longest stands for the least value, or for a
/// thousandth of the largest one. Without that limit, rates that differ by a hundredth would look
/// as if they differed tenfold.
fn width(value: u64, (least, most): (u64, u64)) -> f64 {
    let from = (least as f64).min(most as f64 / 1000.0);
    let part = (value.max(1) as f64 / from).ln() / (most as f64 / from).ln();
    LONGEST * (0.1 + 0.9 * part)
}

const WIDTH: f64 = 760.0;
const MARGIN: f64 = 20.0;
const LINE: f64 = 18.0;
const BAR: f64 = 14.0;
const LEFT: f64 = 240.0;
const LONGEST: f64 = 400.0;

const STYLE: &str = "<style>
  .paper { fill: #fdfdfb }
  text { font: 14px system-ui, sans-serif; fill: #22262a }
  .title { font-weight: 600 } .value { font-size: 12.5px }
  .predicted { fill: #9aa7b4 } .measured { fill: #2a8a4a }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #16191c }
    text { fill: #e6e8ea }
    .predicted { fill: #6a7784 } .measured { fill: #4cc27a }
  }
</style>
";

#[cfg(test)]
mod tests {
    use super::super::report::{Link, Member, Sum};
    use super::*;

    fn report() -> Report {
        let member =
            |rank, name: &str| Member { rank, name: name.to_owned(), node: "00".to_owned() };
        let sum = |bytes, predicted_us, median_us| Sum {
            bytes,
            rounds: 3,
            predicted_us,
            median_us,
            min_us: median_us,
            max_us: median_us,
        };
        Report {
            ok: true,
            view: "1#00".to_owned(),
            engine: "native".to_owned(),
            plan: "a ring".to_owned(),
            members: vec![member(0, "ada"), member(1, "<b>")],
            links: vec![Link { from: 0, to: 1, predicted_bps: Some(100), measured_bps: None }],
            sums: vec![sum(4096, None, 100), sum(1 << 20, Some(10_000), 10_000)],
        }
    }

    #[test]
    fn each_row_has_two_bars_and_names_are_escaped() {
        let svg = svg(&report());
        assert_eq!(svg.matches("<rect class=\"predicted\"").count(), 3, "{svg}");
        assert_eq!(svg.matches("<rect class=\"measured\"").count(), 3, "{svg}");
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>"), "{svg}");
        assert!(svg.contains("4 KiB") && svg.contains("1 MiB"), "{svg}");
    }

    #[test]
    fn bars_are_as_long_as_the_logarithm() {
        let is = |value: u64, range: (u64, u64), part: f64| {
            (width(value, range) / LONGEST - part).abs() < 1e-9
        };
        assert!(is(1, (1, 10_000), 0.1) && is(100, (1, 10_000), 0.55));
        assert!(is(10_000, (1, 10_000), 1.0) && is(7, (7, 7), 1.0));
    }

    #[test]
    fn values_that_are_nearly_equal_look_so() {
        assert!(width(915, (915, 940)) > 0.99 * LONGEST);
    }
}
