//! Calls that are dropped at every point where they wait: after each number of polls, and by
//! another thread at a random time.
//!
//! The rank that drops finds its buffer unchanged. The others are answered soon: either
//! all get `Ok`, and the dropping rank has a lost result; or all get an abort that names that rank.
//! The next call works.

use super::ask::{Ask, Buffers, Under, What};
use super::numbers::Chance;
use super::on::{Nodes, On, SOON, everywhere, group, once, out_of_step, seed};
use anyhow::{Context as _, Result, bail, ensure};
use potluck::{Cause, Cluster, Context, Error};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as Task, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::sync::Barrier;

/// Several chunks under every plan, and more than Gloo sends eagerly.
const LEN: usize = 40_000;

/// The seed of all ranks' inputs.
const SEED: u64 = 3;

/// How one rank drops a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// Immediately after this many polls, each requested by a wake.
    After(usize),
    /// After this many polls and one more wake.
    Woken(usize),
    /// After this many polls in a row, with or without a wake.
    Eager(usize),
    /// By another thread after this time.
    Elsewhere(Duration),
}

/// How the call of the dropping rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It had completed before the drop.
    Done,
    /// It committed, and its result was kept.
    Lost,
    Aborted,
}

/// Every kind of call, every rank and every way, with rising poll counts until the call completes
/// before the drop.
pub async fn at_every_poll(on: On) -> Result<()> {
    let mut nodes = group(on, "cancel", 3).await?;
    let mut fates = BTreeMap::new();
    for what in What::ALL {
        let ask = Ask::sum(what, LEN);
        for victim in 0..3 {
            for others_first in [false, true] {
                for way in [Drop::After, Drop::Woken] {
                    let mut polls = usize::from(way(0) == Drop::Woken(0));
                    loop {
                        let (back, fate, _) =
                            told(nodes, ask, victim, way(polls), others_first).await?;
                        nodes = back;
                        *fates.entry(fate).or_insert(0) += 1;
                        if fate == Fate::Done {
                            break;
                        }
                        polls += 1;
                        ensure!(polls < 20, "{what:?} never ends");
                    }
                }
                for polls in [2, 3, 5, 8, 13, 21, 34, 55, 89, 144] {
                    let (back, fate, _) =
                        told(nodes, ask, victim, Drop::Eager(polls), others_first).await?;
                    nodes = back;
                    *fates.entry(fate).or_insert(0) += 1;
                }
            }
        }
    }
    println!("measured: calls dropped by the count of polls on {}: {fates:?}", on.engine);
    ensure!(fates.len() == 3, "not all fates were met: {fates:?}");
    Ok(())
}

/// Two hundred drops at a random time within the usual duration of such a call.
pub async fn at_random(on: On) -> Result<()> {
    let seed = seed("dropped elsewhere")?;
    let mut nodes = group(on, "cancel-random", 3).await?;
    let mut chance = Chance::new(seed);
    let mut fates = BTreeMap::new();
    let mut usual = BTreeMap::new();
    let mut dropped = 0;
    // About a fourth of the attempts are dropped before the call completes.
    for round in 0..20_000 {
        if dropped == 200 {
            break;
        }
        let ask = Ask::sum(chance.of(&What::ALL), chance.of(&[10, LEN]));
        let place = (ask.what as u8, ask.len);
        let after = match usual.get(&place) {
            // The first call of a kind is not dropped; it measures the duration.
            None => Duration::from_secs(60),
            Some(took) => Duration::from_nanos(chance.below(*took as usize + 1) as u64),
        };
        let told = told(nodes, ask, chance.below(3), Drop::Elsewhere(after), round % 2 == 0).await;
        let (back, fate, took) = told.with_context(|| format!("round {round}"))?;
        usual.entry(place).or_insert(took.as_nanos());
        nodes = back;
        dropped += usize::from(fate != Fate::Done);
        *fates.entry(fate).or_insert(0) += 1;
    }
    println!("measured: calls dropped at a moment of chance on {}: {fates:?}", on.engine);
    ensure!(dropped == 200 && fates.len() == 3, "{fates:?}");
    Ok(())
}

/// Syncs, which transfer data only in Views whose members are not in sync. Each View is used until
/// it is in sync.
pub async fn syncs_at_every_poll(on: On) -> Result<()> {
    let mut fates = BTreeMap::new();
    for victim in 0..3 {
        for way in [Drop::After, Drop::Woken] {
            let mut nodes = None;
            let mut polls = usize::from(way(0) == Drop::Woken(0));
            loop {
                let view = match nodes.take() {
                    Some(view) => view,
                    None => out_of_step(on, "cancel-sync").await?,
                };
                let told = sync_told(view, victim, way(polls)).await;
                let (back, fate) = told.with_context(|| format!("{:?} by {victim}", way(polls)))?;
                *fates.entry(fate).or_insert(0) += 1;
                if fate == Fate::Done {
                    break;
                }
                nodes = (fate == Fate::Aborted).then_some(back);
                polls += 1;
                ensure!(polls < 20, "a sync never ends");
            }
        }
    }
    println!("measured: syncs dropped by the count of polls on {}: {fates:?}", on.engine);
    ensure!(fates.contains_key(&Fate::Done) && fates.contains_key(&Fate::Aborted), "{fates:?}");
    Ok(())
}

/// One sync of all three ranks; rank 1 has the highest version.
async fn sync_told(nodes: Nodes, victim: usize, way: Drop) -> Result<(Nodes, Fate)> {
    let program = move |cluster: Cluster, mut context: Context| async move {
        let rank = context.rank().index();
        let was = state_of(rank);
        let mut state = was.clone();
        let began = Instant::now();
        let call = context.sync(u64::from(rank == 1), &mut state);
        let over = match way {
            Drop::Woken(polls) if rank == victim => polled(call, polls, true).await,
            Drop::After(polls) if rank == victim => polled(call, polls, false).await,
            _ => Some(call.await),
        };
        let ended = Instant::now();
        ensure!(
            state == if matches!(over, Some(Ok(()))) { state_of(1) } else { was },
            "not the state"
        );
        let outcome = over.map_or(Ok(false), |outcome| outcome.map(|()| true));
        // If it was aborted, the members differ as before.
        let counts = outcome.as_ref().is_ok_and(|counts| *counts);
        ensure!(
            rank == victim || context.is_in_sync() == counts,
            "in sync: {}, {outcome:?}",
            context.is_in_sync()
        );
        let (mut lost, mut taken) = (false, None);
        let refused = loop {
            match context.barrier().await {
                Ok(()) => break false,
                Err(Error::NeedsSync) => break true,
                Err(Error::LostResult { .. }) => lost = true,
                Err(error) => return Err(error.into()),
            }
            taken = taken.or(context.take_result::<u8>());
            tokio::task::yield_now().await;
        };
        ensure!(
            !lost || rank == 1 || taken == Some(state_of(1)),
            "not the state that was lost: {:?}",
            taken.map(|t| t.len())
        );
        ensure!(refused != (lost || counts), "refused: {refused}, lost: {lost}, {outcome:?}");
        Ok(Seen { node: (cluster, context), answer: Answer { began, ended, outcome }, lost })
    };
    let seen: Vec<Seen> = everywhere(nodes, program).await?;
    let fate = fate_of(&seen, victim)?;
    Ok((seen.into_iter().map(|seen| seen.node).collect(), fate))
}

fn state_of(rank: usize) -> Vec<u8> {
    super::numbers::input(SEED, rank, LEN + rank)
}

/// The report of one rank on a round.
struct Seen {
    node: (Cluster, Context),
    answer: Answer,
    lost: bool,
}

/// The outcome of one rank's call.
struct Answer {
    began: Instant,
    /// When it was dropped or had completed.
    ended: Instant,
    /// `Ok(false)` if it was dropped.
    outcome: potluck::Result<bool>,
}

/// One round of all three ranks, in which `victim` drops its call. Returns how long that rank had
/// its call. With `others_first`, the others' data is in transit before the victim begins.
async fn told(
    nodes: Nodes,
    ask: Ask,
    victim: usize,
    way: Drop,
    others_first: bool,
) -> Result<(Nodes, Fate, Duration)> {
    let begun = Arc::new(Barrier::new(3));
    let program = move |cluster: Cluster, mut context: Context| {
        let begun = Arc::clone(&begun);
        async move {
            let (rank, others_first) =
                (context.rank().index(), if others_first { Some(&*begun) } else { None });
            let answer = if rank == victim {
                gives_up(&mut context, ask, way, others_first).await
            } else {
                stays(&mut context, ask, others_first).await
            };
            let answer = answer.with_context(|| format!("rank {rank}"))?;
            let lost =
                goes_on(&mut context, ask).await.with_context(|| format!("rank {rank} goes on"))?;
            Ok(Seen { node: (cluster, context), answer, lost })
        }
    };
    let what = || format!("{ask:?}, {way:?} by {victim}, others first: {others_first}");
    let seen: Vec<Seen> = everywhere(nodes, program).await.with_context(what)?;
    let fate = fate_of(&seen, victim).with_context(what)?;
    let took = seen[victim].answer.ended - seen[victim].answer.began;
    Ok((seen.into_iter().map(|seen| seen.node).collect(), fate, took))
}

fn fate_of(seen: &[Seen], victim: usize) -> Result<Fate> {
    let others =
        || seen.iter().enumerate().filter(|(rank, _)| *rank != victim).map(|(_, seen)| seen);
    for other in others() {
        let late = other.answer.ended.saturating_duration_since(seen[victim].answer.ended);
        ensure!(late < SOON, "answered after {late:?}");
        ensure!(!other.lost, "one that stayed lost a result");
    }
    let is_done = others().all(|other| other.answer.outcome.is_ok());
    let names_it = |error: &Error| {
        matches!(
            error,
            Error::Aborted { cause: Cause::Dropped { by: Some(peer) } }
                if peer.rank.index() == victim
        )
    };
    let is_aborted = others().all(|other| other.answer.outcome.as_ref().is_err_and(names_it));
    let outcomes = || seen.iter().map(|seen| &seen.answer.outcome).collect::<Vec<_>>();
    match (&seen[victim].answer.outcome, seen[victim].lost) {
        (Ok(true), false) if is_done => Ok(Fate::Done),
        (Ok(false), true) if is_done => Ok(Fate::Lost),
        (Ok(false), false) if is_aborted => Ok(Fate::Aborted),
        (_, lost) => bail!("lost: {lost}: {:?}", outcomes()),
    }
}

/// Calls and drops. True if the call completed first.
async fn gives_up(
    context: &mut Context,
    ask: Ask,
    way: Drop,
    others_first: Option<&Barrier>,
) -> Result<Answer> {
    if let Some(begun) = others_first {
        begun.wait().await;
    }
    let mut buffers: Buffers<f32> = ask.buffers(SEED, context.rank().index(), context.size());
    let began = Instant::now();
    let call = ask.begin(context, &mut buffers);
    let over = match way {
        Drop::After(polls) => polled(call, polls, false).await,
        Drop::Woken(polls) => polled(call, polls, true).await,
        Drop::Eager(polls) => polled_eagerly(call, polls).await,
        Drop::Elsewhere(after) => tokio::task::block_in_place(|| dropped_elsewhere(call, after)),
    };
    let ended = Instant::now();
    match over {
        Some(Ok(result)) => {
            ask.is_done(context, SEED, &buffers, result.as_deref())?;
            Ok(Answer { began, ended, outcome: Ok(true) })
        }
        Some(Err(error)) => Err(error.into()),
        None => {
            ask.is_untouched(context, SEED, &buffers)?;
            Ok(Answer { began, ended, outcome: Ok(false) })
        }
    }
}

async fn stays(context: &mut Context, ask: Ask, others_first: Option<&Barrier>) -> Result<Answer> {
    let mut buffers: Buffers<f32> = ask.buffers(SEED, context.rank().index(), context.size());
    let began = Instant::now();
    let mut call = ask.begin(context, &mut buffers);
    if let Some(begun) = others_first {
        ensure!(once(&mut call).await.is_pending(), "it was over before all had called");
        begun.wait().await;
    }
    let outcome = call.await;
    let ended = Instant::now();
    match outcome {
        Ok(result) => {
            ask.is_done(context, SEED, &buffers, result.as_deref())?;
            Ok(Answer { began, ended, outcome: Ok(true) })
        }
        Err(error) => {
            ask.is_untouched(context, SEED, &buffers)?;
            Ok(Answer { began, ended, outcome: Err(error) })
        }
    }
}

/// Takes a lost result, if there is one, and makes the next call; both must be correct. Returns
/// whether there was a lost result.
async fn goes_on(context: &mut Context, ask: Ask) -> Result<bool> {
    let (mut lost, mut taken) = (false, None);
    let mut next = vec![context.rank().index() as f32; 10];
    loop {
        match context.all_reduce(&mut next).await {
            Ok(()) => break,
            Err(Error::LostResult { .. }) => lost = true,
            Err(error) => return Err(error.into()),
        }
        // There is none yet while votes are in transit.
        taken = taken.or(context.take_result::<f32>());
        tokio::task::yield_now().await;
    }
    ensure!(next == [3.0; 10], "the next call is wrong: {next:?}");
    ensure!(!context.discard_result(), "a result was lost after all");
    if lost {
        is_the_lost_one(context, ask, taken)?;
    }
    Ok(lost)
}

fn is_the_lost_one(context: &Context, ask: Ask, taken: Option<Vec<f32>>) -> Result<()> {
    let (rank, size) = (context.rank().index(), context.size());
    let mut buffers: Buffers<f32> = ask.buffers(SEED, rank, size);
    match ask.what {
        // This rank gets no result, or had it before.
        What::Barrier => Ok(()),
        What::Reduce | What::Gather if rank != ask.root => Ok(()),
        What::Broadcast if rank == ask.root => Ok(()),
        What::AllReduce | What::Reduce | What::Broadcast | What::Scatter => {
            buffers.mine = taken.context("its result is gone")?;
            ask.is_done(context, SEED, &buffers, None)
        }
        What::Step => {
            ask.put_back(rank, &taken.context("its result is gone")?, &mut buffers);
            ask.is_done(context, SEED, &buffers, None)
        }
        _ => ask.is_done(context, SEED, &buffers, taken.as_deref()),
    }
}

/// Polls whenever woken, this many times. With `woken` it waits for one more wake before it drops
/// the call.
pub async fn polled<R>(
    mut call: impl Future<Output = R> + Unpin,
    polls: usize,
    woken: bool,
) -> Option<R> {
    let mut left = polls;
    let mut wakes = Wakes::default();
    std::future::poll_fn(|task| {
        wakes.pass_on(task);
        // Counts only wakes of the call itself.
        while left > 0 && wakes.take() {
            left -= 1;
            let waker = wakes.waker();
            if let Poll::Ready(result) =
                std::pin::Pin::new(&mut call).poll(&mut Task::from_waker(&waker))
            {
                return Poll::Ready(Some(result));
            }
        }
        let over = left == 0 && (!woken || wakes.take());
        if over { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

async fn polled_eagerly<R>(mut call: impl Future<Output = R> + Unpin, polls: usize) -> Option<R> {
    for _ in 0..polls {
        if let Poll::Ready(result) = once(&mut call).await {
            return Some(result);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// Polls on this thread, without an async runtime, and drops on another one.
fn dropped_elsewhere<T>(
    call: Under<'_, T>,
    after: Duration,
) -> Option<potluck::Result<Option<Vec<T>>>> {
    let until = Instant::now() + after;
    let here = std::thread::current();
    let (slot, waker) = (Mutex::new(Some(call)), Waker::from(Arc::new(Unpark(here.clone()))));
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| {
            while Instant::now() < until {
                if lock(&slot).is_none() {
                    return;
                }
                std::thread::yield_now();
            }
            let call = lock(&slot).take();
            drop(call);
            here.unpark();
        });
        let over = loop {
            let mut held = lock(&slot);
            let Some(call) = held.as_mut() else { break None };
            if let Poll::Ready(result) = call.as_mut().poll(&mut Task::from_waker(&waker)) {
                *held = None;
                break Some(result);
            }
            drop(held);
            std::thread::park();
        };
        // While the drop is still running, the call is not over.
        let _ = dropping.join();
        over
    })
}

fn lock<T>(slot: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

/// Counts how often a call asks to be polled; it starts with one request.
struct Wakes(Arc<Woken>);

struct Woken {
    wanted: Mutex<(bool, Option<Waker>)>,
}

impl Default for Wakes {
    fn default() -> Wakes {
        Wakes(Arc::new(Woken { wanted: Mutex::new((true, None)) }))
    }
}

impl Wakes {
    fn pass_on(&self, task: &Task<'_>) {
        lock(&self.0.wanted).1 = Some(task.waker().clone());
    }

    fn take(&mut self) -> bool {
        std::mem::take(&mut lock(&self.0.wanted).0)
    }

    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        let mut wanted = lock(&self.wanted);
        wanted.0 = true;
        let outer = wanted.1.take();
        drop(wanted);
        if let Some(outer) = outer {
            outer.wake();
        }
    }
}
