//! Whether a whole network has one history: no two Views commit by turns while all their members
//! could have reached each other for longer than a bound.

use super::super::claims::Claim;
use super::world::World;
use crate::protocol::{View, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Time for members that can reach each other to meet and to form one View: links are made, a
/// returned node looks for its old members, the group waits for more peers, and a disk is slow.
const TO_MEET_MS: u64 = 12_000;

/// Since when the nodes could reach each other, and when each View has committed.
#[derive(Default)]
pub(super) struct Histories {
    /// Pairs of living nodes, the smaller first, that can reach each other, and since when.
    since: BTreeMap<(u8, u8), u64>,
    /// The time of the last commit by votes in each View.
    commits: BTreeMap<ViewId, u64>,
    /// The nodes that were members of each View, with their boots.
    members: BTreeMap<ViewId, BTreeSet<(u8, u64)>>,
}

impl World {
    /// Updates since when the nodes can reach each other.
    pub(super) fn watch_reach(&mut self) {
        let (now, parts) = (self.now, self.parts());
        let together =
            |a: u8, b: u8| parts.iter().any(|part| part.contains(&a) && part.contains(&b));
        let living: Vec<u8> = parts.iter().flatten().copied().collect();
        let pairs = living.iter().flat_map(|a| living.iter().map(move |b| (*a, *b)));
        let reached: BTreeSet<(u8, u8)> =
            pairs.filter(|(a, b)| a < b && together(*a, *b)).collect();
        self.histories.since.retain(|pair, _| reached.contains(pair));
        for pair in reached {
            self.histories.since.entry(pair).or_insert(now);
        }
    }

    /// The parts of the network: nodes that run and reach each other, directly or over relays.
    fn parts(&self) -> Vec<BTreeSet<u8>> {
        let runs = |n: &u8| self.nodes[n].paused.is_none();
        let mut open: BTreeSet<u8> = self.living().into_iter().filter(runs).collect();
        let mut parts = Vec::new();
        while let Some(first) = open.pop_first() {
            let (mut part, mut edge) = (BTreeSet::from([first]), vec![first]);
            while let Some(at) = edge.pop() {
                let near: Vec<u8> =
                    open.iter().copied().filter(|n| self.network.can_carry(at, *n)).collect();
                for next in near {
                    open.remove(&next);
                    part.insert(next);
                    edge.push(next);
                }
                if !self.network.relays {
                    break;
                }
            }
            parts.push(part);
        }
        parts
    }

    /// Node `n` has an operation of this View that was committed by votes.
    pub(super) fn committed_in(&mut self, n: u8, view: &Arc<View>) {
        let (id, now) = (view.id(), self.now);
        let nodes = self.nodes.iter().filter(|(_, node)| view.contains(node.id()));
        let members: BTreeSet<(u8, u64)> = nodes.map(|(n, node)| (*n, node.boot)).collect();
        self.histories.members.insert(id, members);
        // Another View has committed between the last commit here and this one.
        let last = self.histories.commits.insert(id, now);
        let beside = self.histories.commits.iter().find(|(other, at)| {
            **other != id && last.is_some_and(|last| last < **at && self.had_met(id, **other, last))
        });
        let beside = beside.map(|(other, _)| other.ballot.round);
        self.history.expect(Claim::OneHistory, beside.is_none());
        if let Some(beside) = beside {
            self.tell_story(n, || format!("commits in {} beside {beside}", id.ballot.round));
        }
    }

    /// Whether all members of both Views live and had time to meet before `at`.
    fn had_met(&self, a: ViewId, b: ViewId, at: u64) -> bool {
        let members = |id: ViewId| self.histories.members.get(&id).into_iter().flatten().copied();
        let all: BTreeSet<(u8, u64)> = members(a).chain(members(b)).collect();
        let lives = |(n, boot): &(u8, u64)| {
            self.nodes.get(n).is_some_and(|node| node.alive && node.boot == *boot)
        };
        let met = |x: u8, y: u8| {
            let since = self.histories.since.get(&(x, y));
            since.is_some_and(|since| since + TO_MEET_MS <= at)
        };
        let pairs = all.iter().flat_map(|x| all.iter().map(move |y| (x.0, y.0)));
        all.iter().all(lives) && pairs.filter(|(x, y)| x < y).all(|(x, y)| met(x, y))
    }
}
