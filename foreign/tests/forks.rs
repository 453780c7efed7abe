//! A fork of a process has none of its threads: nothing there may wait for them.
#![allow(unsafe_code, reason = "the test calls as a foreign program does")]

use potluck::blocking::Cluster;
use potluck::{Builder, Config, Context, DType, ReduceOp};
use potluck_foreign::{Executor, Failure, Memory, Options, SharedContext};
use std::time::Duration;

/// Alone in this file: the test forks, which only a process with few threads does safely.
#[test]
fn a_fork_gets_errors_and_drops_nothing() {
    let join = || Builder::new(Config::local()).open_lan("forks").members(1).stateless();
    let cluster = Cluster::join_with(join()).expect("a node");
    let context = cluster.context_within(Duration::from_secs(60)).expect("a View");
    let executor = Executor::start().expect("a thread");
    let context = SharedContext::new(Context::from(context), &executor);
    let mut sum = [1_f32; 4];
    // SAFETY: kept until the end.
    let mut memory = || unsafe { Memory::new(sum.as_mut_ptr().cast(), 4, DType::F32) };
    let ended = context.barrier(&Options::default()).expect("a call");
    // SAFETY: the child calls nothing but the functions under test, and `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let is_forked = |failure: Option<Failure>| matches!(failure, Some(Failure::Forked));
            let memory = memory().expect("memory");
            let refused = context.all_reduce(memory, ReduceOp::Sum, &Options::default()).err();
            let waited = ended.wait(None).err();
            let started = is_forked(Executor::start().err());
            let ok =
                started && is_forked(refused) && is_forked(waited) && ended.outcome().is_none();
            drop((ended, context));
            // SAFETY: ends the child without destructors.
            unsafe { libc::_exit(i32::from(!ok)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the child of this test.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child");
            drop(ended);
            let memory = memory().expect("memory");
            let call = context.all_reduce(memory, ReduceOp::Sum, &Options::default());
            let call = call.expect("the parent goes on");
            assert!(call.wait(Some(Duration::from_secs(60))).is_ok_and(|o| o.is_some()));
            drop((call, context));
            cluster.leave();
        }
    }
}
