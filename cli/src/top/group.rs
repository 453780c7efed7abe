//! A group of the frame: its members, links and operations.

use super::history::{History, round};
use crate::document::short;
use crate::picture::{Paper, kinds, plain, rate, rates, share, time, wrapped};
use crate::table::{Cell, Column, Side, Table};
use anstyle::{AnsiColor, Style};
use potluck::report::document::{GraphLink, StatusDocument, ViewDocument};

/// A View with its members and paths.
pub struct Group<'a> {
    view: &'a ViewDocument,
    /// The node that tells of the View.
    teller: &'a StatusDocument,
    nodes: &'a [StatusDocument],
}

/// The groups of these nodes, each once, in the order of the nodes. A View that one of its members
/// has left for a later one has ended, although another member still tells of it.
pub fn groups_of(nodes: &[StatusDocument]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for teller in nodes {
        let Some(view) = &teller.view else { continue };
        if groups.iter().all(|known| known.view.id != view.id) && !has_ended(view, nodes) {
            groups.push(Group { view, teller, nodes });
        }
    }
    groups
}

fn has_ended(view: &ViewDocument, nodes: &[StatusDocument]) -> bool {
    let is_member = |node: &&StatusDocument| view.members.iter().any(|m| m.node == node.node);
    let views = nodes.iter().filter(is_member).filter_map(|node| node.view.as_ref());
    views.map(|other| round(&other.id)).max() > Some(round(&view.id))
}

const MEMBERS: [Column; 9] = [
    Column { title: "rank", side: Side::Right, order: 0, least: None },
    Column { title: "name", side: Side::Left, order: 0, least: Some(12) },
    Column { title: "id", side: Side::Left, order: 4, least: None },
    Column { title: "calls", side: Side::Right, order: 2, least: None },
    Column { title: "calls/s", side: Side::Right, order: 1, least: None },
    Column { title: "port", side: Side::Right, order: 3, least: None },
    Column { title: "process", side: Side::Right, order: 6, least: None },
    Column { title: "views", side: Side::Right, order: 7, least: None },
    Column { title: "state", side: Side::Left, order: 0, least: Some(16) },
];

const LINKS: [Column; 6] = [
    Column { title: "link", side: Side::Left, order: 0, least: None },
    Column { title: "rate", side: Side::Right, order: 0, least: None },
    Column { title: "rtt", side: Side::Right, order: 1, least: None },
    Column { title: "medium", side: Side::Left, order: 2, least: None },
    Column { title: "plan", side: Side::Left, order: 3, least: None },
    Column { title: "address", side: Side::Left, order: 4, least: None },
];

impl Group<'_> {
    /// Whether this node is a member.
    pub fn has(&self, node: &str) -> bool {
        self.view.members.iter().any(|member| member.node == node)
    }

    /// The job, the View and the plan.
    pub fn head(&self, paper: Paper) -> Vec<String> {
        let ViewDocument { id, engine, plan, members, .. } = self.view;
        let count = members.len();
        let members = if count == 1 { "member" } else { "members" };
        let head = format!(
            "job {}: {count} {members} of view {} on the {} engine",
            plain(&self.teller.job),
            plain(id),
            plain(engine)
        );
        let mut lines = wrapped(&head, paper.columns);
        lines.extend(wrapped(&format!("plan: {}", plain(plan)), paper.columns));
        lines
    }

    /// A line for each member.
    pub fn members(&self, history: &History, paper: Paper) -> Vec<String> {
        let mut table = Table::of(&MEMBERS);
        for member in &self.view.members {
            let document = self.nodes.iter().find(|node| node.node == member.node);
            let number = |value: Option<u64>| value.map(|n| n.to_string()).unwrap_or_default();
            let pace = history.calls_per_s(&member.node).map(|pace| format!("{pace:.1}"));
            table.push([
                cell(member.rank.to_string()),
                (format!("\"{}\"", member.name), Style::new().bold()),
                cell(short(&member.node).to_owned()),
                cell(number(document.map(|node| node.counters.committed))),
                cell(pace.unwrap_or_default()),
                cell(self.port_bps(member.rank).map(rate).unwrap_or_default()),
                cell(number(document.map(|node| node.process.into()))),
                cell(number(document.map(|node| node.counters.views))),
                self.state(member.rank, document),
            ]);
        }
        table.lines(paper)
    }

    /// A line for each measured or used link.
    pub fn links(&self, paper: Paper) -> Vec<String> {
        let mut table = Table::of(&LINKS);
        let graph = self.teller.topology.as_ref();
        for link in graph.iter().flat_map(|graph| &graph.links) {
            let sign = match (paper.unicode, link.is_used()) {
                (true, true) => "━━",
                (true, false) => "┄┄",
                (false, true) => "==",
                (false, false) => "--",
            };
            let [text_rate, text_kinds, text_share] =
                [rates(link), kinds(link), share(link)].map(Option::unwrap_or_default);
            let share = if link.is_used() { text_share } else { "not used".to_owned() };
            table.push([
                cell(format!("{:>2} {sign} {:<2}", link.a, link.b)),
                cell(text_rate),
                cell(link.rtt_us().map(|us| time(us.into())).unwrap_or_default()),
                cell(text_kinds),
                cell(share),
                cell(address(link)),
            ]);
        }
        table.lines(paper)
    }

    fn port_bps(&self, rank: usize) -> Option<u64> {
        let graph = self.teller.topology.as_ref()?;
        graph.members.iter().find(|member| member.rank == rank)?.rate_bps
    }

    fn state(&self, rank: usize, document: Option<&StatusDocument>) -> Cell {
        let graph = self.teller.topology.as_ref();
        let slow = graph.is_some_and(|graph| graph.slowest == Some(rank));
        // Without an observer, only the nodes of this machine tell their state.
        let told = document.map_or("member", |node| node.state_text.as_str()).to_owned();
        let text = if slow { told + ", the slow one" } else { told };
        let colour = match document.map(|node| node.state.as_str()) {
            Some("in") | None if !slow => AnsiColor::Green,
            _ => AnsiColor::Yellow,
        };
        (text, Style::new().fg_color(Some(colour.into())))
    }
}

fn address(link: &GraphLink) -> String {
    let path = link.path.as_ref();
    let interface = path.and_then(|path| path.interface.as_ref());
    match (path, interface) {
        (Some(path), Some(interface)) => format!("{} by {interface}", path.remote),
        (Some(path), None) => path.remote.to_string(),
        (None, _) => String::new(),
    }
}

fn cell(text: String) -> Cell {
    (text, Style::new())
}
