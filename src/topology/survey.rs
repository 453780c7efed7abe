//! Layer: Core.
//!
//! Which path is measured next. One at a time, so that no two disturb each other, and only while nothing else goes on.
//!
//! A path carries what the slower of its two ports does. So first everybody sends to the next rank, then everybody exchanges a burst with
//! the member that was seen to be the fastest: then each port has been measured against one that is no slower, and the rates are good for a
//! plan. The other paths follow, because a cable may hide among them; and those that carried less than both their ports can
//! are tried again, as chance may have been to blame.

use super::ranks;
use crate::view::Rank;
use std::collections::BTreeMap;

/// From whom to whom.
pub type Pair = (Rank, Rank);

/// The measuring of one View, as rank 0 leads it. Time is in milliseconds and never goes back.
#[derive(Clone, Debug)]
pub struct Survey {
    size: usize,
    rates: BTreeMap<Pair, u32>,
    /// How often a path was tried.
    tries: BTreeMap<Pair, u32>,
    under_way: Option<(Pair, u64)>,
    /// Not before this time.
    rest_until: u64,
}

impl Survey {
    /// Of a View of so many members, of whose paths some rates are known, in kbit/s.
    pub fn new(size: usize, known: impl Fn(Pair) -> Option<u32>) -> Survey {
        let rates = pairs(size).filter_map(|pair| Some((pair, known(pair)?))).collect();
        Survey { size, rates, tries: BTreeMap::new(), under_way: None, rest_until: 0 }
    }

    /// The next path to be measured now that nothing goes on; it is under way then. `None` while another one is, or none is left.
    pub fn begin(&mut self, now: u64) -> Option<Pair> {
        if self.under_way.is_some() || now < self.rest_until {
            return None;
        }
        let pair = self.wanted()?;
        *self.tries.entry(pair).or_default() += 1;
        self.under_way = Some((pair, now));
        Some(pair)
    }

    /// What came of a path: a rate in kbit/s, or 0. Says whether it was the one under way.
    pub fn on_rate(&mut self, now: u64, pair: Pair, kbps: u32) -> bool {
        let awaited = self.under_way.take_if(|(under_way, _)| *under_way == pair).is_some();
        if kbps > 0 {
            let best = self.rates.entry(pair).or_default();
            *best = kbps.max(*best);
        } else if awaited {
            self.rest_until = now + REST_MS;
        }
        awaited
    }

    /// This path cannot be measured.
    pub fn leave(&mut self, pair: Pair) {
        self.under_way.take_if(|(under_way, _)| *under_way == pair);
        self.tries.insert(pair, TRIES_MAX);
    }

    /// Gives up what has not been answered.
    pub fn tick(&mut self, now: u64) {
        if self.under_way.take_if(|(_, since)| now >= *since + PATIENCE_MS).is_some() {
            self.rest_until = now + REST_MS;
        }
    }

    /// Whether every port has been measured against one that is no slower, as far as it could be.
    pub fn is_good_for_a_plan(&self) -> bool {
        self.round().all(|pair| self.is_done(pair)) && self.spokes().all(|pair| self.is_done(pair))
    }

    /// Whether nothing is left to be measured.
    pub fn is_over(&self) -> bool {
        self.under_way.is_none() && self.wanted().is_none()
    }

    fn wanted(&self) -> Option<Pair> {
        let open = |pair: &Pair| !self.is_done(*pair);
        let round = self.round().find(open);
        // Who is the fastest shows when all have been seen once.
        let spokes = || self.spokes().find(open);
        round.or_else(spokes).or_else(|| pairs(self.size).find(open)).or_else(|| self.doubtful())
    }

    fn is_done(&self, pair: Pair) -> bool {
        self.rates.contains_key(&pair) || self.tries(pair) >= TRIES_MAX
    }

    fn tries(&self, pair: Pair) -> u32 {
        self.tries.get(&pair).copied().unwrap_or(0)
    }

    fn round(&self) -> impl Iterator<Item = Pair> + '_ {
        let next = |rank: Rank| Rank(((rank.index() + 1) % self.size) as u8);
        ranks(self.size).map(move |rank| (rank, next(rank))).filter(|(a, b)| a != b)
    }

    /// To and from the member that sent or received the most.
    fn spokes(&self) -> impl Iterator<Item = Pair> + '_ {
        let fastest = self.rates.iter().max_by_key(|(pair, kbps)| (**kbps, std::cmp::Reverse(**pair)));
        let hub = fastest.map_or(Rank(0), |((from, _), _)| *from);
        ranks(self.size).filter(move |rank| *rank != hub).flat_map(move |rank| [(rank, hub), (hub, rank)])
    }

    /// A path that has been tried little and carried less than its ends have sent and received elsewhere.
    fn doubtful(&self) -> Option<Pair> {
        let most = |of: &dyn Fn(&Pair) -> bool| self.rates.iter().filter(|(pair, _)| of(pair)).map(|(_, kbps)| *kbps).max();
        let expected = |pair: Pair| Some(most(&|known| known.0 == pair.0)?.min(most(&|known| known.1 == pair.1)?));
        let is_low = |pair: &Pair, kbps: u32| expected(*pair).is_some_and(|most| u64::from(kbps) * 100 < u64::from(most) * 93);
        let low = self.rates.iter().filter(|(pair, kbps)| self.tries(**pair) < DOUBTS_MAX && is_low(pair, **kbps));
        low.map(|(pair, _)| *pair).next()
    }
}

fn pairs(size: usize) -> impl Iterator<Item = Pair> {
    ranks(size).flat_map(move |a| ranks(size).map(move |b| (a, b))).filter(|(a, b)| a != b)
}

/// A burst takes a tenth of a second, on a slow path half of one; after this long somebody does not answer.
const PATIENCE_MS: u64 = 3000;
/// After a burst that was given up, mostly for an operation.
const REST_MS: u64 = 200;
/// A path that cannot be measured so often is left.
const TRIES_MAX: u32 = 40;
/// How often a path is tried that carries less than expected.
const DOUBTS_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes through with it, where each path carries what `kbps` says, and gives the order and whether it was good for a plan after each.
    fn walk(survey: &mut Survey, kbps: impl Fn(Pair) -> u32) -> Vec<(Pair, bool)> {
        let (mut order, mut now) = (Vec::new(), 100_000);
        while !survey.is_over() {
            now += 1000;
            let pair = survey.begin(now).expect("it is not over");
            assert_eq!(survey.begin(now), None, "one at a time");
            assert!(survey.on_rate(now, pair, kbps(pair)));
            order.push((pair, survey.is_good_for_a_plan()));
        }
        order
    }

    fn slower_of(ports: &[u32]) -> impl Fn(Pair) -> u32 + '_ {
        |(a, b)| ports[a.index()].min(ports[b.index()])
    }

    #[test]
    fn every_port_meets_one_that_is_no_slower_before_a_plan_is_made() {
        for ports in [vec![940, 940, 300, 100], vec![100, 940, 100, 940, 300], vec![100; 3], (1..=16).map(|n| n * 100).collect()]
        {
            let (size, mut survey) = (ports.len(), Survey::new(ports.len(), |_| None));
            let order = walk(&mut survey, slower_of(&ports));
            let good_after = order.iter().position(|(_, good)| *good).expect("good in the end") + 1;
            assert!(good_after <= 3 * size, "{good_after} of {size} members");
            let seen = &order[..good_after];
            for rank in ranks(size) {
                let most = |of: &dyn Fn(Pair) -> bool| {
                    seen.iter().filter(|(pair, _)| of(*pair)).map(|(pair, _)| slower_of(&ports)(*pair)).max()
                };
                // But for the fastest, which nobody can show more of than the second fastest.
                let expected = ports.iter().enumerate().filter(|(other, _)| *other != rank.index()).map(|(_, kbps)| *kbps).max();
                let expected = Some(ports[rank.index()]).min(expected);
                assert_eq!(
                    (most(&|pair| pair.0 == rank), most(&|pair| pair.1 == rank)),
                    (expected, expected),
                    "{ports:?} {rank}"
                );
            }
            assert_eq!(order.len(), size * (size - 1), "in the end each path once");
        }
    }

    #[test]
    fn what_is_known_is_not_measured_again_and_what_is_odd_is() {
        let known = |pair: Pair| (pair != (Rank(1), Rank(2))).then_some(940);
        let mut survey = Survey::new(4, known);
        assert!(!survey.is_good_for_a_plan());
        assert_eq!(walk(&mut survey, |_| 940).len(), 1);
        let mut survey = Survey::new(4, known);
        let order = walk(&mut survey, |_| 300);
        assert_eq!(order.len(), DOUBTS_MAX as usize, "{order:?}");
    }

    #[test]
    fn what_is_given_up_or_not_answered_is_tried_again_but_not_for_ever() {
        let mut survey = Survey::new(3, |_| None);
        let pair = survey.begin(0).expect("the first");
        assert!(survey.on_rate(10, pair, 0) && !survey.on_rate(10, pair, 0));
        assert_eq!((survey.begin(10), survey.begin(10 + REST_MS)), (None, Some(pair)));
        survey.tick(10 + REST_MS + PATIENCE_MS - 1);
        assert_eq!(survey.begin(20_000), None, "still under way");
        survey.tick(20_000);
        assert_eq!((survey.begin(20_000), survey.begin(20_000 + REST_MS)), (None, Some(pair)));
        survey.on_rate(20_000, pair, 940);
        survey.leave((Rank(2), Rank(1)));
        let order = walk(&mut survey, |_| 0);
        assert_eq!(order.len(), 4 * TRIES_MAX as usize);
    }
}
