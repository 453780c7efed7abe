//! A frame: members, links, the waits of calls, and events. A function of the known data, so equal
//! looks give equal frames.

use super::group::{Group, groups_of};
use super::history::{Event, History};
use crate::document::short;
use crate::picture::{Paper, plain, width};
use crate::table::{Column, Side, Table, shortened, styled};
use anstyle::{AnsiColor, Style};
use potluck::report::document::StatusDocument;
use std::collections::BTreeSet;
use std::time::Duration;

/// The contents of a frame.
pub struct Scene<'a> {
    pub namespace: &'a str,
    /// Of the selected nodes.
    pub nodes: &'a [StatusDocument],
    pub history: &'a History,
    /// Since the start.
    pub at: Duration,
}

/// The size of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub paper: Paper,
    /// The height in lines; `None` if all lines are shown.
    pub rows: Option<usize>,
}

/// A part of the frame. Of the parts that may be cut, those with a lower `order` are cut first.
struct Part {
    title: &'static str,
    lines: Vec<String>,
    order: Option<u8>,
}

/// The lines of the frame, none wider than the paper.
pub fn frame(scene: &Scene<'_>, size: Size) -> Vec<String> {
    let paper = size.paper;
    let mut parts = vec![Part::whole("", vec![head(scene, paper)])];
    if scene.nodes.is_empty() {
        let nobody = shortened("No node of this cluster answers yet.", paper.columns, paper);
        parts.push(Part::whole("", vec![nobody]));
    }
    let groups = groups_of(scene.nodes);
    for group in &groups {
        parts.push(Part::whole("", group.head(paper)));
        parts.push(Part::whole("", group.members(scene.history, paper)));
        parts.push(Part { title: "", lines: group.links(paper), order: Some(0) });
    }
    parts.push(Part::whole("Without a group", without_group(scene, &groups, paper)));
    parts.push(Part { title: "Waits", lines: waits(scene.nodes, paper), order: Some(2) });
    parts.push(Part { title: "Events", lines: events(scene, paper), order: Some(1) });
    parts.retain(|part| !part.lines.is_empty());
    let over = size.rows.map_or(0, |rows| height(&parts).saturating_sub(rows));
    cut(&mut parts, over);
    let mut lines = joined(parts, paper);
    lines.truncate(size.rows.unwrap_or(usize::MAX));
    lines
}

impl Part {
    fn whole(title: &'static str, lines: Vec<String>) -> Part {
        Part { title, lines, order: None }
    }

    /// Its lines with its title and the blank line above.
    fn height(&self) -> usize {
        1 + usize::from(!self.title.is_empty()) + self.lines.len()
    }
}

fn height(parts: &[Part]) -> usize {
    parts.iter().map(Part::height).sum::<usize>().saturating_sub(1)
}

/// Takes `over` lines from the ends of parts. A line says how many are left out.
fn cut(parts: &mut Vec<Part>, mut over: usize) {
    for order in 0..=2 {
        for part in parts.iter_mut().rev().filter(|part| part.order == Some(order)) {
            if over == 0 {
                return;
            }
            // One line more is needed to say so.
            let taken = (over + 1).min(part.lines.len());
            let kept = part.lines.len() - taken;
            if kept < 2 {
                over = over.saturating_sub(part.height());
                part.lines.clear();
            } else {
                part.lines.truncate(kept);
                part.lines.push(format!("... {taken} more"));
                over -= taken - 1;
            }
        }
        parts.retain(|part| !part.lines.is_empty());
    }
}

fn joined(parts: Vec<Part>, paper: Paper) -> Vec<String> {
    let mut lines = Vec::new();
    for part in parts {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        if !part.title.is_empty() {
            lines.push(styled(&shortened(part.title, paper.columns, paper), BOLD, paper));
        }
        lines.extend(part.lines);
    }
    lines
}

const BOLD: Style = Style::new().bold();

fn head(scene: &Scene<'_>, paper: Paper) -> String {
    let (observers, programs): (Vec<_>, Vec<_>) =
        scene.nodes.iter().partition(|node| node.observer);
    let jobs: BTreeSet<&str> = programs.iter().map(|node| node.job.as_str()).collect();
    let left = format!(
        "potluck top: namespace {}, {}, {}, {}",
        plain(scene.namespace),
        count(programs.len(), "node"),
        count(jobs.len(), "job"),
        count(observers.len(), "observer")
    );
    let right = format!("{} s", scene.at.as_secs());
    let left = shortened(&left, paper.columns, paper);
    let blank = paper.columns.saturating_sub(width(&left) + width(&right));
    let is_wide = blank > 1 && !scene.at.is_zero();
    let end = if is_wide { " ".repeat(blank) + &right } else { String::new() };
    styled(&left, BOLD, paper) + &end
}

fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

const WITHOUT_GROUP: [Column; 4] = [
    Column { title: "name", side: Side::Left, order: 0, least: Some(12) },
    Column { title: "id", side: Side::Left, order: 2, least: None },
    Column { title: "job", side: Side::Left, order: 1, least: Some(8) },
    Column { title: "state", side: Side::Left, order: 0, least: Some(16) },
];

/// Programs that are in none of the groups.
fn without_group(scene: &Scene<'_>, groups: &[Group<'_>], paper: Paper) -> Vec<String> {
    let alone = |node: &&StatusDocument| {
        !node.observer && groups.iter().all(|group| !group.has(&node.node))
    };
    let yellow = Style::new().fg_color(Some(AnsiColor::Yellow.into()));
    let mut table = Table::of(&WITHOUT_GROUP);
    for node in scene.nodes.iter().filter(alone) {
        table.push([
            (format!("\"{}\"", node.name), BOLD),
            (short(&node.node).to_owned(), Style::new()),
            (node.job.clone(), Style::new()),
            (node.state_text.clone(), yellow),
        ]);
    }
    table.lines(paper)
}

/// The sentences of the programs about missing members and waiting calls, each once.
fn waits(nodes: &[StatusDocument], paper: Paper) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for node in nodes.iter().filter(|node| !node.observer || nodes.len() == 1) {
        for reason in &node.reasons {
            let line = format!("\"{}\": {reason}", node.name);
            let line = shortened(&plain(&line), paper.columns, paper);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

fn events(scene: &Scene<'_>, paper: Paper) -> Vec<String> {
    let line = |Event { at, text }: &Event| {
        let ago = format!("{:>4} s ago", scene.at.saturating_sub(*at).as_secs());
        shortened(&format!("{ago}  {text}"), paper.columns, paper)
    };
    scene.history.events().take(EVENTS_SHOWN).map(line).collect()
}

/// Events that a frame shows.
const EVENTS_SHOWN: usize = 20;

#[cfg(test)]
mod tests;
