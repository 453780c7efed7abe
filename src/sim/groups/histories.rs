//! Claim A5: no two Views go on beside each other while all their members could have met.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time for hosts that reach each other to form one View: they are discovered, dials are repeated
/// with growing pauses, and the View change waits for a call in flight.
const TO_MEET: Duration = Duration::from_secs(20);

/// How long two Views must go on beside each other. The last call of a View may be decided a little
/// after its successor has begun elsewhere.
const BESIDE: Duration = Duration::from_secs(2);

/// Since when hosts could reach each other, and when Views have committed results.
#[derive(Default)]
pub struct Histories {
    /// Pairs of hosts, the smaller first.
    since: BTreeMap<(usize, usize), Duration>,
    /// The members of each View, and the times of its first and last result.
    views: BTreeMap<String, (Vec<usize>, Duration, Duration)>,
}

/// The parts of a network: hosts that reach each other, directly or over others.
pub fn parts(hosts: &[usize], near: impl Fn(usize, usize) -> bool) -> Vec<BTreeSet<usize>> {
    let mut rest: BTreeSet<usize> = hosts.iter().copied().collect();
    let mut parts = Vec::new();
    while let Some(first) = rest.pop_first() {
        let (mut part, mut edge) = (BTreeSet::from([first]), vec![first]);
        while let Some(at) = edge.pop() {
            let found: Vec<usize> = rest.iter().copied().filter(|host| near(at, *host)).collect();
            for next in found {
                rest.remove(&next);
                part.insert(next);
                edge.push(next);
            }
        }
        parts.push(part);
    }
    parts
}

impl Histories {
    /// Updates since when hosts can reach each other.
    pub fn reach(&mut self, parts: &[BTreeSet<usize>], now: Duration) {
        let pairs = |part: &BTreeSet<usize>| -> Vec<(usize, usize)> {
            part.iter().flat_map(|a| part.range(a + 1..).map(|b| (*a, *b))).collect()
        };
        let reached: BTreeSet<(usize, usize)> = parts.iter().flat_map(pairs).collect();
        self.since.retain(|pair, _| reached.contains(pair));
        for pair in reached {
            self.since.entry(pair).or_insert(now);
        }
    }

    /// A result was committed in a View of these hosts. Returns another View that goes on beside
    /// it, if there is one and all members of both could have met before.
    pub fn committed(&mut self, view: &str, members: &[usize], at: Duration) -> Option<String> {
        let entry = self.views.entry(view.to_owned()).or_insert((members.to_vec(), at, at));
        entry.2 = at;
        let (members, first, _) = entry.clone();
        let overlaps = |began: Duration, last: Duration| first.max(began) + BESIDE <= last;
        let beside = |theirs: &[usize], last: Duration| {
            let met = self.all_met(members.iter().chain(theirs));
            met.is_some_and(|met| met + TO_MEET + BESIDE <= last)
        };
        let others = self.views.iter().filter(|(other, _)| other.as_str() != view);
        others
            .filter(|(_, (_, began, last))| overlaps(*began, *last))
            .find(|(_, (theirs, _, last))| beside(theirs, *last))
            .map(|(other, _)| other.clone())
    }

    /// Since when all these can reach each other.
    fn all_met<'a>(&self, hosts: impl Iterator<Item = &'a usize>) -> Option<Duration> {
        let hosts: BTreeSet<usize> = hosts.copied().collect();
        let pairs = hosts.iter().flat_map(|a| hosts.range(a + 1..).map(|b| (*a, *b)));
        pairs
            .map(|pair| self.since.get(&pair).copied())
            .try_fold(Duration::ZERO, |met, since| since.map(|since| met.max(since)))
    }
}
