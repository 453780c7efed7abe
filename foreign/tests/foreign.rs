//! Calls of foreign programs, between nodes of one process.
#![allow(unsafe_code, reason = "the test calls as a foreign program does")]

use potluck::blocking::Cluster;
use potluck::{Builder, Codec, Config, DType, ReduceOp};
use potluck_foreign::{Call, Executor, Failure, Memory, Options, Reply, SharedContext};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// Nodes in a group of their own, ended together.
struct Group {
    clusters: Vec<Cluster>,
    ranks: Vec<SharedContext>,
}

fn group(name: &str, size: usize) -> Group {
    let stateless = || Builder::new(Config::local()).open_lan(name).members(size).stateless();
    Group::of((0..size).map(|_| joined(stateless())).collect())
}

fn joined(builder: Builder) -> Cluster {
    Cluster::join_with(builder).expect("a node")
}

impl Group {
    /// These nodes, when they are in one View.
    fn of(clusters: Vec<Cluster>) -> Group {
        let whole = |cluster: &Cluster| {
            let mut context = cluster.context_within(SOON).expect("a View");
            while context.size() < clusters.len() {
                let mut statuses = cluster.watch();
                while cluster.status().view.is_none_or(|v| v.members.len() < clusters.len()) {
                    statuses.next();
                }
                context = cluster.context_within(SOON).expect("a View");
            }
            context
        };
        let mut ranks: Vec<_> = clusters.iter().map(whole).collect();
        ranks.sort_by_key(|context| context.rank());
        let executor = Executor::start().expect("a thread");
        let shared = |context| SharedContext::new(potluck::Context::from(context), &executor);
        Group { ranks: ranks.into_iter().map(shared).collect(), clusters }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.ranks.clear();
        self.clusters.drain(..).for_each(Cluster::leave);
    }
}

/// The memory of these elements, which a test keeps until its calls have ended.
fn lent<T>(elements: &mut [T], dtype: DType) -> Memory {
    let start = elements.as_mut_ptr().cast();
    // SAFETY: the tests keep all elements until their calls have ended or been dropped.
    unsafe { Memory::new(start, elements.len(), dtype) }.expect("memory")
}

fn bytes(elements: &mut [u8], dtype: DType) -> Memory {
    let count = elements.len() / dtype.bytes();
    // SAFETY: as above.
    unsafe { Memory::new(elements.as_mut_ptr(), count, dtype) }.expect("memory")
}

/// A call that was begun.
type Begun = Result<Call<Reply>, Failure>;

fn done(call: &Call<Reply>) -> Reply {
    let outcome = call.wait(Some(SOON)).expect("not in a callback").expect("in time");
    outcome.as_ref().expect("it succeeds").clone()
}

fn code(call: &Call<Reply>) -> &'static str {
    let outcome = call.wait(Some(SOON)).expect("not in a callback").expect("in time");
    outcome.as_ref().expect_err("it fails").code()
}

fn begun(call: Begun) -> Call<Reply> {
    call.expect("good arguments")
}

/// Begins a call on every rank, and returns their replies.
fn on_all(
    ranks: &[SharedContext],
    mut call: impl FnMut((usize, &SharedContext)) -> Begun,
) -> Vec<Reply> {
    let calls: Vec<_> = ranks.iter().enumerate().map(|rank| begun(call(rank))).collect();
    calls.iter().map(done).collect()
}

fn none() -> Options {
    Options::default()
}

#[test]
fn sums_and_copies_have_their_results() {
    let Group { ref ranks, .. } = group("foreign-sums", 3);
    let mut sums = [[1_f32, 2.0, 3.0], [10.0, 20.0, 30.0], [100.0, 200.0, 300.0]];
    let replies = on_all(ranks, |(i, rank)| {
        rank.all_reduce(lent(&mut sums[i], DType::F32), ReduceOp::Sum, &none())
    });
    assert_eq!(replies, [Reply::Done, Reply::Done, Reply::Done]);
    assert_eq!(sums, [[111.0, 222.0, 333.0]; 3]);

    let mut products = [[2_i32], [3], [5]];
    on_all(ranks, |(i, rank)| {
        rank.reduce(lent(&mut products[i], DType::I32), 1, ReduceOp::Prod, &none())
    });
    assert_eq!(products, [[2], [30], [5]]);

    let mut copies = [[1_u64, 2], [3, 4], [5, 6]];
    on_all(ranks, |(i, rank)| rank.broadcast(lent(&mut copies[i], DType::U64), 2, &none()));
    assert_eq!(copies, [[5, 6]; 3]);

    let mut means = [[1_f64], [2.0], [6.0]];
    on_all(ranks, |(i, rank)| {
        let options = &Options { weight: Some(i as f64), ..none() };
        rank.all_reduce(lent(&mut means[i], DType::F64), ReduceOp::Sum, options)
    });
    assert_eq!(means, [[14.0 / 3.0]; 3]);

    let codecs: Vec<_> = (0..3).map(|_| Arc::new(Mutex::new(Codec::bf16()))).collect();
    let mut coarse = [[1_f32; 100], [2.0; 100], [4.0; 100]];
    on_all(ranks, |(i, rank)| {
        let options = &Options { codec: Some(Arc::clone(&codecs[i])), ..none() };
        rank.all_reduce(lent(&mut coarse[i], DType::F32), ReduceOp::Mean, options)
    });
    assert!(coarse[0].iter().all(|x| (x - 7.0 / 3.0).abs() < 0.02), "{:?}", coarse[0]);
    assert_eq!(coarse[0], coarse[1]);
}

#[test]
fn parts_go_where_they_belong() {
    let Group { ref ranks, .. } = group("foreign-parts", 3);
    let (mut own, mut all) = ([[1_i64], [2], [3]], [[0_i64; 3]; 3]);
    on_all(ranks, |(i, rank)| {
        rank.all_gather(lent(&mut own[i], DType::I64), lent(&mut all[i], DType::I64), &none())
    });
    assert_eq!(all, [[1, 2, 3]; 3]);

    let mut whole = [[1_u16, 2, 3, 4, 5]; 3];
    let shard =
        |rank: &SharedContext| vec![0_u16; rank.context().expect("this process").shard(5).len()];
    let mut shards: Vec<_> = ranks.iter().map(shard).collect();
    on_all(ranks, |(i, rank)| {
        let shard = lent(&mut shards[i], DType::U16);
        rank.reduce_scatter(lent(&mut whole[i], DType::U16), shard, ReduceOp::Max, &none())
    });
    assert_eq!(shards.concat(), [1, 2, 3, 4, 5]);

    // The output is the input.
    let mut turned = [[0_u8, 1, 2], [10, 11, 12], [20, 21, 22]];
    on_all(ranks, |(i, rank)| {
        let input = lent(&mut turned[i], DType::U8);
        rank.all_to_all(input, lent(&mut turned[i], DType::U8), &none())
    });
    assert_eq!(turned, [[0, 10, 20], [1, 11, 21], [2, 12, 22]]);

    let (mut parts, mut part, mut all) = ([0_i32, 1, 2], [[9_i32]; 3], [0_i32; 3]);
    on_all(ranks, |(i, rank)| {
        let parts = (i == 1).then(|| lent(&mut parts, DType::I32));
        rank.scatter(parts, lent(&mut part[i], DType::I32), 1, &none())
    });
    on_all(ranks, |(i, rank)| {
        let all = (i == 2).then(|| lent(&mut all, DType::I32));
        rank.gather(lent(&mut part[i], DType::I32), all, 2, &none())
    });
    assert_eq!(all, [0, 1, 2]);

    let mut uneven = [vec![1_u8], vec![], vec![2, 3]];
    let gathered =
        on_all(ranks, |(i, rank)| rank.all_gather_uneven(lent(&mut uneven[i], DType::U8), &none()));
    let are = |reply: &Reply, wanted: &[u8], each: &[usize]| {
        let Reply::Parts { elements, dtype: DType::U8, lengths } = reply else { return false };
        elements.bytes() == wanted && lengths == each
    };
    assert!(gathered.iter().all(|all| are(all, &[1, 2, 3], &[1, 0, 2])), "{gathered:?}");
    let mut sent = [vec![1_u8, 2, 3], vec![4], vec![]];
    let lengths = [[2, 0, 1], [0, 1, 0], [0, 0, 0]];
    let came = on_all(ranks, |(i, rank)| {
        let sent = lent(&mut sent[i], DType::U8);
        rank.all_to_all_uneven(sent, lengths[i].to_vec(), &none())
    });
    let rows = [[2, 0, 0], [0, 1, 0], [1, 0, 0]];
    let bytes: [&[u8]; 3] = [&[1, 2], &[4], &[3]];
    assert!((0..3).all(|i| are(&came[i], bytes[i], &rows[i])), "{came:?}");
}

#[test]
fn messages_and_states_arrive() {
    let Group { ref ranks, .. } = group("foreign-messages", 2);
    // Both send before they receive, in one thread each: no call waits in the program.
    let (mut out, mut came) = ([[1_f32; 5], [2.0; 5]], [[0_f32; 5]; 2]);
    let calls: Vec<_> = (0..2)
        .flat_map(|i| {
            let send = ranks[i].send(lent(&mut out[i], DType::F32), 1 - i, 7, &none());
            let from = (i == 0).then_some(1);
            [send, ranks[i].recv(lent(&mut came[i], DType::F32), from, 7, &none())].map(begun)
        })
        .collect();
    let replies: Vec<_> = calls.iter().map(done).collect();
    assert_eq!(replies, [Reply::Done, Reply::From(1), Reply::Done, Reply::From(0)]);
    assert_eq!(came, [[2.0; 5], [1.0; 5]]);

    assert_eq!(on_all(ranks, |(_, rank)| rank.barrier(&none())), [Reply::Done, Reply::Done]);
}

#[test]
fn a_latecomer_gets_the_state_of_the_others() {
    let builder = |name| Builder::new(Config::local()).open_lan("foreign-states").name(name);
    let builder = |name| builder(name).members(2);
    let mut group = Group::of((0..2).map(|_| joined(builder("early"))).collect());
    let mut steps = [[1_u32], [2]];
    on_all(&group.ranks, |(i, rank)| {
        rank.all_reduce(lent(&mut steps[i], DType::U32), ReduceOp::Sum, &none())
    });
    let mut clusters = std::mem::take(&mut group.clusters);
    clusters.push(joined(builder("late")));
    let Group { ref ranks, .. } = Group::of(clusters);
    let refused = begun(ranks[0].barrier(&none()));
    assert_eq!(code(&refused), "needs-sync");
    let states = on_all(ranks, |(i, rank)| {
        let is_late = rank.context().expect("this process").members()[i].name.as_str() == "late";
        let (version, state) = if is_late { (9, vec![]) } else { (1, vec![3; 5]) };
        rank.sync(version, state, &Options { deadline: Some(SOON), ..none() })
    });
    assert_eq!(states, vec![Reply::State(vec![3; 5]); 3]);
    on_all(ranks, |(_, rank)| rank.barrier(&none()));
}

#[test]
fn a_step_writes_all_or_nothing() {
    let Group { ref ranks, .. } = group("foreign-steps", 2);
    let codecs: Vec<_> = (0..2).map(|_| Arc::new(Mutex::new(Codec::f16()))).collect();
    for breaks in [false, true] {
        let (mut sum, mut mean, mut coded) = ([[1_i16], [2]], [[1_f64], [4.0]], [[1_f32], [2.0]]);
        let (mut flags, mut own, mut all) = ([[1_u8], [0]], [[3_u32], [4]], [[0_u32; 2]; 2]);
        let calls: Vec<_> = (0..2)
            .map(|i| {
                let mut step = ranks[i].step();
                let sum = lent(&mut sum[i], DType::I16);
                step.all_reduce(sum, ReduceOp::Sum, &none()).expect("a part");
                let mean = lent(&mut mean[i], DType::F64);
                let weighted = Options { weight: Some(2.0), ..none() };
                step.all_reduce(mean, ReduceOp::Sum, &weighted).expect("a part");
                let coded = lent(&mut coded[i], DType::F32);
                let options = Options { codec: Some(Arc::clone(&codecs[i])), ..none() };
                assert!(
                    step.all_reduce(lent(&mut own[i], DType::U32), ReduceOp::Sum, &options)
                        .is_err()
                );
                step.all_reduce(coded, ReduceOp::Max, &options).expect("a part");
                let flags = lent(&mut flags[i], DType::Bool);
                step.reduce(flags, 0, ReduceOp::BitOr).expect("a part");
                let (own, all) = (lent(&mut own[i], DType::U32), lent(&mut all[i], DType::U32));
                step.all_gather(own, all).expect("a part");
                // One rank has another call.
                let mut more = [0_u8; 2];
                let bytes = lent(&mut more, DType::U8);
                if breaks && i == 0 {
                    step.broadcast(bytes, 0).expect("a part");
                }
                (begun(step.commit(&none())), more)
            })
            .collect();
        if breaks {
            assert_eq!([code(&calls[0].0), code(&calls[1].0)], ["mismatch"; 2]);
            assert_eq!((sum, mean, coded), ([[1], [2]], [[1.0], [4.0]], [[1.0], [2.0]]));
            assert_eq!((flags, all), ([[1], [0]], [[0; 2]; 2]));
        } else {
            calls.iter().for_each(|(call, _)| assert_eq!(done(call), Reply::Done));
            assert_eq!((sum, mean, coded), ([[3]; 2], [[2.5]; 2], [[2.0]; 2]));
            assert_eq!((flags, all), ([[1], [0]], [[3, 4]; 2]));
        }
    }
}

/// Also the memory of `bool`, and unaligned memory, of which there are copies.
#[test]
fn a_step_reads_its_memory_when_it_is_committed() {
    let Group { ref ranks, .. } = group("foreign-late", 2);
    let (mut flags, mut sums) = ([[0_u8; 2]; 2], [[0_u8; 9]; 2]);
    let calls: Vec<_> = (0..2)
        .map(|i| {
            let mut step = ranks[i].step();
            let of_flags = lent(&mut flags[i], DType::Bool);
            step.all_reduce(of_flags, ReduceOp::BitOr, &none()).expect("a part");
            let of_sums = bytes(&mut sums[i][1..], DType::U32);
            step.all_reduce(of_sums, ReduceOp::Sum, &none()).expect("a part");
            (flags[i][i], sums[i][1]) = (1, 2);
            begun(step.commit(&none()))
        })
        .collect();
    calls.iter().for_each(|call| assert_eq!(done(call), Reply::Done));
    assert_eq!((flags, sums[0][1], sums[1][1]), ([[1; 2]; 2], 4, 4));
}

/// All types, from memory that is aligned and that is not.
#[test]
fn every_type_is_summed_at_every_address() {
    let Group { ref ranks, .. } = group("foreign-types", 2);
    let types = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::Bf16,
        DType::U8,
        DType::I8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
        DType::Bool,
    ];
    for dtype in types {
        for shift in [0, 1, 3] {
            // The bytes of numbers of any type, but for the sum of halves: those are maximized.
            let input: Vec<u8> = (0..7 * dtype.bytes()).map(|i| (i % 3) as u8).collect();
            let mut memory = [vec![0_u8; shift + input.len()], vec![0; shift + input.len()]];
            memory.iter_mut().for_each(|own| own[shift..].copy_from_slice(&input));
            on_all(ranks, |(i, rank)| {
                rank.all_reduce(bytes(&mut memory[i][shift..], dtype), ReduceOp::Max, &none())
            });
            let expected = match dtype {
                // Another byte than 0 is true, and comes back as 1.
                DType::Bool => input.iter().map(|byte| u8::from(*byte != 0)).collect(),
                _ => input,
            };
            assert!(memory.iter().all(|own| own[shift..] == expected), "{dtype} at {shift}");
        }
    }
}

#[test]
fn nonsense_is_an_error_of_the_call() {
    let Group { ref ranks, .. } = group("foreign-nonsense", 2);
    let rank = &ranks[0];
    let (mut floats, mut ints) = ([0_f32; 4], [0_i32; 4]);
    let codec = || Some(Arc::new(Mutex::new(Codec::int8())));
    let mut int = || lent(&mut ints, DType::I32);
    let mut float = || lent(&mut floats, DType::F32);
    let calls = [
        rank.all_reduce(int(), ReduceOp::Sum, &Options { codec: codec(), ..none() }),
        rank.all_reduce(int(), ReduceOp::Sum, &Options { weight: Some(1.0), ..none() }),
        rank.all_reduce(float(), ReduceOp::Max, &Options { weight: Some(1.0), ..none() }),
        rank.all_gather(float(), int(), &none()),
        rank.all_gather(float(), float(), &none()),
        rank.reduce(float(), 0, ReduceOp::Sum, &Options { codec: codec(), ..none() }),
        rank.broadcast(float(), 0, &Options { reject_non_finite: true, ..none() }),
        rank.all_gather_uneven(float(), &Options { best_effort: true, ..none() }),
        rank.gather(float(), None, 0, &none()),
    ];
    let codes = calls.map(|call| call.expect_err("an argument is wrong").code());
    assert_eq!(codes, ["argument"; 9]);
    // SAFETY: a null pointer is refused.
    let null = |count| unsafe { Memory::new(std::ptr::null_mut(), count, DType::F64) };
    assert!(null(1).is_err() && null(usize::MAX).is_err());
    let empty = on_all(ranks, |(_, rank)| {
        rank.all_reduce(null(0).expect("nothing"), ReduceOp::Sum, &none())
    });
    assert_eq!(empty, [Reply::Done, Reply::Done]);
    // A call that all ranks make wrongly takes its number on all of them.
    let mut sums = [[1_f32], [2.0]];
    let wrong: Vec<_> = (0..2)
        .map(|i| ranks[i].all_reduce(lent(&mut sums[i], DType::F32), ReduceOp::BitOr, &none()))
        .map(begun)
        .collect();
    wrong.iter().for_each(|call| assert_eq!(code(call), "rejected"));
    assert_eq!(sums, [[1.0], [2.0]]);
}

#[test]
fn a_wait_ends_in_time_and_the_call_goes_on() {
    let Group { ref ranks, .. } = group("foreign-waits", 2);
    let mut sums = [[1_f32], [2.0]];
    let first = begun(ranks[0].all_reduce(lent(&mut sums[0], DType::F32), ReduceOp::Sum, &none()));
    assert!(first.wait(Some(Duration::from_millis(20))).expect("no callback").is_none());
    assert!(first.outcome().is_none());
    let second = begun(ranks[1].all_reduce(lent(&mut sums[1], DType::F32), ReduceOp::Sum, &none()));
    assert_eq!([done(&first), done(&second)], [Reply::Done, Reply::Done]);
    assert_eq!(sums, [[3.0], [3.0]]);

    let late = &Options { deadline: Some(Duration::from_millis(20)), ..none() };
    let alone = begun(ranks[0].all_reduce(lent(&mut sums[0], DType::F32), ReduceOp::Sum, late));
    assert_eq!(code(&alone), "aborted");
    assert_eq!(sums[0], [3.0]);
}

/// Rank 0 cannot copy its memory. The call fails for both, and the next ones pair with each other.
#[test]
fn a_call_without_memory_for_a_copy_fails_for_all() {
    let Group { ref ranks, .. } = group("foreign-memory", 2);
    type Kind = fn(&SharedContext, Memory) -> Begun;
    let kinds: [Kind; 4] = [
        |rank, memory| rank.all_reduce(memory, ReduceOp::BitOr, &none()),
        |rank, memory| rank.all_gather_uneven(memory, &none()),
        |rank, memory| {
            let own = rank.context().expect("this process").rank().index();
            match own {
                0 => rank.send(memory, 1, 5, &none()),
                _ => rank.recv(memory, Some(0), 5, &none()),
            }
        },
        |rank, memory| {
            let mut step = rank.step();
            step.all_reduce(memory, ReduceOp::BitOr, &none()).expect("a part");
            step.commit(&none())
        },
    ];
    let (mut flag, mut sums) = ([true], [[1_f32], [2.0]]);
    for (kind, call) in kinds.into_iter().enumerate() {
        let more = (usize::MAX / 4, std::ptr::NonNull::dangling().as_ptr());
        // SAFETY: nobody reads more memory than there is, because there is none for a copy of it.
        let memory = unsafe { Memory::new(more.1, more.0, DType::Bool) }.expect("it could be");
        assert_eq!(code(&begun(call(&ranks[0], memory))), "memory", "kind {kind}");
        let other = begun(call(&ranks[1], lent(&mut flag, DType::Bool)));
        assert_eq!(code(&other), "aborted", "kind {kind}");
        on_all(ranks, |(i, rank)| {
            rank.all_reduce(lent(&mut sums[i], DType::F32), ReduceOp::Max, &none())
        });
        assert_eq!(sums, [[2.0], [2.0]]);
    }
}

#[test]
fn a_call_that_is_dropped_leaves_its_memory_alone() {
    let Group { ref ranks, .. } = group("foreign-drops", 2);
    let mut sum = vec![1_f32; 1000];
    let call = begun(ranks[0].all_reduce(lent(&mut sum, DType::F32), ReduceOp::Sum, &none()));
    let told = Arc::new(AtomicUsize::new(0));
    let ends = Arc::clone(&told);
    call.on_end(move |outcome| {
        assert!(matches!(outcome, Err(Failure::GivenUp)));
        ends.fetch_add(1, Ordering::SeqCst);
    });
    drop(call);
    assert_eq!(told.load(Ordering::SeqCst), 1);
    drop(sum);
    let mut theirs = [1_f32; 1000];
    let other = begun(ranks[1].all_reduce(lent(&mut theirs, DType::F32), ReduceOp::Sum, &none()));
    assert_eq!(code(&other), "aborted");
    assert_eq!(theirs, [1.0; 1000]);
}

#[test]
fn functions_are_told_once_and_must_not_wait() {
    let Group { ranks, .. } = &group("foreign-told", 2);
    let (tell, told) = channel();
    let mut sums = [[1_f32], [2.0]];
    let first = begun(ranks[0].all_reduce(lent(&mut sums[0], DType::F32), ReduceOp::Sum, &none()));
    let (rank, tells) = (ranks[0].clone(), tell.clone());
    first.on_end(move |outcome| {
        let barrier = begun(rank.barrier(&none()));
        let refused = barrier.wait(None).expect_err("it would wait for itself").code();
        let _ = tells.send((outcome.is_ok(), refused, barrier));
        panic!("a panic of the program is its own");
    });
    let second = begun(ranks[1].all_reduce(lent(&mut sums[1], DType::F32), ReduceOp::Sum, &none()));
    done(&second);
    let (is_ok, refused, barrier) = told.recv_timeout(SOON).expect("told");
    assert_eq!((is_ok, refused), (true, "in-callback"));
    assert_eq!(
        [done(&begun(ranks[1].barrier(&none()))), done(&barrier)],
        [Reply::Done, Reply::Done]
    );
    // At once, for a call that has ended.
    let here = thread::current().id();
    first.on_end(move |_| drop(tell.send((thread::current().id() == here, "now", barrier))));
    assert!(told.recv_timeout(SOON).expect("told").0);
}

/// Calls that are waited for, dropped, and told of, in any order, in several threads.
#[test]
fn no_order_of_waits_and_drops_hangs() {
    let Group { ref ranks, .. } = group("foreign-orders", 2);
    let seed: u64 = std::env::var("POTLUCK_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7);
    println!("POTLUCK_SEED={seed}");
    let told = Arc::new(AtomicUsize::new(0));
    let mut all = 0;
    for lane in 0..40_u64 {
        let lanes: Vec<_> =
            ranks.iter().map(|rank| rank.lane(1 + lane as u32).expect("a lane")).collect();
        let mut buffers = [[1_f64; 64], [2.0; 64]];
        let works = thread::scope(|scope| {
            let runs = lanes.iter().zip(&mut buffers).enumerate().map(|(i, (rank, buffer))| {
                let told = Arc::clone(&told);
                let mut dice = (seed + 1) * 0x9e37_79b9 + lane * 2 + i as u64;
                scope.spawn(move || {
                    let mut works = 0;
                    for _ in 0..4 {
                        dice ^= dice << 13;
                        dice ^= dice >> 7;
                        dice ^= dice << 17;
                        let deadline = Some(Duration::from_millis(50));
                        let options = &Options { deadline, ..none() };
                        let memory = lent(buffer, DType::F64);
                        let call = begun(rank.all_reduce(memory, ReduceOp::Sum, options));
                        works += 1;
                        let told = Arc::clone(&told);
                        call.on_end(move |_| {
                            let _ = told.fetch_add(1, Ordering::SeqCst);
                        });
                        match dice % 4 {
                            0 => drop(call),
                            1 => drop(call.wait(Some(Duration::from_micros(dice % 500)))),
                            _ => assert!(call.wait(Some(SOON)).expect("here").is_some()),
                        }
                    }
                    works
                })
            });
            let runs: Vec<_> = runs.collect();
            runs.into_iter().map(|run| run.join().expect("no panic")).sum::<usize>()
        });
        all += works;
    }
    assert_eq!(told.load(Ordering::SeqCst), all);
}

#[test]
fn codes_are_those_of_the_library_and_a_few_more() {
    let own = [
        Failure::Argument("a problem".to_owned()),
        Failure::GivenUp,
        Failure::InCallback,
        Failure::Forked,
        Failure::Thread(std::io::ErrorKind::WouldBlock.into()),
        Failure::Panic(String::new()),
    ];
    let codes: BTreeSet<_> = own.iter().map(Failure::code).collect();
    assert_eq!(codes.len(), own.len());
    let closed = Failure::from(potluck::Error::ViewChanged);
    assert_eq!((closed.code(), closed.can_renew()), ("view-changed", true));
    assert!(own.iter().all(|failure| !failure.can_renew() && !failure.to_string().is_empty()));
}
