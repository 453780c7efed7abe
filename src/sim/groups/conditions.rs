//! The conditions of the simulated network: loss, held pairs, stopped directions, open streams. The
//! random numbers of a run are drawn here too.
//!
//! Faults may overlap. Each is counted, and its effect ends with the last one.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Shared by all hosts of a run, and changed by the faults.
#[derive(Clone)]
pub struct Conditions(Arc<Mutex<NetworkState>>);

struct NetworkState {
    rng: SmallRng,
    /// The present losses, in segments per thousand. A lost segment is retransmitted.
    losses: Vec<u32>,
    /// How many faults hold all segments of a pair, the smaller address first.
    held: BTreeMap<(IpAddr, IpAddr), u32>,
    /// How many faults stop the segments from the first address to the second one.
    stopped: BTreeMap<(IpAddr, IpAddr), u32>,
    /// The open streams by pair, in the order in which they were made.
    streams: Vec<((IpAddr, IpAddr), Weak<Notify>)>,
}

/// The first retransmission timeout of TCP.
const RESENT_AFTER: Duration = Duration::from_millis(200);

/// Interval between two tries to send a segment that does not pass.
const AGAIN: Duration = Duration::from_millis(20);

impl Conditions {
    /// A network without faults.
    pub fn new(seed: u64) -> Conditions {
        Conditions(Arc::new(Mutex::new(NetworkState {
            rng: SmallRng::seed_from_u64(seed),
            losses: Vec::new(),
            held: BTreeMap::new(),
            stopped: BTreeMap::new(),
            streams: Vec::new(),
        })))
    }

    /// A random number below `end`.
    pub fn below(&self, end: u64) -> u64 {
        self.state().rng.random_range(0..end)
    }

    /// This many segments per thousand are lost, until [`lose_no_more`](Conditions::lose_no_more).
    pub fn lose(&self, of_a_thousand: u32) {
        self.state().losses.push(of_a_thousand);
    }

    /// Ends one loss.
    pub fn lose_no_more(&self, of_a_thousand: u32) {
        let losses = &mut self.state().losses;
        if let Some(at) = losses.iter().position(|loss| *loss == of_a_thousand) {
            losses.remove(at);
        }
    }

    /// The number of lost segments per thousand.
    pub fn loss(&self) -> u32 {
        self.state().losses.iter().copied().max().unwrap_or(0)
    }

    /// The delay of one segment by losses. A segment may be lost repeatedly; TCP doubles its
    /// timeout each time.
    pub fn delay(&self) -> Duration {
        let loss = self.loss();
        let (mut delay, mut wait) = (Duration::ZERO, RESENT_AFTER);
        while loss > 0 && (self.below(1000) as u32) < loss {
            delay += wait;
            wait *= 2;
        }
        delay
    }

    /// Holds the segments between two hosts. Returns whether nothing else holds them.
    pub fn hold(&self, a: IpAddr, b: IpAddr) -> bool {
        one_more(&mut self.state().held, pair(a, b))
    }

    /// Ends one hold. Returns whether no other one goes on.
    pub fn release(&self, a: IpAddr, b: IpAddr) -> bool {
        one_less(&mut self.state().held, &pair(a, b))
    }

    /// Stops the segments of one direction.
    pub fn stop(&self, from: IpAddr, to: IpAddr) {
        one_more(&mut self.state().stopped, (from, to));
    }

    /// Ends one stop of a direction.
    pub fn go_on(&self, from: IpAddr, to: IpAddr) {
        one_less(&mut self.state().stopped, &(from, to));
    }

    /// Whether segments pass in this direction.
    pub fn passes(&self, from: IpAddr, to: IpAddr) -> bool {
        let state = self.state();
        !state.held.contains_key(&pair(from, to)) && !state.stopped.contains_key(&(from, to))
    }

    /// Whether two hosts do not reach each other.
    pub fn is_cut(&self, a: IpAddr, b: IpAddr) -> bool {
        !self.passes(a, b) || !self.passes(b, a)
    }

    /// Waits until segments pass in this direction.
    pub async fn passing(&self, from: IpAddr, to: IpAddr) {
        while !self.passes(from, to) {
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Registers a stream, which a fault may reset.
    pub fn streams(&self, a: IpAddr, b: IpAddr) -> Arc<Notify> {
        let reset = Arc::new(Notify::new());
        let streams = &mut self.state().streams;
        streams.retain(|(_, stream)| stream.strong_count() > 0);
        streams.push((pair(a, b), Arc::downgrade(&reset)));
        reset
    }

    /// Resets one stream of a pair, if it has any.
    pub fn reset_one(&self, a: IpAddr, b: IpAddr) {
        let of_pair: Vec<Arc<Notify>> = {
            let state = self.state();
            let of_pair = state.streams.iter().filter(|(ends, _)| *ends == pair(a, b));
            of_pair.filter_map(|(_, stream)| stream.upgrade()).collect()
        };
        if !of_pair.is_empty() {
            of_pair[self.below(of_pair.len() as u64) as usize].notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, NetworkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pair(a: IpAddr, b: IpAddr) -> (IpAddr, IpAddr) {
    (a.min(b), a.max(b))
}

fn one_more<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) -> bool {
    let count = counts.entry(key).or_insert(0);
    *count += 1;
    *count == 1
}

fn one_less<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        counts.remove(key);
    }
    is_last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlapping_faults_stop_goes_on_after_the_last_one() {
        let [a, b]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let conditions = Conditions::new(1);
        assert!(conditions.hold(a, b) && !conditions.hold(b, a));
        conditions.stop(a, b);
        assert!(!conditions.release(a, b) && conditions.is_cut(a, b));
        assert!(conditions.release(a, b));
        // Only one direction is left, and it does not depend on the hold.
        assert!(!conditions.passes(a, b) && conditions.passes(b, a) && conditions.is_cut(a, b));
        conditions.stop(a, b);
        conditions.go_on(a, b);
        assert!(!conditions.passes(a, b));
        conditions.go_on(a, b);
        assert!(!conditions.is_cut(a, b));
        conditions.lose(50);
        conditions.lose(300);
        conditions.lose_no_more(300);
        assert_eq!(conditions.loss(), 50);
        conditions.lose_no_more(50);
        assert_eq!(conditions.loss(), 0);
    }
}
