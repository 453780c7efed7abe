//! Ranks that make different calls: every rank soon gets the same error, no rank gets a result, and
//! the View continues.

use super::ask::{Ask, Buffers, Named, What, together};
use super::numbers::{Chance, Number};
use super::on::{Network, On, SOON, everywhere, group, seed};
use anyhow::{Context as _, Result, bail, ensure};
use potluck::{Context, Error, ReduceOp, bf16, f16};
use std::pin::Pin;
use std::time::Instant;

/// One rank's call as a table entry: bound to an element type, and checked.
#[derive(Clone, Copy)]
struct Row {
    ask: Ask,
    make: for<'c> fn(Ask, &'c mut Context) -> Made<'c>,
    named: fn(&Ask, usize) -> Named,
}

/// The error, returned after the buffer was found unchanged.
type Made<'c> = Pin<Box<dyn Future<Output = Result<Error>> + Send + 'c>>;

impl Row {
    fn of<T: Number>(ask: Ask) -> Row {
        Row {
            ask,
            make: |ask, context| Box::pin(refused::<T>(ask, context)),
            named: Ask::named::<T>,
        }
    }
}

async fn refused<T: Number>(ask: Ask, context: &mut Context) -> Result<Error> {
    let mut buffers: Buffers<T> = ask.buffers(1, context.rank().index(), context.size());
    let started = Instant::now();
    let outcome = ask.begin(context, &mut buffers).await;
    let took = started.elapsed();
    let error = outcome.err().context("ranks that disagree got a result")?;
    ask.is_untouched(context, 1, &buffers)?;
    ensure!(took < SOON, "told after {took:?}");
    Ok(error)
}

/// The call of most ranks, and the call of the odd one. One row per kind of difference.
fn table() -> Vec<(&'static str, Row, Row)> {
    let f32 = Row::of::<f32>;
    let sum = |len| Ask::sum(What::AllReduce, len);
    let any = |len| Ask { op: ReduceOp::BitOr, ..sum(len) };
    let every = |len| Ask { op: ReduceOp::BitAnd, ..sum(len) };
    let mut rows = vec![
        ("dtype", f32(sum(10)), Row::of::<f64>(sum(10))),
        ("dtype", f32(sum(65537)), Row::of::<i32>(sum(65537))),
        ("dtype", Row::of::<f16>(sum(10)), Row::of::<bf16>(sum(10))),
        ("dtype", Row::of::<i8>(sum(0)), Row::of::<u8>(sum(0))),
        ("dtype", Row::of::<i16>(sum(10)), Row::of::<u16>(sum(10))),
        ("dtype", Row::of::<bool>(any(10)), Row::of::<u8>(any(10))),
        ("op", Row::of::<bool>(any(10)), Row::of::<bool>(every(10))),
        ("op", Row::of::<u16>(every(65537)), Row::of::<u16>(any(65537))),
        ("mode", f32(sum(1000)), f32(Ask { best_effort: true, ..sum(1000) })),
        ("mode", f32(Ask { best_effort: true, ..sum(65537) }), f32(sum(65537))),
        ("codec", f32(sum(1000)), f32(Ask { rounded: true, ..sum(1000) })),
        ("codec", f32(Ask { rounded: true, ..sum(65537) }), f32(sum(65537))),
    ];
    let reductions = [What::AllReduce, What::AllReduceOwned, What::Reduce, What::ReduceScatter];
    // Steps that differ are reported by their first differing call, see `steps`.
    let calls = || What::ALL.into_iter().filter(|what| *what != What::Step);
    for what in calls().filter(|what| *what != What::Barrier) {
        for (one, other) in [(0, 1), (10, 11), (1000, 65537), (200_000, 5)] {
            rows.push(("length", f32(Ask::sum(what, one)), f32(Ask::sum(what, other))));
        }
    }
    for what in reductions {
        for op in [ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod] {
            rows.push(("op", f32(Ask::sum(what, 1000)), f32(Ask { op, ..Ask::sum(what, 1000) })));
        }
    }
    for what in [What::Reduce, What::Gather, What::Scatter, What::Broadcast] {
        for len in [3, 65537] {
            rows.push((
                "root",
                f32(Ask::sum(what, len)),
                f32(Ask { root: 1, ..Ask::sum(what, len) }),
            ));
        }
    }
    for one in calls() {
        for other in calls() {
            rows.push(("operation", f32(Ask::sum(one, 30)), f32(Ask::sum(other, 30))));
        }
    }
    // An owned all_reduce is the same operation, and some pairs occur twice in the table.
    rows.retain(|(_, one, other)| (one.named)(&one.ask, 2) != (other.named)(&other.ask, 2));
    rows
}

/// Every row, with each rank as the odd one. Over loopback with three ranks only.
pub async fn every_kind(on: On) -> Result<()> {
    let sizes = if on.network == Network::Process { &[2, 3, 5][..] } else { &[3] };
    for &size in sizes {
        let nodes = group(on, "odd-one", size).await?;
        let told = everywhere(nodes, move |_cluster, mut context| async move {
            let mut told = Vec::new();
            for (kind, usual, odd) in table() {
                for odd_rank in 0..size {
                    let what = format!(
                        "{kind}: rank {odd_rank} of {size} called {:?} instead of {:?}",
                        odd.ask, usual.ask
                    );
                    let error = meet(&mut context, odd_rank, [usual, odd]).await.context(what)?;
                    told.push(error.to_string());
                }
            }
            Ok(told)
        });
        let told: Vec<Vec<String>> = told.await?;
        println!("measured: {} mismatches among {size} on {}", told[0].len(), on.engine);
        for (place, said) in told[0].iter().enumerate() {
            let others = told.iter().all(|others| others[place] == *said);
            ensure!(
                others,
                "told differently: {:?}",
                told.iter().map(|others| &others[place]).collect::<Vec<_>>()
            );
        }
    }
    Ok(())
}

/// Steps that met a plain call, more than the number of operations for which a peer may have data
/// here: the data of either are dropped with it, and are never a reason to end a link. They are
/// short, so that the room which a sender has for early data suffices for all of them.
pub async fn steps_beside_calls(on: On) -> Result<()> {
    let nodes = group(on, "steps-beside-calls", 3).await?;
    let told = everywhere(nodes, |_cluster, mut context| async move {
        let rank = context.rank().index();
        let ask = Ask::sum(if rank == 0 { What::Step } else { What::AllReduce }, 300);
        let mut beside = context.lane(1);
        for number in 0..600 {
            let mut buffers: Buffers<f32> = ask.buffers(1, rank, context.size());
            // The step comes last: the data of the others are there before it.
            if rank == 0 {
                beside.barrier().await.with_context(|| format!("before {number}"))?;
            }
            let called = ask.begin(&mut context, &mut buffers);
            let error = if rank == 0 {
                called.await.err()
            } else {
                let (outcome, met) = tokio::join!(called, beside.barrier());
                met.with_context(|| format!("beside {number}"))?;
                outcome.err()
            };
            ensure!(matches!(error, Some(Error::Mismatch(_))), "{number}: {error:?}");
            ask.is_untouched(&context, 1, &buffers)?;
        }
        let mut next = [rank as u64; 5];
        context.all_reduce(&mut next).await?;
        ensure!(next == [3; 5], "the next call is wrong: {next:?}");
        Ok(())
    });
    told.await.map(drop)
}

/// Some rows in a group of three of five, named by ranks of the group and by the names of members.
pub async fn in_a_group(on: On) -> Result<()> {
    let nodes = group(on, "odd-one-of-a-group", 5).await?;
    let ranks = [1, 2, 4];
    let told = everywhere(nodes, move |_cluster, context| async move {
        let mut told = Vec::new();
        if ranks.contains(&context.rank().index()) {
            let mut inside = context.group(&ranks, 0)?;
            let (all, members) = (context.members(), inside.members());
            let named = |rank: usize| all[ranks[rank]].node == members[rank].node;
            ensure!((0..3).all(|rank| members[rank].rank == rank && named(rank)), "{members:?}");
            for (_, usual, odd) in table().into_iter().step_by(7) {
                for odd_rank in 0..3 {
                    let error = meet(&mut inside, odd_rank, [usual, odd]).await?;
                    let Error::Mismatch(calls) = &error else { bail!("{error}") };
                    let peer = &calls.other.0;
                    ensure!(*peer == members[peer.rank.index()], "{error}");
                    told.push(error.to_string());
                }
            }
        }
        Ok(told)
    });
    let told = told.await?;
    ensure!(told[1].len() > 30 && told[1] == told[2] && told[1] == told[4], "{told:?}");
    Ok(())
}

/// One mismatch, then the next call of the same View.
async fn meet(context: &mut Context, odd_rank: usize, [usual, odd]: [Row; 2]) -> Result<Error> {
    let (rank, size) = (context.rank().index(), context.size());
    // Deadlines start only when all ranks are here.
    context.barrier().await?;
    let row = if rank == odd_rank { odd } else { usual };
    let error = (row.make)(row.ask, context).await?;
    let Error::Mismatch(calls) = &error else { bail!("{error:?}") };
    let sides = [&calls.one, &calls.other].map(|(peer, call)| (peer.rank.index(), *call));
    ensure!(
        sides[0].0 < sides[1].0 && sides.iter().filter(|(rank, _)| *rank == odd_rank).count() == 1,
        "{error}"
    );
    for (rank, call) in sides {
        let row = if rank == odd_rank { odd } else { usual };
        let named = (call.kind, call.dtype, call.count, call.codec, call.mode);
        ensure!(named == (row.named)(&row.ask, size), "{error}");
    }
    let mut next = [rank as u64; 5];
    context.all_reduce(&mut next).await?;
    ensure!(next == [(size * (size - 1) / 2) as u64; 5], "the next call is wrong: {next:?}");
    Ok(error)
}

/// Calls of different shapes in another order on every rank, eight in flight in one lane: where all
/// ranks call the same, the result is correct; elsewhere there is a mismatch.
pub async fn shapes_in_different_order(on: On) -> Result<()> {
    let seed = seed("shapes in different order")?;
    let nodes = group(on, "shapes", 3).await?;
    let told = everywhere(nodes, move |_cluster, mut context| async move {
        let mut mismatches = 0;
        for round in 0..100 {
            // Ranks change few positions, so that some calls match.
            let orders: Vec<Vec<usize>> =
                (0..3).map(|rank| swapped(Chance::new(seed ^ (round * 3 + rank)))).collect();
            let shapes = &orders[context.rank().index()];
            context.barrier().await?;
            mismatches += shaped(&mut context, &orders, shapes)
                .await
                .with_context(|| format!("round {round}: {orders:?}"))?;
        }
        Ok(mismatches)
    });
    let told: Vec<usize> = told.await?;
    ensure!(
        told[0] > 0 && told[0] < 800 && told.iter().all(|others| *others == told[0]),
        "mismatches: {told:?}"
    );
    println!(
        "measured: {} of 800 calls in an order of chance were mismatches on {}",
        told[0], on.engine
    );
    Ok(())
}

const SHAPES: [(What, usize); 8] = [
    (What::AllReduce, 0),
    (What::AllReduce, 10),
    (What::AllReduce, 11),
    (What::Broadcast, 10),
    (What::AllReduce, 65537),
    (What::AllGather, 1000),
    (What::ReduceScatter, 1000),
    (What::AllToAll, 700),
];

async fn shaped(context: &mut Context, orders: &[Vec<usize>], shapes: &[usize]) -> Result<usize> {
    let asks: Vec<Ask> =
        shapes.iter().map(|shape| Ask::sum(SHAPES[*shape].0, SHAPES[*shape].1)).collect();
    let mut buffers: Vec<Buffers<f32>> =
        asks.iter().map(|ask| ask.buffers(2, context.rank().index(), 3)).collect();
    let started = Instant::now();
    let calls: Vec<_> =
        asks.iter().zip(&mut buffers).map(|(ask, with)| ask.begin(context, with)).collect();
    let outcomes = together(calls).await;
    let took = started.elapsed();
    ensure!(took < SOON, "told after {took:?}");
    let mut mismatches = 0;
    for (place, outcome) in outcomes.into_iter().enumerate() {
        let (ask, have) = (&asks[place], &buffers[place]);
        let alike = orders.iter().all(|order| order[place] == shapes[place]);
        match outcome {
            Ok(result) if alike => ask.is_done(context, 2, have, result.as_deref())?,
            Err(Error::Mismatch(_)) if !alike => {
                mismatches += 1;
                ask.is_untouched(context, 2, have)?;
            }
            outcome => bail!("place {place}, alike: {alike}: {:?}", outcome.err()),
        }
    }
    Ok(mismatches)
}

/// The shapes, with two or three of them at another position.
fn swapped(mut chance: Chance) -> Vec<usize> {
    let mut order: Vec<usize> = (0..SHAPES.len()).collect();
    for _ in 0..2 {
        order.swap(chance.below(SHAPES.len()), chance.below(SHAPES.len()));
    }
    order
}
