//! Layer: Core.
//!
//! Two lives of one node. Mostly the earlier one has ended, and nobody has told yet; else somebody
//! has copied an identity and two processes use it. The one that has a link is asked for a sign of
//! life: whoever gives it keeps its place, and the newcomer is told of its twin.

use super::Election;
use super::peers::Link;
use crate::election::agreement::Effect;
use crate::election::message::{Message, Twin};
use crate::election::notice::Notice;
use crate::identity::{MemberId, NodeId};
use std::collections::BTreeMap;

/// How long an earlier life has for its answer. A process that has ended is known by its closed
/// connection at once.
const ANSWER_MS: u64 = 300;

/// A node that was told of its twin leaves everybody alone for so long.
const ASIDE_MS: u64 = 5000;

/// Twins that meet again sooner than this are not told again.
const TOLD_MS: u64 = 60_000;

/// Identities with twins that are remembered: a View's worth.
const SEEN_MAX: usize = 16;

/// Numbers of these pings; those that measure round trips are microseconds since the start.
pub const PROBE: u64 = 1 << 63;

/// What is known of twins, own and others'.
#[derive(Clone, Debug, Default)]
pub(super) struct Twins {
    /// By the life that has a link: who wants its place. At most one each, so no more than there
    /// are links.
    contests: BTreeMap<MemberId, Contest>,
    probes: u64,
    /// When another life of a node was last refused here while this one lived.
    seen: BTreeMap<NodeId, u64>,
    own_at: Option<u64>,
    aside_until: u64,
}

#[derive(Clone, Debug)]
struct Contest {
    newcomer: MemberId,
    /// Who passes its link on.
    over: Vec<MemberId>,
    number: u64,
    until: u64,
}

impl Twins {
    /// Whether nothing that this peer says counts: it has no place yet, or this node has stepped
    /// aside.
    pub(super) fn are_at_odds(&self, now: u64, with: MemberId) -> bool {
        self.is_aside(now) || self.contests.values().any(|c| c.newcomer == with)
    }

    pub(super) fn forget_contests(&mut self) {
        self.contests.clear();
    }

    pub(super) fn is_aside(&self, now: u64) -> bool {
        now < self.aside_until
    }
}

impl Election {
    pub(super) fn on_own_twin(&mut self, now: u64) {
        if self.twins.own_at.replace(now).is_none_or(|before| now >= before + TOLD_MS) {
            self.note(Notice::Twin(self.me.node));
        }
    }

    /// When another living process last showed this node's own identity.
    pub fn own_twin_at(&self) -> Option<u64> {
        self.twins.own_at
    }

    /// Identities that two living processes use, and when that was last seen.
    pub fn twins(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.twins.seen.iter().map(|(node, at)| (*node, *at))
    }

    /// For how long this node keeps `id` away because of a twin, its own or that one's.
    pub fn keeps_away_ms(&self, now: u64, id: MemberId) -> Option<u64> {
        let known = self.peers.contains_key(&id);
        let seen = self.twins.seen.get(&id.node).filter(|_| !known).map(|at| at + ASIDE_MS);
        seen.max(Some(self.twins.aside_until))
            .and_then(|until| until.checked_sub(now))
            .filter(|ms| *ms > 0)
    }

    /// Whether this link is refused, or has to wait until another life of the same node has had
    /// time to answer.
    pub(super) fn is_contested(
        &mut self,
        now: u64,
        id: MemberId,
        over: &[MemberId],
        effects: &mut Vec<Effect>,
    ) -> bool {
        if self.twins.is_aside(now) {
            effects.extend([Effect::Send(id, Message::Leave), Effect::Drop(id)]);
            return true;
        }
        let other_life = |(other, p): &(&MemberId, &super::Peer)| {
            other.node == id.node && **other != id && p.link != Link::Gone
        };
        let Some((holder, up)) = self
            .peers
            .iter()
            .find(other_life)
            .map(|(h, p)| (*h, matches!(p.link, Link::Up { .. })))
        else {
            return false;
        };
        if !up {
            self.bury_life(now, holder, effects);
            return false;
        }
        match self.twins.contests.get_mut(&holder) {
            Some(contest) if contest.newcomer == id => contest.over = over.to_vec(),
            Some(_) => effects.push(Effect::Drop(id)),
            None => {
                self.twins.probes += 1;
                let number = PROBE | self.twins.probes;
                self.twins.contests.insert(
                    holder,
                    Contest { newcomer: id, over: over.to_vec(), number, until: now + ANSWER_MS },
                );
                effects.push(Effect::Send(holder, Message::Ping(number)));
            }
        }
        true
    }

    /// The life that has the link lives.
    pub(super) fn on_pong(
        &mut self,
        now: u64,
        from: MemberId,
        number: u64,
        effects: &mut Vec<Effect>,
    ) {
        if self.twins.contests.get(&from).is_none_or(|c| c.number != number) {
            return;
        }
        let Some(Contest { newcomer, .. }) = self.twins.contests.remove(&from) else { return };
        if self.twins.seen.insert(from.node, now).is_none_or(|before| now >= before + TOLD_MS) {
            self.note(Notice::Twin(from.node));
        }
        if self.twins.seen.len() > SEEN_MAX {
            let oldest = self.twins.seen.iter().min_by_key(|(_, at)| **at).map(|(node, _)| *node);
            oldest.map(|node| self.twins.seen.remove(&node));
        }
        let settled = self.agreement.installed().is_some_and(|v| v.contains(from));
        let twin = Twin { boot: from.boot, settled };
        effects.extend([Effect::Send(newcomer, Message::Twin(twin)), Effect::Drop(newcomer)]);
    }

    pub(super) fn end_contests(&mut self, now: u64, effects: &mut Vec<Effect>) {
        let late = self.late_ms;
        let over = self
            .twins
            .contests
            .iter()
            .find(|(_, c)| now >= c.until + late)
            .map(|(holder, _)| *holder);
        if let Some(holder) = over {
            self.bury_life(now, holder, effects);
        }
    }

    /// The life that had the link has ended: whoever wanted its place gets it.
    pub(super) fn succeed(&mut self, now: u64, holder: MemberId, effects: &mut Vec<Effect>) {
        if let Some(contest) = self.twins.contests.remove(&holder) {
            self.on_link_up(now, contest.newcomer, contest.over, effects);
        }
    }

    /// A newcomer has gone by itself.
    pub(super) fn give_up_contest(&mut self, newcomer: MemberId) {
        self.twins.contests.retain(|_, contest| contest.newcomer != newcomer);
    }

    pub(super) fn bury_life(&mut self, now: u64, life: MemberId, effects: &mut Vec<Effect>) {
        effects.push(Effect::Drop(life));
        self.on_gone(now, life, effects);
    }

    /// Somebody has a link with this node's twin. Whoever is in a group stays there; of two that
    /// are in none the later boot gives way, so that they do not keep each other out.
    pub(super) fn on_twin(
        &mut self,
        now: u64,
        from: MemberId,
        twin: Twin,
        effects: &mut Vec<Effect>,
    ) {
        self.on_own_twin(now);
        let gives_way = twin.settled || self.me.boot > twin.boot;
        let members = self.agreement.installed().map_or(&[][..], |v| &v.members);
        let alive = self.reach(now);
        let in_a_group = members.iter().any(|m| m.id != from && alive.contains(&m.id));
        if gives_way && !in_a_group {
            self.twins.aside_until = now + ASIDE_MS;
            let peers: Vec<MemberId> = self.peers.keys().copied().collect();
            for id in peers {
                effects.extend([Effect::Send(id, Message::Leave), Effect::Drop(id)]);
                self.on_gone(now, id, effects);
            }
        } else {
            effects.push(Effect::Drop(from));
        }
    }
}
