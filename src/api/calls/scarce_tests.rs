//! Calls of a member without memory: the error that each rank gets, and the untouched buffer.

use super::all_reduce::AllReduce;
use super::bundle::Bundle;
use super::codec::Codec;
use super::owned::{AllReduceOwned, OwnedError};
use super::pending_op::PendingOp;
use super::step::{Commit, Step};
use super::sync::StateSync;
use super::sync_with::StateSyncWith;
use super::weighted_mean::WeightedMean;
use crate::memory::DType;
use crate::protocol::{Call, CallKind, EngineFault, Lane, Rank, ReduceOp, view_of};
use crate::report::{Cause, Error, Result};
use crate::session::Group;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Task, Poll};

const SIZE: usize = 3;
/// Above the size from which owned buffers are lent.
const LEN: usize = 50_001;
const POOR: usize = 1;

fn group() -> Group {
    Group::of(view_of(SIZE as u8))
}

fn sum() -> Call {
    call(CallKind::AllReduce(ReduceOp::Sum), LEN)
}

fn call(kind: CallKind, count: usize) -> Call {
    let dtype = match kind {
        CallKind::Step { .. } | CallKind::Barrier => DType::U8,
        _ => DType::F32,
    };
    Call::new(kind, dtype, count as u64)
}

fn given(rank: usize) -> Vec<f32> {
    (0..LEN).map(|i| (i % 1000 + rank) as f32).collect()
}

fn summed() -> Vec<f32> {
    (0..LEN).map(|i| (3 * (i % 1000) + 3) as f32).collect()
}

/// Polls the futures of all ranks, of one call, until all are over.
fn over<F: Future + Unpin>(group: &mut Group, futures: &mut [F]) -> Vec<F::Output> {
    let mut ended: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    group.ready(|task: &mut Task<'_>| {
        for (future, ended) in futures.iter_mut().zip(&mut ended) {
            if ended.is_none()
                && let Poll::Ready(output) = Pin::new(future).poll(task)
            {
                *ended = Some(output);
            }
        }
        if ended.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    });
    ended.into_iter().map(|output| output.expect("it is over")).collect()
}

/// Every rank is told that the same one has no memory.
fn assert_lack(error: &Error) {
    let Error::Aborted { cause: Cause::Engine { on, fault: Some(EngineFault::Memory { bytes }) } } =
        error
    else {
        panic!("{error:?}")
    };
    assert!(on.rank == Rank(POOR as u8) && *bytes > 0, "{error:?}");
}

#[test]
fn a_borrowed_buffer_is_untouched_and_a_smaller_call_succeeds() {
    let mut group = group();
    group.pools[POOR].refuse_above(4 * LEN - 1);
    let mut buffers: Vec<Vec<f32>> = (0..SIZE).map(given).collect();
    let mut futures: Vec<_> = group
        .members
        .iter()
        .zip(&mut buffers)
        .map(|(member, buffer)| AllReduce {
            pending: PendingOp::numbered(member, Lane::MAIN, sum()),
            buffer,
        })
        .collect();
    over(&mut group, &mut futures)
        .iter()
        .for_each(|end| assert_lack(end.as_ref().expect_err("no memory")));
    drop(futures);
    assert!(buffers == [0, 1, 2].map(given));
    let less = LEN / 2;
    let mut futures: Vec<_> = group
        .members
        .iter()
        .zip(&mut buffers)
        .map(|(member, buffer)| AllReduce {
            pending: PendingOp::numbered(member, Lane::MAIN, Call { count: less as u64, ..sum() }),
            buffer: &mut buffer[..less],
        })
        .collect();
    over(&mut group, &mut futures).into_iter().for_each(|end| end.expect("there is memory"));
    drop(futures);
    assert!(buffers.iter().all(|buffer| buffer[..less] == summed()[..less]));
}

#[test]
fn an_owned_buffer_comes_back_itself() {
    let mut group = group();
    for lacks in [true, false] {
        group.pools[POOR].refuse_above(if lacks { 4 * LEN - 1 } else { usize::MAX });
        let buffers = [0, 1, 2].map(given);
        let places = buffers.each_ref().map(Vec::as_ptr);
        let mut futures: Vec<_> = group
            .members
            .iter()
            .zip(buffers)
            .map(|(member, buffer)| AllReduceOwned {
                pending: PendingOp::numbered(member, Lane::MAIN, sum()),
                buffer: Arc::new(buffer),
                ended: None,
            })
            .collect();
        for (rank, end) in over(&mut group, &mut futures).into_iter().enumerate() {
            match end {
                Ok(result) => assert!(!lacks && result == summed()),
                Err(OwnedError { error, buffer }) => {
                    assert!(lacks && buffer == given(rank), "rank {rank}");
                    assert_lack(&error);
                    // There was no memory to share its buffer with an engine's thread.
                    assert!(rank != POOR || buffer.as_ptr() == places[POOR]);
                }
            }
        }
    }
}

/// The chunks of the lent buffer that are on their way are let go of before it is handed back.
#[test]
fn an_owned_buffer_comes_back_at_whichever_block_there_is_no_memory_for() {
    let mut group = group();
    let (mut blocks, mut codecs) = (0, [(); SIZE].map(|()| Codec::int8()));
    loop {
        group.pools[POOR].refuse_after(blocks);
        let mut futures: Vec<_> = group
            .members
            .iter()
            .zip(&mut codecs)
            .enumerate()
            .map(|(rank, (member, codec))| {
                let buffer = Arc::new(given(rank));
                let pending = PendingOp::numbered(member, Lane::MAIN, sum());
                AllReduceOwned { pending, buffer, ended: None }.compress(codec)
            })
            .collect();
        let ends = over(&mut group, &mut futures);
        let is_used_up = group.pools[POOR].is_used_up();
        group.pools[POOR].refuse_after(usize::MAX);
        if ends.iter().all(std::result::Result::is_ok) {
            break;
        }
        assert!(is_used_up && blocks < 1000);
        for (rank, end) in ends.into_iter().enumerate() {
            let OwnedError { error, buffer } = end.expect_err("all or none");
            assert_lack(&error);
            assert!(buffer == given(rank), "rank {rank} after {blocks} blocks");
        }
        blocks += 1;
    }
    assert!(blocks > 0);
}

#[test]
fn a_step_fails_whole_and_writes_none_of_its_buffers() {
    let mut group = group();
    group.pools[POOR].refuse_above(4 * LEN - 1);
    let mut large: Vec<Vec<f32>> = (0..SIZE).map(given).collect();
    let mut small = vec![vec![1f32; 1000]; SIZE];
    let mut commits: Vec<Commit<'_>> = group
        .members
        .iter()
        .zip(large.iter_mut().zip(&mut small))
        .map(|(member, (large, small))| {
            let step = call(CallKind::Step { parts: 0 }, 0);
            let mut step = Step::new(Bundle::new(PendingOp::numbered(member, Lane::MAIN, step)));
            step.all_reduce(small.as_mut_slice());
            step.all_reduce(large.as_mut_slice());
            step.commit()
        })
        .collect();
    over(&mut group, &mut commits)
        .iter()
        .for_each(|end| assert_lack(end.as_ref().expect_err("no memory")));
    drop(commits);
    assert!(large == [0, 1, 2].map(given) && small == vec![vec![1f32; 1000]; SIZE]);
}

/// The vector that a call hands out is allocated before the call begins.
#[test]
fn a_result_that_no_machine_has_room_for_fails_before_anything_is_sent() {
    let mut group = group();
    let huge = call(CallKind::AllGather, isize::MAX as usize / 8);
    let mut pending_ops: Vec<PendingOp> =
        group.members.iter().map(|member| PendingOp::numbered(member, Lane::MAIN, huge)).collect();
    let mut outs: Vec<Vec<f32>> = vec![Vec::new(); SIZE];
    let mut ends: Vec<Option<Result<Vec<f32>>>> = (0..SIZE).map(|_| None).collect();
    group.ready(|task| {
        for ((pending, out), end) in pending_ops.iter_mut().zip(&mut outs).zip(&mut ends) {
            if end.is_none()
                && let Poll::Ready(result) = pending.poll_into(task, Some(&[]), out)
            {
                *end = Some(result);
            }
        }
        if ends.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    });
    for end in ends.into_iter().flatten() {
        let error = end.expect_err("no machine has it");
        assert_eq!((error.code(), error.is_retryable()), ("memory", false));
    }
    assert!(group.members.iter().all(|member| member.backend().traffic().sent_bytes == 0));
    let mut barriers: Vec<_> = group
        .members
        .iter()
        .map(|member| super::copies::Barrier {
            pending: PendingOp::numbered(member, Lane::MAIN, call(CallKind::Barrier, 0)),
        })
        .collect();
    over(&mut group, &mut barriers).into_iter().for_each(|end| end.expect("the lane goes on"));
}

/// The length of the state is the word of another member.
#[test]
fn a_state_that_there_is_no_memory_for_fails_its_sync_and_comes_with_the_next() {
    let mut view = view_of(SIZE as u8);
    view.members[POOR].in_sync = false;
    let mut group = Group::of(view);
    let state: Vec<u8> = (0..200_000).map(|i| (i % 251) as u8).collect();
    for lacks in [true, false] {
        group.pools[POOR].refuse_above(if lacks { state.len() - 1 } else { usize::MAX });
        let given = [state.clone(), vec![1, 2, 3], state.clone()];
        let mut states = given.clone();
        let mut syncs: Vec<StateSync<'_>> = group
            .members
            .iter()
            .zip(&mut states)
            .map(|(member, state)| StateSync::new(member, Lane::MAIN, 1, state))
            .collect();
        for end in over(&mut group, &mut syncs) {
            match end {
                Ok(()) => assert!(!lacks),
                Err(error) => {
                    assert!(lacks, "{error}");
                    assert_lack(&error);
                }
            }
        }
        drop(syncs);
        if lacks {
            assert!(states == given, "a state has changed");
        } else {
            assert!(states.iter().all(|own| *own == state));
        }
    }
}

/// The members that have the state need no memory for it.
#[test]
fn a_state_is_made_once_and_taken_only_after_all_have_room_for_it() {
    let mut view = view_of(SIZE as u8);
    view.members[POOR].in_sync = false;
    let mut group = Group::of(view);
    let bytes: Vec<u8> = (0..200_000).map(|i| (i % 251) as u8).collect();
    let (saves, loads) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let save = |state: &Vec<u8>| {
        saves.fetch_add(1, Ordering::Relaxed);
        state.clone()
    };
    let load = |state: &mut Vec<u8>, bytes: &[u8]| {
        loads.fetch_add(1, Ordering::Relaxed);
        *state = bytes.to_vec();
    };
    for lacks in [true, false] {
        group.pools[POOR].refuse_above(if lacks { bytes.len() - 1 } else { usize::MAX });
        let given = [bytes.clone(), vec![1, 2, 3], bytes.clone()];
        let mut states = given.clone();
        let mut syncs: Vec<_> = group
            .members
            .iter()
            .zip(&mut states)
            .map(|(member, state)| StateSyncWith::new(member, Lane::MAIN, 1, state, save, load))
            .collect();
        for end in over(&mut group, &mut syncs) {
            match end {
                Ok(()) => assert!(!lacks),
                Err(error) => assert_lack(&error),
            }
        }
        drop(syncs);
        let counts = (saves.load(Ordering::Relaxed), loads.load(Ordering::Relaxed));
        assert_eq!(counts, if lacks { (1, 0) } else { (2, 1) });
        assert!(if lacks { states == given } else { states.iter().all(|own| *own == bytes) });
    }
}

#[test]
fn a_weighted_mean_without_memory_for_its_products_leaves_all_buffers() {
    let mut group = group();
    for lacks in [true, false] {
        group.pools[POOR].refuse_above(if lacks { 4 * LEN - 1 } else { usize::MAX });
        let mut buffers = [0, 1, 2].map(given);
        let mut means: Vec<WeightedMean<'_, f32>> = group
            .members
            .iter()
            .zip(&mut buffers)
            .map(|(member, buffer)| {
                let pending = PendingOp::numbered(member, Lane::MAIN, sum());
                AllReduce { pending, buffer }.weighted(2.0)
            })
            .collect();
        for end in over(&mut group, &mut means) {
            match end {
                Ok(()) => assert!(!lacks),
                Err(error) => assert_lack(&error),
            }
        }
        drop(means);
        let mean = || (0..LEN).map(|i| (i % 1000 + 1) as f32).collect::<Vec<f32>>();
        assert!(if lacks {
            buffers == [0, 1, 2].map(given)
        } else {
            buffers == [0; 3].map(|_| mean())
        });
    }
}
