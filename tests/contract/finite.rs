//! Reductions that reject NaNs and infinities.

use super::numbers::{Number, differs};
use anyhow::{Context as _, Result, bail, ensure};
use potluck::calls::OwnedError;
use potluck::{Cause, Cluster, Context, Error, bf16, f16};

/// A float type of these tests.
trait Float: Number {
    /// The largest number, a NaN and both infinities.
    const UNFIT: [Self; 4];
    const ONE: Self;
}

impl Float for f32 {
    const UNFIT: [f32; 4] = [f32::MAX, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    const ONE: f32 = 1.0;
}

impl Float for f64 {
    const UNFIT: [f64; 4] = [f64::MAX, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    const ONE: f64 = 1.0;
}

impl Float for f16 {
    const UNFIT: [f16; 4] = [
        f16::from_bits(0x7bff),
        f16::from_bits(0x7e01),
        f16::from_bits(0x7c00),
        f16::from_bits(0xfc00),
    ];
    const ONE: f16 = f16::from_bits(0x3c00);
}

impl Float for bf16 {
    const UNFIT: [bf16; 4] = [
        bf16::from_bits(0x7f7f),
        bf16::from_bits(0x7fc1),
        bf16::from_bits(0x7f80),
        bf16::from_bits(0xff80),
    ];
    const ONE: bf16 = bf16::from_bits(0x3f80);
}

const CALLS: [&str; 4] = ["all_reduce", "all_reduce_owned", "reduce", "reduce_scatter"];

/// Whether this rank uses `reject_non_finite`.
#[derive(Clone, Copy, PartialEq)]
enum Asks {
    Yes,
    No,
}

/// Sums with one of the reductions; for a reduce the last rank is the root, and the last shard
/// belongs to it. Fails if an error has changed a buffer.
async fn add<T: Float>(
    context: &mut Context,
    call: &str,
    mine: &[T],
    asks: Asks,
) -> Result<potluck::Result<()>> {
    let root = context.size() - 1;
    let mut buffer = mine.to_vec();
    let result = match (call, asks) {
        ("all_reduce", Asks::Yes) => context.all_reduce(&mut buffer).reject_non_finite().await,
        ("all_reduce", Asks::No) => context.all_reduce(&mut buffer).await,
        ("reduce", Asks::Yes) => context.reduce(root, &mut buffer).reject_non_finite().await,
        ("reduce", Asks::No) => context.reduce(root, &mut buffer).await,
        ("reduce_scatter", Asks::Yes) => {
            context.reduce_scatter(&buffer).reject_non_finite().await.map(drop)
        }
        ("reduce_scatter", Asks::No) => context.reduce_scatter(&buffer).await.map(drop),
        (_, asks) => {
            let call = context.all_reduce_owned(std::mem::take(&mut buffer));
            let result =
                if asks == Asks::Yes { call.reject_non_finite().await } else { call.await };
            result.map(drop).map_err(|OwnedError { error, buffer: back }| {
                buffer = back;
                error
            })
        }
    };
    ensure!(result.is_ok() || differs(&buffer, mine).is_none(), "{call} has touched the buffer");
    Ok(result)
}

/// The rank on which the number was found; `None` for this rank.
fn met_on(result: potluck::Result<()>) -> Result<Option<usize>> {
    let error = result.err().context("a number that is none was added")?;
    let Error::Aborted { cause: Cause::NonFinite { on } } = &error else { bail!("{error:?}") };
    ensure!(
        !error.is_retryable()
            && error.code() == "aborted"
            && error.to_string().contains("infinity"),
        "{error}"
    );
    Ok(on.as_ref().map(|peer| peer.rank.index()))
}

pub async fn handed_in(_cluster: Cluster, mut context: Context) -> Result<()> {
    nothing_is_sent(&mut context).await?;
    one_hands_in::<f32>(&mut context).await?;
    one_hands_in::<f64>(&mut context).await?;
    one_hands_in::<f16>(&mut context).await?;
    one_hands_in::<bf16>(&mut context).await
}

/// Rank 0 has a non-finite number and must not send it. Must run before all other calls, because
/// bytes are counted shortly after they are sent.
async fn nothing_is_sent(context: &mut Context) -> Result<()> {
    let has_it = context.rank() == 0;
    let mine = vec![if has_it { f32::NAN } else { 1.0 }; 70_000];
    for call in CALLS {
        met_on(add(context, call, &mine, if has_it { Asks::Yes } else { Asks::No }).await?)
            .context(call)?;
    }
    ensure!(!has_it || context.traffic().sent_bytes == 0, "{:?}", context.traffic());
    Ok(())
}

/// Rank 0 has a non-finite number and is the only rank that rejects.
async fn one_hands_in<T: Float>(context: &mut Context) -> Result<()> {
    let has_it = context.rank() == 0;
    for call in CALLS {
        for (len, bad) in [(1, T::UNFIT[1]), (6, T::UNFIT[2]), (70_000, T::UNFIT[3])] {
            let what = format!("{call} of {len} x {} on rank {}", T::DTYPE, context.rank());
            let mut mine = vec![T::ONE; len];
            if has_it {
                mine[len - 1] = bad;
            }
            let asks = if has_it { Asks::Yes } else { Asks::No };
            let met = met_on(add(context, call, &mine, asks).await.context(what.clone())?)
                .context(what.clone())?;
            ensure!(met == (!has_it).then_some(0), "{what}: on {met:?}");
            // No rank rejects, so the number is summed like others.
            add(context, call, &mine, Asks::No).await?.context(what.clone())?;
            add(context, call, &vec![T::ONE; len], Asks::Yes).await?.context(what)?;
        }
    }
    Ok(())
}

pub async fn overflowing(_cluster: Cluster, mut context: Context) -> Result<()> {
    sum_overflows::<f32>(&mut context).await?;
    sum_overflows::<f64>(&mut context).await?;
    sum_overflows::<f16>(&mut context).await?;
    sum_overflows::<bf16>(&mut context).await?;
    // Integer overflow is not checked.
    let mut sum = [u8::MAX; 9];
    context.all_reduce(&mut sum).reject_non_finite().await?;
    ensure!(sum == [0u8.wrapping_sub(context.size() as u8); 9], "{sum:?}");
    Ok(())
}

/// Every rank has the largest number at the end of its buffer. The last rank gets the sum of these
/// from every reduction.
async fn sum_overflows<T: Float>(context: &mut Context) -> Result<()> {
    let last = context.size() - 1;
    for call in CALLS {
        for len in [6, 70_000] {
            let what = format!("{call} of {len} x {} on rank {}", T::DTYPE, context.rank());
            let mut mine = vec![T::ONE; len];
            mine[len - 1] = T::UNFIT[0];
            met_on(add(context, call, &mine, Asks::Yes).await?).context(what.clone())?;
            // Only the last rank rejects, and is the one that errors name.
            let asks = if context.rank() == last { Asks::Yes } else { Asks::No };
            let met = met_on(add(context, call, &mine, asks).await?).context(what.clone())?;
            ensure!(met == (context.rank() != last).then_some(last), "{what}: on {met:?}");
            add(context, call, &mine, Asks::No).await?.context(what)?;
        }
    }
    Ok(())
}
