//! `top`: one frame in a pipe, and frames that change in a terminal.

use crate::group::{Group, SOON};
use crate::keys::KEY;
use crate::run::{Network, run, told};
use crate::shape::is_as_listed;
use crate::terminal::Terminal;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The width of a text whose characters are all one cell wide.
fn widest(frame: &str) -> usize {
    frame.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

pub fn once() -> Result<()> {
    let mut group = Group::up(["ada", "bob", "cyd"])?;
    group.measured("n1")?;
    let frame = |group: &Group, flags: &[&str]| -> Result<String> {
        let ran = group.run("n1", &[&["top", "--once"], flags].concat())?;
        ensure!(ran.code == 0 && ran.err.is_empty() && !ran.out.contains('\u{1b}'), "{ran:?}");
        Ok(ran.out)
    };
    let first = frame(&group, &[])?;
    println!("{first}");
    for part in ["\"ada\"", "\"bob\"", "\"cyd\"", "3 members of view", "bit/s", "plan: ", " 0 "] {
        ensure!(first.contains(part), "no {part} in {first}");
    }
    for columns in [60, 80, 250] {
        let frame = frame(&group, &["--columns", &columns.to_string()])?;
        ensure!(widest(&frame) <= columns, "{columns} columns: {frame}");
    }
    // Where stdout is no terminal, it is one frame and nothing else.
    let piped = group.run("n1", &["top", "--columns", "80"])?;
    ensure!(piped.code == 0 && piped.err.is_empty() && piped.out.contains("\"cyd\""), "{piped:?}");
    let document = group.run("n1", &["top", "--json"])?.json(0)?;
    ensure!(document["nodes"][0]["view"]["members"][2]["name"].is_string(), "{document}");
    is_as_listed("top", include_str!("../golden/json/top.txt"), &[document])?;

    group.nodes[2].process().kill()?;
    let killed = Instant::now();
    let lost = loop {
        let frame = frame(&group, &[])?;
        // A frame names all members of one View, so it shows the loss or nothing of it.
        let [with, without] = ["3 members of view", "2 members of view"].map(|n| frame.contains(n));
        let members = frame.split("\nWaits").next().unwrap_or_default();
        ensure!(with != without && members.contains("\"cyd\"") == with, "{frame}");
        if without {
            break frame;
        }
        ensure!(killed.elapsed() < SOON, "the loss is not shown: {frame}");
    };
    ensure!(lost.contains("\"ada\"") && lost.contains("\"bob\""), "{lost}");
    group.nodes.truncate(2);
    group.end()
}

pub fn without_nodes() -> Result<()> {
    let network = Network::loopback()?;
    let ran = run(&mut network.command("n1", "ada", &["top", "--loopback", "--once"]), "")?;
    ensure!(ran.code == 3 && ran.out.is_empty(), "{ran:?}");
    for said in ["looking around", "has no cluster key", "no node of namespace default runs"] {
        ensure!(ran.err.contains(said), "{ran:?}");
    }
    for columns in ["59", "251", "x"] {
        let arguments = ["top", "--loopback", "--columns", columns];
        let ran = run(&mut network.command("n1", "ada", &arguments), "")?;
        ensure!(ran.code == 2, "{ran:?}");
    }
    Ok(())
}

/// From a home without a node of its own, where `top` observes the group itself.
fn live_apart(group: &Group) -> Result<()> {
    let home = group.network.home("apart");
    told(&home, &["join"], KEY)?;
    let mut top = Terminal::start(&group.network.lab, "n1", &home, &["top"], (80, 40))?;
    let is_whole = |frame: &str| frame.contains("3 members of view");
    top.frame_where(is_whole, SOON)?;
    let lost = top.frame_where(|frame| !is_whole(frame), Duration::from_secs(4));
    ensure!(lost.is_err(), "{lost:?}");
    // Its observer is no `potluck up`.
    let mut up = group.network.up("n1", "apart", &[])?;
    up.wait_for_event("status", |s| s["observed"][2]["state"] == "in", SOON)?;
    up.terminate()?;
    up.wait(SOON)?;
    top.press("q")?;
    ensure!(top.ended(SOON)?.code() == Some(0));
    Ok(())
}

pub fn live() -> Result<()> {
    let mut group = Group::up(["ada", "bob", "cyd"])?;
    group.measured("n1")?;
    live_apart(&group)?;
    let mut up = group.network.up("n1", "n1", &[])?;
    up.wait_for_event("status", |s| s["observed"][2]["state"] == "in", SOON)?;
    let home = group.network.home("n1");
    let mut top = Terminal::start(&group.network.lab, "n1", &home, &["top"], (80, 40))?;
    top.frame_where(|frame| frame.contains("3 members of view"), SOON)?;

    // Calls are counted while they run.
    for node in &mut group.nodes {
        node.ask(&json!({"do": "context", "min": 3}), "context", SOON)?;
    }
    let is_counted = |frame: &str| calls_per_s(frame, "\"bob\"").is_some_and(|pace| pace > 0.5);
    let began = Instant::now();
    loop {
        for node in &mut group.nodes {
            node.order(&json!({"do": "barrier"}))?;
        }
        for node in &mut group.nodes {
            node.event_where("done", |done| done["ok"] == true, SOON)?;
        }
        match top.frame_where(is_counted, Duration::ZERO) {
            Ok(_) => break,
            Err(error) => ensure!(began.elapsed() < SOON, "{error}"),
        }
    }

    group.nodes[2].process().kill()?;
    let is_lost = |frame: &str| {
        frame.contains("2 members of view")
            && !frame.contains("3 members of view")
            && frame.contains("is gone")
            && frame.contains("without \"cyd\"")
    };
    let narrow = top.frame_where(is_lost, SOON)?;
    ensure!(widest(&narrow) <= 80 && narrow.lines().count() <= 40, "{narrow}");
    top.resize((200, 50))?;
    let wide = top.frame_where(|frame| widest(frame) > 80 && is_lost(frame), SOON)?;
    ensure!(widest(&wide) <= 200, "{wide}");
    top.resize((60, 12))?;
    let small = top.frame_where(|frame| frame.lines().count() <= 12, SOON)?;
    ensure!(widest(&small) <= 60 && small.contains("\"ada\""), "{small}");
    keep(&narrow, "top-80.txt")?;
    keep(&wide, "top-200.txt")?;

    // Ctrl-C, by the terminal.
    top.press("\u{3}")?;
    let status = top.ended(SOON)?;
    ensure!(status.code() == Some(130), "{status}");
    let mut top = Terminal::start(&group.network.lab, "n1", &home, &["top"], (80, 24))?;
    top.frame_where(|frame| frame.contains("2 members of view"), SOON)?;
    top.press("q")?;
    let status = top.ended(SOON)?;
    ensure!(status.code() == Some(0), "{status}");
    up.terminate()?;
    up.wait(SOON)?;
    group.nodes.truncate(2);
    group.end()
}

/// The figure below the title `calls/s` in the line of a member.
fn calls_per_s(frame: &str, name: &str) -> Option<f64> {
    let title = "calls/s";
    let end = frame.lines().find_map(|line| line.find(title))? + title.len();
    let member = frame.lines().find(|line| line.contains(name))?;
    let cells: String = member.chars().take(end).collect();
    cells.split_whitespace().last()?.parse().ok()
}

/// Writes the frame to the folder that `POTLUCK_FRAMES` names, as the documents have it.
fn keep(frame: &str, name: &str) -> Result<()> {
    let Some(folder) = std::env::var_os("POTLUCK_FRAMES").map(PathBuf::from) else {
        return Ok(());
    };
    let file = folder.join(name);
    std::fs::write(&file, frame).with_context(|| file.display().to_string())
}
