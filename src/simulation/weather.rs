//! Layer: Face.
//!
//! The state of the simulated network: random numbers, loss, and reachability.

use crate::identity::MemberId;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Shared by all hosts of a run, and changed by the faults.
#[derive(Clone)]
pub struct Weather(Arc<Mutex<State>>);

struct State {
    chance: SmallRng,
    /// Lost segments per thousand; a lost segment is retransmitted.
    loss: u32,
    /// Pairs that cannot reach each other.
    cuts: BTreeSet<(IpAddr, IpAddr)>,
    /// The address of each run (boot) of each node.
    places: BTreeMap<MemberId, IpAddr>,
}

/// The first retransmission timeout of TCP.
const RESENT_AFTER: Duration = Duration::from_millis(200);

impl Weather {
    /// A network without faults.
    pub fn new(seed: u64) -> Weather {
        let chance = SmallRng::seed_from_u64(seed);
        Weather(Arc::new(Mutex::new(State {
            chance,
            loss: 0,
            cuts: BTreeSet::new(),
            places: BTreeMap::new(),
        })))
    }

    /// A random number below `end`.
    pub fn below(&self, end: u64) -> u64 {
        self.state().chance.random_range(0..end)
    }

    /// Sets the number of lost segments per thousand.
    pub fn set_loss(&self, of_a_thousand: u32) {
        self.state().loss = of_a_thousand;
    }

    /// The delay of one segment by losses. A segment may be lost repeatedly; TCP doubles its
    /// timeout each time.
    pub fn delay(&self) -> Duration {
        let mut state = self.state();
        let (mut delay, mut wait) = (Duration::ZERO, RESENT_AFTER);
        while state.loss > 0 && state.chance.random_range(0..1000) < state.loss {
            delay += wait;
            wait *= 2;
        }
        delay
    }

    /// Disconnects two hosts, or connects them again.
    pub fn cut(&self, a: IpAddr, b: IpAddr, is_cut: bool) {
        let pair = (a.min(b), a.max(b));
        let mut state = self.state();
        if is_cut {
            state.cuts.insert(pair)
        } else {
            state.cuts.remove(&pair)
        };
    }

    /// Whether two hosts are disconnected.
    pub fn is_cut(&self, a: IpAddr, b: IpAddr) -> bool {
        self.state().cuts.contains(&(a.min(b), a.max(b)))
    }

    /// The number of lost segments per thousand.
    pub fn loss(&self) -> u32 {
        self.state().loss
    }

    /// Records the address of a node's run.
    pub fn lives(&self, member: MemberId, at: IpAddr) {
        self.state().places.insert(member, at);
    }

    /// Whether two nodes can reach each other.
    pub fn reach(&self, a: MemberId, b: MemberId) -> bool {
        let state = self.state();
        match (state.places.get(&a), state.places.get(&b)) {
            (Some(a), Some(b)) => !state.cuts.contains(&(*a.min(b), *a.max(b))),
            _ => false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
