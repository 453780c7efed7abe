//! How the data links of the installed View are established: by dials of either end.

use super::super::data_link::{DataDial, EstablishedLink, Reports, data_link};
use super::super::data_path::DataPath;
use super::super::event::LinkEnd;
use super::super::ipv4_path::ipv4_path;
use super::super::peers::Link;
use super::ControlPlane;
use crate::election::Input;
use crate::identity::MemberId;
use crate::link::DataLink;
use crate::protocol::{Message, Rank, View, ViewDigest};
use crate::trace;
use std::sync::Arc;

impl ControlPlane {
    pub(super) fn dial_data_links(&mut self, view: &View, me: Rank) {
        let digest = view.digest();
        for peer in view.linked_with(me).filter(|r| *r > me) {
            match view.member(peer).map(|m| m.id) {
                Some(expect) if self.paths.is_blocked(expect) => {
                    self.data.ask(digest, peer, self.events.clone());
                }
                Some(expect) => self.dial_data_link(digest, me, peer, expect),
                None => {}
            }
        }
    }

    fn dial_data_link(&mut self, view: ViewDigest, me: Rank, peer: Rank, expect: MemberId) {
        let direct = self.peers.get(expect).filter(|link| link.is_direct());
        let Some((to, ours)) = direct.map(|l| (l.address, l.local)) else {
            // The direct link broke at this moment, so no data link can be made.
            return self.step(Input::DataLinkLost(view));
        };
        let others = self.roster.own_addresses_of(expect).into_iter();
        let first =
            ours.and_then(|ours| ipv4_path(&self.network.interface_set().all, ours, others));
        let dial = DataDial { view, me, peer, expect, first, to };
        self.data.dial(dial, self.handshakes.dialler());
    }

    /// This node's dials for a data link failed, or the peer was asked to dial and did not in time.
    /// The first time, asks the peer to dial; otherwise the data link is lost.
    pub(super) fn on_data_link_blocked(&mut self, view: ViewDigest, peer: Rank) {
        let Some(session) = self.installed.of(view) else { return };
        let Some(member) = session.view().member(peer).map(|m| m.id) else { return };
        if self.data.has_stood(peer) {
            return;
        }
        // A peer of a lower rank asked this node because its own dials failed; now both directions
        // do. A peer in `blocked` was asked and did not dial in time.
        if peer < session.me() || self.paths.unblock(member) {
            return self.step(Input::DataLinkLost(view));
        }
        trace::info!(peer = %member, "a member cannot be dialled, a firewall perhaps: it is asked \
            to dial");
        self.paths.block(member);
        self.data.ask(view, peer, self.events.clone());
    }

    /// Peers that were asked to dial and did not may be blocked themselves, so in the next View
    /// this node dials them again.
    pub(super) fn dial_unanswered_again(&mut self) {
        for member in self.data.unanswered().filter_map(|rank| self.installed.member(rank)) {
            self.paths.unblock(member);
        }
    }

    pub(super) fn ask_to_dial(&mut self, view: ViewDigest, peer: Rank) {
        if let Some(member) = self.installed.of(view).and_then(|e| e.view().member(peer)) {
            self.peers.send(member.id, Message::Dial(view));
        }
    }

    /// A member of a lower rank asks this node to dial, because its own dials fail.
    pub(super) fn on_asked_to_dial(&mut self, from: MemberId, view: ViewDigest) {
        self.step(Input::Heard(from));
        let Some(session) = self.installed.of(view).filter(|e| !e.is_frozen()) else { return };
        let me = session.me();
        let lower = session
            .view()
            .linked_with(me)
            .find(|rank| *rank < me && session.view().rank_of(from) == Some(*rank));
        let is_missing = |peer: &Rank| {
            !self.data.has_stood(*peer) && self.peers.get(from).is_some_and(Link::is_direct)
        };
        if let Some(peer) = lower.filter(is_missing) {
            self.dial_data_link(view, me, peer, from);
        }
    }

    pub(super) fn on_data_link(&mut self, view: ViewDigest, peer: Rank, link: EstablishedLink) {
        if let Some(session) = self.installed.of(view) {
            let backend = Arc::clone(session.backend());
            self.data.stands(peer);
            let link = self.data_path(view, peer, link);
            backend.attach(peer, link);
        }
    }

    /// Prepares a data link of the View for its engine, with bursts and moves.
    fn data_path(
        &mut self,
        view: ViewDigest,
        peer: Rank,
        established: EstablishedLink,
    ) -> Box<dyn DataLink> {
        let EstablishedLink { link, at } = established;
        let reports = Reports {
            link: LinkEnd { view, peer },
            traffic: self.rates.traffic(),
            events: self.events.clone(),
            ends: self.ends.clone(),
        };
        let (link, moves, bursts) = data_link(link, reports);
        self.rates.measure_over(peer, bursts);
        self.paths.stands(peer, DataPath::new(moves, at));
        link
    }
}
