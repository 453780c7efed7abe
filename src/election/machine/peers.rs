//! Peers of an election: their links, signs of life and reachability reports.

use super::super::agreement::Effect;
use super::super::detector::{Detector, Liveness};
use super::Election;
use super::peer::{Link, Peer};
use crate::identity::MemberId;
use crate::protocol::{Heartbeat, Message, Reached, Sizes};
use crate::report::LossReason;
use std::collections::BTreeSet;

impl Election {
    pub(super) fn lose_the_silent(&mut self, now: u64) {
        let late = self.late_ms;
        let silent = |p: &Peer| {
            matches!(p.link, Link::Up { .. }) && p.detector.liveness(now, late) == Liveness::Dead
        };
        let expired =
            |p: &Peer| matches!(p.link, Link::Down { .. }) && !p.alive(now, self.redial_ms());
        let loss = |p: &Peer| {
            if silent(p) {
                Some(LossReason::Silent)
            } else {
                expired(p).then_some(LossReason::Closed)
            }
        };
        let gone: Vec<(MemberId, LossReason)> =
            self.peers.iter().filter_map(|(id, p)| Some((*id, loss(p)?))).collect();
        for (id, why) in gone {
            self.effects.push(Effect::Drop(id));
            self.on_lost(now, id, why);
        }
    }

    /// How long a link may be down, in milliseconds. A node with late ticks has dialled late, too.
    pub(super) fn redial_ms(&self) -> u64 {
        self.config.redial_ms + self.late_ms
    }

    /// A link that replaces another one, or comes back in time, keeps the state of its peer; only
    /// the failure detector starts anew.
    pub(super) fn on_link_up(&mut self, now: u64, id: MemberId, over: Vec<MemberId>) {
        if self.is_contested(now, id, &over) {
            return;
        }
        self.on_contact(now);
        let detector = Detector::new(self.config.limits, self.config.heartbeat_ms, now);
        match self.peers.get_mut(&id).filter(|p| p.link != Link::Gone) {
            Some(peer) => {
                peer.detector = detector;
                if let Link::Down { .. } = peer.link {
                    peer.link = Link::Up { since: now };
                }
            }
            None => self.meet(now, id, detector),
        }
        self.links.set_way(self.me, id, !over.is_empty());
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.over = over;
        }
        self.set_limits(id);
        self.change.clique = None;
        self.announce(now);
        // An earlier ping may have been lost with another link.
        self.probe(id);
    }

    fn meet(&mut self, now: u64, id: MemberId, detector: Detector) {
        let known = self.peers.get(&id);
        let (view, left) = known.map_or((None, false), |p| (p.view, p.left));
        let begun = known.is_some_and(|p| p.begun);
        // Its next heartbeat tells nothing new if it is in the same View as before.
        let in_other_view = known.is_some_and(|p| p.in_other_view);
        let peer = Peer {
            detector,
            link: Link::Up { since: now },
            view,
            begun,
            sizes: known.map_or_else(Sizes::default, |p| p.sizes),
            over: Vec::new(),
            reach: BTreeSet::new(),
            relayed: BTreeSet::new(),
            radios: BTreeSet::new(),
            view_since: now,
            persisting_since: None,
            broken: false,
            left,
            loss: None,
            in_other_view,
            radio: false,
            deaf_since: None,
            hears_since: None,
            shunned_until: 0,
            refused_until: 0,
            keeps_out_until: 0,
            promised_since: None,
            accused: Vec::new(),
        };
        self.peers.insert(id, peer);
        // Its next heartbeat reports its reach.
        self.links.set_reach(id, &BTreeSet::new());
        self.change.clique = None;
    }

    pub(super) fn on_link_down(&mut self, now: u64, id: MemberId) {
        self.give_up_contest(id);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.link = Link::Down { since: now };
        }
    }

    pub(super) fn on_lost(&mut self, now: u64, id: MemberId, why: LossReason) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.loss = Some(why);
        }
        self.on_gone(now, id);
    }

    pub(super) fn on_gone(&mut self, now: u64, id: MemberId) {
        self.give_up_contest(id);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.link = Link::Gone;
        peer.over.clear();
        peer.reach.clear();
        peer.relayed.clear();
        peer.accused.clear();
        if self.change.yielded_to == Some(id) {
            self.change.yield_until = 0;
            self.change.yield_to_disks_until = 0;
        }
        self.give_up_on(now, id);
        self.change.clique = None;
        self.links.set_reach(id, &BTreeSet::new());
        if self.agreement.installed().is_some_and(|v| v.contains(id)) {
            // Its data links are lost, even if it is back before there is a View without it.
            self.change.broken |= !self.is_frozen();
        } else {
            self.forget(id);
        }
        self.announce(now);
        self.succeed(now, id);
    }

    /// Drops all state about a node, including the reports of others about a path to it; their next
    /// reports bring those back.
    pub(super) fn forget(&mut self, id: MemberId) {
        self.peers.remove(&id);
        self.over_radio.remove(&id);
        self.links.forget(id);
        self.change.clique = None;
        for peer in self.peers.values_mut() {
            peer.reach.remove(&id);
            peer.relayed.remove(&id);
        }
    }

    pub(super) fn on_heard(&mut self, now: u64, id: MemberId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.detector.heard(now);
            peer.shunned_until = 0;
        }
    }

    pub(super) fn on_heartbeat(&mut self, now: u64, from: MemberId, heartbeat: &Heartbeat) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let is_regular = peer.detector.is_regular(now);
        peer.detector.heartbeat(now);
        peer.persisting_since = heartbeat.persisting.then(|| peer.persisting_since.unwrap_or(now));
        peer.broken = heartbeat.broken;
        (peer.begun, peer.sizes) = (heartbeat.begun, heartbeat.sizes);
        peer.promised_since = heartbeat.promised.then(|| peer.promised_since.unwrap_or(now));
        let of_this_view = heartbeat.view == self.agreement.installed_id();
        if of_this_view && peer.accused != heartbeat.accused {
            peer.accused.clone_from(&heartbeat.accused);
            self.change.clique = None;
        }
        let keeps_out_ms = u64::from(heartbeat.keeps_out_ms).min(self.config.quarantine_ms.1);
        peer.keeps_out_until = if keeps_out_ms == 0 { 0 } else { now + keeps_out_ms };
        let radio = std::mem::replace(&mut peer.radio, heartbeat.radio);
        if let Some(theirs) = heartbeat.view {
            self.agreement.approach(theirs.ballot.round);
        }
        if peer.view != heartbeat.view {
            let ours = self.agreement.open_views().any(|v| Some(v.id()) == heartbeat.view);
            peer.in_other_view |= heartbeat.view.is_some() && !ours;
            peer.view = heartbeat.view;
            peer.view_since = now;
        }
        let hears = heartbeat.reach.iter().any(|r| r.id == self.me);
        peer.deaf_since = if hears { None } else { peer.deaf_since.or(Some(now)) };
        let since = peer.hears_since.filter(|_| is_regular);
        peer.hears_since = hears.then(|| since.unwrap_or(now));
        if radio != heartbeat.radio {
            self.set_limits(from);
        }
        self.learn_reach(from, &heartbeat.reach);
        let mine =
            self.agreement.installed_id().zip(self.agreement.installed().map(|v| v.contains(from)));
        match (mine, heartbeat.view) {
            // It has missed the Install.
            (Some((mine, true)), theirs)
                if !self.is_frozen() && theirs.is_none_or(|v| v.ballot < mine.ballot) =>
            {
                self.effects.push(Effect::Send(from, Message::Install(mine)));
            }
            // This node may have missed the Install.
            (_, Some(theirs)) => self.agreement.on_install(theirs, &mut self.effects),
            _ => {}
        }
    }

    pub(super) fn reached(&self, id: MemberId) -> Reached {
        let relayed = self.peers.get(&id).is_some_and(|p| !p.over.is_empty());
        let rtt_us = self.links.path(self.me, id).map_or(0, |path| path.rtt_us);
        Reached { id, rtt_us, relayed, radio: !relayed && self.over_radio.contains(&id) }
    }

    pub(super) fn learn_reach(&mut self, from: MemberId, reach: &[Reached]) {
        let is_known = |p: &Peer| {
            let is_same = |r: &Reached| {
                p.reach.contains(&r.id)
                    && p.relayed.contains(&r.id) == r.relayed
                    && p.radios.contains(&r.id) == r.radio
            };
            p.reach.len() == reach.len() && reach.iter().all(is_same)
        };
        // The usual case is that of the same links as before.
        if !self.peers.get(&from).is_some_and(is_known) {
            self.learn_other_reach(from, reach);
        }
        for reached in reach.iter().filter(|r| r.rtt_us > 0) {
            // A report carries no ports or rates, so known ones stay.
            self.links.round_trip(from, reached.id, reached.rtt_us, None);
        }
    }

    fn learn_other_reach(&mut self, from: MemberId, reach: &[Reached]) {
        let some = |which: fn(&Reached) -> bool| {
            reach.iter().filter(|r| which(r)).map(|r| r.id).collect::<BTreeSet<MemberId>>()
        };
        let (to, relayed, radios) = (some(|_| true), some(|r| r.relayed), some(|r| r.radio));
        if let Some(peer) =
            self.peers.get_mut(&from).filter(|p| p.reach != to || p.relayed != relayed)
        {
            self.links.set_reach(from, &to);
            self.links.set_relayed(from, &relayed);
            (peer.reach, peer.relayed) = (to, relayed);
            self.change.clique = None;
        }
        if let Some(peer) = self.peers.get_mut(&from).filter(|p| p.radios != radios) {
            peer.radios = radios;
            self.set_limits_of_relayed();
        }
    }

    pub(super) fn on_left(&mut self, now: u64, from: MemberId) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.left = true;
        }
        self.on_gone(now, from);
    }

    /// Sends a heartbeat to every peer with a live link.
    pub(super) fn announce(&mut self, now: u64) {
        self.heartbeat_at = now + self.config.heartbeat_ms;
        self.told_persisting = self.agreement.is_persisting();
        let reach = self.reach(now);
        let heartbeat = Heartbeat {
            view: self.agreement.installed_id(),
            reach: reach.into_iter().map(|id| self.reached(id)).collect(),
            persisting: self.told_persisting,
            broken: self.change.broken,
            promised: self.is_frozen(),
            accused: self.excluded_members(now),
            begun: self.agreement.has_begun(),
            sizes: self.sizes,
            ..Heartbeat::default()
        };
        let linked =
            self.peers.iter().filter(|(_, p)| matches!(p.link, Link::Up { .. })).map(|(id, _)| *id);
        let is_direct = |id| self.peers.get(&id).is_some_and(|p| p.over.is_empty());
        let to = |id| Heartbeat {
            radio: self.over_radio.contains(&id) && is_direct(id),
            keeps_out_ms: self.keeps_out_ms(now, id),
            ..heartbeat.clone()
        };
        let told: Vec<Effect> =
            linked.map(|id| Effect::Send(id, Message::Heartbeat(to(id)))).collect();
        self.effects.extend(told);
    }
}
