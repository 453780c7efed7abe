//! Duplicate identities: two starts of one node, told apart by their boot. Usually the earlier
//! process has ended and its link is not closed yet. Otherwise an identity has been copied, and
//! both processes run. The process that holds a link is probed with a ping, and the newcomer waits:
//!
//! | the holder | the newcomer |
//! |---|---|
//! | answers the ping, however late | is told of the duplicate and refused |
//! | is lost: unreachable, down for too long, or silent for too long | takes its place |
//! | has a new link | goes on waiting; the holder is probed again |
//!
//! A contest has no time limit of its own, because a member that is late is not lost: on a busy
//! machine or behind a radio that saves power, an answer may take as long as a heartbeat.

use super::super::agreement::Effect;
use super::super::notice::Notice;
use super::Election;
use super::contests::Contest;
use super::peer::Link;
use crate::identity::{MemberId, NodeId};
use crate::protocol::{Duplicate, Message};

/// How long a node that gives way to its duplicate refuses all links.
const ASIDE_MS: u64 = 5000;

/// A duplicate that was seen less than this ago is not reported again.
const TOLD_MS: u64 = 60_000;

/// Most remembered identities with duplicates.
const SEEN_MAX: usize = 16;

/// This bit marks a ping that probes a duplicate. Round-trip pings carry microseconds since the
/// start and never have it.
pub const PROBE: u64 = 1 << 63;

impl Election {
    pub(super) fn on_own_duplicate(&mut self, now: u64) {
        if self.duplicates.own_at.replace(now).is_none_or(|before| now >= before + TOLD_MS) {
            self.note(Notice::Duplicate(self.me.node));
        }
    }

    /// When another living process last presented this node's own identity.
    pub fn own_duplicate_at(&self) -> Option<u64> {
        self.duplicates.own_at
    }

    /// Identities used by two living processes, and when that was last seen.
    pub fn duplicates(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.duplicates.seen.iter().map(|(node, at)| (*node, *at))
    }

    /// How long this node still refuses links with `id` because of a duplicate, its own or that of
    /// `id`.
    pub fn keeps_away_ms(&self, now: u64, id: MemberId) -> Option<u64> {
        let known = self.peers.contains_key(&id);
        let seen = self.duplicates.seen.get(&id.node).filter(|_| !known).map(|at| at + ASIDE_MS);
        seen.max(Some(self.duplicates.aside_until))
            .and_then(|until| until.checked_sub(now))
            .filter(|ms| *ms > 0)
    }

    /// Whether this new link is refused, or must wait until another start of the same node has been
    /// probed.
    pub(super) fn is_contested(&mut self, now: u64, id: MemberId, over: &[MemberId]) -> bool {
        if self.duplicates.is_aside(now) {
            self.effects.extend([Effect::Send(id, Message::Leave), Effect::Drop(id)]);
            return true;
        }
        let other_start = |(other, p): &(&MemberId, &super::peer::Peer)| {
            other.node == id.node && **other != id && p.link != Link::Gone
        };
        let Some(holder) = self.peers.iter().find(other_start).map(|(holder, _)| *holder) else {
            return false;
        };
        match self.duplicates.contests.get_mut(&holder) {
            Some(contest) if contest.newcomer == id => contest.over = over.to_vec(),
            Some(_) => self.effects.push(Effect::Drop(id)),
            None => {
                self.duplicates.probes += 1;
                let number = PROBE | self.duplicates.probes;
                self.duplicates
                    .contests
                    .insert(holder, Contest { newcomer: id, over: over.to_vec(), number });
                self.probe(holder);
            }
        }
        true
    }

    /// Asks a peer with a link for a sign of life, if another process waits for its place.
    pub(super) fn probe(&mut self, holder: MemberId) {
        let is_up = self.peers.get(&holder).is_some_and(|p| matches!(p.link, Link::Up { .. }));
        if let Some(contest) = self.duplicates.contests.get(&holder).filter(|_| is_up) {
            self.effects.push(Effect::Send(holder, Message::Ping(contest.number)));
        }
    }

    /// The holder has answered the probe: its newcomer is refused.
    pub(super) fn on_pong(&mut self, now: u64, from: MemberId, number: u64) {
        if self.duplicates.contests.get(&from).is_none_or(|c| c.number != number) {
            return;
        }
        let Some(Contest { newcomer, .. }) = self.duplicates.contests.remove(&from) else { return };
        if self.duplicates.seen.insert(from.node, now).is_none_or(|before| now >= before + TOLD_MS)
        {
            self.note(Notice::Duplicate(from.node));
        }
        if self.duplicates.seen.len() > SEEN_MAX {
            let oldest =
                self.duplicates.seen.iter().min_by_key(|(_, at)| **at).map(|(node, _)| *node);
            oldest.map(|node| self.duplicates.seen.remove(&node));
        }
        let settled = self.agreement.installed().is_some_and(|v| v.contains(from));
        let duplicate = Duplicate { boot: from.boot, settled };
        self.effects.extend([
            Effect::Send(newcomer, Message::Duplicate(duplicate)),
            Effect::Drop(newcomer),
        ]);
    }

    /// The holder of the link is lost: its newcomer, if there is one, takes its place.
    pub(super) fn succeed(&mut self, now: u64, holder: MemberId) {
        if let Some(contest) = self.duplicates.contests.remove(&holder) {
            self.on_link_up(now, contest.newcomer, contest.over);
        }
    }

    /// The newcomer's link is gone: its contest ends.
    pub(super) fn give_up_contest(&mut self, newcomer: MemberId) {
        self.duplicates.contests.retain(|_, contest| contest.newcomer != newcomer);
    }

    /// `from` has a link to this node's duplicate. This node stays if it reaches another member of
    /// its View. Otherwise it steps aside if the duplicate is in the sender's View or has the
    /// smaller boot number, so that two duplicates outside any group do not keep each other out.
    pub(super) fn on_duplicate(&mut self, now: u64, from: MemberId, duplicate: Duplicate) {
        self.on_own_duplicate(now);
        let gives_way = duplicate.settled || self.me.boot > duplicate.boot;
        let members = self.agreement.installed().map_or(&[][..], |v| &v.members);
        let alive = self.reach(now);
        let in_a_group = members.iter().any(|m| m.id != from && alive.contains(&m.id));
        if gives_way && !in_a_group {
            self.duplicates.aside_until = now + ASIDE_MS;
            let peers: Vec<MemberId> = self.peers.keys().copied().collect();
            for id in peers {
                self.effects.extend([Effect::Send(id, Message::Leave), Effect::Drop(id)]);
                self.on_gone(now, id);
            }
        } else {
            self.effects.push(Effect::Drop(from));
        }
    }
}
