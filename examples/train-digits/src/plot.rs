//! Line plots as SVG.

use std::fmt::Write as _;

/// A line of a plot.
pub struct Line {
    pub name: String,
    /// A CSS colour.
    pub colour: &'static str,
    /// The points as (x, y); the y axis is logarithmic.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;

/// `title` is printed above, `across` and `up` at the axes. All y values must be positive.
pub fn svg(title: &str, across: &str, up: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let far = points().map(|(x, _)| *x).fold(0.0, f64::max).max(1e-9);
    let (low, high) =
        points().fold((f64::MAX, f64::MIN), |(low, high), (_, y)| (low.min(*y), high.max(*y)));
    let (low, high) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
    let x = |value: f64| LEFT + value / far * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| TOP + (high - value.log10()) / (high - low) * (HEIGHT - TOP - BOTTOM);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"22\" \
         font-size=\"15\">{title}</text>\n"
    );
    let mut text = |x: f64, y: f64, anchor: &str, what: &str| {
        writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>")
            .ok();
    };
    text((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0, "middle", across);
    text(LEFT - 60.0, TOP - 10.0, "start", up);
    let step = ticks(far);
    for i in 0..=(far / step) as usize {
        text(x(i as f64 * step), HEIGHT - BOTTOM + 18.0, "middle", &format!("{}", i as f64 * step));
    }
    for power in low as i32..=high as i32 {
        text(LEFT - 8.0, y(10f64.powi(power)) + 4.0, "end", &format!("{}", 10f64.powi(power)));
    }
    for power in low as i32..=high as i32 {
        let at = y(10f64.powi(power));
        writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>",
            WIDTH - RIGHT
        )
        .ok();
    }
    for (i, line) in lines.iter().enumerate() {
        let points: Vec<String> =
            line.points.iter().map(|(px, py)| format!("{:.1},{:.1}", x(*px), y(*py))).collect();
        writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"{}\"/>",
            line.colour,
            points.join(" ")
        )
        .ok();
        let at = TOP + 8.0 + 18.0 * i as f64;
        writeln!(
            out,
            "<line x1=\"{}\" x2=\"{}\" y1=\"{at}\" y2=\"{at}\" stroke=\"{}\" stroke-width=\"2\"/>",
            WIDTH - 200.0,
            WIDTH - 176.0,
            line.colour
        )
        .ok();
        writeln!(out, "<text x=\"{}\" y=\"{}\">{}</text>", WIDTH - 170.0, at + 4.0, line.name).ok();
    }
    out.push_str("</svg>\n");
    out
}

/// A round tick distance that gives five to ten ticks.
fn ticks(far: f64) -> f64 {
    let power = 10f64.powf((far / 5.0).log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|n| n * power).find(|step| far / step >= 5.0).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_drawn_inside() {
        let line = |name: &str, points| Line { name: name.to_owned(), colour: "red", points };
        let plot = svg(
            "title",
            "s",
            "loss",
            &[line("a", vec![(0.0, 2.0), (3.0, 0.01)]), line("b", vec![(1.0, 0.5)])],
        );
        assert_eq!(plot.matches("<polyline").count(), 2);
        assert!(
            plot.contains(">a</text>")
                && plot.contains("70.0,")
                && plot.contains("700.0,")
                && !plot.contains("NaN")
        );
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!([ticks(10.0), ticks(3.0), ticks(0.7), ticks(99.0)], [2.0, 0.5, 0.1, 10.0]);
    }
}
