//! The observer of a run: it says when it sees the processes that it is asked for.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use potluck::report::document::StatusDocument;
use potluck::{Builder, Config, Observer};
use tokio::time::sleep;

use crate::process::input;

/// The interval between two looks at what it observes, while some that are asked for are missing.
const LOOK: Duration = Duration::from_millis(100);

/// Observes until the input ends. For each line, which names processes, it prints `seen` as soon as
/// it observes all of them.
pub fn run() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.context("no runtime").and_then(|runtime| runtime.block_on(observe()));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn observe() -> Result<()> {
    let config = Builder::new(Config::home()).name("observer").interfaces("eth0").into();
    let observer = Observer::start(config).await?;
    let mut input = input()?;
    while let Some(line) = input.recv().await {
        let names: Vec<&str> = line.split_whitespace().collect();
        let sees = |name: &&str| observer.nodes().iter().any(|node| is_member(node, name));
        while !names.iter().all(sees) {
            sleep(LOOK).await;
        }
        println!("seen");
    }
    observer.leave().await;
    Ok(())
}

fn is_member(node: &StatusDocument, name: &str) -> bool {
    node.name == name && !node.observer
}
