//! Relayed control links, and the search for members without a direct link.

use super::super::event::Linked;
use super::super::peers::{Link, Taken};
use super::super::relays::DirectDial;
use super::ControlPlane;
use super::control_path::{ControlPath, Dialled};
use crate::election::Input;
use crate::identity::MemberId;
use crate::link::{Purpose, Refusal, SecureChannel, Stream};
use crate::protocol::RelayFrame;
use crate::relay::{Said, Want, route, within_reach};
use crate::trace;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long the good-byes may take to reach the links that relay them.
const GOODBYE: Duration = Duration::from_millis(200);

impl ControlPlane {
    /// Handles a frame of a circuit. Frames over relayed links are dropped: their circuits have
    /// ended.
    pub(super) fn on_relay(&mut self, from: MemberId, frame: RelayFrame) {
        let outside = (&self.peers, &self.handshakes);
        if self.peers.get(from).is_some_and(Link::is_direct)
            && !self.relays.on_frame(self.clock.now(), from, frame, outside)
        {
            self.close_link_of(from);
        }
    }

    /// Handles an event of a local end of a circuit: it has sent or consumed data, or was closed.
    pub(crate) fn on_said(&mut self, said: Said) {
        self.relays.on_said(said, (&self.peers, &self.handshakes));
    }

    pub(super) fn on_relay_answered(&mut self, nodes: &[MemberId], result: Linked) {
        self.relays.answered(nodes);
        match result {
            // Nothing but a control link goes over a circuit.
            Ok((_, session)) if session.purpose != Purpose::Control => {
                self.count(Refusal::UnknownView);
            }
            // A neighbour may have named another node as the first node. The handshake proves
            // the peer's identity.
            Ok((stream, session)) if nodes.first() == Some(&session.peer.id) => {
                let over = nodes[1..nodes.len() - 1].iter().rev().copied().collect();
                self.on_relayed(stream, session, over, Dialled::ByPeer);
            }
            Ok(_) => self.count(Refusal::WrongRank),
            Err(refusal) => self.count(refusal),
        }
    }

    /// Tries the circuits that are due to members without a link, or with a silent one.
    pub(super) fn seek(&mut self) {
        let now = self.now();
        self.relays.forget_long_lost(now);
        let (wanted, direct) = (self.wanted(now), self.direct_neighbours());
        let tries = self.relays.due(now, &wanted, self.election.links(), &direct);
        for (to, nodes) in tries {
            self.relays.open(now, to, nodes, (&self.peers, &self.handshakes));
        }
        let hopeless = self.relays.hopeless(&wanted, self.election.links());
        hopeless.into_iter().for_each(|id| self.give_up(id));
    }

    /// Members without a link, or with a silent direct link, to which a circuit is possible.
    fn wanted(&self, now: u64) -> BTreeMap<MemberId, Want> {
        let (links, direct) = (self.election.links(), self.direct_neighbours());
        let suspects: BTreeSet<MemberId> = self.election.suspects(now).collect();
        let is_sought = |id: &MemberId| {
            let is_wanted = self.peers.get(*id).is_none_or(|link| {
                let is_stale = !link.is_direct() && !self.access.accepts(link.psk());
                is_stale || suspects.contains(id)
            });
            let is_other = id.node != self.me.node && is_wanted;
            is_other && self.election.keeps_away_ms(now, *id).is_none()
        };
        let sought: Vec<MemberId> = links.known().into_iter().filter(is_sought).collect();
        // The usual case, at every tick: the search for routes looks at all pairs of members.
        if sought.is_empty() {
            return BTreeMap::new();
        }
        let reached = within_reach(links, self.me, &direct);
        let has_route = |id: &MemberId| match direct.contains(id) {
            true => route(links, self.me, *id, &direct).is_some(),
            false => reached.contains(id),
        };
        let is_urgent = |id: &MemberId| suspects.contains(id) || self.relays.is_lost(*id);
        let want = |id: MemberId| match () {
            () if is_urgent(&id) => Want::Lost,
            () if self.roster.expects(id.boot, now) => Want::Dialled,
            () => Want::HeardOf,
        };
        sought.into_iter().filter(has_route).map(|id| (id, want(id))).collect()
    }

    fn direct_neighbours(&self) -> BTreeSet<MemberId> {
        self.peers.direct().collect()
    }

    pub(super) fn on_relay_dialled(&mut self, nodes: &[MemberId], result: Linked) {
        let [_, over @ .., to] = nodes else { return };
        match result {
            Ok((stream, session)) => self.on_relayed(stream, session, over.to_vec(), Dialled::ByMe),
            Err(refusal) => {
                trace::debug!(peer = %to, over = over.len(), %refusal, "a circuit came to nothing");
                self.learn(refusal);
                let (now, direct) = (self.now(), self.direct_neighbours());
                self.relays.failed_once(now, *to, self.election.links(), &direct);
                // A relay whose next link has just ended may restore it in a moment, or reports
                // that it did not.
                self.seek();
            }
        }
    }

    fn on_relayed(
        &mut self,
        stream: Box<dyn Stream>,
        session: SecureChannel,
        over: Vec<MemberId>,
        dialled: Dialled,
    ) {
        let peer = session.peer.id;
        let first = over.first().and_then(|first| self.peers.get(*first)).map(|link| link.address);
        // Without its first link the circuit has ended as well.
        let taken = first.map(|address| {
            self.on_linked(stream, session, ControlPath::new(address, over), dialled)
        });
        if taken.is_none_or(|taken| taken == Taken::Refused) {
            self.relays.failed(self.clock.now(), peer);
        }
    }

    /// A member's link has ended: tries all other paths before the member counts as unreachable.
    pub(super) fn seek_lost(&mut self, member: MemberId, dial: DirectDial) {
        self.relays.lose(self.clock.now(), member, dial);
        self.seek();
    }

    /// No path leads to the member any more.
    pub(super) fn give_up(&mut self, member: MemberId) {
        self.relays.give_up(member);
        if self.peers.get(member).is_none() {
            trace::debug!(peer = %member, "a member cannot be reached any more");
            self.step(Input::Unreachable(member));
        }
    }

    /// Relays now carry a member's messages. Its data link used the same path as the lost direct
    /// link, so it counts as lost, too.
    pub(super) fn lose_direct(&mut self, member: MemberId) {
        self.roster.link_down(member, self.clock.now());
        let Some(session) = self.installed.session() else { return };
        let (view, digest) = (session.view(), session.digest());
        if view.rank_of(member).is_some_and(|rank| !view.lack_direct_link(session.me(), rank)) {
            self.step(Input::DataLinkLost(digest));
        }
    }

    /// Sends the queued good-byes over relayed links, for at most [`GOODBYE`].
    pub(crate) async fn leave_relayed(&mut self, said: &mut mpsc::UnboundedReceiver<Said>) {
        let mut writers = self.peers.end_relayed();
        let until = tokio::time::Instant::now() + GOODBYE;
        while !writers.is_empty() {
            tokio::select! {
                Some(said) = said.recv() => self.on_said(said),
                _ = writers.join_next() => {}
                () = tokio::time::sleep_until(until) => return,
            }
        }
        while let Ok(said) = said.try_recv() {
            self.on_said(said);
        }
    }
}
