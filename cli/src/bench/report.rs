//! What was measured, as a document and as a table.

use crate::document::hex;
use crate::picture::words::{plain, rate, time};
use potluck::Context;
use serde::Serialize;
use std::fmt::Write;

use super::size::Size;

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

/// One direction of a link. What is not known is `None`.
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
    pub fn to_text(&self) -> String {
        let mut text = format!("{} machines on the {} engine\n", self.members.len(), self.engine);
        let _ = writeln!(text, "plan: {}\n", self.plan);
        let names: Vec<String> = (0..self.members.len()).map(|rank| self.named(rank)).collect();
        let wide = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(4);
        let _ = writeln!(
            text,
            "{:wide$}    {:wide$} {:>14} {:>14}",
            "from", "to", "predicted", "measured"
        );
        for link in &self.links {
            let [from, to] = [link.from, link.to].map(|rank| self.named(rank));
            let [predicted, measured] =
                [link.predicted_bps, link.measured_bps].map(|bps| bps.map_or("-".into(), rate));
            let _ = writeln!(text, "{from:wide$} -> {to:wide$} {predicted:>14} {measured:>14}");
        }
        let _ = writeln!(
            text,
            "\n{:>9} {:>11} {:>11} {:>11} {:>11} {:>7}",
            "sum of", "predicted", "median", "least", "most", "rounds"
        );
        for sum in &self.sums {
            let size =
                Size::of(sum.bytes).map_or_else(|_| sum.bytes.to_string(), |s| s.to_string());
            let predicted = sum.predicted_us.map_or("-".into(), time);
            let [median, least, most] = [sum.median_us, sum.min_us, sum.max_us].map(time);
            let _ = writeln!(
                text,
                "{size:>9} {predicted:>11} {median:>11} {least:>11} {most:>11} {:>7}",
                sum.rounds
            );
        }
        text + "Every sum was verified on every machine."
    }
}
