//! Decides when a node tries to open a circuit to a member, and over which of its neighbours.
//!
//! A member that this node knows only from others' reports gets some time for a direct link, which
//! on a switch comes up soon, and more while its address is dialled. A lost member, or one that is
//! about to be lost, gets none: the node tries one neighbour after the other. If two nodes seek
//! each other, the one with the smaller id goes first.
//!
//! A reported member may be invented. So the number of members sought at a time is bounded, all get
//! their turn in the order in which they were first reported, and a member that had a turn makes
//! room for those that wait.

use crate::identity::MemberId;
use std::collections::{BTreeMap, BTreeSet};

/// The reason for seeking a member, the less urgent one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// Others report a direct link to it, and its address is being dialled for the first time.
    Dialled,
    /// Others report a direct link to it.
    HeardOf,
    /// Its link has ended, or is silent.
    Lost,
}

/// The members that this node seeks over circuits. Times are in milliseconds and never go back.
#[derive(Clone, Debug)]
pub struct Seeker {
    me: MemberId,
    sought: BTreeMap<MemberId, Sought>,
    /// The wanted members that are not sought yet, with their place in the queue.
    waiting: BTreeMap<MemberId, u64>,
    came: u64,
}

#[derive(Clone, Debug)]
struct Sought {
    want: Want,
    due: u64,
    rounds: u32,
    /// The neighbour of the try in flight.
    over: Option<MemberId>,
    /// Neighbours that failed in this round.
    failed: BTreeSet<MemberId>,
}

impl Seeker {
    /// A seeker of node `me`, without any members.
    pub fn new(me: MemberId) -> Seeker {
        Seeker { me, sought: BTreeMap::new(), waiting: BTreeMap::new(), came: 0 }
    }

    /// Replaces the set of wanted members. Tries in flight continue.
    pub fn want(&mut self, now: u64, wanted: &BTreeMap<MemberId, Want>) {
        self.sought.retain(|id, sought| wanted.contains_key(id) || sought.over.is_some());
        self.waiting.retain(|id, _| wanted.contains_key(id));
        for id in wanted.keys().filter(|id| !self.sought.contains_key(id)) {
            self.came += 1;
            self.waiting.entry(*id).or_insert(self.came);
        }
        for (id, sought) in &mut self.sought {
            if let Some(want) = wanted.get(id) {
                sought.hurry(*want, now + turn_ms(self.me, *id) + want.grace_ms());
            }
        }
        // Lost members go first: they had a link, so they are no invention of another member.
        let mut next: Vec<(u64, MemberId, Want)> = self
            .waiting
            .iter()
            .filter_map(|(id, came)| Some((*came, *id, *wanted.get(id)?)))
            .collect();
        next.sort_unstable_by_key(|(came, id, want)| (*want != Want::Lost, *came, *id));
        for (_, id, want) in next {
            if !self.has_room(want) {
                break;
            }
            self.waiting.remove(&id);
            let due = now + turn_ms(self.me, id) + want.grace_ms();
            self.sought
                .insert(id, Sought { want, due, rounds: 0, over: None, failed: BTreeSet::new() });
        }
    }

    /// Whether there is room for one more; makes room if possible, by moving a reported member
    /// without a try in flight back to the queue: one that had its turn, or for a lost member any.
    /// It picks the one tried most often.
    fn has_room(&mut self, want: Want) -> bool {
        if self.sought.len() < SOUGHT_MAX {
            return true;
        }
        let gives_way = |sought: &Sought| {
            sought.want != Want::Lost
                && sought.over.is_none()
                && (want == Want::Lost || sought.rounds > 0)
        };
        let most_tried = self
            .sought
            .iter()
            .filter(|(_, sought)| gives_way(sought))
            .max_by_key(|(_, sought)| sought.rounds);
        let Some(id) = most_tried.map(|(id, _)| *id) else { return false };
        self.sought.remove(&id);
        self.came += 1;
        self.waiting.insert(id, self.came);
        true
    }

    /// The tries to start now: the member and the nodes of the circuit. `find` returns the nodes
    /// of a circuit to a member whose first hop is none of the given neighbours.
    pub fn due(
        &mut self,
        now: u64,
        find: impl Fn(MemberId, &BTreeSet<MemberId>) -> Option<Vec<MemberId>>,
    ) -> Vec<(MemberId, Vec<MemberId>)> {
        let mut under_way = self.sought.values().filter(|sought| sought.over.is_some()).count();
        let mut tries = Vec::new();
        let is_due = |sought: &Sought| sought.over.is_none() && now >= sought.due;
        let mut due: Vec<(MemberId, &mut Sought)> = self
            .sought
            .iter_mut()
            .filter(|(_, sought)| is_due(sought))
            .map(|(id, sought)| (*id, sought))
            .collect();
        // Lost members first; among equals, the one due earliest.
        due.sort_by_key(|(id, sought)| (sought.want != Want::Lost, sought.due, *id));
        for (id, sought) in due {
            if under_way >= UNDER_WAY_MAX {
                break;
            }
            match find(id, &sought.failed).filter(|nodes| nodes.len() > 2) {
                Some(nodes) => {
                    sought.over = Some(nodes[1]);
                    under_way += 1;
                    tries.push((id, nodes));
                }
                None => sought.begin_anew(now),
            }
        }
        tries
    }

    /// The try in flight to `id` has failed. Returns whether `find` has a circuit left that
    /// begins with another neighbour.
    pub fn failed(
        &mut self,
        now: u64,
        id: MemberId,
        find: impl Fn(&BTreeSet<MemberId>) -> bool,
    ) -> bool {
        let Some(sought) = self.sought.get_mut(&id) else { return false };
        sought.failed.extend(sought.over.take());
        let is_left = find(&sought.failed);
        if is_left {
            sought.due = now;
        } else {
            sought.begin_anew(now);
        }
        is_left
    }

    /// `id` has a link: stop seeking it.
    pub fn found(&mut self, id: MemberId) {
        self.sought.remove(&id);
        self.waiting.remove(&id);
    }

    /// Whether a try to `id` is in flight.
    pub fn is_trying(&self, id: MemberId) -> bool {
        self.sought.get(&id).is_some_and(|sought| sought.over.is_some())
    }
}

/// The delay of this node if both ends seek each other.
fn turn_ms(me: MemberId, id: MemberId) -> u64 {
    if id < me { TURN_MS } else { 0 }
}

impl Want {
    /// The time that a member has for a direct link before it is sought.
    fn grace_ms(self) -> u64 {
        match self {
            Want::Dialled => GRACE_DIALLED_MS,
            Want::HeardOf => GRACE_MS,
            Want::Lost => 0,
        }
    }
}

impl Sought {
    /// Gives it a more urgent reason, due at `due` or earlier. A lost member begins without
    /// back-off.
    fn hurry(&mut self, want: Want, due: u64) {
        if want > self.want {
            (self.want, self.due) = (want, self.due.min(due));
            self.rounds = if want == Want::Lost { 0 } else { self.rounds };
        }
    }

    /// Starts the next round over all neighbours, after a back-off.
    fn begin_anew(&mut self, now: u64) {
        self.failed.clear();
        let first = if self.want == Want::Lost { AGAIN_LOST_MS } else { AGAIN_MS };
        self.due = now + (first << self.rounds.min(8)).min(AGAIN_MS_MAX);
        self.rounds += 1;
    }
}

/// The time that a reported member has for a direct link: a dial on a switch takes a few
/// milliseconds, and with multicast DNS the later of two nodes hears of the other within a few
/// hundred.
const GRACE_MS: u64 = 400;
/// The same while its address is dialled: the handshakes of sixteen nodes that start at once on two
/// cores take most of a second. A firewall that drops the dial delays the circuit by this much.
const GRACE_DIALLED_MS: u64 = 1500;
/// The additional delay of the node with the larger id.
const TURN_MS: u64 = 100;
/// The first back-off after a round in which every neighbour failed; it doubles with each round.
const AGAIN_MS: u64 = 500;
/// The same for a member that has just been lost: shorter than the time in which a lost link may
/// come back.
const AGAIN_LOST_MS: u64 = 50;
const AGAIN_MS_MAX: u64 = 10_000;
/// Most members sought at a time: a View's worth, and as many others that wait. The number of links
/// has the same bound.
const SOUGHT_MAX: usize = 64;
const UNDER_WAY_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::member_id;

    fn wants(of: &[(u8, Want)]) -> BTreeMap<MemberId, Want> {
        of.iter().map(|(n, want)| (member_id(*n), *want)).collect()
    }

    /// A path over node 2, or over 3 if 2 has failed.
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
        assert_eq!(
            seeker.due(GRACE_MS, over_two_or_three),
            [(member_id(9), [5, 2, 9].map(member_id).to_vec())]
        );
        assert!(seeker.is_trying(member_id(9)));
        assert_eq!(seeker.due(GRACE_MS + 1, over_two_or_three), [], "one at a time");
        // A direct link has come up.
        seeker.found(member_id(9));
        seeker.want(1000, &wants(&[]));
        assert_eq!(seeker.due(20_000, over_two_or_three), []);
    }

    #[test]
    fn who_is_dialled_has_more_time_until_the_dial_has_failed() {
        let cases =
            [(None, GRACE_DIALLED_MS), (Some(600), 600 + GRACE_MS), (Some(1400), GRACE_DIALLED_MS)];
        for (fails_at, expected) in cases {
            let mut seeker = Seeker::new(member_id(5));
            let mut now = 0;
            let first = loop {
                let is_dialled = fails_at.is_none_or(|at| now < at);
                let want = if is_dialled { Want::Dialled } else { Want::HeardOf };
                seeker.want(now, &wants(&[(9, want)]));
                if !seeker.due(now, over_two_or_three).is_empty() {
                    break now;
                }
                now += 10;
            };
            assert_eq!(first, expected, "{fails_at:?}");
        }
    }

    #[test]
    fn of_two_ends_the_smaller_id_goes_first() {
        let mut seeker = Seeker::new(member_id(5));
        seeker.want(0, &wants(&[(1, Want::Lost), (9, Want::Lost)]));
        let due = |seeker: &mut Seeker, now| {
            seeker.due(now, over_two_or_three).into_iter().map(|(id, _)| id).collect::<Vec<_>>()
        };
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
        // The back-off grows, but the tries do not end.
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
        assert_eq!(
            seeker.due(1000, |to, _| Some([member_id(0), member_id(250), to].into())).len(),
            UNDER_WAY_MAX
        );
    }

    /// Invented members are tried and fail, over a neighbour that delays every answer as long as
    /// possible.
    #[test]
    fn whoever_exists_has_its_turn_though_many_are_invented_all_the_time() {
        let mut seeker = Seeker::new(member_id(250));
        let genuine = member_id(249);
        let (mut under_way, mut invented) = (Vec::new(), 0_u8);
        for now in (0..60_000).step_by(50) {
            // A hundred invented members with smaller ids at a time, others with every heartbeat.
            invented = (invented + 50) % 200;
            let small = (0..100).map(|n| ((invented + n) % 200, Want::HeardOf));
            let wanted: Vec<(u8, Want)> = small.chain([(249, Want::HeardOf)]).collect();
            seeker.want(now, &wants(&wanted));
            assert!(seeker.sought.len() <= SOUGHT_MAX, "{}", seeker.sought.len());
            let (over, waits): (Vec<_>, Vec<_>) =
                under_way.into_iter().partition(|(_, until)| now >= *until);
            under_way = waits;
            for (id, _) in over {
                seeker.failed(now, id, |_| false);
            }
            let tries = seeker.due(now, |to, _| Some([member_id(250), member_id(248), to].into()));
            if tries.iter().any(|(id, _)| *id == genuine) {
                assert!(now < 20_000, "{now}");
                return;
            }
            under_way.extend(tries.into_iter().map(|(id, _)| (id, now + 1000)));
        }
        panic!("never");
    }

    #[test]
    fn who_is_lost_waits_for_nobody_that_is_only_heard_of() {
        let mut seeker = Seeker::new(member_id(0));
        let many: Vec<(u8, Want)> = (1..=200).map(|n| (n, Want::HeardOf)).collect();
        seeker.want(0, &wants(&many));
        seeker.want(10, &wants(&[&many[..], &[(250, Want::Lost)]].concat()));
        assert_eq!(seeker.sought.len(), SOUGHT_MAX);
        let tries = seeker.due(10, |to, _| Some([member_id(0), member_id(251), to].into()));
        assert_eq!(tries.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [member_id(250)]);
        // The same when the tries of the others are due as well.
        seeker.failed(20, member_id(250), |_| true);
        let tries = seeker.due(GRACE_MS, |to, _| Some([member_id(0), member_id(251), to].into()));
        assert_eq!((tries.len(), tries[0].0), (UNDER_WAY_MAX, member_id(250)));
    }
}
