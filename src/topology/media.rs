//! Layer: Core.
//!
//! Whose ports share a medium that carries one frame at a time, as radio does: told by what paths
//! carry, alone and while as much as possible comes back.
//!
//! A wired port sends and receives at once what it does alone. So each member exchanges bursts with
//! the one whose paths carry the most, the hub. Where both directions together carry little more
//! than one of them alone, one end is half duplex at least, and where anybody's exchange goes well
//! it is not the hub's. Where nobody's does the paths between the others tell: from station to
//! station a frame takes the medium twice, so such a path needs as long for a bit as the two ends'
//! paths to a hub that is none need together.
//!
//! A burst can show too little but never too much, so one exchange that goes well is enough, and
//! several must have gone badly.

use super::ranks;
use super::survey::Pair;
use crate::view::Rank;
use std::collections::{BTreeMap, BTreeSet};

/// What exchanges of bursts have shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Media {
    /// With whom all exchange, from the first time on.
    hub: Option<Rank>,
    exchanges: BTreeMap<Pair, Exchange>,
}

/// What is known of a View's paths and ports without exchanges.
#[derive(Clone, Copy)]
pub(super) struct Alone<'a> {
    pub(super) size: usize,
    /// In kbit/s.
    pub(super) rates: &'a BTreeMap<Pair, u32>,
    /// Whose ports are known to share a medium.
    pub(super) radios: &'a BTreeSet<Rank>,
}

#[derive(Clone, Debug, Default)]
struct Exchange {
    /// What both directions carried each time that both bursts got through, in kbit/s; at most
    /// [`TRIES`].
    carried: Vec<(u32, u32)>,
    /// How often they did not.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Nobody has looked, or nothing came of it.
    Unknown,
    /// Both ends send and receive at once.
    Clear,
    /// At least one end does not.
    Half,
}

impl Media {
    /// Between whom an exchange would tell more, the lower rank first. `None` where all is told, or
    /// all paths are alike: then nothing would be done differently.
    pub(super) fn wanted(&self, alone: Alone<'_>) -> Option<Pair> {
        let hub = self.hub_of(alone)?;
        let open = |pair: &Pair| !self.is_done(*pair, alone) && alone.is_known(*pair);
        let spokes = alone.others(hub).map(|rank| ordered(rank, hub)).find(open);
        spokes.or_else(|| self.second_opinion(alone, hub).filter(open))
    }

    /// An exchange begins.
    pub(super) fn begin(&mut self, alone: Alone<'_>) {
        self.hub = self.hub_of(alone);
    }

    /// What came of exchanges over this path, either way, is no longer believed.
    pub(super) fn forget(&mut self, (from, to): Pair) {
        self.exchanges.remove(&ordered(from, to));
    }

    /// What both directions of a pair have carried at once, in kbit/s; 0 where one has told
    /// nothing.
    pub(super) fn on_exchange(&mut self, pair: Pair, there_kbps: u32, back_kbps: u32) {
        let exchange = self.exchanges.entry(pair).or_default();
        if there_kbps == 0 || back_kbps == 0 {
            exchange.failures += 1;
        } else if exchange.carried.len() < TRIES {
            exchange.carried.push((there_kbps, back_kbps));
        }
    }

    /// The ports that share a medium, beside those that were known to, each as that by which the
    /// first of two ranks sends to the second, and which medium.
    pub(super) fn stations(&self, alone: Alone<'_>) -> Vec<(Pair, u32)> {
        let Some(hub) = self.hub else { return Vec::new() };
        let of_spoke = |rank: &Rank| self.verdict(ordered(*rank, hub), alone);
        let mut stations: Vec<Rank> =
            alone.others(hub).filter(|rank| of_spoke(rank) == Verdict::Half).collect();
        let hub_is_wired = alone.others(hub).any(|rank| of_spoke(&rank) == Verdict::Clear)
            || alone.is_outside(hub, &stations);
        if !stations.is_empty() && !hub_is_wired {
            match self
                .second_opinion(alone, hub)
                .map_or(Verdict::Unknown, |pair| self.verdict(pair, alone))
            {
                Verdict::Half => stations.push(hub),
                Verdict::Clear => stations = vec![hub],
                Verdict::Unknown => stations.clear(),
            }
        }
        // Where too little was seen of a path alone its exchange seems to go well. What goes from
        // station to station still takes the air twice.
        let found = stations.clone();
        let others = alone.others(hub).filter(|rank| !found.contains(rank));
        stations.extend(
            others
                .filter(|rank| found.iter().any(|station| alone.take_turns(*rank, *station, hub))),
        );
        // By way of a station nothing can be told of two others.
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

    /// Where nobody's exchange with the hub goes well, and the hub may be to blame: the fastest two
    /// of the others.
    fn second_opinion(&self, alone: Alone<'_>, hub: Rank) -> Option<Pair> {
        let of_spoke = |rank: &Rank| self.verdict(ordered(*rank, hub), alone);
        let half: Vec<Rank> =
            alone.others(hub).filter(|rank| of_spoke(rank) == Verdict::Half).collect();
        let is_told = alone.others(hub).any(|rank| of_spoke(&rank) == Verdict::Clear);
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

    fn verdict(&self, pair: Pair, alone: Alone<'_>) -> Verdict {
        let Some(exchange) = self.exchanges.get(&pair) else { return Verdict::Unknown };
        // Each direction in thousandths of what it carries alone.
        let part = |kbps: u32, pair: Pair| {
            Some(u64::from(kbps) * 1000 / u64::from(*alone.rates.get(&pair)?).max(1))
        };
        let parts =
            |(there, back): &(u32, u32)| Some(part(*there, pair)? + part(*back, (pair.1, pair.0))?);
        match exchange.carried.iter().filter_map(parts).max() {
            Some(best) if best >= CLEAR => Verdict::Clear,
            Some(_) if exchange.carried.len() >= TRIES => Verdict::Half,
            _ => Verdict::Unknown,
        }
    }

    fn is_done(&self, pair: Pair, alone: Alone<'_>) -> bool {
        let given_up =
            self.exchanges.get(&pair).is_some_and(|exchange| exchange.failures >= FAILURES_MAX);
        given_up || self.verdict(pair, alone) != Verdict::Unknown
    }
}

impl Alone<'_> {
    /// The member whose paths carry the most on average and that is no radio; `None` where there is
    /// none, or all paths carry the same.
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

    /// Whether both ways have been measured, and no faster than a medium could be that is shared.
    fn is_known(&self, (a, b): Pair) -> bool {
        let slow_enough =
            |pair: &Pair| self.rates.get(pair).is_some_and(|kbps| *kbps < SHARED_KBPS_MAX);
        slow_enough(&(a, b)) && slow_enough(&(b, a))
    }

    /// How long a path needs for a gigabit, in microseconds.
    fn us(&self, from: Rank, to: Rank) -> Option<u64> {
        Some(1_000_000_000_000 / u64::from(*self.rates.get(&(from, to))?).max(1))
    }

    /// Whether a path from one of these to another, or to a radio that is known, needs as long as
    /// by way of the hub, which then is in nobody's way.
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

    /// Whether the path between two needs a good deal longer than the slower of their paths to the
    /// hub, both ways.
    fn take_turns(&self, a: Rank, b: Rank, hub: Rank) -> bool {
        let longer = |from: Rank, to: Rank| {
            let slower = self.us(from, hub)?.max(self.us(hub, to)?);
            Some(self.us(from, to)? * 10 >= slower * 13)
        };
        a != hub && b != hub && longer(a, b) == Some(true) && longer(b, a) == Some(true)
    }

    /// Whether two stations go on undisturbed by each other: then the path between them carries
    /// what the slower of the two does. Where their rates are far apart that tells nothing, and at
    /// home there is one radio.
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

/// Both directions of a wire carry two thousand thousandths, of which a busy processor may take
/// some; of a radio one thousand, to which comes what is saved by having more to send in one go: 1
/// 440 at most in the lab.
const CLEAR: u64 = 1_600;
/// So many exchanges must have gone badly.
const TRIES: usize = 4;
/// After so many that told nothing no more is tried.
const FAILURES_MAX: u32 = 10;
/// No radio of today carries more.
const SHARED_KBPS_MAX: u32 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// What a machine needs of what for a megabit, in microseconds.
    #[derive(Clone, Copy, PartialEq)]
    enum Port {
        Wire(u64),
        /// With the number of its cell.
        Air(u64, u32),
    }
    use Port::{Air, Wire};

    fn rates(ports: &[Port]) -> BTreeMap<Pair, u32> {
        let us = |from: Port, to: Port| match (from, to) {
            (Air(a, here), Air(b, there)) if here == there => a + b,
            (Wire(a) | Air(a, _), Wire(b) | Air(b, _)) => a.max(b),
        };
        let pairs = ranks(ports.len())
            .flat_map(|a| ranks(ports.len()).map(move |b| (a, b)))
            .filter(|(a, b)| a != b);
        pairs
            .map(|(a, b)| ((a, b), (1_000_000_000 / us(ports[a.index()], ports[b.index()])) as u32))
            .collect()
    }

    /// Exchanges until nothing is wanted, and gives the stations by rank and how many exchanges it
    /// took.
    fn found(ports: &[Port], radios: &[u8]) -> (Vec<(u8, u32)>, usize) {
        let (rates, radios) = (rates(ports), radios.iter().map(|rank| Rank(*rank)).collect());
        let alone = Alone { size: ports.len(), rates: &rates, radios: &radios };
        let (mut media, mut count) = (Media::default(), 0);
        while let Some((a, b)) = media.wanted(alone) {
            media.begin(alone);
            // Whether both directions keep an air busy for longer than they take alone, of which a
            // fifth may be spared.
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
        // One that comes where others are known.
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
            // With the second one it seems to go well.
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
