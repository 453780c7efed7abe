//! The detection of ports that share a half-duplex medium, such as radio, from single bursts and
//! from exchanges (bursts in both directions at once).
//!
//! A wired port sends and receives at its full rate at the same time. So each member exchanges
//! bursts with the hub, the member whose paths carry the most. If both directions together carry
//! little more than one of them alone, at least one end is half duplex. If the exchange of any
//! member is full duplex, the hub is not half duplex. If none is, the paths between the other
//! members decide: a frame between two stations uses the medium twice. So per bit such a path takes
//! as long as the paths of both ends to a wired hub take together.
//!
//! A burst can show a lower rate than the path has, and never a higher one. So one full-duplex
//! exchange proves that a pair has separate media, but several exchanges are needed to conclude
//! that it shares one.

use super::pair::Pair;
use crate::protocol::{Rank, ranks};
use std::collections::{BTreeMap, BTreeSet};

/// The results of all exchanges.
#[derive(Clone, Debug, Default)]
pub(super) struct Media {
    /// The partner of all exchanges, fixed at the first one.
    hub: Option<Rank>,
    exchanges: BTreeMap<Pair, Exchange>,
}

/// The knowledge about a View's paths and ports that does not come from exchanges.
#[derive(Clone, Copy)]
pub(super) struct Alone<'a> {
    pub(super) size: usize,
    /// Rates of single bursts, in kbit/s.
    pub(super) rates: &'a BTreeMap<Pair, u32>,
    /// Ranks whose ports are known to share a medium.
    pub(super) radios: &'a BTreeSet<Rank>,
}

#[derive(Clone, Debug, Default)]
struct Exchange {
    /// The rates of both directions for each exchange in which both bursts gave one, in kbit/s; at
    /// most [`TRIES`].
    carried: Vec<(u32, u32)>,
    /// The number of exchanges in which a burst gave no rate.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duplex {
    /// No exchange has been made, or too few gave rates.
    Unknown,
    /// Full duplex: both ends send and receive at once.
    Clear,
    /// Half duplex: at least one end does not.
    Half,
}

impl Media {
    /// The next pair to exchange bursts, the lower rank first. `None` if everything is decided, or
    /// if all paths have similar rates: then the result would change no plan.
    pub(super) fn wanted(&self, alone: Alone<'_>) -> Option<Pair> {
        let hub = self.hub_of(alone)?;
        let open = |pair: &Pair| !self.is_done(*pair, alone) && alone.is_known(*pair);
        let spokes = alone.others(hub).map(|rank| ordered(rank, hub)).find(open);
        spokes.or_else(|| self.second_opinion(alone, hub).filter(open))
    }

    /// Records that an exchange begins. The first one fixes the hub.
    pub(super) fn begin(&mut self, alone: Alone<'_>) {
        self.hub = self.hub_of(alone);
    }

    /// Discards the exchanges over this path, in either direction.
    pub(super) fn forget(&mut self, (from, to): Pair) {
        self.exchanges.remove(&ordered(from, to));
    }

    /// Records the rates of both directions of an exchange, in kbit/s; 0 if a direction gave none.
    pub(super) fn on_exchange(&mut self, pair: Pair, there_kbps: u32, back_kbps: u32) {
        let exchange = self.exchanges.entry(pair).or_default();
        if there_kbps == 0 || back_kbps == 0 {
            exchange.failures += 1;
        } else if exchange.carried.len() < TRIES {
            exchange.carried.push((there_kbps, back_kbps));
        }
    }

    /// The ports that share a medium, in addition to the known ones, each with the number of its
    /// medium. A port is given as a path: it is the one through which the first rank sends to the
    /// second.
    ///
    /// ```text
    /// exchanges with the hub                       conclusion            stations
    /// any is full duplex                           the hub is wired      partners with half duplex
    /// none is, but two partners reach each other
    ///   no faster than over the hub                the hub is wired      partners with half duplex
    /// none is; the two fastest partners exchange:
    ///   half duplex                                the hub is a station  the same, and the hub
    ///   full duplex                                the hub is a station  the hub alone
    ///   unknown                                    undecided             none
    /// ```
    pub(super) fn stations(&self, alone: Alone<'_>) -> Vec<(Pair, u32)> {
        let Some(hub) = self.hub else { return Vec::new() };
        let of_spoke = |rank: &Rank| self.duplex(ordered(*rank, hub), alone);
        let mut stations: Vec<Rank> =
            alone.others(hub).filter(|rank| of_spoke(rank) == Duplex::Half).collect();
        let hub_is_wired = alone.others(hub).any(|rank| of_spoke(&rank) == Duplex::Clear)
            || alone.is_outside(hub, &stations);
        if !stations.is_empty() && !hub_is_wired {
            match self
                .second_opinion(alone, hub)
                .map_or(Duplex::Unknown, |pair| self.duplex(pair, alone))
            {
                Duplex::Half => stations.push(hub),
                Duplex::Clear => stations = vec![hub],
                Duplex::Unknown => stations.clear(),
            }
        }
        // An exchange seems to be full duplex if the single bursts showed too little. But traffic
        // between stations still uses the air twice.
        let found = stations.clone();
        let others = alone.others(hub).filter(|rank| !found.contains(rank));
        stations.extend(
            others
                .filter(|rank| found.iter().any(|station| alone.take_turns(*rank, *station, hub))),
        );
        // If the hub is a station itself, its paths do not show whether two others share a medium.
        let hub_is_one = stations.contains(&hub);
        let mut cells: Vec<Vec<Rank>> = Vec::new();
        for station in stations {
            match cells
                .iter_mut()
                .find(|cell| hub_is_one || !alone.are_apart(station, cell[0], hub))
            {
                Some(cell) => cell.push(station),
                None => cells.push(vec![station]),
            }
        }
        let partner =
            |rank: Rank| if rank == hub { alone.others(hub).next().unwrap_or(hub) } else { hub };
        let ports = (0..)
            .zip(cells)
            .flat_map(|(cell, ranks)| ranks.into_iter().map(move |rank| (rank, cell)));
        ports.map(|(rank, cell)| ((rank, partner(rank)), cell)).collect()
    }

    /// The pair whose exchange decides whether the hub is half duplex: the two fastest others.
    /// `None` unless all exchanges with the hub are half duplex or unknown.
    fn second_opinion(&self, alone: Alone<'_>, hub: Rank) -> Option<Pair> {
        let of_spoke = |rank: &Rank| self.duplex(ordered(*rank, hub), alone);
        let half: Vec<Rank> =
            alone.others(hub).filter(|rank| of_spoke(rank) == Duplex::Half).collect();
        let is_told = alone.others(hub).any(|rank| of_spoke(&rank) == Duplex::Clear);
        if is_told || alone.is_outside(hub, &half) {
            return None;
        }
        let mut by_rate = half;
        by_rate.sort_by_key(|rank| std::cmp::Reverse(alone.rates.get(&(*rank, hub))));
        let [a, b, ..] = by_rate[..] else { return None };
        Some(ordered(a, b))
    }

    fn hub_of(&self, alone: Alone<'_>) -> Option<Rank> {
        self.hub.or_else(|| alone.fastest())
    }

    fn duplex(&self, pair: Pair, alone: Alone<'_>) -> Duplex {
        let Some(exchange) = self.exchanges.get(&pair) else { return Duplex::Unknown };
        // The rate of a direction in thousandths of its rate alone.
        let part = |kbps: u32, pair: Pair| {
            Some(u64::from(kbps) * 1000 / u64::from(*alone.rates.get(&pair)?).max(1))
        };
        let parts =
            |(there, back): &(u32, u32)| Some(part(*there, pair)? + part(*back, (pair.1, pair.0))?);
        match exchange.carried.iter().filter_map(parts).max() {
            Some(best) if best >= CLEAR => Duplex::Clear,
            Some(_) if exchange.carried.len() >= TRIES => Duplex::Half,
            _ => Duplex::Unknown,
        }
    }

    fn is_done(&self, pair: Pair, alone: Alone<'_>) -> bool {
        let given_up =
            self.exchanges.get(&pair).is_some_and(|exchange| exchange.failures >= FAILURES_MAX);
        given_up || self.duplex(pair, alone) != Duplex::Unknown
    }
}

impl Alone<'_> {
    /// The member that is no known radio and whose paths have the highest average rate; `None` if
    /// there is none, or if all rates lie within a fifth.
    fn fastest(&self) -> Option<Rank> {
        let (least, most) = (self.rates.values().min()?, self.rates.values().max()?);
        if u64::from(*least) * 5 >= u64::from(*most) * 4 {
            return None;
        }
        let average = |rank: Rank| {
            let its = self.rates.iter().filter(move |((from, to), _)| *from == rank || *to == rank);
            let (count, sum) =
                its.fold((0, 0), |(count, sum), (_, kbps)| (count + 1, sum + u64::from(*kbps)));
            sum.checked_div(count)
        };
        let wired = ranks(self.size).filter(|rank| !self.radios.contains(rank));
        wired.max_by_key(|rank| (average(*rank), std::cmp::Reverse(*rank)))
    }

    fn others(&self, hub: Rank) -> impl Iterator<Item = Rank> + '_ {
        ranks(self.size).filter(move |rank| *rank != hub && !self.radios.contains(rank))
    }

    /// Whether both directions have been measured, and at rates that a shared medium can reach.
    fn is_known(&self, (a, b): Pair) -> bool {
        let slow_enough =
            |pair: &Pair| self.rates.get(pair).is_some_and(|kbps| *kbps < SHARED_KBPS_MAX);
        slow_enough(&(a, b)) && slow_enough(&(b, a))
    }

    /// The time that a path takes for one gigabit, in microseconds.
    fn us(&self, from: Rank, to: Rank) -> Option<u64> {
        Some(1_000_000_000_000 / u64::from(*self.rates.get(&(from, to))?).max(1))
    }

    /// Whether the path between two of these, or between one of these and a known radio, takes at
    /// least 85 % of the time of the way over the hub. Then the hub does not share their medium.
    fn is_outside(&self, hub: Rank, others: &[Rank]) -> bool {
        let around = |a: Rank, b: Rank| Some(self.us(a, hub)? + self.us(hub, b)?);
        let needs = |a: Rank, b: Rank| {
            Some((self.us(a, b)? + self.us(b, a)?, around(a, b)? + around(b, a)?))
        };
        let stations = || others.iter().chain(self.radios);
        let mut pairs =
            others.iter().flat_map(|a| stations().map(move |b| (*a, *b))).filter(|(a, b)| a != b);
        pairs.any(|(a, b)| {
            needs(a, b).is_some_and(|(straight, around)| straight * 20 >= around * 17)
        })
    }

    /// Whether the path between two takes at least 1.3 times as long as the slower of their paths
    /// to the hub, in both directions: then they take turns on one medium.
    fn take_turns(&self, a: Rank, b: Rank, hub: Rank) -> bool {
        let longer = |from: Rank, to: Rank| {
            let slower = self.us(from, hub)?.max(self.us(hub, to)?);
            Some(self.us(from, to)? * 10 >= slower * 13)
        };
        a != hub && b != hub && longer(a, b) == Some(true) && longer(b, a) == Some(true)
    }

    /// Whether two stations have separate media: then the path between them has the rate of the
    /// slower one. If their rates differ much, this cannot be decided, and they count as sharing
    /// one: a home usually has a single access point.
    fn are_apart(&self, a: Rank, b: Rank, hub: Rank) -> bool {
        let tells = |from: Rank, to: Rank| {
            let (direct, there, on) = (self.us(from, to)?, self.us(from, hub)?, self.us(hub, to)?);
            let (apart, together) = (there.max(on), there + on);
            (together * 2 > apart * 3).then_some(direct * 3 < 2 * apart + together)
        };
        tells(a, b) == Some(true) && tells(b, a) == Some(true)
    }
}

fn ordered(a: Rank, b: Rank) -> Pair {
    (a.min(b), a.max(b))
}

/// From this total on an exchange is full duplex, in thousandths of the rates alone. Both
/// directions of a wire carry 2000 in total, less the loss by a busy processor. Radio carries 1000,
/// plus the gain from larger aggregates: 1440 at most in the lab.
const CLEAR: u64 = 1_600;
/// The number of exchanges that must be half duplex before the medium counts as such.
const TRIES: usize = 4;
/// After this many exchanges without both rates the pair is given up.
const FAILURES_MAX: u32 = 10;
/// Higher rates than present radios reach.
const SHARED_KBPS_MAX: u32 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::rank_pairs;
    use Port::{Air, Wire};

    /// The time that a machine occupies its medium for one megabit, in microseconds.
    #[derive(Clone, Copy, PartialEq)]
    enum Port {
        Wire(u64),
        /// With the number of its cell.
        Air(u64, u32),
    }

    fn rates(ports: &[Port]) -> BTreeMap<Pair, u32> {
        let us = |from: Port, to: Port| match (from, to) {
            (Air(a, here), Air(b, there)) if here == there => a + b,
            (Wire(a) | Air(a, _), Wire(b) | Air(b, _)) => a.max(b),
        };
        rank_pairs(ports.len())
            .map(|(a, b)| ((a, b), (1_000_000_000 / us(ports[a.index()], ports[b.index()])) as u32))
            .collect()
    }

    /// Makes exchanges until no more is wanted. Returns the stations by rank with their cells, and
    /// the number of exchanges.
    fn found(ports: &[Port], radios: &[u8]) -> (Vec<(u8, u32)>, usize) {
        let (rates, radios) = (rates(ports), radios.iter().map(|rank| Rank(*rank)).collect());
        let alone = Alone { size: ports.len(), rates: &rates, radios: &radios };
        let (mut media, mut count) = (Media::default(), 0);
        while let Some((a, b)) = media.wanted(alone) {
            media.begin(alone);
            // Whether both directions at once occupy the air for longer than one after the other,
            // where up to a fifth may be saved.
            let is_half = match [a, b].map(|rank| ports[rank.index()]) {
                [Air(one, here), Air(other, there)] if here == there => one + other,
                [Air(us, _), Wire(_)] | [Wire(_), Air(us, _)] => us,
                [Air(one, _), Air(other, _)] => one.max(other),
                [Wire(_), Wire(_)] => 0,
            } * 2
                * u64::from(rates[&(a, b)])
                > 1_200_000_000;
            let part = |pair: Pair, thousandths: u64| {
                (u64::from(rates[&pair]) * thousandths / 1000) as u32
            };
            let (there, back) =
                if is_half { (700, 400 + 100 * (count as u64 % 3)) } else { (970, 900) };
            media.on_exchange((a, b), part((a, b), there), part((b, a), back));
            count += 1;
            assert!(count < 200, "no end");
        }
        let mut stations: Vec<(u8, u32)> =
            media.stations(alone).into_iter().map(|((rank, _), cell)| (rank.0, cell)).collect();
        stations.sort_unstable();
        (stations, count)
    }

    #[test]
    fn stations_are_told_from_wires_by_what_they_carry() {
        type Stations = [(u8, u32)];
        let cases: [(&[Port], &Stations); 9] = [
            (&[Wire(1000), Air(2700, 0), Air(4000, 0), Air(11000, 0)], &[(1, 0), (2, 0), (3, 0)]),
            (&[Air(11000, 0), Air(2700, 0), Wire(1000), Air(4000, 0)], &[(0, 0), (1, 0), (3, 0)]),
            (&[Wire(1000), Wire(1000), Air(4000, 0), Air(11000, 0)], &[(2, 0), (3, 0)]),
            (&[Wire(1000), Wire(1000), Air(4000, 0)], &[(2, 0)]),
            (&[Wire(1000), Air(4000, 0), Air(5000, 1), Air(4000, 0)], &[(1, 0), (2, 1), (3, 0)]),
            (&[Air(2700, 0), Air(4000, 0), Air(11000, 0)], &[(0, 0), (1, 0), (2, 0)]),
            (&[Wire(1000), Wire(1000), Wire(1000), Wire(5000)], &[]),
            (&[Wire(1000), Wire(1000), Wire(3300), Wire(10000)], &[]),
            (&[Wire(100), Wire(400)], &[]),
        ];
        for (ports, expected) in cases {
            let size = ports.len();
            let (stations, count) = found(ports, &[]);
            assert_eq!(stations, expected, "of {size}, after {count} exchanges");
            assert!(count <= TRIES * size, "{count} exchanges of {size}");
        }
    }

    #[test]
    fn where_all_are_alike_or_known_nothing_is_asked() {
        assert_eq!(found(&[Wire(1000), Wire(1100), Wire(1000)], &[]), (vec![], 0));
        assert_eq!(found(&[Air(1000, 0), Air(1000, 0), Air(1000, 0)], &[0, 1, 2]), (vec![], 0));
        assert_eq!(found(&[Wire(1000), Air(4000, 0), Air(8000, 0)], &[1, 2]), (vec![], 0));
        // A new one beside known ones.
        assert_eq!(found(&[Wire(1000), Air(4000, 0), Air(8000, 0)], &[1]), (vec![(2, 0)], TRIES));
        // Thunderbolt, and 10 gigabit.
        assert_eq!(found(&[Wire(100), Wire(100), Wire(200)], &[]), (vec![], 0));
    }

    #[test]
    fn a_station_of_which_too_little_was_seen_alone_is_told_by_its_path_to_another() {
        let mut rates = rates(&[Wire(1000), Air(2700, 0), Air(4000, 0), Air(11000, 0)]);
        for pair in [(Rank(0), Rank(1)), (Rank(1), Rank(0))] {
            rates.entry(pair).and_modify(|kbps| *kbps = *kbps * 2 / 3);
        }
        let alone = Alone { size: 4, rates: &rates, radios: &BTreeSet::new() };
        let mut media = Media::default();
        while let Some((a, b)) = media.wanted(alone) {
            media.begin(alone);
            // With the second one it seems to be full duplex.
            let thousandths = if b == Rank(1) { 850 } else { 550 };
            let part = |pair: Pair| (u64::from(rates[&pair]) * thousandths / 1000) as u32;
            media.on_exchange((a, b), part((a, b)), part((b, a)));
        }
        let mut stations: Vec<(u8, u32)> =
            media.stations(alone).into_iter().map(|((rank, _), cell)| (rank.0, cell)).collect();
        stations.sort_unstable();
        assert_eq!(stations, [(1, 0), (2, 0), (3, 0)]);
    }

    #[test]
    fn one_exchange_that_goes_well_clears_and_what_tells_nothing_ends() {
        let rates = rates(&[Wire(1000), Wire(1000), Wire(4000)]);
        let alone = Alone { size: 3, rates: &rates, radios: &BTreeSet::new() };
        let mut media = Media::default();
        let first = media.wanted(alone).expect("unlike paths");
        media.begin(alone);
        media.on_exchange(first, rates[&first] / 2, rates[&first] / 3);
        media.on_exchange(first, rates[&first], rates[&first]);
        let second = media.wanted(alone).expect("the other one");
        assert_ne!(first, second);
        (0..FAILURES_MAX).for_each(|_| media.on_exchange(second, 0, 90_000));
        assert_eq!((media.wanted(alone), media.stations(alone)), (None, vec![]));
    }
}
