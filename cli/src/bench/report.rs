//! The measurements of one run, as a document and as tables.

use super::size::Size;
use crate::document::hex;
use crate::picture::{Paper, plain, rate, time};
use crate::table::{Column, Side, Table};
use anstyle::Style;
use potluck::Context;
use serde::Serialize;

/// The results of one run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub ok: bool,
    pub view: String,
    pub engine: String,
    pub plan: String,
    pub members: Vec<Member>,
    pub links: Vec<Link>,
    pub sums: Vec<Sum>,
}

#[derive(Debug, Serialize)]
pub struct Member {
    pub rank: usize,
    pub name: String,
    pub node: String,
}

/// One direction of a link. A rate is `None` if it is unknown.
#[derive(Debug, Serialize)]
pub struct Link {
    pub from: usize,
    pub to: usize,
    pub predicted_bps: Option<u64>,
    pub measured_bps: Option<u64>,
}

/// The sums of one size, in microseconds.
#[derive(Debug, Serialize)]
pub struct Sum {
    pub bytes: u64,
    pub rounds: usize,
    pub predicted_us: Option<u64>,
    pub median_us: u64,
    pub min_us: u64,
    pub max_us: u64,
}

impl Report {
    pub fn of(ctx: &Context, plan: String, links: Vec<Link>, sums: Vec<Sum>) -> Report {
        let member = |peer: &potluck::Peer| Member {
            rank: peer.rank.index(),
            name: peer.name.as_str().to_owned(),
            node: hex(peer.node),
        };
        Report {
            ok: true,
            view: ctx.view(),
            engine: ctx.engine().to_string(),
            plan,
            members: ctx.members().iter().map(member).collect(),
            links,
            sums,
        }
    }

    /// The name of a rank in quotes.
    pub fn named(&self, rank: usize) -> String {
        let name = self.members.get(rank).map_or("?", |member| &member.name);
        format!("{rank} \"{}\"", plain(name))
    }

    /// Two tables.
    pub fn to_text(&self, paper: Paper) -> String {
        let mut lines = vec![
            format!("{} machines on the {} engine", self.members.len(), self.engine),
            format!("plan: {}", self.plan),
        ];
        lines.push(String::new());
        lines.extend(self.table_of_links().lines(paper));
        lines.push(String::new());
        lines.extend(self.table_of_sums().lines(paper));
        lines.push("Every sum was verified on every machine.".to_owned());
        lines.join("\n")
    }

    fn table_of_links(&self) -> Table<'static> {
        let mut table = Table::of(&LINKS);
        for link in &self.links {
            let [from, to] = [link.from, link.to].map(|rank| self.named(rank));
            let [predicted, measured] = [link.predicted_bps, link.measured_bps].map(rate_or_dash);
            table.push([from, to, predicted, measured].map(|text| (text, Style::new())));
        }
        table
    }

    fn table_of_sums(&self) -> Table<'static> {
        let mut table = Table::of(&SUMS);
        for sum in &self.sums {
            let size =
                Size::of(sum.bytes).map_or_else(|_| sum.bytes.to_string(), |s| s.to_string());
            let predicted = sum.predicted_us.map_or_else(dash, time);
            let [median, least, most] = [sum.median_us, sum.min_us, sum.max_us].map(time);
            let row = [size, predicted, median, least, most, sum.rounds.to_string()];
            table.push(row.map(|text| (text, Style::new())));
        }
        table
    }
}

fn rate_or_dash(bps: Option<u64>) -> String {
    bps.map_or_else(dash, rate)
}

fn dash() -> String {
    "-".to_owned()
}

const LINKS: [Column; 4] = [
    column("from", Side::Left),
    column("to", Side::Left),
    column("predicted", Side::Right),
    column("measured", Side::Right),
];

const SUMS: [Column; 6] = [
    column("sum of", Side::Right),
    column("predicted", Side::Right),
    column("median", Side::Right),
    column("least", Side::Right),
    column("most", Side::Right),
    column("rounds", Side::Right),
];

const fn column(title: &'static str, side: Side) -> Column {
    Column { title, side, order: 0, least: None }
}
