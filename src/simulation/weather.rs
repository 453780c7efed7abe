//! Layer: Face.
//!
//! What the simulated network is like: chance, loss, and who reaches whom.

use crate::identity::MemberId;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// All hosts of a run share it; whoever brings the faults changes it.
#[derive(Clone)]
pub struct Weather(Arc<Mutex<State>>);

struct State {
    chance: SmallRng,
    /// Of so many segments one is lost and sent again, in a thousand.
    loss: u32,
    /// Pairs between which nothing gets through.
    cuts: BTreeSet<(IpAddr, IpAddr)>,
    /// Where each life of each node is.
    places: BTreeMap<MemberId, IpAddr>,
}

/// How long TCP waits before it sends a segment again for the first time.
const RESENT_AFTER: Duration = Duration::from_millis(200);

impl Weather {
    /// Fine weather.
    pub fn new(seed: u64) -> Weather {
        let chance = SmallRng::seed_from_u64(seed);
        Weather(Arc::new(Mutex::new(State {
            chance,
            loss: 0,
            cuts: BTreeSet::new(),
            places: BTreeMap::new(),
        })))
    }

    /// A number below `end`.
    pub fn below(&self, end: u64) -> u64 {
        self.state().chance.random_range(0..end)
    }

    /// So many of a thousand segments are lost from now on.
    pub fn set_loss(&self, of_a_thousand: u32) {
        self.state().loss = of_a_thousand;
    }

    /// How late a segment is for having been lost, perhaps more than once: TCP waits twice as long
    /// each time.
    pub fn delay(&self) -> Duration {
        let mut state = self.state();
        let (mut delay, mut wait) = (Duration::ZERO, RESENT_AFTER);
        while state.loss > 0 && state.chance.random_range(0..1000) < state.loss {
            delay += wait;
            wait *= 2;
        }
        delay
    }

    /// Nothing gets through between these two, or everything again.
    pub fn cut(&self, a: IpAddr, b: IpAddr, is_cut: bool) {
        let pair = (a.min(b), a.max(b));
        let mut state = self.state();
        if is_cut {
            state.cuts.insert(pair)
        } else {
            state.cuts.remove(&pair)
        };
    }

    /// A life of a node is at this address.
    pub fn lives(&self, member: MemberId, at: IpAddr) {
        self.state().places.insert(member, at);
    }

    /// Whether something gets from one of these to the other.
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
