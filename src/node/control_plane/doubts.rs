//! Paths that may be broken.
//!
//! A member that is silent, or was linked over an interface that is gone, is dialled over all other
//! paths. If it answers, the member is alive and the old path is dead: the View is replaced,
//! because the frames in flight on the data link are lost.

use super::super::data_link::Addresses;
use super::super::event::Linked;
use super::super::handshakes::is_proof_of_absence;
use super::super::peers::Taken;
use super::super::relays::DirectDial;
use super::ControlPlane;
use super::control_path::{ControlPath, Dialled};
use crate::discovery::{Trial, is_same_interface};
use crate::election::Input;
use crate::identity::MemberId;
use crate::trace;
use std::collections::BTreeSet;
use std::net::SocketAddr;

impl ControlPlane {
    /// Dials doubtful members over other paths, and ends trials that time out.
    pub(super) fn watch_paths(&mut self) {
        let now = self.now();
        if self.paths.is_late(now) {
            self.drop_trial(Trial::Failed);
        }
        // The messages that announced these moves were lost.
        if let Some(view) = self.installed.digest() {
            self.paths.unfollowed().into_iter().for_each(|peer| self.on_moved(view, peer));
        }
        let late = self.redials.late(now);
        late.into_iter().for_each(|member| self.direct_does_not_come(member));
        let doubtful = self.doubtful();
        for member in self.redials.due(now, &doubtful) {
            let around = self.other_addresses_of(member);
            self.redial(member, around);
        }
    }

    fn direct_does_not_come(&mut self, member: MemberId) {
        if self.redials.await_no_longer(member) {
            self.lose_direct(member);
        }
    }

    /// Linked members that are silent, or whose interface is gone.
    fn doubtful(&self) -> BTreeSet<MemberId> {
        let cut_off = self.peers.iter().filter(|(_, link)| self.network.is_cut_off(link.local));
        let silent = self.election.suspects(self.now());
        cut_off
            .map(|(id, _)| *id)
            .chain(silent.filter(|id| self.peers.get(*id).is_some()))
            .collect()
    }

    /// Dials a known member at the first of these addresses that connects. Returns whether the dial
    /// was started.
    pub(super) fn redial(&mut self, member: MemberId, to: Vec<SocketAddr>) -> bool {
        let is_free = !to.is_empty() && self.redials.begin(member);
        if is_free {
            self.handshakes.redial(member, to);
        }
        is_free
    }

    /// A redial has ended.
    pub(super) fn on_redialled(&mut self, member: MemberId, to: SocketAddr, result: Linked) {
        self.redials.ended(member);
        let on_trial = self.paths.is_taken(member, to);
        match result {
            // The other end has already replaced its link by this one, so this end must take it as
            // well, wanted or not.
            Ok((stream, session)) => {
                match (
                    self.on_linked(stream, session, ControlPath::direct(to), Dialled::ByMe),
                    on_trial,
                ) {
                    (Taken::Refused, true) => self.drop_trial(Trial::Failed),
                    // It is not admitted any more, and without a link.
                    (Taken::Refused, false) if self.peers.get(member).is_none() => {
                        self.roster.link_down(member, self.clock.now());
                        self.give_up(member);
                    }
                    (Taken::Refused, false) => {}
                    (_, true) => self.take_path(),
                    (_, false) => self.path_broke(member),
                }
            }
            Err(_) if on_trial => self.drop_trial(Trial::Failed),
            Err(refusal) => {
                trace::debug!(peer = %member, %to, %refusal, "a member does not answer there");
                if self.peers.get(member).is_some() {
                    return self.direct_does_not_come(member);
                }
                self.roster.link_down(member, self.clock.now());
                // The member's machine answers that no node, or another one, is there: no path
                // leads to the member.
                if is_proof_of_absence(refusal) {
                    self.give_up(member);
                } else {
                    self.seek_lost(member, DirectDial::Over);
                }
            }
        }
    }

    /// The paths to a member.
    pub(super) fn addresses_of(&self, member: MemberId) -> Vec<SocketAddr> {
        let theirs: Vec<SocketAddr> = self.roster.own_addresses_of(member).into_iter().collect();
        self.network.reachable(&theirs)
    }

    /// The paths to a member except that of its control link.
    pub(super) fn other_addresses_of(&self, member: MemberId) -> Vec<SocketAddr> {
        let mut others = self.addresses_of(member);
        if let Some(link) = self.peers.get(member) {
            others.retain(|to| !is_same_interface(*to, link.address));
        }
        others
    }

    /// A new control link with a member is established because its predecessor did not work. If the
    /// data link uses another path than the new one, it is lost as well.
    pub(super) fn path_broke(&mut self, member: MemberId) {
        self.redials.trust(member);
        let Some((view, rank)) = self.installed.digest().zip(self.installed.rank_of(member)) else {
            return;
        };
        let (Some(data_path), Some(link)) = (self.paths.data_path(rank), self.peers.get(member))
        else {
            return;
        };
        let Addresses { ours, theirs, .. } = data_path.at();
        let number = |at: Option<SocketAddr>| Some(self.network.port_of(at?)?.number);
        // The same place may have an IPv4 and an IPv6 address, so only addresses of one family are
        // compared.
        let is_elsewhere = || {
            theirs.is_ipv4() == link.address.is_ipv4() && !is_same_interface(theirs, link.address)
        };
        if number(ours) == number(link.local) && !is_elsewhere() {
            return;
        }
        let interface = self.network.name_of(link.local);
        self.paths.is_broken(self.clock.now(), member, theirs);
        self.paths.change(member);
        self.reporter.tell_path(member, interface.unwrap_or_default());
        self.step(Input::DataLinkLost(view));
    }
}
