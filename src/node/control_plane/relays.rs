//! Relayed control links: this node's part in circuits, and the search for members without a direct
//! link.

use super::super::event::Event;
use super::super::peers::{Link, Taken};
use super::Node;
use super::circuits::{DirectDial, Relays};
use super::way::{Dialled, Way};
use crate::election::Input;
use crate::identity::MemberId;
use crate::link::{Purpose, Refusal, Session, Stream, initiate, respond};
use crate::protocol::{Message, RelayFrame};
use crate::relay::{Act, End, Said, Want, route, within_reach};
use crate::trace;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a lost link may take to come back. After that its member is sought like any other.
const LOST_MS: u64 = 1000;

/// Timeout of a handshake over a circuit. Over three Wi-Fi hops it usually takes a tenth of this.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the good-byes may take to reach the links that relay them.
const GOODBYE: Duration = Duration::from_millis(200);

impl Node {
    /// Handles a frame of a circuit. Frames over relayed links are dropped: their circuits have
    /// ended.
    pub(super) fn on_relay(&mut self, from: MemberId, frame: RelayFrame) {
        if !self.peers.get(from).is_some_and(Link::is_direct) {
            return;
        }
        let (now, peers) = (self.now(), &self.peers);
        match self.relays.switch.on_frame(now, from, frame, |to| peers.passes_on(to)) {
            Ok(acts) => self.act(acts),
            Err(_) => {
                trace::warn!(peer = %from, "a member sent what no honest member sends; its link \
                    is closed");
                self.close_link_of(from);
            }
        }
    }

    /// Handles what a local end of a circuit has sent, consumed or closed.
    pub(crate) fn on_said(&mut self, said: Said) {
        let switch = &mut self.relays.switch;
        let act = match said {
            Said::Bytes(end, bytes) => switch.send(end, bytes),
            Said::Took(end, cost) => switch.took(end, cost),
            Said::Closed(end) => {
                self.relays.tunnels.ended(end);
                switch.close(end)
            }
        };
        self.act(act);
    }

    fn act(&mut self, acts: impl IntoIterator<Item = Act>) {
        for act in acts {
            match act {
                // A link that refuses it has overrun. The next tick closes it with all circuits
                // over it.
                Act::Send(to, frame) => drop(self.peers.send(to, Message::Relay(Box::new(frame)))),
                Act::Begun(end, stations) => self.answer(end, stations),
                Act::Bytes(end, bytes) => self.relays.tunnels.bytes(end, bytes),
                Act::Room(end, cost) => self.relays.tunnels.room(end, cost),
                Act::Ended(end) => self.relays.tunnels.ended(end),
            }
        }
    }

    /// Answers a new circuit. The opener authenticates itself as over any connection, and may not
    /// ask for a data link. Circuits beyond the limit per neighbour are closed unread.
    fn answer(&mut self, end: End, stations: Vec<MemberId>) {
        if !last_before_this_one(&stations)
            .is_some_and(|neighbour| self.relays.answering.begin(neighbour))
        {
            self.counters.overloads += 1;
            let close = self.relays.switch.close(end);
            return self.act(close);
        }
        let stream = self.relays.tunnels.begin(end);
        let (local, replays, events) =
            (Arc::clone(&self.config.local), Arc::clone(&self.replays), self.events.clone());
        tokio::spawn(async move {
            let result = respond(stream, &local, &replays, |_| None).await;
            let _ = events.send(Event::RelayAnswered { stations, result }).await;
        });
    }

    pub(super) fn on_relay_answered(
        &mut self,
        stations: &[MemberId],
        result: Result<(Box<dyn Stream>, Session), Refusal>,
    ) {
        last_before_this_one(stations)
            .into_iter()
            .for_each(|neighbour| self.relays.answering.end(neighbour));
        match result {
            // A neighbour may have named another node as the first station. The handshake proves
            // the peer's identity.
            Ok((stream, session)) if stations.first() == Some(&session.peer.id) => {
                let over = stations[1..stations.len() - 1].iter().rev().copied().collect();
                self.on_relayed(stream, session, over, Dialled::ByPeer);
            }
            Ok(_) => self.count(Refusal::WrongRank),
            Err(refusal) => self.count(refusal),
        }
    }

    /// Tries the circuits that are due to members without a link, or with a silent one.
    pub(super) fn seek(&mut self) {
        let now = self.now();
        self.relays.lost.retain(|_, (until, _)| now < *until);
        let wanted = self.wanted(now);
        self.relays.seeker.want(now, &wanted);
        let (links, me, direct) = (self.election.links(), self.me, self.direct_neighbours());
        let tries =
            self.relays.seeker.due(now, |to, failed| route(links, me, to, &(&direct - failed)));
        for (to, stations) in tries {
            self.open_circuit(to, stations);
        }
        self.give_up_the_hopeless(&wanted);
    }

    /// Gives up members whose link has ended if no path to them is left: none to be tried, none
    /// being tried, and none that begins with a neighbour whose own link is being redialled.
    fn give_up_the_hopeless(&mut self, wanted: &BTreeMap<MemberId, Want>) {
        let Relays { seeker, lost, .. } = &self.relays;
        let may_be_back = lost
            .iter()
            .filter(|(_, (_, dial))| *dial == DirectDial::UnderWay)
            .map(|(id, _)| *id)
            .collect();
        let reached_then = within_reach(self.election.links(), self.me, &may_be_back);
        let is_hopeless = |id: &MemberId| {
            !wanted.contains_key(id) && !seeker.is_trying(*id) && !reached_then.contains(id)
        };
        let over =
            lost.iter().filter(|(id, (_, dial))| *dial == DirectDial::Over && is_hopeless(id));
        let hopeless: Vec<MemberId> = over.map(|(id, _)| *id).collect();
        hopeless.into_iter().for_each(|id| self.give_up(id));
    }

    /// Members without a link, or with a silent direct link, to which a circuit is possible.
    fn wanted(&self, now: u64) -> BTreeMap<MemberId, Want> {
        let (links, direct) = (self.election.links(), self.direct_neighbours());
        let suspects: BTreeSet<MemberId> = self.election.suspects(now).collect();
        let reached = within_reach(links, self.me, &direct);
        let has_route = |id: &MemberId| match direct.contains(id) {
            true => route(links, self.me, *id, &direct).is_some(),
            false => reached.contains(id),
        };
        let is_sought = |id: &MemberId| {
            let is_wanted = self.peers.get(*id).is_none_or(|link| {
                let is_stale = !link.is_direct() && !self.config.local.accepts(link.psk());
                is_stale || suspects.contains(id)
            });
            let is_other = id.node != self.me.node && is_wanted;
            is_other && self.election.keeps_away_ms(now, *id).is_none() && has_route(id)
        };
        let is_urgent = |id: &MemberId| suspects.contains(id) || self.relays.lost.contains_key(id);
        let want = |id: MemberId| match () {
            () if is_urgent(&id) => Want::Lost,
            () if self.roster.expects(id.boot, now) => Want::Dialled,
            () => Want::HeardOf,
        };
        links.known().into_iter().filter(is_sought).map(|id| (id, want(id))).collect()
    }

    fn direct_neighbours(&self) -> BTreeSet<MemberId> {
        self.peers.direct().collect()
    }

    fn open_circuit(&mut self, to: MemberId, stations: Vec<MemberId>) {
        let Some((end, open)) = self.relays.switch.open(stations.clone()) else {
            // No more circuits are allowed.
            self.relays.seeker.failed(self.now(), to, |_| false);
            return;
        };
        let stream = self.relays.tunnels.begin(end);
        self.act([open]);
        let (local, events) = (Arc::clone(&self.config.local), self.events.clone());
        tokio::spawn(async move {
            let handshake = initiate(stream, &local, Purpose::Control, Some(to));
            let result =
                tokio::time::timeout(PATIENCE, handshake).await.unwrap_or(Err(Refusal::TooSlow));
            let _ = events.send(Event::RelayDialled { stations, result }).await;
        });
    }

    pub(super) fn on_relay_dialled(
        &mut self,
        stations: &[MemberId],
        result: Result<(Box<dyn Stream>, Session), Refusal>,
    ) {
        let [_, over @ .., to] = stations else { return };
        match result {
            Ok((stream, session)) => self.on_relayed(stream, session, over.to_vec(), Dialled::ByMe),
            Err(refusal) => {
                trace::debug!(peer = %to, over = over.len(), %refusal, "a circuit came to nothing");
                if refusal == Refusal::DuplicateIdentity {
                    self.step(Input::Twin);
                }
                let (now, me, direct) = (self.now(), self.me, self.direct_neighbours());
                let links = self.election.links();
                self.relays.seeker.failed(now, *to, |failed| {
                    route(links, me, *to, &(&direct - failed)).is_some()
                });
                // A relay whose next link has just ended may restore it in a moment, or reports
                // that it did not.
                self.seek();
            }
        }
    }

    fn on_relayed(
        &mut self,
        stream: Box<dyn Stream>,
        session: Session,
        over: Vec<MemberId>,
        dialled: Dialled,
    ) {
        let peer = session.peer.id;
        let first = over.first().and_then(|first| self.peers.get(*first)).map(|link| link.address);
        // Without its first link the circuit has ended as well.
        let taken =
            first.map(|address| self.on_linked(stream, session, Way::over(address, over), dialled));
        if taken.is_none_or(|taken| taken == Taken::Refused) {
            self.relays.seeker.failed(self.now(), peer, |_| false);
        }
    }

    /// The member has a link.
    pub(super) fn found(&mut self, id: MemberId) {
        self.relays.seeker.found(id);
        self.relays.lost.remove(&id);
    }

    /// A member's link has ended: tries all other paths before the member counts as unreachable.
    pub(super) fn seek_lost(&mut self, member: MemberId, dial: DirectDial) {
        let now = self.now();
        self.relays.lost.insert(member, (now + LOST_MS, dial));
        self.seek();
    }

    /// No path leads to the member any more.
    pub(super) fn give_up(&mut self, member: MemberId) {
        self.relays.lost.remove(&member);
        if self.peers.get(member).is_none() {
            trace::debug!(peer = %member, "a member cannot be reached any more");
            self.step(Input::Unreachable(member));
        }
    }

    /// Ends the circuits over a neighbour whose link has ended.
    pub(super) fn end_circuits_over(&mut self, neighbour: MemberId) {
        let acts = self.relays.switch.unlinked(neighbour);
        self.act(acts);
    }

    /// Relays now carry a member's messages. Its data link used the same path as the lost direct
    /// link, so it counts as lost, too.
    pub(super) fn lose_direct(&mut self, member: MemberId) {
        self.roster.link_down(member, self.now());
        let Some(envelope) = self.envelope.clone() else { return };
        let (view, digest) = (envelope.view(), envelope.digest());
        if view.rank_of(member).is_some_and(|rank| !view.are_apart(envelope.me(), rank)) {
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

/// The neighbour over which a circuit reaches its last station.
fn last_before_this_one(stations: &[MemberId]) -> Option<MemberId> {
    stations.iter().rev().nth(1).copied()
}
