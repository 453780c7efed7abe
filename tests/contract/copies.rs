//! Collectives that copy without reduction.

use super::numbers::input;
use anyhow::{Result, ensure};
use potluck::{Cluster, Context};

pub async fn copies(_cluster: Cluster, mut context: Context) -> Result<()> {
    for (root, len) in [(0, 0), (1, 1), (2, 5), (0, 100_003), (2, 300_000)] {
        let mut buffer: Vec<f32> = input(root as u64, context.rank().index(), len);
        let expected: Vec<f32> = input(root as u64, root, len);
        context.broadcast(root, &mut buffer).await?;
        ensure!(
            buffer.iter().map(|x| x.to_bits()).eq(expected.iter().map(|x| x.to_bits())),
            "broadcast from {root} of {len}"
        );
        let mine: Vec<f64> = input(7, context.rank().index(), len);
        let all = context.all_gather(&mine).await?;
        let expected = (0..3).flat_map(|rank| input::<f64>(7, rank, len));
        ensure!(
            all.iter().map(|x| x.to_bits()).eq(expected.map(f64::to_bits)),
            "all_gather of {len}"
        );
    }
    context.barrier().await?;
    let nowhere = context.broadcast(9, &mut [0f32; 4]).await;
    ensure!(nowhere.is_err(), "there is no rank 9");
    context.barrier().await?;
    Ok(())
}
