//! Pictures of a group: for a terminal, as SVG, for Graphviz. They are deterministic: equal graphs
//! give equal pictures.

mod canvas;
mod circle;
mod dot;
mod svg;
mod terminal;
mod words;

pub use canvas::width;
pub use dot::dot;
pub use svg::svg;
pub use terminal::{Paper, drawn, wrapped};
pub use words::{kinds, plain, rate, rates, share, time, xml};

use potluck::report::document::{GraphDocument, GraphLink};

/// The rate of a link relative to the fastest link of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// At least two thirds.
    Fast,
    /// At least a quarter.
    Middling,
    /// Less than a quarter.
    Slow,
    /// Not measured.
    Unknown,
}

fn fastest_bps(graph: &GraphDocument) -> Option<u64> {
    graph.links.iter().filter_map(GraphLink::rate_bps).max()
}

fn pace(link: &GraphLink, fastest_bps: Option<u64>) -> Pace {
    match (link.rate_bps(), fastest_bps) {
        (Some(bps), Some(fastest)) if bps.saturating_mul(3) >= fastest.saturating_mul(2) => {
            Pace::Fast
        }
        (Some(bps), Some(fastest)) if bps.saturating_mul(4) >= fastest => Pace::Middling,
        (Some(_), Some(_)) => Pace::Slow,
        _ => Pace::Unknown,
    }
}

/// From this number of members on, links are not listed one by one.
const MANY: usize = 7;

#[cfg(test)]
pub mod testing {
    use potluck::report::document::GraphDocument;
    use serde_json::{Value, json};

    /// A full mesh. Member `k` has a port of `mbps[k]` Mbit/s, 0 for an unmeasured one. The plan is
    /// a tree with root 0.
    pub fn graph(names: &[&str], mbps: &[u64]) -> GraphDocument {
        let bps = |rank: usize| (mbps[rank] > 0).then_some(mbps[rank] * 1_000_000);
        let way = |a: usize, b: usize| {
            json!({
                "kind": "ethernet",
                "medium": (a == 3).then_some(0),
                "rtt_us": (a == 0).then_some(210),
                "rate_bps": bps(a).zip(bps(b)).map(|(a, b)| a.min(b)),
                "share_ppm": (a == 0 || b == 0).then_some(1_000_000),
            })
        };
        let path = |b: usize| {
            let remote = format!("10.77.0.{}:47474", b + 1);
            json!({"interface": "eth0", "local": "10.77.0.1:40000", "remote": remote})
        };
        let ranks = 0..names.len();
        let pairs =
            ranks.clone().flat_map(|a| ranks.clone().filter(move |b| a < *b).map(move |b| (a, b)));
        let link = |(a, b)| {
            let path = (a == 0).then(|| path(b));
            json!({"a": a, "b": b, "there": way(a, b), "back": way(b, a), "path": path})
        };
        let member = |rank: usize| {
            let first = (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let node = format!("{first:016x}{rank:048x}");
            json!({"rank": rank, "name": names[rank], "node": node, "rate_bps": bps(rank)})
        };
        let least = ranks.clone().min_by_key(|rank| mbps[*rank]);
        let plan = format!(
            "{} members whose links differ: 64 MiB over a tree to 0 take about 5.70 s",
            names.len()
        );
        let document = json!({
            "view": "3.1f0c2a9e",
            "me": 0,
            "engine": "native",
            "plan": plan,
            "plan_revision": 1,
            "slowest": least.filter(|rank| mbps[*rank] * 2 < mbps[0] && mbps[*rank] > 0),
            "members": (0..names.len()).map(member).collect::<Vec<Value>>(),
            "links": pairs.map(link).collect::<Vec<Value>>(),
            "forecasts": [{"bytes": 64 << 20, "us": 5_700_000}],
        });
        serde_json::from_value(document).expect("a document")
    }
}
