//! Views come and go without leaking threads, descriptors or memory.

use anyhow::{Context as _, Result, ensure};
use potluck::plan::EngineKind;
use potluck::{Builder, Cluster, Config, Context, EngineOffer};
use potluck_harness::{Need, Resources, Suite};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Every round makes two Views on the member that stays.
const ROUNDS: usize = 100;

/// After this many rounds everything that is allocated once exists.
const WARM: usize = 20;

fn main() {
    let mut suite = Suite::new();
    let missing = potluck::gloo_version().is_none().then_some("this build has no Gloo");
    suite.on("native", None);
    suite.serial("two hundred Views", &[Need::Proc], || run(EngineKind::Native));
    suite.on("gloo", missing);
    suite.serial("two hundred Views", &[Need::Proc], || run(EngineKind::Gloo));
    suite.run()
}

fn run(engine: EngineKind) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(come_and_go(engine))
}

async fn come_and_go(engine: EngineKind) -> Result<()> {
    let stays = join(engine).await?;
    let mut views = std::collections::BTreeSet::new();
    let mut warm = None;
    for round in 0..ROUNDS {
        let comes = join(engine).await?;
        let (mut a, mut b) = tokio::try_join!(pair(&stays), pair(&comes))?;
        ensure!(
            a.view() == b.view() && a.engine() == engine,
            "{} and {} on {}",
            a.view(),
            b.view(),
            a.engine()
        );
        views.insert(a.view());
        let (mut x, mut y) = (vec![1f32; 40_000], vec![2f32; 40_000]);
        tokio::try_join!(a.all_reduce(&mut x), b.all_reduce(&mut y))?;
        ensure!(x.iter().chain(&y).all(|sum| *sum == 3.0), "a wrong sum");
        drop((a, b));
        comes.leave().await;
        tokio::time::timeout(Duration::from_secs(30), alone(&stays))
            .await
            .context("the other one stays in the View")?;
        if round == WARM {
            warm = Some(spawn_blocking(Resources::settled).await??);
        }
    }
    ensure!(views.len() == ROUNDS, "only {} Views of two", views.len());
    let before = warm.context("there were more rounds")?;
    let known = before.clone();
    let after = spawn_blocking(move || Resources::back_to(&known)).await??;
    println!("measured: {engine}: {before:?} after {WARM} rounds, {after:?} after {ROUNDS}");
    ensure!(after.is_within(&before), "{before:?} became {after:?}");
    // The allocator does not return all freed memory. A leak of one small context per round would
    // be far more.
    ensure!(after.rss_kib < before.rss_kib + 4096, "{before:?} became {after:?}");
    stays.leave().await;
    Ok(())
}

async fn join(engine: EngineKind) -> Result<Cluster> {
    let offered = if engine == EngineKind::Gloo { EngineOffer::Gloo } else { EngineOffer::Native };
    let namespace = format!("views-{}-{engine}", std::process::id() % 100_000);
    Ok(Builder::new(Config::local()).open_lan(namespace).engine(offered).stateless().join().await?)
}

/// The newest View, which must have two members.
async fn pair(cluster: &Cluster) -> Result<Context> {
    loop {
        let context = tokio::time::timeout(Duration::from_secs(30), cluster.context())
            .await
            .context("nobody came")??;
        if context.size() == 2 && cluster.status().view.is_some_and(|view| view.members.len() == 2)
        {
            return Ok(context);
        }
        // The old View of two, which has just ended.
        tokio::task::yield_now().await;
    }
}

/// Returns when the other member has left the View.
async fn alone(cluster: &Cluster) {
    let mut statuses = cluster.watch();
    while let Some(status) = statuses.next().await {
        if status.view.is_none_or(|view| view.members.len() == 1) {
            return;
        }
    }
}
