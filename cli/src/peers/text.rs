//! The nodes as a table.

use super::peer::PeerDocument;
use crate::document::short;
use crate::picture::{Paper, rate, time};
use crate::table::{Column, Side, Table};
use anstyle::{AnsiColor, Style};

const COLUMNS: [Column; 9] = [
    Column { title: "name", side: Side::Left, order: 0, least: Some(10) },
    Column { title: "id", side: Side::Left, order: 0, least: None },
    Column { title: "job", side: Side::Left, order: 2, least: Some(8) },
    Column { title: "rank", side: Side::Left, order: 7, least: None },
    Column { title: "medium", side: Side::Left, order: 6, least: None },
    Column { title: "rtt", side: Side::Right, order: 5, least: None },
    Column { title: "rate", side: Side::Right, order: 4, least: None },
    Column { title: "state", side: Side::Left, order: 1, least: Some(18) },
    Column { title: "addresses", side: Side::Left, order: 3, least: None },
];

/// A line for each node, below the titles.
pub fn table(peers: &[PeerDocument], paper: Paper) -> Vec<String> {
    let mut table = Table::of(&COLUMNS);
    for peer in peers {
        let style = style(peer);
        table.push([
            (format!("\"{}\"", peer.name.as_deref().unwrap_or("?")), Style::new().bold()),
            (short(&peer.node).to_owned(), Style::new()),
            (peer.job.clone().unwrap_or_default(), Style::new()),
            (rank(peer), Style::new()),
            (medium(peer), Style::new()),
            (rtt_us(peer).map(|us| time(us.into())).unwrap_or_default(), Style::new()),
            (rate_bps(peer).map(rate).unwrap_or_default(), Style::new()),
            (state(peer), style),
            (addresses(peer, paper), Style::new()),
        ]);
    }
    table.lines(paper)
}

/// All addresses where there is place, otherwise the shortest one and the number of the others.
fn addresses(peer: &PeerDocument, paper: Paper) -> String {
    let shortest = peer.addresses.iter().min_by_key(|address| address.len());
    match (shortest, peer.addresses.len()) {
        (Some(first), 2..) if paper.columns < WIDE => {
            format!("{first} +{}", peer.addresses.len() - 1)
        }
        _ => peer.addresses.join(" "),
    }
}

/// From this width on all addresses are listed.
const WIDE: usize = 160;

fn rank(peer: &PeerDocument) -> String {
    let of = |view: &super::peer::PlaceDocument| format!("{} of {}", view.rank, view.members);
    peer.view.as_ref().map(of).unwrap_or_default()
}

fn medium(peer: &PeerDocument) -> String {
    let link = peer.link.as_ref();
    let own = link.and_then(|link| link.kind.clone());
    let kind = own.or_else(|| peer.port.as_ref().and_then(|port| port.kind.clone()));
    let way = match link {
        Some(link) if !link.through.is_empty() => Some("relayed"),
        Some(link) if link.forwarded => Some("forwarded"),
        _ => None,
    };
    [kind.as_deref(), way].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Of the link of this machine, else to the nearest member of its group.
fn rtt_us(peer: &PeerDocument) -> Option<u32> {
    let of_link = peer.link.as_ref().and_then(|link| link.rtt_us);
    of_link.or_else(|| peer.port.as_ref().and_then(|port| port.rtt_us))
}

fn rate_bps(peer: &PeerDocument) -> Option<u64> {
    let of_link = peer.link.as_ref().and_then(|link| link.rate_bps);
    of_link.or_else(|| peer.port.as_ref().and_then(|port| port.rate_bps))
}

fn state(peer: &PeerDocument) -> String {
    let told = peer.state_text.clone();
    let told = told.unwrap_or_else(|| match peer.link {
        Some(_) => "linked".to_owned(),
        None => "known, not linked".to_owned(),
    });
    let here = peer.here.then(|| "here".to_owned());
    [Some(told), here, peer.why.clone()].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn style(peer: &PeerDocument) -> Style {
    let colour = match peer.state.as_deref() {
        Some("in" | "observing") => AnsiColor::Green,
        Some("alone" | "closed" | "kept-out" | "duplicate" | "one-way") => AnsiColor::Red,
        Some(_) => AnsiColor::Yellow,
        None => return Style::new(),
    };
    Style::new().fg_color(Some(colour.into()))
}
