//! Layer: Face.
//!
//! An engine without threads: contributions meet on a bus, and an operation completes when packets
//! could have carried them.
//!
//! The real engines block their own threads, for which virtual time does not wait. This one
//! replaces only the data path; the calls and votes around it are the real code.

use super::weather::Weather;
use crate::collective::{
    Backend, Board, DType, Engine, EngineFault, Finished, Input, Job, Kind, Pool, ReduceOp,
    Staging, Traffic,
};
use crate::engine::EngineKind;
use crate::identity::MemberId;
use crate::link::{DataLink, DataReceiver, Shutdown};
use crate::view::{OpId, Rank, View, ViewDigest};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The contributions of all members, by View, operation and member.
#[derive(Clone, Default)]
pub struct Bus(Arc<Mutex<BTreeMap<(ViewDigest, OpId), Parts>>>);

type Parts = BTreeMap<MemberId, Vec<u8>>;

/// The engine of one host.
pub struct SimEngine {
    /// Collects the contributions.
    pub bus: Bus,
    /// Knows which hosts reach each other.
    pub weather: Weather,
}

struct SimBackend(Arc<Shared>);

struct Shared {
    view: Arc<View>,
    me: MemberId,
    bus: Bus,
    weather: Weather,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: BTreeMap<Rank, Link>,
    jobs: BTreeMap<OpId, Job>,
    closed: bool,
}

/// The receiving half, which reports the end of the link, and the handle that ends it.
struct Link {
    receiver: Box<dyn DataReceiver>,
    shutdown: Arc<dyn Shutdown>,
}

/// Interval between two checks of a link.
const WATCH: Duration = Duration::from_millis(20);

/// Interval between two checks whether a job can complete.
const LOOK: Duration = Duration::from_millis(2);

impl Engine for SimEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Native
    }

    fn open(&self, view: &Arc<View>, me: Rank, _board: Arc<dyn Board>) -> Arc<dyn Backend> {
        let me = view.member(me).expect("a rank of the View").id;
        let (bus, weather) = (self.bus.clone(), self.weather.clone());
        Arc::new(SimBackend(Arc::new(Shared {
            view: Arc::clone(view),
            me,
            bus,
            weather,
            state: Mutex::default(),
        })))
    }
}

impl Backend for SimBackend {
    fn attach(&self, peer: Rank, link: Box<dyn DataLink>) {
        let (_, receiver, shutdown) = link.split();
        let mut state = self.0.state();
        if state.closed {
            shutdown.shutdown();
            return;
        }
        state.links.insert(peer, Link { receiver, shutdown });
        tokio::spawn(Arc::clone(&self.0).watch(peer));
    }

    fn start(&self, job: Job) {
        let mut state = self.0.state();
        if state.closed {
            drop(state);
            (job.done)(Err(EngineFault::Closed));
        } else {
            state.jobs.insert(job.op, job);
        }
    }

    fn feed(&self, op: OpId, input: &Input<'_>) {
        let mut bytes = vec![0; input.len()];
        input.copy_to(0, &mut bytes);
        self.0.bus.put(self.0.view.digest(), op, self.0.me, bytes);
        tokio::spawn(Arc::clone(&self.0).run(op));
    }

    fn credit(&self, _: OpId, _: Rank) {}

    fn cancel(&self, op: OpId) {
        self.0.end(op, || Err(EngineFault::Cancelled));
    }

    fn retire(&self, _: OpId) {}

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    fn traffic_with(&self, _: Rank) -> Traffic {
        Traffic::default()
    }

    fn close(&self) {
        let (jobs, links) = {
            let mut state = self.0.state();
            state.closed = true;
            (std::mem::take(&mut state.jobs), std::mem::take(&mut state.links))
        };
        jobs.into_values().for_each(|job| (job.done)(Err(EngineFault::Closed)));
        links.values().for_each(|link| link.shutdown.shutdown());
    }
}

impl Drop for SimBackend {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Removes a link when it has ended, as a reading thread would.
    async fn watch(self: Arc<Shared>, peer: Rank) {
        loop {
            tokio::time::sleep(WATCH).await;
            let mut state = self.state();
            let Some(link) = state.links.get_mut(&peer) else { return };
            if link.receiver.header().is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
            {
                state.links.remove(&peer);
                return;
            }
        }
    }

    /// Completes the operation when all contributions have arrived.
    async fn run(self: Arc<Shared>, op: OpId) {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some((kind, root)) = self
                .state()
                .jobs
                .get(&op)
                .map(|job| (job.call, job.sync_root.map(|(root, _)| root)))
            else {
                return;
            };
            let from: Vec<MemberId> = match root {
                Some(root) => self.view.member(root).map(|m| m.id).into_iter().collect(),
                None => self.view.members.iter().map(|m| m.id).collect(),
            };
            if !from.iter().all(|from| self.reached_by(*from)) {
                continue;
            }
            let Some(parts) = self.bus.all(self.view.digest(), op, &from) else { continue };
            let output = match (root, kind.kind, kind.dtype) {
                (Some(_), ..) => parts.into_iter().next().unwrap_or_default(),
                (None, Kind::AllReduce(ReduceOp::Sum), DType::U64) => sum(&parts),
                other => panic!("the simulated programs do not call {other:?}"),
            };
            let digest = xxhash_rust::xxh3::xxh3_128(&output);
            let output = Staging::filled(&Pool::new(), &output, 1 << 18);
            return self.end(op, || Ok(Finished { output, digest }));
        }
    }

    /// Whether data from a member can arrive here: over an established data link, or over relays if
    /// the pair has none.
    fn reached_by(&self, member: MemberId) -> bool {
        let (Some(from), Some(me)) = (self.view.rank_of(member), self.view.rank_of(self.me)) else {
            return false;
        };
        let passes = |a: Rank, b: Rank| {
            let ends = [a, b].map(|rank| self.view.member(rank).map(|m| m.id));
            let [Some(a_id), Some(b_id)] = ends else { return false };
            let stands = [(a, b), (b, a)]
                .iter()
                .all(|(near, far)| *near != me || self.state().links.contains_key(far));
            !self.view.are_apart(a, b) && stands && self.weather.reach(a_id, b_id)
        };
        let (mut reached, mut open) = (BTreeSet::from([from]), vec![from]);
        while let Some(at) = open.pop() {
            // Directly if possible, as in an exchange.
            let straight = at == from && !self.view.are_apart(at, me) && at != me;
            for next in
                self.view.ranks().filter(|next| if straight { *next == me } else { *next != at })
            {
                if passes(at, next) && reached.insert(next) {
                    open.push(next);
                }
            }
        }
        reached.contains(&me)
    }

    fn end(&self, op: OpId, result: impl FnOnce() -> Result<Finished, EngineFault>) {
        let job = self.state().jobs.remove(&op);
        if let Some(job) = job {
            (job.done)(result());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bus {
    fn put(&self, view: ViewDigest, op: OpId, from: MemberId, bytes: Vec<u8>) {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.entry((view, op)).or_default().insert(from, bytes);
    }

    /// The contributions of these members, if all are there.
    fn all(&self, view: ViewDigest, op: OpId, from: &[MemberId]) -> Option<Vec<Vec<u8>>> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = parts.get(&(view, op))?;
        from.iter().map(|member| parts.get(member).cloned()).collect()
    }
}

fn sum(parts: &[Vec<u8>]) -> Vec<u8> {
    let numbers = |part: &[u8]| -> Vec<u64> {
        part.chunks_exact(8)
            .map(|n| u64::from_le_bytes(n.try_into().expect("eight bytes")))
            .collect()
    };
    let parts: Vec<Vec<u64>> = parts.iter().map(|part| numbers(part)).collect();
    let len = parts.iter().map(Vec::len).min().unwrap_or(0);
    (0..len)
        .flat_map(|i| parts.iter().fold(0_u64, |sum, part| sum.wrapping_add(part[i])).to_le_bytes())
        .collect()
}
