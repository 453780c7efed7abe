//! Layer: Core.
//!
//! Which path is measured next. One at a time, so that no two disturb each other, and only while nothing else goes on.
//!
//! A path carries what the slower of its two ports does. So first everybody sends to the next rank, then everybody exchanges a burst with
//! the member that was seen to be the fastest: then each port has been measured against one that is no slower, and the rates are good for a
//! plan. The other paths follow, because a cable may hide among them. A path that carried less than both its ports can, or than the other way,
//! is in doubt, as chance may have been to blame: it is tried again until it is believed ([`Tries`]), before paths that nobody has looked at. At last
//! members that are not alike exchange bursts, which tells who shares a medium.

use super::media::{Alone, Media};
use super::ranks;
use super::tries::{Tries, is_less};
use crate::view::Rank;
use std::collections::{BTreeMap, BTreeSet};

/// From whom to whom.
pub type Pair = (Rank, Rank);

/// What is measured next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A burst one way.
    Alone(Pair),
    /// Bursts both ways at once.
    Together(Pair),
}

/// The measuring of one View, as rank 0 leads it. Time is in milliseconds and never goes back.
#[derive(Clone, Debug)]
pub struct Survey {
    size: usize,
    rates: BTreeMap<Pair, u32>,
    /// What the bursts of this survey have told.
    tries: BTreeMap<Pair, Tries>,
    /// How many of them have told something.
    told: u64,
    /// All have a direct link to all.
    is_mesh: bool,
    /// Since when what is measured, and of bursts both ways what has come.
    under_way: Option<(Probe, u64)>,
    came: [Option<u32>; 2],
    media: Media,
    /// Whose ports are known to share a medium.
    radios: BTreeSet<Rank>,
    /// Not before this time.
    rest_until: u64,
}

impl Survey {
    /// Of a View of so many members, of whose paths some rates are known, in kbit/s.
    pub fn new(size: usize, known: impl Fn(Pair) -> Option<u32>) -> Survey {
        let rates = pairs(size).filter_map(|pair| Some((pair, known(pair)?))).collect();
        let (tries, radios) = (BTreeMap::new(), BTreeSet::new());
        Survey {
            size,
            rates,
            tries,
            told: 0,
            is_mesh: true,
            under_way: None,
            came: [None; 2],
            media: Media::default(),
            radios,
            rest_until: 0,
        }
    }

    /// The same, where these have no direct link: then each path may have ports of its own, and all are measured before a plan is made.
    #[must_use]
    pub fn without(mut self, apart: &[Pair]) -> Survey {
        self.is_mesh = apart.is_empty();
        apart.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]).for_each(|pair| self.leave(pair));
        self
    }

    /// The next path to be measured now that nothing goes on; it is under way then. `None` while another one is, or none is left.
    pub fn begin(&mut self, now: u64) -> Option<Probe> {
        if self.under_way.is_some() || now < self.rest_until {
            return None;
        }
        let probe = self.wanted()?;
        match probe {
            Probe::Alone(pair) => self.tries.entry(pair).or_default().begin(),
            Probe::Together(_) => {
                let alone = Alone { size: self.size, rates: &self.rates, radios: &self.radios };
                self.media.begin(alone);
                self.came = [None; 2];
            }
        }
        self.under_way = Some((probe, now));
        Some(probe)
    }

    /// The port of this rank is known to share a medium.
    pub fn is_radio(&mut self, rank: Rank) {
        self.radios.insert(rank);
    }

    /// What came of a path: a rate in kbit/s, or 0. Says whether it was the one under way.
    pub fn on_rate(&mut self, now: u64, pair: Pair, kbps: u32) -> bool {
        let awaited = self.under_way.take_if(|(under_way, _)| *under_way == Probe::Alone(pair)).is_some();
        if kbps > 0 {
            self.told += 1;
            let tries = self.tries.entry(pair).or_default();
            // What was known before is not believed against what is seen now; that can be too little, but never too much.
            let seen = tries.most().and(self.rates.get(&pair).copied());
            tries.tell(kbps);
            self.rates.insert(pair, kbps.max(seen.unwrap_or(0)));
        } else if awaited {
            self.rest_until = now + REST_MS;
        }
        awaited
    }

    /// What came of a path while its opposite had a burst as well: a rate in kbit/s, or 0. Says whether that was the last that was awaited.
    pub fn on_rate_together(&mut self, now: u64, pair: Pair, kbps: u32) -> bool {
        let Some((Probe::Together((a, b)), _)) = self.under_way else { return false };
        match pair {
            _ if pair == (a, b) => self.came[0] = Some(kbps),
            _ if pair == (b, a) => self.came[1] = Some(kbps),
            _ => return false,
        }
        let [Some(there), Some(back)] = self.came else { return false };
        self.end_together(now, (a, b), there, back);
        true
    }

    fn end_together(&mut self, now: u64, pair: Pair, there: u32, back: u32) {
        self.under_way = None;
        if there == 0 || back == 0 {
            self.rest_until = now + REST_MS;
        }
        self.media.on_exchange(pair, there, back);
        // A burst can show too little, but never too much.
        for (way, kbps) in [(pair, there), ((pair.1, pair.0), back)] {
            self.rates.entry(way).and_modify(|best| *best = kbps.max(*best));
        }
    }

    /// The ports that were seen to share a medium, each as that by which the first of two ranks sends to the second, and which medium; empty
    /// until all is told of that.
    pub fn stations(&self) -> Vec<(Pair, u32)> {
        if pairs(self.size).all(|pair| self.is_done(pair)) && self.shared().is_none() {
            self.media.stations(self.alone())
        } else {
            Vec::new()
        }
    }

    fn alone(&self) -> Alone<'_> {
        Alone { size: self.size, rates: &self.rates, radios: &self.radios }
    }

    /// What is known of a path is no longer believed, nor what came of exchanges over it.
    pub fn again(&mut self, pair: Pair) {
        self.rates.remove(&pair);
        self.tries.remove(&pair);
        self.media.forget(pair);
    }

    /// This path cannot be measured.
    pub fn leave(&mut self, pair: Pair) {
        self.under_way.take_if(|(under_way, _)| *under_way == Probe::Alone(pair));
        self.tries.insert(pair, Tries::LEFT);
    }

    /// Gives up what has not been answered.
    pub fn tick(&mut self, now: u64) {
        match self.under_way.take_if(|(_, since)| now >= *since + PATIENCE_MS) {
            Some((Probe::Together(pair), _)) => self.end_together(now, pair, 0, 0),
            Some((Probe::Alone(_), _)) => self.rest_until = now + REST_MS,
            None => {}
        }
    }

    /// Whether every port has been measured against one that is no slower, as far as it could be.
    pub fn knows_the_ports(&self) -> bool {
        let all = || self.is_mesh || pairs(self.size).all(|pair| self.is_done(pair));
        self.of_the_ports().all(|pair| self.is_done(pair)) && all()
    }

    /// The same, and of what was measured for it nothing is in doubt. What is known of an earlier View is good enough, and so is what is known of a
    /// radio, whose bursts need not say the same.
    pub fn is_good_for_a_plan(&self) -> bool {
        let is_seen_now = |pair: &Pair| self.tries(*pair).most().is_some() && !self.is_by_radio(*pair);
        self.knows_the_ports() && !self.doubtful().iter().any(is_seen_now)
    }

    /// How many bursts have told something.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// Whether nothing is left to be measured.
    pub fn is_over(&self) -> bool {
        self.under_way.is_none() && self.wanted().is_none()
    }

    fn wanted(&self) -> Option<Probe> {
        let open = |pair: &Pair| !self.is_done(*pair);
        // Who is the fastest shows when all have been seen once.
        let ports = self.of_the_ports().find(open).or_else(|| self.doubtful().first().copied());
        // An exchange is compared with what was seen alone, so that comes first, and what is odd of it is seen to.
        ports.or_else(|| pairs(self.size).find(open)).map(Probe::Alone).or_else(|| self.shared_or_unsure())
    }

    /// The next exchange, or before it what is not known well enough alone: against too low a rate an exchange seems to go well.
    fn shared_or_unsure(&self) -> Option<Probe> {
        let (a, b) = self.shared()?;
        let unsure = [(a, b), (b, a)].into_iter().find(|pair| !self.tries(*pair).are_some());
        Some(unsure.map_or(Probe::Together((a, b)), Probe::Alone))
    }

    /// Whose exchange tells more of who shares a medium. Of two members that would change nothing.
    fn shared(&self) -> Option<Pair> {
        if self.size > 2 { self.media.wanted(self.alone()) } else { None }
    }

    fn is_done(&self, pair: Pair) -> bool {
        self.rates.contains_key(&pair) || self.tries(pair).are_over()
    }

    fn tries(&self, pair: Pair) -> Tries {
        self.tries.get(&pair).copied().unwrap_or_default()
    }

    fn is_by_radio(&self, (from, to): Pair) -> bool {
        self.radios.contains(&from) || self.radios.contains(&to)
    }

    /// Paths that together show each port against one that is no slower. All of the first kind come first: they show who is the fastest.
    fn of_the_ports(&self) -> impl Iterator<Item = Pair> + '_ {
        self.round().chain(self.spokes())
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

    /// Paths that carried less than their ends have sent and received elsewhere, or than the other way, and are not believed yet.
    fn doubtful(&self) -> Vec<Pair> {
        let (mut sent, mut received) = (vec![0; self.size], vec![0; self.size]);
        for ((from, to), kbps) in &self.rates {
            let (sent, received) = (&mut sent[from.index()], &mut received[to.index()]);
            (*sent, *received) = ((*sent).max(*kbps), (*received).max(*kbps));
        }
        let is_low = |pair: Pair, kbps: u32| {
            // It may have carried more in an exchange than alone, and the plan goes by what it carried alone.
            let alone = self.tries(pair).most().unwrap_or(kbps);
            let back = self.rates.get(&(pair.1, pair.0)).copied().unwrap_or(0);
            is_less(alone, sent[pair.0.index()].min(received[pair.1.index()]).max(back).max(kbps))
        };
        let low = self.rates.iter().filter(|(pair, kbps)| is_low(**pair, **kbps)).map(|(pair, _)| *pair);
        low.filter(|pair| !self.is_believed(*pair)).collect()
    }

    /// Whether no more bursts over a path would tell anything new.
    fn is_believed(&self, pair: Pair) -> bool {
        let tries = self.tries(pair);
        tries.are_sure() || self.is_by_radio(pair) && tries.are_some()
    }
}

fn pairs(size: usize) -> impl Iterator<Item = Pair> {
    ranks(size).flat_map(move |a| ranks(size).map(move |b| (a, b))).filter(|(a, b)| a != b)
}

/// A burst takes a tenth of a second, on a slow path half of one; after this long somebody does not answer.
const PATIENCE_MS: u64 = 3000;
/// After a burst that was given up, mostly for an operation.
const REST_MS: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn an_exchange_that_is_not_answered_is_given_up_in_the_end() {
        let known = |(a, b): Pair| Some(if a.min(b) == Rank(0) && a.max(b) == Rank(1) { 900 } else { 300 });
        let mut survey = Survey::new(3, known);
        let (mut now, mut exchanges) = (0, 0);
        while let Some(probe) = survey.begin(now) {
            match probe {
                Probe::Together(pair) => {
                    assert!(survey.stations().is_empty() && !survey.on_rate_together(now, pair, 100));
                    exchanges += 1;
                }
                Probe::Alone(pair) => assert!(survey.on_rate(now, pair, known(pair).expect("of each"))),
            }
            now += PATIENCE_MS;
            survey.tick(now);
            now += REST_MS;
        }
        assert!(survey.is_over() && survey.stations().is_empty());
        assert_eq!(exchanges, 20, "ten for each of two");
    }

    /// Goes through with it, where each path carries what `kbps` says at any time, and gives the order of the single bursts and whether it was
    /// good for a plan after each.
    fn walk(survey: &mut Survey, kbps: impl Fn(Pair) -> u32) -> Vec<(Pair, bool)> {
        let (mut order, mut now) = (Vec::new(), 100_000);
        while !survey.is_over() {
            now += 1000;
            let probe = survey.begin(now).expect("it is not over");
            assert_eq!(survey.begin(now), None, "one at a time");
            match probe {
                Probe::Alone(pair) => {
                    assert!(survey.on_rate(now, pair, kbps(pair)));
                    order.push((pair, survey.is_good_for_a_plan()));
                }
                Probe::Together((a, b)) => {
                    assert!(!survey.on_rate(now, (a, b), kbps((a, b))), "another one is awaited");
                    assert!(!survey.on_rate_together(now, (b, a), kbps((b, a))));
                    assert!(survey.on_rate_together(now, (a, b), kbps((a, b))));
                    if let Some((_, is_good)) = order.last_mut() {
                        *is_good = survey.is_good_for_a_plan();
                    }
                }
            }
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
            let paths: BTreeSet<Pair> = order.iter().map(|(pair, _)| *pair).collect();
            assert_eq!(paths.len(), size * (size - 1), "in the end each path");
            assert!(order.len() <= paths.len() + 4 * (size - 1), "some twice more, for what rests on them");
        }
    }

    #[test]
    fn what_a_busy_processor_hides_is_found_before_a_plan_is_made() {
        let (mut at_the_plan, mut at_the_end) = (0, 0);
        for seed in 0..200 {
            let mut rng = SmallRng::seed_from_u64(seed);
            // Equal ports, of which half of the bursts show too little.
            let mut survey = Survey::new(4, |_| None);
            let is_right = |survey: &Survey| survey.rates.values().all(|kbps| !is_less(*kbps, 940));
            let (mut now, mut was_good, mut sent) = (0, false, BTreeMap::<Pair, u32>::new());
            while let Some(Probe::Alone(pair)) = survey.begin(now) {
                let told = survey.told();
                *sent.entry(pair).or_default() += 1;
                let kbps = if rng.random_bool(0.5) { 940 } else { rng.random_range(300..940) };
                assert!(survey.on_rate(now, pair, kbps) && survey.told() == told + 1);
                let is_good = survey.is_good_for_a_plan();
                at_the_plan += u32::from(is_good && !was_good && is_right(&survey));
                (now, was_good) = (now + 1, was_good || is_good);
            }
            at_the_end += u32::from(survey.is_over() && is_right(&survey));
            assert!(sent.values().all(|bursts| *bursts <= 6), "seed {seed}: {sent:?}");
        }
        assert!(at_the_plan >= 180 && at_the_end >= 180, "{at_the_plan} and {at_the_end} of 200");
    }

    #[test]
    fn without_a_switch_every_cable_is_measured_and_nothing_else() {
        let apart = [(Rank(0), Rank(2)), (Rank(0), Rank(3)), (Rank(1), Rank(3))];
        let mut survey = Survey::new(4, |_| None).without(&apart);
        let order = walk(&mut survey, |_| 940);
        assert_eq!(order.iter().map(|(_, good)| *good).collect::<Vec<_>>(), [false, false, false, false, false, true]);
        assert!(order.iter().all(|((a, b), _)| a.0.abs_diff(b.0) == 1), "{order:?}");
    }

    #[test]
    fn what_is_known_is_not_measured_again_and_what_is_odd_is() {
        let known = |pair: Pair| (pair != (Rank(1), Rank(2))).then_some(940);
        let mut survey = Survey::new(4, known);
        assert!(!survey.is_good_for_a_plan());
        assert_eq!(walk(&mut survey, |_| 940).len(), 1);
        let mut survey = Survey::new(4, known);
        let order = walk(&mut survey, |_| 300);
        let odd = order.iter().filter(|(pair, _)| *pair == (Rank(1), Rank(2))).count();
        assert_eq!(odd, 3, "{order:?}");
        let times = |pair: Pair| order.iter().filter(|(other, _)| *other == pair).count();
        assert!(pairs(4).all(|pair| times(pair) <= 3), "{order:?}");
    }

    #[test]
    fn what_is_known_of_an_earlier_view_is_good_for_a_plan_though_it_is_tried_again() {
        let slow = (Rank(1), Rank(2));
        let kbps = |pair: Pair| if pair == slow { 500 } else { 940 };
        let mut survey = Survey::new(4, |pair| Some(kbps(pair)));
        assert!(survey.is_good_for_a_plan() && !survey.is_over());
        // It shows a port, and is seen anew.
        assert_eq!(walk(&mut survey, kbps)[..3], [(slow, false), (slow, false), (slow, true)]);
        // A burst that told nothing changes nothing.
        let mut survey = Survey::new(4, |pair| Some(kbps(pair)));
        assert_eq!(survey.begin(0), Some(Probe::Alone(slow)));
        assert!(survey.on_rate(1, slow, 0) && survey.is_good_for_a_plan());
        // What is seen now counts, though it is less than what was known; there is a plan all the same where calls have to wait for it.
        assert_eq!(survey.begin(1 + REST_MS), Some(Probe::Alone(slow)));
        assert!(survey.on_rate(300, slow, 100) && survey.knows_the_ports() && !survey.is_good_for_a_plan());
        assert_eq!(survey.rates[&slow], 100);
    }

    #[test]
    fn nobody_waits_for_the_bursts_of_a_radio_to_say_the_same() {
        let mut rng = SmallRng::seed_from_u64(7);
        let mut survey = Survey::new(4, |_| None);
        (1..4).for_each(|station| survey.is_radio(Rank(station)));
        let (mut now, mut bursts) = (0, 0);
        while let Some(probe) = survey.begin(now) {
            now += 1000;
            let Probe::Alone(pair) = probe else {
                survey.tick(now + PATIENCE_MS);
                now += PATIENCE_MS + REST_MS;
                continue;
            };
            bursts += 1;
            survey.on_rate(now, pair, rng.random_range(20..90));
            assert_eq!(survey.is_good_for_a_plan(), survey.knows_the_ports());
        }
        assert!(bursts <= 3 * 12, "{bursts} bursts");
    }

    #[test]
    fn a_path_that_has_become_another_one_is_measured_again() {
        let mut survey = Survey::new(4, |_| Some(940));
        assert!(survey.is_over());
        let pair = (Rank(1), Rank(2));
        survey.again(pair);
        assert!(!survey.is_over() && !survey.is_good_for_a_plan());
        assert_eq!(walk(&mut survey, |_| 940), [(pair, true)]);
    }

    #[test]
    fn what_is_given_up_or_not_answered_is_tried_again_but_not_for_ever() {
        let mut survey = Survey::new(3, |_| None);
        let first = survey.begin(0);
        let Some(Probe::Alone(pair)) = first else { panic!("{first:?} before any path is known") };
        assert!(survey.on_rate(10, pair, 0) && !survey.on_rate(10, pair, 0));
        assert_eq!((survey.begin(10), survey.begin(10 + REST_MS)), (None, first));
        survey.tick(10 + REST_MS + PATIENCE_MS - 1);
        assert_eq!(survey.begin(20_000), None, "still under way");
        survey.tick(20_000);
        assert_eq!((survey.begin(20_000), survey.begin(20_000 + REST_MS)), (None, first));
        survey.on_rate(20_000, pair, 940);
        survey.leave((Rank(2), Rank(1)));
        let order = walk(&mut survey, |_| 0);
        assert_eq!(order.len(), 4 * Tries::MAX as usize);
    }
}
