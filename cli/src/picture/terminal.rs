//! The picture for a terminal: members on a circle, lines between them, and text below.

use super::canvas::{Canvas, width};
use super::circle::{Point, circle};
use super::words::{forecast, kinds, named, plain, rate, rates, share, slowest, time};
use super::{MANY, Pace, fastest_bps, pace};
use anstyle::{AnsiColor, Style};
use potluck::report::document::{GraphDocument, GraphLink, GraphMember};

/// The properties of the output device.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// The width in characters.
    pub columns: usize,
    /// Whether colours may be used.
    pub colours: bool,
    /// Whether characters outside ASCII may be used; if not, the circle is omitted.
    pub unicode: bool,
}

/// The picture as lines that each end with a newline. If `columns` is at least 40, no line is
/// longer.
pub fn drawn(graph: &GraphDocument, paper: Paper) -> String {
    let mut text = wrapped(&head(graph), paper.columns).join("\n") + "\n";
    if paper.unicode && is_wide(paper) && graph.members.len() > 1 {
        text += "\n";
        text += &drawn_circle(graph, paper);
    }
    text += "\n";
    members(graph, paper).iter().for_each(|line| text += &format!("  {line}\n"));
    let links = links(graph, paper);
    if !links.is_empty() {
        text += "\n";
    }
    links.iter().for_each(|line| text += &format!("  {line}\n"));
    text += "\n";
    let sentences =
        [slowest(graph), Some(format!("plan: {}", plain(&graph.plan))), forecast(graph)];
    for sentence in sentences.into_iter().flatten() {
        wrapped(&sentence, paper.columns).iter().for_each(|line| text += &format!("{line}\n"));
    }
    text
}

fn head(graph: &GraphDocument) -> String {
    let count = match graph.members.len() {
        1 => "1 member".to_owned(),
        many => format!("{many} members"),
    };
    format!("view {}: {count} on the {} engine", plain(&graph.view), plain(&graph.engine))
}

/// The minimum width of the circle, in columns.
const CIRCLE_COLUMNS_MIN: usize = 60;
/// The maximum width of the circle, in columns.
const CIRCLE_COLUMNS_MAX: usize = 84;

fn drawn_circle(graph: &GraphDocument, paper: Paper) -> String {
    let rows = if graph.members.len() > 8 { 25 } else { 17 };
    let mut canvas = Canvas::new(paper.columns.min(CIRCLE_COLUMNS_MAX), rows);
    let (across, down) = canvas.dots();
    let centre = Point { x: across / 2.0, y: down / 2.0 };
    let labels: Vec<String> = graph
        .members
        .iter()
        .map(|member| format!("{} {}", member.rank, cut(&named(member))))
        .collect();
    let widest = labels.iter().map(|label| width(label)).max().unwrap_or(0) as f64;
    // Labels are outside of the circle: beside it in whole cells, above and below it in one row.
    let radius_y = down / 2.0 - 6.0;
    let radius_x = (across / 2.0 - 2.0 * (widest + 1.0)).min(1.9 * radius_y);
    let places = circle(graph.members.len(), centre, radius_x, radius_y);
    let fastest = fastest_bps(graph);
    // Used links are drawn last, over the others.
    let unused = graph.links.iter().filter(|link| !link.is_used());
    for link in unused.chain(graph.links.iter().filter(|link| link.is_used())) {
        if let (Some(from), Some(to)) = (places.get(link.a), places.get(link.b)) {
            let every = if link.is_used() { 1 } else { 4 };
            canvas.line(*from, *to, every, style(pace(link, fastest)));
        }
    }
    for ((member, label), at) in graph.members.iter().zip(&labels).zip(&places) {
        let half = (at.x - centre.x) / radius_x.max(1.0);
        let column = (at.x / 2.0).round() as usize;
        let start = match half {
            _ if half > 0.3 => column + 1,
            _ if half < -0.3 => column.saturating_sub(width(label) + 1),
            _ => column.saturating_sub(width(label) / 2),
        };
        let row = ((at.y / 4.0) as usize).min(rows - 1);
        let outside = match half.abs() > 0.3 {
            true => row,
            false if at.y < centre.y => row.saturating_sub(1),
            false => (row + 1).min(rows - 1),
        };
        let bold = Style::new().bold();
        canvas.word(
            start,
            outside,
            label,
            if graph.slowest == Some(member.rank) { bold.fg_color(RED) } else { bold },
        );
    }
    canvas.text(paper.colours)
}

/// The longest name that the circle shows in full, in cells, including its quotes.
const NAME_COLUMNS_MAX: usize = 18;

/// A name in quotes, truncated to that length.
fn cut(name: &str) -> String {
    if width(name) <= NAME_COLUMNS_MAX {
        return name.to_owned();
    }
    let mut kept = String::new();
    for letter in name.chars() {
        if width(&kept) + width(letter.encode_utf8(&mut [0; 4])) > NAME_COLUMNS_MAX - 2 {
            break;
        }
        kept.push(letter);
    }
    kept + "…\""
}

fn members(graph: &GraphDocument, paper: Paper) -> Vec<String> {
    let name =
        |member: &GraphMember| if is_wide(paper) { named(member) } else { cut(&named(member)) };
    let widest = graph.members.iter().map(|member| width(&name(member))).max().unwrap_or(0);
    let fastest = graph.members.iter().filter_map(|member| member.rate_bps).max();
    let line = |member: &GraphMember| {
        let (name, is_slow) = (name(member), graph.slowest == Some(member.rank));
        let blank = " ".repeat(widest.saturating_sub(width(&name)));
        let id = is_wide(paper).then(|| plain(&member.node).chars().take(8).collect());
        let bar = member
            .rate_bps
            .zip(fastest)
            .filter(|_| is_wide(paper))
            .map(|(bps, fastest)| bar(bps, fastest, paper));
        let facts = [
            (id, Style::new()),
            (member.rate_bps.map(|bps| format!("{:>11}", rate(bps))), Style::new()),
            (bar, Style::new().fg_color(if is_slow { RED } else { GREEN })),
            (is_slow.then(|| "the slow one".to_owned()), Style::new()),
            ((member.rank == graph.me).then(|| "this node".to_owned()), Style::new()),
        ];
        row((format!("{:>2} {name}{blank}", member.rank), Style::new()), facts, paper)
    };
    graph.members.iter().map(line).collect()
}

fn is_wide(paper: Paper) -> bool {
    paper.columns >= CIRCLE_COLUMNS_MIN
}

/// A bar whose length is proportional to `bps`, at least one cell, padded to full length.
fn bar(bps: u64, fastest: u64, paper: Paper) -> String {
    let long = (u128::from(bps) * BAR as u128).div_ceil(u128::from(fastest.max(1))) as usize;
    let drawn = if paper.unicode { "█" } else { "#" }.repeat(long.min(BAR));
    drawn + &" ".repeat(BAR.saturating_sub(long))
}

/// As many of the items as fit, the most important first, with two blanks between them and at the
/// edge.
fn row(
    first: (String, Style),
    facts: impl IntoIterator<Item = (Option<String>, Style)>,
    paper: Paper,
) -> String {
    let (mut line, mut taken) = (String::new(), 0);
    let facts = facts.into_iter().filter_map(|(fact, style)| Some((fact?, style)));
    for (fact, style) in std::iter::once(first).chain(facts) {
        taken += 2 + width(&fact);
        if taken > paper.columns {
            break;
        }
        line += if line.is_empty() { "" } else { "  " };
        if paper.colours && style != Style::new() {
            let (letters, blanks) = fact.split_at(fact.trim_end().len());
            line += &format!("{style}{letters}{style:#}{blanks}");
        } else {
            line += &fact;
        }
    }
    line.trim_end().to_owned()
}

/// The length of the longest bar.
const BAR: usize = 16;

/// One line per link; in large groups only for this node's own links.
fn links(graph: &GraphDocument, paper: Paper) -> Vec<String> {
    let is_told = |link: &&GraphLink| graph.members.len() < MANY || link.path.is_some();
    graph.links.iter().filter(is_told).map(|link| link_line(graph, link, paper)).collect()
}

fn link_line(graph: &GraphDocument, link: &GraphLink, paper: Paper) -> String {
    let sign = match (paper.unicode, link.is_used()) {
        (true, true) => "━━",
        (true, false) => "┄┄",
        (false, true) => "==",
        (false, false) => "--",
    };
    let interface =
        link.path.as_ref().and_then(|path| Some(format!(" ({})", plain(path.interface.as_ref()?))));
    let kinds = kinds(link).map(|kinds| kinds + &interface.unwrap_or_default());
    let path = link.path.as_ref().map(|path| format!("to {}", path.remote));
    let rtt = link.rtt_us().map(|us| time(u64::from(us)));
    let share = share(link).unwrap_or_else(|| "not used by the plan".to_owned());
    let facts = [rates(link), rtt, kinds, Some(share), path].map(|fact| (fact, Style::new()));
    let ends = format!("{:>2} {sign} {:<2}", link.a, link.b);
    row((ends, style(pace(link, fastest_bps(graph)))), facts, paper)
}

/// Wraps text at word boundaries; lines are longer than `columns` only for single long words.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

const RED: Option<anstyle::Color> = Some(anstyle::Color::Ansi(AnsiColor::Red));
const GREEN: Option<anstyle::Color> = Some(anstyle::Color::Ansi(AnsiColor::Green));

fn style(pace: Pace) -> Style {
    let colour = match pace {
        Pace::Fast => AnsiColor::Green,
        Pace::Middling => AnsiColor::Yellow,
        Pace::Slow => AnsiColor::Red,
        Pace::Unknown => AnsiColor::Cyan,
    };
    Style::new().fg_color(Some(colour.into()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::graph;
    use super::*;

    const WIDE: Paper = Paper { columns: 100, colours: false, unicode: true };

    fn mixed() -> GraphDocument {
        graph(&["ada", "bob", "cyd", "dan"], &[940, 940, 280, 94])
    }

    #[test]
    fn the_picture_names_everybody_and_the_slow_one() {
        let text = drawn(&mixed(), WIDE);
        println!("{text}");
        for part in [
            "0 \"ada\"",
            "\"cyd\"",
            "280 Mbit/s",
            "ethernet (eth0)",
            "to 10.77.0.2:47474",
            "0.21 ms",
            "2.00 buffers",
            "ethernet to shared ethernet",
            "not used",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
        assert!(
            text.contains("\"dan\" is the slow one: 94 Mbit/s where others have up to 940 Mbit/s"),
            "{text}"
        );
        assert!(
            text.contains("plan: 4 members whose links differ")
                && text.contains("64 MiB should take 5.70 s"),
            "{text}"
        );
        assert_eq!(text, drawn(&mixed(), WIDE), "the same graph, another picture");
    }

    #[test]
    fn no_line_is_wider_than_the_paper_and_colours_change_no_letter() {
        for size in 1..=16 {
            let names: Vec<String> = (0..size).map(|rank| format!("machine-{rank}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let graph =
                graph(&names, &(0..size as u64).map(|rank| 1000 - 60 * rank).collect::<Vec<_>>());
            for columns in [40, 59, 60, 80, 200] {
                let paper = Paper { columns, ..WIDE };
                let text = drawn(&graph, paper);
                for line in text.lines() {
                    assert!(width(line) <= columns, "{size} members on {columns} columns: {line}");
                }
                let coloured = drawn(&graph, Paper { colours: true, ..paper });
                assert!(size == 1 || coloured != text, "no colours");
                assert_eq!(without_styles(&coloured), text);
            }
        }
    }

    fn without_styles(text: &str) -> String {
        let mut parts = text.split('\u{1b}');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
    }

    #[test]
    fn where_only_ascii_is_shown_there_is_only_ascii() {
        let text = drawn(&mixed(), Paper { unicode: false, ..WIDE });
        assert!(text.is_ascii() && text.contains("0 == 1") && text.contains("#"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_not_made_up() {
        let text = drawn(&graph(&["ada", "bob"], &[0, 0]), WIDE);
        assert!(!text.contains("bit/s") && !text.contains("slow one"), "{text}");
        let alone = drawn(&graph(&["ada"], &[0]), WIDE);
        assert!(alone.contains("1 member on") && alone.contains("this node"), "{alone}");
    }

    #[test]
    fn a_name_stays_a_name() {
        let nasty = graph(
            &["\u{1b}[2J\u{202e}evil\n 9 \"root\"", "小小小小小小小小小小小小小小小小"],
            &[940, 940],
        );
        let text = drawn(&nasty, WIDE);
        assert!(
            !text.chars().any(|c| c.is_control() && c != '\n') && !text.contains('\u{202e}'),
            "{text:?}"
        );
        let plain = drawn(&graph(&["a", "b"], &[940, 940]), WIDE);
        assert_eq!(text.lines().count(), plain.lines().count(), "a name makes lines");
        assert!(text.contains("小小小小小小小…\""), "{text}");
    }
}
