//! Layer: Core.
//!
//! When a circuit to somebody is worth a try, and over which of its neighbours a node begins it.
//!
//! Whoever has only been heard of gets some time for a direct link, as on a switch that is what comes. Who is lost, or about to be, gets
//! none: it is sought over one neighbour after the other. Of two ends that seek each other the one with the smaller id goes first.

use crate::identity::MemberId;
use std::collections::{BTreeMap, BTreeSet};

/// How a member is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Others have a direct link to it.
    HeardOf,
    /// Its link has ended, or says nothing any more.
    Lost,
}

/// Times are in milliseconds and never go back.
#[derive(Clone, Debug)]
pub struct Seeker {
    me: MemberId,
    sought: BTreeMap<MemberId, Sought>,
}

#[derive(Clone, Debug)]
struct Sought {
    want: Want,
    due: u64,
    rounds: u32,
    /// A try is under way, over this neighbour.
    over: Option<MemberId>,
    /// Neighbours that have not led there in this round.
    failed: BTreeSet<MemberId>,
}

impl Seeker {
    /// Of this node.
    pub fn new(me: MemberId) -> Seeker {
        Seeker { me, sought: BTreeMap::new() }
    }

    /// Takes the place of what was wanted before. Tries under way go on.
    pub fn want(&mut self, now: u64, wanted: &BTreeMap<MemberId, Want>) {
        self.sought.retain(|id, sought| wanted.contains_key(id) || sought.over.is_some());
        for (id, want) in wanted.iter().take(SOUGHT_MAX) {
            let turn = if *id < self.me { TURN_MS } else { 0 };
            let due = now + turn + if *want == Want::HeardOf { GRACE_MS } else { 0 };
            let new = Sought { want: *want, due, rounds: 0, over: None, failed: BTreeSet::new() };
            let sought = self.sought.entry(*id).or_insert(new);
            if *want == Want::Lost && sought.want == Want::HeardOf {
                (sought.want, sought.due, sought.rounds) = (Want::Lost, sought.due.min(due), 0);
            }
        }
    }

    /// What is to be tried now: whom, and by what stations. `way` gives them for a member and the neighbours that are not to be the first.
    pub fn due(
        &mut self,
        now: u64,
        way: impl Fn(MemberId, &BTreeSet<MemberId>) -> Option<Vec<MemberId>>,
    ) -> Vec<(MemberId, Vec<MemberId>)> {
        let mut under_way = self.sought.values().filter(|sought| sought.over.is_some()).count();
        let mut tries = Vec::new();
        for (id, sought) in self.sought.iter_mut().filter(|(_, sought)| sought.over.is_none() && now >= sought.due) {
            if under_way >= UNDER_WAY_MAX {
                break;
            }
            match way(*id, &sought.failed).filter(|stations| stations.len() > 2) {
                Some(stations) => {
                    sought.over = Some(stations[1]);
                    under_way += 1;
                    tries.push((*id, stations));
                }
                None => sought.begin_anew(now),
            }
        }
        tries
    }

    /// A try over this neighbour has come to nothing. Says whether a way is left that has not been tried.
    pub fn failed(&mut self, now: u64, id: MemberId, way: impl Fn(&BTreeSet<MemberId>) -> bool) -> bool {
        let Some(sought) = self.sought.get_mut(&id) else { return false };
        sought.failed.extend(sought.over.take());
        let is_left = way(&sought.failed);
        if is_left {
            sought.due = now;
        } else {
            sought.begin_anew(now);
        }
        is_left
    }

    /// It has a link.
    pub fn found(&mut self, id: MemberId) {
        self.sought.remove(&id);
    }

    /// Whether a try is under way.
    pub fn is_trying(&self, id: MemberId) -> bool {
        self.sought.get(&id).is_some_and(|sought| sought.over.is_some())
    }
}

impl Sought {
    /// All neighbours again, after a while.
    fn begin_anew(&mut self, now: u64) {
        self.failed.clear();
        let first = if self.want == Want::Lost { AGAIN_LOST_MS } else { AGAIN_MS };
        self.due = now + (first << self.rounds.min(8)).min(AGAIN_MS_MAX);
        self.rounds += 1;
    }
}

/// Whom others reach, and this node does not, has so long for a direct link: a dial on a switch takes some milliseconds, and
/// with multicast DNS the later of two hears of the other within a few hundred.
const GRACE_MS: u64 = 400;
/// So much later goes the one with the larger id.
const TURN_MS: u64 = 100;
/// When no neighbour has led there, they are all tried again after this long, doubling.
const AGAIN_MS: u64 = 500;
/// The same of who has just been lost: within the time in which a lost link may come back.
const AGAIN_LOST_MS: u64 = 50;
const AGAIN_MS_MAX: u64 = 10_000;
/// A View's worth of others that wait, as with links.
const SOUGHT_MAX: usize = 32;
const UNDER_WAY_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::member_id;

    fn wants(of: &[(u8, Want)]) -> BTreeMap<MemberId, Want> {
        of.iter().map(|(n, want)| (member_id(*n), *want)).collect()
    }

    /// Over 2 or 3, whichever is left.
    fn over_two_or_three(to: MemberId, failed: &BTreeSet<MemberId>) -> Option<Vec<MemberId>> {
        let first = [2, 3].map(member_id).into_iter().find(|id| !failed.contains(id))?;
        Some(vec![member_id(5), first, to])
    }

    #[test]
    fn who_is_only_heard_of_has_time_for_a_direct_link() {
        let mut seeker = Seeker::new(member_id(5));
        for now in [0, 100, GRACE_MS - 1] {
            seeker.want(now, &wants(&[(9, Want::HeardOf)]));
            assert_eq!(seeker.due(now, over_two_or_three), []);
        }
        assert_eq!(seeker.due(GRACE_MS, over_two_or_three), [(member_id(9), [5, 2, 9].map(member_id).to_vec())]);
        assert!(seeker.is_trying(member_id(9)));
        assert_eq!(seeker.due(GRACE_MS + 1, over_two_or_three), [], "one at a time");
        // A direct one has come.
        seeker.found(member_id(9));
        seeker.want(1000, &wants(&[]));
        assert_eq!(seeker.due(20_000, over_two_or_three), []);
    }

    #[test]
    fn of_two_ends_the_smaller_id_goes_first() {
        let mut seeker = Seeker::new(member_id(5));
        seeker.want(0, &wants(&[(1, Want::Lost), (9, Want::Lost)]));
        let due = |seeker: &mut Seeker, now| seeker.due(now, over_two_or_three).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(due(&mut seeker, 0), [member_id(9)]);
        assert_eq!(due(&mut seeker, TURN_MS), [member_id(1)]);
    }

    #[test]
    fn who_is_lost_is_sought_over_every_neighbour_and_then_again() {
        let mut seeker = Seeker::new(member_id(5));
        let nine = member_id(9);
        seeker.want(0, &wants(&[(9, Want::HeardOf)]));
        seeker.want(10, &wants(&[(9, Want::Lost)]));
        let left = |failed: &BTreeSet<MemberId>| over_two_or_three(nine, failed).is_some();
        assert_eq!(seeker.due(10, over_two_or_three)[0].1[1], member_id(2));
        assert!(seeker.failed(20, nine, left));
        assert_eq!(seeker.due(20, over_two_or_three)[0].1[1], member_id(3));
        assert!(!seeker.failed(30, nine, left));
        assert_eq!(seeker.due(30 + AGAIN_LOST_MS - 1, over_two_or_three), []);
        assert_eq!(seeker.due(30 + AGAIN_LOST_MS, over_two_or_three)[0].1[1], member_id(2));
        // Tries become rare, but do not end.
        let (mut now, mut tries) = (100, 0);
        seeker.failed(now, nine, |_| false);
        while now < 100_000 {
            now += 10;
            for _ in seeker.due(now, over_two_or_three) {
                tries += 1;
                seeker.failed(now, nine, |_| false);
            }
        }
        assert!((12..25).contains(&tries), "{tries}");
    }

    #[test]
    fn what_is_under_way_and_what_is_kept_has_a_bound() {
        let mut seeker = Seeker::new(member_id(0));
        let many: Vec<(u8, Want)> = (1..=200).map(|n| (n, Want::Lost)).collect();
        seeker.want(0, &wants(&many));
        assert_eq!(seeker.sought.len(), SOUGHT_MAX);
        assert_eq!(seeker.due(1000, |to, _| Some([member_id(0), member_id(250), to].into())).len(), UNDER_WAY_MAX);
    }
}
