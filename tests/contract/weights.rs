//! Weighted means: the same bits on every rank, and those of a sequential reference.

use super::numbers::{Number, differs, input, reduced};
use super::on::{drop_too_late, meanwhile};
use anyhow::{Context as _, Result, ensure};
use potluck::calls::Rejection;
use potluck::plan::reference_sum;
use potluck::{Cause, Cluster, Codec, Context, Error, Float, GradientSync, ReduceOp, bf16, f16};
use std::time::Duration;

/// The weight of each rank. That of rank 2 is 0.
const WEIGHTS: [f64; 5] = [3.0, 0.1, 0.0, 7.25, 1e-3];

/// A number that has a mean.
trait Weighable: Number + Float {
    fn wide(self) -> f64;
    /// Rounded to nearest, halves by way of `f32`.
    fn narrow(wide: f64) -> Self;
}

macro_rules! weighable {
    ($($float:ty: $wide:expr, $narrow:expr;)*) => {
        $(
            impl Weighable for $float {
                fn wide(self) -> f64 {
                    $wide(self)
                }

                fn narrow(wide: f64) -> $float {
                    $narrow(wide)
                }
            }
        )*
    };
}

weighable! {
    f32: f64::from, |wide| wide as f32;
    f64: |x| x, |wide| wide;
    f16: |x: f16| f64::from(x.to_f32()), |wide| f16::from_f32(wide as f32);
    bf16: |x: bf16| f64::from(x.to_f32()), |wide| bf16::from_f32(wide as f32);
}

fn total(context: &Context, weights: &[f64]) -> f64 {
    let weights: Vec<Vec<f64>> = weights.iter().map(|weight| vec![*weight]).collect();
    reference_sum(&context.fold_order::<f64>(1), ReduceOp::Sum, &weights)[0]
}

/// The sequential reference.
fn mean_of<T: Weighable>(context: &Context, weights: &[f64], inputs: &[Vec<T>]) -> Vec<T> {
    let product =
        |weight: f64, x: T| if weight == 0.0 { T::ZERO } else { T::narrow(weight * x.wide()) };
    let products: Vec<Vec<T>> = inputs
        .iter()
        .zip(weights)
        .map(|(input, weight)| input.iter().map(|x| product(*weight, *x)).collect())
        .collect();
    let sums = reduced(&context.fold_order::<T>(inputs[0].len()), ReduceOp::Sum, &products);
    let total = total(context, weights);
    sums.into_iter().map(|sum| T::narrow(sum.wide() / total).canonical()).collect()
}

async fn is_the_reference<T: Weighable>(context: &mut Context, len: usize) -> Result<()> {
    let (rank, size) = (context.rank().index(), context.size());
    let inputs: Vec<Vec<T>> = (0..size).map(|rank| input(5, rank, len)).collect();
    let (mut mean, expected) = (inputs[rank].clone(), mean_of(context, &WEIGHTS[..size], &inputs));
    context.all_reduce(&mut mean).weighted(WEIGHTS[rank]).await?;
    let place = differs(&mean, &expected);
    ensure!(place.is_none(), "{len} x {}: {place:?} differs", T::DTYPE);
    let mut mean = inputs[rank].clone();
    let mut step = context.step();
    step.all_reduce(&mut mean).weighted(WEIGHTS[rank]);
    step.commit().await?;
    ensure!(differs(&mean, &expected).is_none(), "{len} x {} in a step", T::DTYPE);
    Ok(())
}

pub async fn are_the_reference(_cluster: Cluster, mut context: Context) -> Result<()> {
    for len in [0, 1, 1000, 70_001] {
        is_the_reference::<f32>(&mut context, len).await?;
        is_the_reference::<f64>(&mut context, len).await?;
        is_the_reference::<f16>(&mut context, len).await?;
        is_the_reference::<bf16>(&mut context, len).await?;
    }
    Ok(())
}

/// Weights of which no mean can be made, and calls that differ: every buffer stays as it is.
pub async fn refused(_cluster: Cluster, mut context: Context) -> Result<()> {
    let rank = context.rank().index();
    let given = vec![rank as f32 + 1.0; 70_001];
    let mut buffer = given.clone();
    for weight in [0.0, -0.0, f64::MAX] {
        let error =
            context.all_reduce(&mut buffer).weighted(weight).await.err().context("a mean")?;
        ensure!(
            matches!(error, Error::Aborted { cause: Cause::Weights }) && !error.can_renew(),
            "{error:?} for {weight}"
        );
        ensure!(buffer == given, "the buffer has changed for {weight}");
    }
    for wrong in [-1.0, f64::NAN, f64::INFINITY] {
        let weight = if rank == 1 { wrong } else { 1.0 };
        let error =
            context.all_reduce(&mut buffer).weighted(weight).await.err().context("a mean")?;
        let expected = match &error {
            Error::Rejected(Rejection::Weight) => rank == 1,
            Error::Aborted { cause: Cause::Dropped { by: Some(by) } } => by.rank == 1,
            _ => false,
        };
        ensure!(expected && buffer == given, "{error:?} for {wrong}");
    }
    let plain = if rank == 1 {
        context.all_reduce(&mut buffer).await
    } else {
        context.all_reduce(&mut buffer).weighted(1.0).await
    };
    ensure!(matches!(plain, Err(Error::Mismatch(_))) && buffer == given, "{plain:?}");
    if rank == 0 {
        drop(context.all_reduce(&mut buffer).weighted(1.0));
    } else {
        let error = context.all_reduce(&mut buffer).weighted(1.0).await.err().context("a mean")?;
        let by_0 = matches!(
            &error,
            Error::Aborted { cause: Cause::Dropped { by: Some(by) } } if by.rank == 0
        );
        ensure!(by_0 && buffer == given, "{error:?}");
    }
    context
        .all_reduce(&mut buffer)
        .mean()
        .weighted(1.0 + rank as f64)
        .deadline(Duration::from_secs(60))
        .await?;
    let size = context.size();
    let squares: usize = (1..=size).map(|number| number * number).sum();
    let expected = squares as f32 / (size * (size + 1) / 2) as f32;
    ensure!(buffer.iter().all(|mean| (mean - expected).abs() < 1e-6), "{}", buffer[0]);
    Ok(())
}

/// A NaN of a rank with weight 0 does not count; of another rank it can be refused.
pub async fn not_finite(_cluster: Cluster, mut context: Context) -> Result<()> {
    let rank = context.rank().index();
    let own = if rank == 1 { f32::NAN } else { 4.0 };
    let mut buffer = [own; 9];
    let weight = if rank == 1 { 0.0 } else { 2.0 };
    context.all_reduce(&mut buffer).weighted(weight).reject_non_finite().await?;
    ensure!(buffer == [4.0; 9], "{buffer:?}");
    buffer = [own; 9];
    let error = context.all_reduce(&mut buffer).reject_non_finite().weighted(1.0).await;
    ensure!(matches!(error, Err(Error::Aborted { cause: Cause::NonFinite { .. } })), "{error:?}");
    ensure!(buffer[0].to_bits() == own.to_bits(), "the buffer has changed");
    Ok(())
}

pub async fn encoded(_cluster: Cluster, mut context: Context) -> Result<()> {
    let (rank, size) = (context.rank().index(), context.size());
    let of = |rank: usize| -> Vec<f32> {
        (0..10_001).map(|i| (i as f32 / 17.0).sin() * (rank + 1) as f32).collect()
    };
    let inputs: Vec<Vec<f32>> = (0..size).map(of).collect();
    let exact = mean_of(&context, &WEIGHTS[..size], &inputs);
    let codecs = [
        Codec::bf16(),
        Codec::f16(),
        Codec::int8(),
        Codec::int4().with_feedback(),
        Codec::one_bit(),
        Codec::top_k(0.5),
        Codec::auto(),
    ];
    for mut codec in codecs {
        let mut mean = of(rank);
        let call = context.all_reduce(&mut mean).compress(&mut codec).weighted(WEIGHTS[rank]);
        call.await?;
        let all = context.all_gather(&mean).await?;
        let alike = all.chunks(mean.len()).all(|other| differs(other, &mean).is_none());
        ensure!(alike, "{codec:?}: different bits");
        let far = mean.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        ensure!(far < 3.0, "{codec:?} is {far} off");
        let (residual, mut buffer) = (codec.residual(), of(rank));
        let error = context.all_reduce(&mut buffer).weighted(0.0).compress(&mut codec).await;
        ensure!(matches!(error, Err(Error::Aborted { cause: Cause::Weights })), "{error:?}");
        ensure!(
            codec.residual() == residual && buffer == of(rank),
            "{codec:?}: something has changed"
        );
    }
    context.barrier().await?;
    Ok(())
}

/// The result of a call that was dropped too late is the mean.
pub async fn lost(_cluster: Cluster, mut context: Context) -> Result<()> {
    let rank = context.rank().index();
    let mut buffer = vec![rank as f32; 7_001];
    let call = context.all_reduce(&mut buffer).weighted(1.0 + 2.0 * rank as f64);
    if rank == 0 {
        drop_too_late(&mut context, call).await?;
        let mean = loop {
            if let Some(mean) = context.take_result::<f32>() {
                break mean;
            }
            tokio::task::yield_now().await;
        };
        ensure!(mean == vec![0.75; 7_001], "{:?}", &mean[..3]);
    } else {
        meanwhile(&mut context, call).await?;
        ensure!(buffer == vec![0.75; 7_001], "wrong");
    }
    context.barrier().await?;
    Ok(())
}

/// A step of weighted and other calls.
pub async fn in_a_step(_cluster: Cluster, mut context: Context) -> Result<()> {
    let (rank, size) = (context.rank().index(), context.size());
    let (weight, total) = (1.0 + rank as f64, (size * (size + 1) / 2) as f64);
    let (mut plain, mut all, mut one) = ([1.0f32; 5], [weight; 7_001], [f16::ONE; 3]);
    let (scattered, mut shard) = ([2.0f32; 100], vec![0.0f32; context.shard(100).len()]);
    let mut step = context.step();
    step.all_reduce(&mut plain);
    step.all_reduce(&mut all).weighted(weight);
    step.reduce(size - 1, &mut one).weighted(0.5);
    step.reduce_scatter(&scattered, &mut shard).weighted(weight);
    step.commit().await?;
    let squares: f64 = (1..=size).map(|number| (number * number) as f64).sum();
    ensure!(plain == [size as f32; 5], "{plain:?}");
    ensure!(all == [squares / total; 7_001], "{}", all[0]);
    ensure!(one == [f16::ONE; 3] && shard.iter().all(|x| *x == 2.0), "{one:?} {shard:?}");
    Ok(())
}

/// The lengths of a model's parameters.
const LENS: [usize; 4] = [8_192, 0, 70_001, 10];

fn gradients(rank: usize) -> Vec<Vec<f32>> {
    let of = |(i, len): (usize, &usize)| input(i as u64, rank, *len);
    LENS.iter().enumerate().map(of).collect()
}

async fn step(sync: &mut GradientSync, gradients: &mut [Vec<f32>]) -> potluck::Result<()> {
    let mut step = sync.step().await?;
    for (parameter, gradient) in gradients.iter_mut().enumerate().rev() {
        step.push(parameter, gradient);
    }
    step.finish().await
}

/// Weighted means of gradients are those of their buckets; the step after them is a plain one.
pub async fn of_gradients(cluster: Cluster, mut context: Context) -> Result<()> {
    let (rank, size) = (context.rank().index(), context.size());
    for bucket_bytes in [1, 40_000, 1 << 30] {
        let mut sync = GradientSync::new(&cluster, &LENS).bucket_bytes(bucket_bytes);
        let mut mine = gradients(rank);
        step(sync.weighted(WEIGHTS[rank]), &mut mine).await?;
        for bucket in sync.buckets() {
            let of = |rank: usize| gradients(rank)[bucket.clone()].concat();
            let inputs: Vec<Vec<f32>> = (0..size).map(of).collect();
            // Neighbours have different periods, so the reference is that of all elements.
            let order = context.fold_order::<f32>(inputs[0].len());
            let weigh = |(x, weight): (&Vec<f32>, &f64)| -> Vec<f32> {
                let product =
                    |x: &f32| if *weight == 0.0 { 0.0 } else { (weight * f64::from(*x)) as f32 };
                x.iter().map(product).collect()
            };
            let products: Vec<Vec<f32>> = inputs.iter().zip(&WEIGHTS).map(weigh).collect();
            let sums = reference_sum(&order, ReduceOp::Sum, &products);
            let total = total(&context, &WEIGHTS[..size]);
            let divided = |sum: &f32| (f64::from(*sum) / total) as f32;
            let means: Vec<f32> = sums.iter().map(divided).map(canonical).collect();
            let place = differs(&mine[bucket.clone()].concat(), &means);
            ensure!(place.is_none(), "bucket {bucket:?}: {place:?} differs");
        }
        let mut ones = LENS.map(|len| vec![rank as f32; len]).to_vec();
        step(&mut sync, &mut ones).await?;
        let plain = (size - 1) as f32 / 2.0;
        ensure!(ones.iter().flatten().all(|mean| (mean - plain).abs() < 1e-6), "not a plain mean");
    }
    let mut many = GradientSync::new(&cluster, &[3; 500]).bucket_bytes(12).compress(Codec::bf16());
    let mut mine = vec![vec![2.0; 3]; 500];
    step(many.weighted(WEIGHTS[rank]), &mut mine).await?;
    ensure!(mine.iter().flatten().all(|mean| (mean - 2.0).abs() < 0.1), "{:?}", mine[0]);
    let kept = mine.clone();
    let error = step(many.weighted(0.0), &mut mine).await.err().context("a mean")?;
    ensure!(matches!(error, Error::Aborted { cause: Cause::Weights }), "{error:?}");
    ensure!(mine == kept, "the gradients have changed");
    context.barrier().await?;
    Ok(())
}

fn canonical(x: f32) -> f32 {
    if x.is_nan() { f32::from_bits(0x7fc0_0000) } else { x }
}
