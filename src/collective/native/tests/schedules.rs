//! The native engine's threads, gates and outboxes in many of their orders (`make threads`).

use super::super::backend::NativeBackend;
use crate::collective::backend::{Backend, EngineCall, Finished};
use crate::collective::input::Input;
use crate::collective::suite::{PATIENCE, op, plan};
use crate::collective::threads::Threads;
use crate::link::data_pair;
use crate::memory::{DType, Pool, Staging, bytes_of};
use crate::os::Race;
use crate::protocol::{Algorithm, Call, CallKind, EngineFault, Mutation, OpId, Rank, ReduceOp};
use crate::sim::{explore, finds};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::thread;
use std::sync::Arc;

/// Four chunks.
const COUNT: usize = 4 * CHUNK_BYTES as usize / 4;
/// The least.
const CHUNK_BYTES: u32 = 1024;
const ME: Rank = Rank(0);
const PEER: Rank = Rank(1);

type Outcome = Result<Finished, EngineFault>;

fn backend(me: Rank, threads: &Arc<Threads>) -> Arc<NativeBackend> {
    Arc::new(NativeBackend::new(me, 2, Pool::new(), Arc::clone(threads), Mutation::NONE))
}

/// Starts a sum of two ranks around a ring.
fn start(backend: &NativeBackend, op: OpId, report: &Sender<Outcome>) {
    let (kind, dtype) = (CallKind::AllReduce(ReduceOp::Sum), DType::F32);
    let call = Call::new(kind, dtype, COUNT as u64);
    let plan = plan(CHUNK_BYTES, Algorithm::Ring { order: vec![ME, PEER] });
    let report = report.clone();
    let done = Box::new(move |outcome| drop(report.send(outcome)));
    backend.start(EngineCall { op, call, plan, sync_root: None, lengths: None, model: None, done });
}

fn feed(backend: &NativeBackend, op: OpId) {
    backend.feed(op, &Input::Borrowed(bytes_of(&[1f32; COUNT])));
}

fn is_sum(output: &Staging) -> bool {
    let mut bytes = vec![0; output.len()];
    output.copy_to(bytes.as_mut_slice());
    bytes == bytes_of(&[2f32; COUNT])
}

fn join<T>(threads: impl IntoIterator<Item = thread::JoinHandle<T>>) {
    threads.into_iter().for_each(|thread| drop(thread.join().expect("no panic")));
}

/// Two ranks sum while credit comes at any time: both are done once, with the sum; then nothing
/// of the operation is left and all threads end.
fn sum_of_two() {
    let (running, op) = (Arc::default(), op(0, 0));
    let backends = [backend(ME, &running), backend(PEER, &running)];
    let (near, far) = data_pair();
    backends[0].attach(PEER, near);
    backends[1].attach(ME, far);
    let (report, outcomes): (Sender<Outcome>, Receiver<Outcome>) = channel();
    let mut threads = Vec::new();
    for (backend, peer) in backends.iter().zip([PEER, ME]) {
        let (program, control, report) = (Arc::clone(backend), Arc::clone(backend), report.clone());
        threads.push(thread::spawn(move || {
            start(&program, op, &report);
            feed(&program, op);
        }));
        threads.push(thread::spawn(move || control.credit(op, peer)));
    }
    drop(report);
    for _ in 0..2 {
        let outcome = outcomes.recv().expect("two outcomes");
        assert!(is_sum(&outcome.expect("a sum").output));
    }
    join(threads);
    join(backends.clone().map(|backend| thread::spawn(move || backend.retire(op))));
    assert!(outcomes.recv().is_err(), "done twice");
    assert!(backends.iter().all(|backend| !backend.has(op)));
    join(backends.map(|backend| thread::spawn(move || backend.close())));
    assert_eq!((running.wait(PATIENCE), running.panics()), (0, 0));
}

#[test]
fn a_sum_is_done_once_and_leaves_nothing_and_no_thread() {
    explore(sum_of_two);
}

/// An operation is retired while the program feeds it, credit comes, and the link is lost: `done`
/// is called once, and nothing of the operation is left.
fn retired_meanwhile() {
    let (running, op) = (Arc::default(), op(0, 0));
    let backend = backend(ME, &running);
    let (near, far) = data_pair();
    backend.attach(PEER, near);
    let (report, outcomes): (Sender<Outcome>, Receiver<Outcome>) = channel();
    start(&backend, op, &report);
    drop(report);
    let [program, control, retiring] = [(); 3].map(|()| Arc::clone(&backend));
    join([
        thread::spawn(move || feed(&program, op)),
        thread::spawn(move || control.credit(op, PEER)),
        thread::spawn(move || retiring.retire(op)),
        thread::spawn(move || drop(far.split())),
    ]);
    let fault = outcomes.recv().expect("an outcome").err();
    assert!(matches!(fault, Some(EngineFault::Cancelled | EngineFault::LinkLost(PEER))));
    assert!(outcomes.recv().is_err(), "done twice");
    backend.close();
    assert_eq!((running.wait(PATIENCE), running.panics()), (0, 0));
    assert!(!backend.has(op), "something of it is left");
}

#[test]
fn nothing_is_left_of_an_operation_that_is_retired_meanwhile() {
    explore(retired_meanwhile);
}

/// The same without credit: the program's input is sent eagerly, and counted.
fn retired_without_credit() {
    let (running, op) = (Arc::default(), op(0, 0));
    let backend = backend(ME, &running);
    let (near, far) = data_pair();
    backend.attach(PEER, near);
    start(&backend, op, &channel().0);
    let [program, retiring] = [(); 2].map(|()| Arc::clone(&backend));
    join([
        thread::spawn(move || feed(&program, op)),
        thread::spawn(move || retiring.retire(op)),
        thread::spawn(move || drop(far.split())),
    ]);
    backend.close();
    assert_eq!((running.wait(PATIENCE), running.panics()), (0, 0));
    assert!(!backend.has(op), "something of it is left");
}

#[test]
fn nothing_is_counted_of_an_operation_that_fails_and_is_retired_at_once() {
    explore(retired_without_credit);
}

#[test]
fn a_frame_that_is_posted_after_the_end_is_found() {
    finds(Race::PostUnchecked, retired_without_credit);
}
