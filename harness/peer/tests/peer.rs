//! The program from outside, as far as it needs no network. cargo builds the program for this test,
//! and all other suites start it from where cargo leaves it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use potluck_harness::Child;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);

fn event(peer: &mut Child) -> Result<Value> {
    let line = peer.wait_for_line(|_| true, PATIENCE)?;
    serde_json::from_str(&line).with_context(|| line)
}

#[test]
fn what_it_cannot_execute_is_an_event_and_it_goes_on() -> Result<()> {
    let mut peer = Child::spawn_told(&mut Command::new(env!("CARGO_BIN_EXE_potluck-peer")))?;
    for (order, code) in [
        ("no JSON", "order"),
        (r#"{"do": "nothing"}"#, "order"),
        (r#"{"do": "status"}"#, "not-joined"),
        (r#"{"do": "context"}"#, "not-joined"),
        (r#"{"do": "all_reduce", "len": 10}"#, "no-context"),
    ] {
        peer.tell(order)?;
        let event = event(&mut peer)?;
        ensure!(event["event"] == "error" && event["code"] == code, "{order}: {event}");
    }
    peer.tell(r#"{"do": "leave"}"#)?;
    ensure!(event(&mut peer)? == json!({"event": "left"}));
    peer.end_input();
    let status = peer.wait(PATIENCE)?;
    ensure!(status.success(), "at the end of its input it ended with {status}");
    Ok(())
}

#[test]
fn asked_to_end_it_ends_well() -> Result<()> {
    let mut peer = Child::spawn_told(&mut Command::new(env!("CARGO_BIN_EXE_potluck-peer")))?;
    // An answer from the thread of the commands: then the signal is awaited.
    peer.tell(r#"{"do": "leave"}"#)?;
    event(&mut peer)?;
    peer.terminate()?;
    let status = peer.wait(PATIENCE)?;
    ensure!(status.success(), "asked to end, it ended with {status}");
    Ok(())
}
