//! One suite over every way of finding each other: what a group of nodes promises.

use anyhow::{Context as _, Result, ensure};
use potluck::{Cluster, Config};
use potluck_harness::Suite;
use std::time::Duration;

fn main() {
    let mut suite = Suite::new();
    suite.test("process/three nodes add up", || run(three_nodes_add_up("three-add")));
    suite.run()
}

fn run(test: impl Future<Output = Result<()>>) -> Result<()> {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("POTLUCK_LOG"))
        .with_test_writer()
        .try_init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), test).await.context("the test took longer than a minute")?
    })
}

async fn node(namespace: &str, min: usize) -> Result<Cluster> {
    Ok(potluck::Builder::new(Config::local()).open_lan(namespace).min_members(min).join().await?)
}

async fn three_nodes_add_up(namespace: &'static str) -> Result<()> {
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(tokio::spawn(async move {
            let cluster = node(namespace, 3).await?;
            let mut ctx = cluster.context().await?;
            for len in [0, 1, 2, 3, 1000, 300_001] {
                let mut data = vec![(ctx.rank() + 1) as f32; len];
                ctx.all_reduce(&mut data).await?;
                ensure!(data.iter().all(|x| *x == 6.0), "wrong sum at {len}");
            }
            ctx.barrier().await?;
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}
