//! The picture as a self-contained SVG file with a light and a dark theme.

use super::circle::{Point, circle};
use super::terminal::wrapped;
use super::words::{forecast, kinds, named, rate, rates, share, slowest, time, xml};
use super::{MANY, Pace, fastest_bps, pace};
use potluck::report::document::{GraphDocument, GraphLink, GraphMember};

/// The picture as SVG text.
pub fn svg(graph: &GraphDocument) -> String {
    let sentences = sentences(graph);
    let height = BELOW + sentences.len() as f64 * LINE + MARGIN;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n"
    );
    let title = format!("A potluck group of {}: {}", graph.members.len(), graph.plan);
    text += &format!(
        "<title>{}</title>\n{STYLE}<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
        xml(&title)
    );
    let places = circle(graph.members.len(), CENTRE, RADIUS_X, RADIUS_Y);
    let fastest = fastest_bps(graph);
    for link in &graph.links {
        if let (Some(from), Some(to)) = (places.get(link.a), places.get(link.b)) {
            text += &line(graph, link, *from, *to, fastest);
        }
    }
    if graph.members.len() < MANY {
        for link in &graph.links {
            if let (Some(from), Some(to)) = (places.get(link.a), places.get(link.b)) {
                text += &label(link, *from, *to, is_side(graph, link));
            }
        }
    }
    for (member, at) in graph.members.iter().zip(&places) {
        text += &node(graph, member, *at);
    }
    for (number, sentence) in sentences.iter().enumerate() {
        let y = BELOW + (number as f64 + 0.5) * LINE;
        text += &format!("<text x=\"{MARGIN}\" y=\"{y}\">{}</text>\n", xml(sentence));
    }
    text + "</svg>\n"
}

fn sentences(graph: &GraphDocument) -> Vec<String> {
    let head = format!(
        "View {} on the {} engine. Thick lines are fast; the plan uses those that are not dashed.",
        graph.view, graph.engine
    );
    let all = [Some(head), slowest(graph), Some(format!("Plan: {}", graph.plan)), forecast(graph)];
    all.into_iter().flatten().flat_map(|sentence| wrapped(&sentence, COLUMNS)).collect()
}

/// Whether the members of a link are neighbours on the circle.
fn is_side(graph: &GraphDocument, link: &GraphLink) -> bool {
    let apart = link.b - link.a;
    apart == 1 || apart + 1 == graph.members.len()
}

fn line(
    graph: &GraphDocument,
    link: &GraphLink,
    from: Point,
    to: Point,
    fastest: Option<u64>,
) -> String {
    let class = match pace(link, fastest) {
        Pace::Fast => "fast",
        Pace::Middling => "middling",
        Pace::Slow => "slow",
        Pace::Unknown => "unknown",
    };
    let part = link
        .rate_bps()
        .zip(fastest)
        .map_or(0.0, |(bps, fastest)| bps as f64 / fastest.max(1) as f64);
    // Short dashes of a thick line would look like a ladder.
    let (unused, thick) = if link.is_used() { ("", 2.0 + 5.0 * part) } else { (" unused", 2.0) };
    let ends = [link.a, link.b].map(|rank| graph.members.get(rank).map(named).unwrap_or_default());
    let rtt = link.rtt_us().map(|us| time(u64::from(us)));
    let path = link
        .path
        .as_ref()
        .map(|path| format!("{} to {}", path.interface.as_deref().unwrap_or("?"), path.remote));
    let facts: Vec<String> =
        [rates(link), rtt, kinds(link), share(link), path].into_iter().flatten().collect();
    let tip = format!("{} and {}: {}", ends[0], ends[1], facts.join(", "));
    format!(
        "<line class=\"{class}{unused}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" \
         stroke-width=\"{:.1}\"><title>{}</title></line>\n",
        from.x,
        from.y,
        to.x,
        to.y,
        thick,
        xml(&tip)
    )
}

/// The label with the link's rate: at the middle of a side of the circle; for lines that cross
/// others, off the middle.
fn label(link: &GraphLink, from: Point, to: Point, is_side: bool) -> String {
    let Some(rates) = rates(link) else { return String::new() };
    let at = from.towards(to, if is_side { 0.5 } else { 0.36 });
    let faint = if link.is_used() { "" } else { " faint" };
    format!(
        "<text class=\"rate{faint}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
        at.x,
        at.y + 4.0,
        xml(&rates)
    )
}

fn node(graph: &GraphDocument, member: &GraphMember, at: Point) -> String {
    let (side, up) = ((at.x - CENTRE.x) / RADIUS_X, at.y < CENTRE.y);
    let (anchor, x, y) = match side {
        _ if side > 0.3 => ("start", at.x + NODE + 8.0, at.y - 2.0),
        _ if side < -0.3 => ("end", at.x - NODE - 8.0, at.y - 2.0),
        _ if up => ("middle", at.x, at.y - NODE - 26.0),
        _ => ("middle", at.x, at.y + NODE + 18.0),
    };
    let slow = if graph.slowest == Some(member.rank) { " slow" } else { "" };
    let mine = if member.rank == graph.me { " mine" } else { "" };
    let mut said = member.rate_bps.map(rate).unwrap_or_default();
    if member.rank == graph.me {
        said = [said, "this node".to_owned()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(", ");
    }
    let tip = format!("{} {}", named(member), member.node);
    format!(
        "<g><title>{}</title><circle class=\"node{slow}{mine}\" cx=\"{:.1}\" cy=\"{:.1}\" \
         r=\"{NODE}\"/>\
         <text class=\"rank\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
         <text class=\"name\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\
         <text class=\"said\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{:.1}\">{}</text></g>\n",
        xml(&tip),
        at.x,
        at.y,
        at.x,
        at.y + 6.0,
        member.rank,
        xml(&member.name),
        y + 17.0,
        xml(&said)
    )
}

const WIDTH: f64 = 860.0;
const MARGIN: f64 = 24.0;
const CENTRE: Point = Point { x: WIDTH / 2.0, y: 270.0 };
const RADIUS_X: f64 = 225.0;
const RADIUS_Y: f64 = 185.0;
/// The radius of a member's circle.
const NODE: f64 = 24.0;
/// The y coordinate of the first sentence.
const BELOW: f64 = 545.0;
const LINE: f64 = 22.0;
/// The maximum length of a line of text, in characters.
const COLUMNS: usize = 108;
/// Colours are literal, because some SVG viewers do not know CSS variables. Viewers without media
/// queries show the light theme.
const STYLE: &str = "<style>
  .paper { fill: #fdfdfb }
  text { font: 14px system-ui, sans-serif; fill: #22262a }
  .fast { stroke: #2a8a4a } .middling { stroke: #b07a10 } line.slow { stroke: #c43a2e } \
  .unknown { stroke: #8a929a }
  .unused { stroke-dasharray: 3 7; opacity: .55 }
  .rate { font-size: 12.5px; text-anchor: middle; paint-order: stroke; stroke: #fdfdfb; \
  stroke-width: 5px; stroke-linejoin: round }
  .node { fill: #e8edf2; stroke: #22262a; stroke-width: 1.5 } .node.mine { stroke-width: 3.5 } \
  .node.slow { stroke: #c43a2e }
  .rank { font-size: 18px; font-weight: 600; text-anchor: middle }
  .name { font-size: 16px; font-weight: 600 }
  .said { font-size: 13px }
  .faint, .said { fill: #6b7278 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #16191c }
    text { fill: #e6e8ea }
    .fast { stroke: #4cc27a } .middling { stroke: #e0ac45 } line.slow { stroke: #f0705f } \
    .unknown { stroke: #7c858d }
    .rate { stroke: #16191c }
    .node { fill: #2a3138; stroke: #e6e8ea } .node.slow { stroke: #f0705f }
    .faint, .said { fill: #98a0a8 }
  }
</style>
";

#[cfg(test)]
mod tests {
    use super::super::testing::graph;
    use super::*;

    /// Checks that tags are properly nested, and counts the opened tags by name; panics if the text
    /// is malformed.
    fn tags(text: &str) -> std::collections::BTreeMap<String, usize> {
        let (mut open, mut counts) = (Vec::new(), std::collections::BTreeMap::new());
        let mut rest = text;
        while let Some(start) = rest.find('<') {
            assert!(!rest[..start].contains('>'), "a stray > before {}", &rest[start..]);
            let end = start + rest[start..].find('>').expect("a tag ends");
            let tag = &rest[start + 1..end];
            let name =
                tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default().to_owned();
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            match (tag.starts_with('/'), tag.ends_with('/')) {
                (true, _) => assert_eq!(open.pop(), Some(name)),
                (false, is_empty) => {
                    *counts.entry(name.clone()).or_default() += 1;
                    if !is_empty {
                        open.push(name);
                    }
                }
            }
            rest = &rest[end + 1..];
        }
        assert!(open.is_empty(), "left open: {open:?}");
        counts
    }

    #[test]
    fn a_picture_has_a_circle_for_each_member_and_a_line_for_each_link() {
        for size in [1, 2, 6, 7, 16] {
            let names: Vec<String> = (0..size).map(|rank| format!("machine-{rank}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let graph = graph(&names, &vec![940; size]);
            let picture = svg(&graph);
            let counts = tags(&picture);
            assert_eq!(
                (counts["circle"], counts.get("line").copied().unwrap_or(0)),
                (size, size * (size - 1) / 2)
            );
            assert_eq!(picture, svg(&graph), "the same graph, another picture");
        }
    }

    #[test]
    fn a_picture_asks_for_nothing_from_elsewhere() {
        let picture = svg(&graph(&["ada", "bob"], &[940, 94]));
        assert_eq!(picture.matches("http").count(), 1, "only the name of the language");
        assert!(
            !picture.contains("href") && !picture.contains("url(") && !picture.contains("@import"),
            "{picture}"
        );
        assert!(picture.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn no_name_becomes_a_tag() {
        let plain = tags(&svg(&graph(&["a", "b", "c"], &[940; 3])));
        let nasty = graph(
            &["</text><script>alert(1)</script>", "\" onload=\"x", "&amp;\u{0}]]>"],
            &[940; 3],
        );
        assert_eq!(tags(&svg(&nasty)), plain);
    }
}
