//! The documents of the command as text, and its text about nodes that only announce themselves.

use potluck::NodeId;
use potluck::keys::StoredKey;
use potluck::report::document::{MemberDocument, StatusDocument};
use potluck::report::{Membership, Neighbour};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write;

/// A node of which announcements were received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighbourDocument {
    pub version: u8,
    pub addresses: Vec<String>,
    /// ours, other, other-version, invitation or none.
    pub cluster: String,
}

impl From<&Neighbour> for NeighbourDocument {
    fn from(neighbour: &Neighbour) -> NeighbourDocument {
        let cluster = match neighbour.membership {
            Membership::Ours => "ours",
            Membership::OtherVersion => "other-version",
            Membership::None => "none",
            Membership::Invitation => "invitation",
            _ => "other",
        };
        let addresses = neighbour.addresses.iter().map(ToString::to_string).collect();
        NeighbourDocument { version: neighbour.version, addresses, cluster: cluster.to_owned() }
    }
}

/// The kind of node that announces itself, and a remedy.
pub fn neighbour_kind(neighbour: &NeighbourDocument) -> String {
    match neighbour.cluster.as_str() {
        "ours" => "a node of this cluster".to_owned(),
        "other-version" => format!(
            "a node that speaks protocol {}: run the same version on both",
            neighbour.version
        ),
        "none" => "a node without a cluster".to_owned(),
        "invitation" => {
            "an invitation: `potluck join CODE` with the code that is shown there".to_owned()
        }
        _ => "a node of another cluster: `potluck join` enters it with its key".to_owned(),
    }
}

/// A line about a node that announces itself.
pub fn neighbour_text(neighbour: &NeighbourDocument) -> String {
    format!("{}  {}", neighbour.addresses.join(" "), neighbour_kind(neighbour))
}

/// The status as several lines of text.
pub fn status_text(status: &StatusDocument) -> String {
    let StatusDocument { name, node, namespace, job, port, state_text, .. } = status;
    let open = if status.open { ", open to everybody who knows that name" } else { "" };
    let mut text = format!(
        "\"{name}\" {} in namespace {namespace}{open}, job {job}, process {}, port {port}\n\
         {state_text}",
        short(node),
        status.process
    );
    if let Some(view) = &status.view {
        let _ = write!(text, ": view {}, {} operations", view.id, view.committed);
        let _ = write!(text, "\n  engine {}: {}", view.engine, view.engine_reason);
        for MemberDocument { rank, name, node, .. } in &view.members {
            let way = way_to(status, node);
            let _ = write!(text, "\n  {rank}  \"{name}\" {}{way}", short(node));
        }
    }
    for reason in &status.reasons {
        let _ = write!(text, "\n  {reason}");
    }
    let _ = write!(text, "\n  {}", gloo_line(status.gloo.as_deref()));
    text
}

/// The state of an observer, and a line for each group, for each node without one, and for the
/// other observers.
pub fn cluster_text(observer: &StatusDocument) -> String {
    let mut lines = vec![observer.state_text.clone()];
    let (observers, nodes): (Vec<&StatusDocument>, Vec<&StatusDocument>) =
        observer.observed.iter().partition(|node| node.observer);
    // A member is named with its View, also if it has not told yet that it is in it.
    let members = nodes.iter().filter_map(|node| node.view.as_ref()).flat_map(|v| &v.members);
    let members: BTreeSet<&String> = members.map(|member| &member.node).collect();
    let mut views = BTreeSet::new();
    for node in nodes {
        match &node.view {
            Some(view) if !views.insert(&view.id) => {}
            Some(view) => {
                let members: Vec<String> =
                    view.members.iter().map(|m| named(&m.name, &m.node)).collect();
                let (job, state, members) = (&node.job, &node.state_text, members.join(", "));
                lines.push(format!("job {job}, view {}: {members}: {state}", view.id));
            }
            None if members.contains(&node.node) => {}
            None => {
                let name = named(&node.name, &node.node);
                lines.push(format!("job {}: {name}: {}", node.job, node.state_text));
            }
        }
    }
    if !observers.is_empty() {
        let names: Vec<String> = observers.iter().map(|o| named(&o.name, &o.node)).collect();
        lines.push(format!("observers: {}", names.join(", ")));
    }
    lines.join("\n  ")
}

fn named(name: &str, node: &str) -> String {
    format!("\"{name}\" {}", short(node))
}

fn way_to(status: &StatusDocument, node: &str) -> String {
    if node == status.node {
        return "  this node".to_owned();
    }
    let Some(peer) = status.peers.iter().find(|peer| peer.node == node) else {
        return String::new();
    };
    let rtt = peer.rtt_us.map(|us| format!("  {:.1} ms", f64::from(us) / 1e3)).unwrap_or_default();
    let through = match peer.through.len() {
        0 if peer.forwarded => "  forwarded by something on the way".to_owned(),
        0 => String::new(),
        1 => "  through another node".to_owned(),
        more => format!("  through {more} others"),
    };
    format!("  {}{rtt}{through}", peer.address)
}

/// All 64 hexadecimal digits of a node's key.
pub fn hex(node: NodeId) -> String {
    node.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The version of Gloo in a build, as text.
pub fn gloo_line(gloo: Option<&str>) -> String {
    gloo.map_or_else(
        || "this build has no Gloo".to_owned(),
        |version| format!("this build has {version}"),
    )
}

/// The source of a key, in one word.
pub fn key_source(key: &StoredKey) -> &'static str {
    match key {
        StoredKey::Environment(_) => "environment",
        _ => "file",
    }
}

/// The first digits of a node's key, as all messages show it.
pub fn short(node: &str) -> &str {
    node.get(..8).unwrap_or(node)
}
