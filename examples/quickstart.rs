//! Every member contributes four numbers and gets the sum. Run it on two machines that have the
//! cluster key, or in two terminals of one machine: `cargo run --example quickstart -- --loopback`.

use potluck::{Builder, Cluster, Config, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let cluster = match std::env::args().nth(1).as_deref() {
        // No key: every process on this machine that uses this name is admitted.
        Some("--loopback") => {
            Builder::new(Config::loopback()).open_lan("quickstart").join().await?
        }
        _ => Cluster::join().await?,
    };
    let mut ctx = cluster.context().await?; // waits until there are two
    let mut numbers = [1.0, 2.0, 3.0, ctx.rank().index() as f32];
    ctx.all_reduce(&mut numbers).await?;
    println!("rank {} of {}: {numbers:?}", ctx.rank(), ctx.size());
    cluster.leave().await;
    Ok(())
}
