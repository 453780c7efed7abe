//! Layer: Host.
//!
//! Control links that others pass on: this node's part in circuits, and whom it seeks over them.

use super::Node;
use super::links::{Dialled, Way};
use crate::driver::event::Event;
use crate::driver::peers::{Link, Taken};
use crate::election::{Input, Message};
use crate::identity::MemberId;
use crate::link::{Purpose, Refusal, Session, Stream, initiate, respond};
use crate::relay::{
    Act, Answering, End, RelayFrame, Said, Seeker, Switch, Tunnels, Want, route, within_reach,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// This node's circuits.
pub(super) struct Relays {
    switch: Switch,
    tunnels: Tunnels,
    seeker: Seeker,
    /// Whose link has ended, and until when it is worth a hurry; and what became of dialling it
    /// directly.
    lost: BTreeMap<MemberId, (u64, DirectDial)>,
    answering: Answering,
}

/// The direct dial of a member whose link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectDial {
    UnderWay,
    /// There is none, or it came to nothing.
    Over,
}

/// A lost link may come back for so long; after that its member is gone, and sought as anybody
/// else.
const LOST_MS: u64 = 1000;

/// How long a handshake over a circuit may take: over three radios in a row a tenth of it is usual.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a good-bye may take to get into the links that pass it on.
const GOODBYE: Duration = Duration::from_millis(200);

impl Relays {
    pub(super) fn new(me: MemberId, tunnels: Tunnels) -> Relays {
        Relays {
            switch: Switch::new(me),
            tunnels,
            seeker: Seeker::new(me),
            lost: BTreeMap::new(),
            answering: Answering::default(),
        }
    }
}

impl Node {
    /// A frame of a circuit. Those of links that have been replaced are of circuits that are over.
    pub(super) fn on_relay(&mut self, from: MemberId, frame: RelayFrame) {
        if !self.peers.get(from).is_some_and(Link::is_direct) {
            return;
        }
        let (now, peers) = (self.now(), &self.peers);
        match self.relays.switch.on_frame(now, from, frame, |to| peers.passes_on(to)) {
            Ok(acts) => self.act(acts),
            Err(_) => {
                tracing::warn!(peer = %from, "a member sent what no honest member sends; its link is closed");
                self.close_link_of(from);
            }
        }
    }

    /// One of this node's own ends says something.
    pub(in crate::driver) fn on_said(&mut self, said: Said) {
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
                // A link that does not take it has overrun: it ends with the next tick, and all
                // that goes over it.
                Act::Send(to, frame) => drop(self.peers.send(to, Message::Relay(Box::new(frame)))),
                Act::Begun(end, stations) => self.answer(end, stations),
                Act::Bytes(end, bytes) => self.relays.tunnels.bytes(end, bytes),
                Act::Room(end, cost) => self.relays.tunnels.room(end, cost),
                Act::Ended(end) => self.relays.tunnels.ended(end),
            }
        }
    }

    /// Whoever opens a circuit proves itself as over any connection; data links go direct. What is
    /// too much is closed unread.
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
            // A neighbour may have named somebody else as its beginning; who is there is what the
            // handshake says.
            Ok((stream, session)) if stations.first() == Some(&session.peer.id) => {
                let over = stations[1..stations.len() - 1].iter().rev().copied().collect();
                self.on_relayed(stream, session, over, Dialled::ByPeer);
            }
            Ok(_) => self.count(Refusal::WrongRank),
            Err(refusal) => self.count(refusal),
        }
    }

    /// Tries what is due of circuits to those to whom no link leads.
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

    /// Those whose link has ended, and to whom by now no way leads that could be tried, nor one
    /// that begins with a neighbour whose own link may be back in a moment.
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

    /// Whom a circuit could reach and no link does, and whose direct link is silent.
    fn wanted(&self, now: u64) -> BTreeMap<MemberId, Want> {
        let (links, direct) = (self.election.links(), self.direct_neighbours());
        let suspects: BTreeSet<MemberId> = self.election.suspects(now).collect();
        let reached = within_reach(links, self.me, &direct);
        let has_route = |id: &MemberId| match direct.contains(id) {
            true => route(links, self.me, *id, &direct).is_some(),
            false => reached.contains(id),
        };
        let is_sought = |id: &MemberId| {
            let is_other =
                id.node != self.me.node && (self.peers.get(*id).is_none() || suspects.contains(id));
            is_other && self.election.keeps_away_ms(now, *id).is_none() && has_route(id)
        };
        let is_urgent = |id: &MemberId| suspects.contains(id) || self.relays.lost.contains_key(id);
        let want = |id| if is_urgent(&id) { (id, Want::Lost) } else { (id, Want::HeardOf) };
        links.known().into_iter().filter(is_sought).map(want).collect()
    }

    fn direct_neighbours(&self) -> BTreeSet<MemberId> {
        self.peers.direct().collect()
    }

    fn open_circuit(&mut self, to: MemberId, stations: Vec<MemberId>) {
        let Some((end, open)) = self.relays.switch.open(stations.clone()) else {
            // Too many circuits are here already.
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
                tracing::debug!(peer = %to, over = over.len(), %refusal, "a circuit came to nothing");
                if refusal == Refusal::DuplicateIdentity {
                    self.step(Input::Twin);
                }
                let (now, me, direct) = (self.now(), self.me, self.direct_neighbours());
                let links = self.election.links();
                self.relays.seeker.failed(now, *to, |failed| {
                    route(links, me, *to, &(&direct - failed)).is_some()
                });
                // A station whose next link has just ended may have it back in a moment, or says
                // that it has not.
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
        // Without its first link the circuit is over, too.
        let taken =
            first.map(|address| self.on_linked(stream, session, Way::over(address, over), dialled));
        if taken.is_none_or(|taken| taken == Taken::Refused) {
            self.relays.seeker.failed(self.now(), peer, |_| false);
        }
    }

    /// A member has a link.
    pub(super) fn found(&mut self, id: MemberId) {
        self.relays.seeker.found(id);
        self.relays.lost.remove(&id);
    }

    /// The link of a member has ended: every other way to it is tried, before it counts as gone.
    pub(super) fn seek_lost(&mut self, member: MemberId, dial: DirectDial) {
        let now = self.now();
        self.relays.lost.insert(member, (now + LOST_MS, dial));
        self.seek();
    }

    /// No way leads to a member any more.
    pub(super) fn give_up(&mut self, member: MemberId) {
        self.relays.lost.remove(&member);
        if self.peers.get(member).is_none() {
            tracing::debug!(peer = %member, "a member cannot be reached any more");
            self.step(Input::Unreachable(member));
        }
    }

    /// What goes over a neighbour's link is over with it.
    pub(super) fn end_circuits_over(&mut self, neighbour: MemberId) {
        let acts = self.relays.switch.unlinked(neighbour);
        self.act(acts);
    }

    /// Others pass on what the direct link of a member carried. Its data link goes the same way as
    /// that did.
    pub(super) fn lose_direct(&mut self, member: MemberId) {
        self.roster.link_down(member, self.now());
        let Some(envelope) = self.envelope.clone() else { return };
        let (view, digest) = (envelope.view(), envelope.digest());
        if view.rank_of(member).is_some_and(|rank| !view.are_apart(envelope.me(), rank)) {
            self.step(Input::DataLinkLost(digest));
        }
    }

    /// Good-byes to those whose links others pass on.
    pub(in crate::driver) async fn leave_relayed(
        &mut self,
        said: &mut mpsc::UnboundedReceiver<Said>,
    ) {
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

/// The neighbour that a circuit comes over to its end.
fn last_before_this_one(stations: &[MemberId]) -> Option<MemberId> {
    stations.iter().rev().nth(1).copied()
}
