//! A program without a subscriber for traces is told on stderr what it waits for: one line per
//! wait.
//!
//! Whether there is a subscriber is a fact of a whole process, so each story runs in a process of
//! its own: this test starts itself.

use anyhow::{Result, ensure};
use potluck::report::Waiting;
use potluck::{Builder, Cluster, Config};
use potluck_harness::Suite;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Names the story that a process of this test is to run.
const STORY: &str = "POTLUCK_TEST_STORY";

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The lines that a process with this story writes to stderr.
fn told(story: &str, variables: &[(&str, &str)]) -> Result<Vec<String>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(STORY, story);
    command.env_remove("POTLUCK_NOTICES").env("POTLUCK_JOB", "train");
    command.envs(variables.iter().copied()).stdout(Stdio::null());
    let output = command.output()?;
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "{story}: {stderr}");
    Ok(stderr.lines().map(str::to_owned).collect())
}

fn main() {
    if let Ok(story) = std::env::var(STORY) {
        return run(&story);
    }
    let mut suite = Suite::new();
    suite.test("a program that waits for a context is told once for each wait", waits);
    suite.test("a call that waits names the member", calls);
    suite.test("nothing is written where it is not wanted, or where traces go elsewhere", silent);
    suite.run()
}

fn run(story: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let all = async {
        match story {
            "alone" => alone(Config::local()).await,
            "told off" => alone(Builder::new(Config::local()).notices(false).into()).await,
            "traced" => {
                tracing_subscriber::fmt().with_writer(std::io::sink).init();
                alone(Config::local()).await;
            }
            "a call" => call().await,
            other => panic!("no story {other}"),
        }
    };
    let story = async { tokio::time::timeout(PATIENCE, all).await.expect("in time") };
    runtime.expect("a runtime").block_on(story);
}

/// Waits for a Context twice, long enough for a line each.
async fn alone(config: Config) {
    let cluster = Cluster::join_with(config).await.expect("it joins");
    for _ in 0..2 {
        let waited = cluster.context_within(Duration::from_millis(4500)).await;
        assert!(waited.is_err(), "there is nobody else");
    }
}

/// One of two calls twice, and the other one answers the first call late.
async fn call() {
    let join = |name: &str| Builder::new(Config::local()).name(name).join();
    let (one, two) = (join("one").await.expect("one"), join("two").await.expect("two"));
    let (mut a, mut b) = (one.context().await.expect("one"), two.context().await.expect("two"));
    let (mut x, mut y) = ([1u32; 3], [2u32; 3]);
    let late = async {
        // The line is due after 10 s of the wait.
        let mut shown = one.watch();
        let is_long = |waiting: Waiting| waiting.since > Duration::from_secs(11);
        while !shown.next().await.expect("it runs").waiting.is_some_and(is_long) {}
        b.all_reduce(&mut y).await
    };
    let (first, second) = tokio::join!(a.all_reduce(&mut x), late);
    first.and(second).expect("both have called");
    assert_eq!((x, y), ([3; 3], [3; 3]));
}

fn waits() -> Result<()> {
    let lines = told("alone", &[])?;
    ensure!(lines.len() == 2, "{lines:?}");
    for line in &lines {
        ensure!(line.starts_with("potluck: job `train` waits for its group: "), "{line}");
        ensure!(line.ends_with("`potluck status` tells more"), "{line}");
    }
    Ok(())
}

fn calls() -> Result<()> {
    let lines = told("a call", &[])?;
    ensure!(lines.len() == 1, "{lines:?}");
    ensure!(lines[0].starts_with("potluck: operation "), "{lines:?}");
    ensure!(lines[0].contains("\"two\"") && lines[0].contains("has not called it"), "{lines:?}");
    Ok(())
}

fn silent() -> Result<()> {
    for (story, variables) in
        [("told off", &[][..]), ("traced", &[]), ("alone", &[("POTLUCK_NOTICES", "0")])]
    {
        let lines = told(story, variables)?;
        ensure!(lines.is_empty(), "{story} {variables:?}: {lines:?}");
    }
    Ok(())
}
