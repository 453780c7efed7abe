//! Frames of a group of four: against the files in `tests/golden`, and at every width.

use super::*;
use crate::picture::testing::graph;
use serde_json::{Value, json};

const COLUMNS: [usize; 2] = [80, 200];

/// The node of this rank as it would tell of itself. Rank 3 has a slow cable, and rank 1 waits.
fn node(rank: usize, names: &[&str], committed: u64) -> StatusDocument {
    let rates = [940, 940, 280, 94];
    let graph = graph(names, &rates[..names.len()]);
    let members: Vec<Value> = graph
        .members
        .iter()
        .map(|m| json!({"rank": m.rank, "name": m.name, "node": m.node}))
        .collect();
    let mut document = json!({
        "ok": true, "running": true, "node": graph.members[rank].node, "name": names[rank],
        "process": 4000 + rank, "namespace": "default", "job": "train", "open": false,
        "port": 47474, "state": "in", "state_text": "in",
        "view": {
            "id": format!("{}#1f0c2a9e", 7 - names.len()), "engine": "native",
            "engine_reason": "all members prefer it", "plan": graph.plan, "in_sync": true,
            "begun": true, "committed": committed, "members": members,
        },
        "peers": [], "interfaces": [], "reasons": [], "other_jobs": [], "topology": graph,
        "counters": {
            "views": 2, "links": 3, "strangers": 0, "other_versions": 0, "overloads": 0,
            "misbehaviours": 0, "committed": committed,
        },
        "gloo": null,
    });
    if rank == 1 {
        document["reasons"] = json!(["operation 12 has waited 3 s for rank 2 (cyd e9f2a1b4)"]);
    }
    serde_json::from_value(document).expect("a status document")
}

/// A program that waits, and an observer.
fn others() -> [StatusDocument; 2] {
    let of = |name: &str, job: &str, key: &str, state: &str, text: &str, observer: bool| {
        let document = json!({
            "ok": true, "running": true, "node": key.repeat(8), "name": name, "process": 1,
            "namespace": "default", "job": job, "open": false, "port": 1, "observer": observer,
            "state": state, "state_text": text, "view": null, "peers": [], "interfaces": [],
            "reasons": [], "other_jobs": [], "gloo": null,
            "counters": {
                "views": 0, "links": 0, "strangers": 0, "other_versions": 0, "overloads": 0,
                "misbehaviours": 0, "committed": 0,
            },
        });
        serde_json::from_value(document).expect("a status document")
    };
    let waits = "1 of 2 here; waiting for one more (members = 2)";
    [
        of("eve", "render", "e0e1e2e3", "not-enough-peers", waits, false),
        of("ada", "potluck", "0b0b0b0b", "observing", "observing 5 nodes", true),
    ]
}

const FOUR: [&str; 4] = ["ada", "bob", "cyd", "dan"];

/// Four that call; then the last one is lost.
fn course() -> (Vec<StatusDocument>, History) {
    let mut history = History::default();
    let mut nodes = Vec::new();
    for (second, names) in [(0, &FOUR[..]), (2, &FOUR), (4, &FOUR[..3])] {
        let committed = 1000 + 120 * second;
        nodes = (0..names.len()).map(|rank| node(rank, names, committed)).collect();
        nodes.extend(others());
        history.look(&nodes, Duration::from_secs(second));
    }
    (nodes, history)
}

fn lines(
    nodes: &[StatusDocument],
    history: &History,
    paper: Paper,
    rows: Option<usize>,
) -> Vec<String> {
    let scene = Scene { namespace: "default", nodes, history, at: Duration::from_secs(7) };
    frame(&scene, Size { paper, rows })
}

fn paper(columns: usize) -> Paper {
    Paper { columns, colours: false, unicode: true }
}

#[test]
fn a_frame_is_that_of_the_golden_file() {
    let golden = [
        include_str!("../../../tests/golden/top-80.txt"),
        include_str!("../../../tests/golden/top-200.txt"),
    ];
    let (nodes, history) = course();
    for (columns, golden) in COLUMNS.into_iter().zip(golden) {
        let computed = lines(&nodes, &history, paper(columns), None).join("\n") + "\n";
        assert!(
            computed == golden,
            "cli/tests/golden/top-{columns}.txt says otherwise; this build draws\n{computed}"
        );
    }
}

#[test]
fn no_line_is_wider_than_the_paper_and_no_frame_higher() {
    let (mut nodes, history) = course();
    nodes[0].name = "a very long name of a machine in the cellar".to_owned();
    for columns in 60..=250 {
        for unicode in [true, false] {
            let paper = Paper { columns, colours: false, unicode };
            for rows in [None, Some(1), Some(10), Some(17), Some(24), Some(60)] {
                let lines = lines(&nodes, &history, paper, rows);
                let widest = lines.iter().map(|line| width(line)).max();
                assert!(widest <= Some(columns), "{columns} columns: {lines:#?}");
                assert!(rows.is_none_or(|rows| lines.len() <= rows), "{rows:?}: {lines:#?}");
                assert!(unicode || lines.iter().all(|line| line.is_ascii()), "{lines:#?}");
            }
        }
    }
}

#[test]
fn where_rows_are_few_links_go_first_and_members_stay() {
    let (nodes, history) = course();
    let all = lines(&nodes, &history, paper(80), None);
    let few = lines(&nodes, &history, paper(80), Some(all.len() - 2));
    for part in ["\"ada\"", "\"bob\"", "\"cyd\"", "Waits", "Events", "is gone"] {
        assert!(few.iter().any(|line| line.contains(part)), "no {part} in {few:#?}");
    }
    let links = |lines: &[String]| lines.iter().filter(|line| line.contains('━')).count();
    assert!(links(&few) < links(&all), "{few:#?}");
    assert!(all.len() - 2 >= few.len() && few.len() > all.len() - 6, "{few:#?}");
}

#[test]
fn colours_change_no_letter_and_a_name_makes_no_lines() {
    let (mut nodes, history) = course();
    nodes[1].name = "\u{1b}[2J\u{202e}evil\n9".to_owned();
    nodes[1].reasons = vec!["\u{9b}2J\nand more".to_owned()];
    let plain = lines(&nodes, &history, paper(80), None);
    assert!(!plain.concat().contains(|c: char| c.is_control() || c == '\u{202e}'), "{plain:#?}");
    let coloured = lines(&nodes, &history, Paper { colours: true, ..paper(80) }, None);
    let bare = unstyled(&coloured.join("\n"));
    assert_ne!(coloured, plain);
    assert_eq!(bare, plain.join("\n"));
}

/// The text without the sequences that set a style.
fn unstyled(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
fn a_loss_is_an_event_and_what_was_there_first_is_none() {
    let (nodes, history) = course();
    let texts: Vec<&str> = history.events().map(|event| event.text.as_str()).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("\"dan\"") && text.ends_with("is gone")));
    assert!(
        texts
            .iter()
            .any(|text| text.starts_with("job train: view 4#1f0c2a9e of 3, without \"dan\"")),
        "{texts:?}"
    );
    assert_eq!(history.calls_per_s(&nodes[0].node), Some(120.0));
    assert_eq!(history.calls_per_s("unknown"), None);
}

#[test]
fn a_program_that_starts_again_begins_to_count_again() {
    let mut history = History::default();
    let mut document = node(0, &FOUR, 5000);
    history.look(&[document.clone()], Duration::ZERO);
    document.process += 1;
    document.counters.committed = 10;
    history.look(&[document.clone()], Duration::from_secs(1));
    assert_eq!(history.calls_per_s(&document.node), None);
    document.counters.committed = 40;
    history.look(&[document.clone()], Duration::from_secs(2));
    assert_eq!(history.calls_per_s(&document.node), Some(30.0));
    let texts: Vec<&str> = history.events().map(|event| event.text.as_str()).collect();
    assert!(texts.len() == 1 && texts[0].ends_with("has started again"), "{texts:?}");
}

#[test]
fn a_view_that_a_member_has_left_is_not_shown() {
    let now: Vec<StatusDocument> = (0..3).map(|rank| node(rank, &FOUR[..3], 1)).collect();
    let before: Vec<StatusDocument> = (0..4).map(|rank| node(rank, &FOUR, 1)).collect();
    // The second member and the lost one still tell of the View before.
    let nodes = [now[0].clone(), before[1].clone(), before[3].clone()];
    let text = lines(&nodes, &History::default(), paper(80), None).join("\n");
    assert_eq!(text.matches("members of view").count(), 1, "{text}");
    assert!(text.contains("3 members of view"), "{text}");
    let (_, without) = text.split_once("Without a group").expect("the lost one is in none");
    let without = without.split("Waits").next().unwrap_or_default();
    assert!(without.contains("\"dan\"") && !without.contains("\"bob\""), "{text}");
    // While nobody has left it, it is.
    let text = lines(&before, &History::default(), paper(80), None).join("\n");
    assert!(text.contains("4 members of view") && !text.contains("Without"), "{text}");
}

#[test]
fn without_any_node_a_frame_says_so() {
    let lines = lines(&[], &History::default(), paper(60), Some(24));
    assert!(lines.concat().contains("No node of this cluster answers"), "{lines:#?}");
}
