//! One process of the soak: it runs the program until it is asked to end.

use std::io::BufRead;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use potluck::{Builder, Config};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::file;
use crate::node::{Node, Pace, Program, calls, leave};

/// The lanes end together in this time. If a View ends meanwhile, one may wait for another one.
const TOGETHER: Duration = Duration::from_secs(20);

/// The program's words on its command line.
const USAGE: &str = "node NAME LIFE SEED LOG";

/// Runs the program until it is asked to end, by `finish` on standard input or by SIGTERM.
pub fn run(words: &[String]) -> ExitCode {
    calls::silence();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("POTLUCK_LOG"))
        .with_writer(std::io::stderr)
        .try_init();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = runtime.context("no runtime").and_then(|runtime| runtime.block_on(live(words)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn live(words: &[String]) -> Result<()> {
    let [name, life, seed, path] = words else { bail!("{USAGE}") };
    let (life, seed) = (life.parse().context("LIFE")?, seed.parse().context("SEED")?);
    let log = file::log(Path::new(path))?;
    let mut terminated = signal(SignalKind::terminate())?;
    log.tell(json!({"e": "start", "node": name, "life": life, "pid": std::process::id()}));
    let cluster = Builder::new(Config::home())
        .name(name.as_str())
        .interfaces("eth0")
        .min_members(2)
        .join()
        .await?;
    log.tell(json!({"e": "joined", "id": cluster.status().node.to_string()}));
    let pace = Pace { shorter: 1, slower: 1 };
    let program = Program { seed, name: name.clone(), life, pace };
    let node = Arc::new(Node::new(cluster, log, program));
    let watches = node.watches();
    let mut lanes = node.lanes();
    let mut input = input()?;
    let mut late = std::pin::pin!(sleep(Duration::MAX));
    loop {
        tokio::select! {
            line = input.recv() => match line {
                Some(_) => {
                    node.ask();
                    late.as_mut().reset(Instant::now() + TOGETHER);
                }
                // The parent process has ended.
                None => break,
            },
            _ = terminated.recv() => break,
            () = late.as_mut() => break,
            ended = lanes.join_next() => match ended {
                Some(Ok(())) => {}
                Some(Err(error)) => bail!("a lane: {error}"),
                None => break,
            },
        }
    }
    leave(&node, &mut lanes).await?;
    watches.into_iter().for_each(|watch| watch.abort());
    Ok(())
}

/// The lines of standard input.
pub fn input() -> Result<mpsc::UnboundedReceiver<String>> {
    let (lines, input) = mpsc::unbounded_channel();
    let read = move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("input".to_owned()).spawn(read)?;
    Ok(input)
}
