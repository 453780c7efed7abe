//! Nodes from documents: the known data of each, and the table.

use super::peer::{peers_of, reasons_of};
use super::text::table;
use crate::picture::testing::graph;
use crate::picture::{Paper, width};
use crate::selection::Found;
use potluck::report::document::StatusDocument;
use serde_json::{Value, json};

/// The node of rank 0 of a group of three, with the knowledge of a member.
fn ada() -> StatusDocument {
    let graph = graph(&["ada", "bob", "cyd"], &[940, 940, 94]);
    let member = |rank: usize| {
        let of = &graph.members[rank];
        json!({"rank": rank, "name": of.name, "node": of.node})
    };
    let peer = |rank: usize, through: &[&str]| {
        json!({
            "name": graph.members[rank].name, "node": graph.members[rank].node,
            "address": format!("10.77.0.{}:47474", rank + 1), "through": through, "rtt_us": 210,
        })
    };
    let document = json!({
        "ok": true, "running": true, "node": graph.members[0].node, "name": "ada",
        "process": 1, "namespace": "default", "job": "train", "open": false, "port": 47474,
        "state": "in", "state_text": "in",
        "view": {
            "id": "3#1f0c2a9e", "engine": "native", "engine_reason": "", "plan": "",
            "in_sync": true, "begun": true, "committed": 0,
            "members": [member(0), member(1), member(2)],
        },
        "peers": [peer(1, &[]), peer(2, &["bb"])],
        "interfaces": [{
            "interface": "eth0", "skipped": null, "addresses": ["10.77.0.1", "fe80::1"],
            "queries": 1, "heard": 1, "dropped": 0, "text": "eth0",
        }],
        "reasons": ["dan f00d0000 was lost three times within a minute and is kept out for 9 s"],
        "other_jobs": [{"job": "render", "nodes": [
            {"name": "dan", "node": "f00d0000".repeat(8)},
            {"name": null, "node": "beef0000".repeat(8)},
        ]}],
        "topology": graph, "gloo": null,
        "counters": {
            "views": 0, "links": 0, "strangers": 0, "other_versions": 0, "overloads": 0,
            "misbehaviours": 0, "committed": 0,
        },
    });
    serde_json::from_value(document).expect("a status document")
}

fn found() -> Found {
    Found { here: vec![ada()], nodes: vec![ada()], seen: None }
}

#[test]
fn a_member_knows_its_links_its_view_and_other_jobs() {
    let peers: Value = serde_json::to_value(peers_of(&found())).expect("a document");
    let names: Vec<&Value> = (0..5).map(|at| &peers[at]["name"]).collect();
    assert_eq!(names, [&Value::Null, &json!("dan"), &json!("ada"), &json!("bob"), &json!("cyd")]);
    let [ada, bob, cyd] = [2, 3, 4].map(|at| &peers[at]);
    assert_eq!(ada["here"], true);
    assert_eq!(ada["addresses"], json!(["10.77.0.1:47474", "[fe80::1]:47474"]));
    assert_eq!(ada["link"], Value::Null);
    assert_eq!(bob["link"]["rate_bps"], 940_000_000);
    assert_eq!(bob["link"]["interface"], "eth0");
    assert_eq!(bob["view"], json!({"id": "3#1f0c2a9e", "rank": 1, "members": 3}));
    assert_eq!(bob["state"], Value::Null, "it has told nothing");
    assert_eq!(cyd["link"]["through"], json!(["bb"]));
    assert_eq!(cyd["addresses"], json!([]), "the address of a relay is not its own");
    assert_eq!(cyd["port"]["rate_bps"], 94_000_000);
}

#[test]
fn a_node_without_a_link_has_the_reason_that_names_it() {
    let found = found();
    let peers = peers_of(&found);
    let dan = peers.iter().find(|peer| peer.name.as_deref() == Some("dan")).expect("dan");
    assert_eq!(dan.why.as_ref(), reasons_of(&found).first());
    assert_eq!(dan.job.as_deref(), Some("render"));
    let others = peers.iter().filter(|peer| peer.name.as_deref() != Some("dan"));
    assert!(others.clone().count() == 4 && others.clone().all(|peer| peer.why.is_none()));
}

#[test]
fn a_line_for_each_node_fits_on_the_paper() {
    let peers = peers_of(&found());
    for columns in 60..=250 {
        let paper = Paper { columns, colours: false, unicode: true };
        let lines = table(&peers, paper);
        assert_eq!(lines.len(), 1 + peers.len());
        assert!(lines.iter().all(|line| width(line) <= columns), "{columns}: {lines:#?}");
        for part in ["\"bob\"", "known, not linked", "\"?\""] {
            assert!(lines.iter().any(|line| line.contains(part)), "{columns}, {part}: {lines:#?}");
        }
    }
    let paper = Paper { columns: 200, colours: false, unicode: true };
    let lines = table(&peers, paper);
    let bob = lines.iter().find(|line| line.starts_with("\"bob\"")).expect("bob");
    for part in ["1 of 3", "ethernet", "0.21 ms", "940 Mbit/s", "linked", "10.77.0.2:47474"] {
        assert!(bob.contains(part), "no {part} in {bob}");
    }
}
