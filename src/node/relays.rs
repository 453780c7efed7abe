//! This node's part in circuits, which relay control links, and the search for members without a
//! direct link.

use super::handshakes::Handshakes;
use super::peers::Peers;
use crate::identity::MemberId;
use crate::protocol::{Message, RelayFrame};
use crate::relay::{Act, Answering, End, Said, Seeker, Switch, Tunnels, Want, route, within_reach};
use crate::topology::LinkMap;
use std::collections::{BTreeMap, BTreeSet};

/// How long a lost link may take to come back. After that its member is sought like any other.
const LOST_MS: u64 = 1000;

/// The circuits of this node, and the members that it seeks.
pub(super) struct Relays {
    me: MemberId,
    switch: Switch,
    tunnels: Tunnels,
    seeker: Seeker,
    /// Members whose link has ended: until when the search is urgent, in milliseconds, and the
    /// state of the direct dial.
    lost: BTreeMap<MemberId, (u64, DirectDial)>,
    answering: Answering,
    /// Circuits that were not answered.
    turned_away: u64,
}

/// The state of the direct dial of a member whose link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectDial {
    UnderWay,
    /// Not started, or failed.
    Over,
}

/// Where frames leave, and handshakes over circuits begin.
pub(super) type Outside<'a> = (&'a Peers, &'a Handshakes);

impl Relays {
    pub(super) fn new(me: MemberId, tunnels: Tunnels) -> Relays {
        Relays {
            me,
            switch: Switch::new(me),
            tunnels,
            seeker: Seeker::new(me),
            lost: BTreeMap::new(),
            answering: Answering::default(),
            turned_away: 0,
        }
    }

    /// Handles a frame of a circuit. Returns false if no honest neighbour sends it.
    pub(super) fn on_frame(
        &mut self,
        now: u64,
        from: MemberId,
        frame: RelayFrame,
        outside: Outside<'_>,
    ) -> bool {
        let acts = self.switch.on_frame(now, from, frame, |to| outside.0.passes_on(to));
        acts.map(|acts| self.act(acts, outside)).is_ok()
    }

    /// Handles an event of a local end of a circuit: it has sent or consumed data, or was closed.
    pub(super) fn on_said(&mut self, said: Said, outside: Outside<'_>) {
        let act = match said {
            Said::Bytes(end, bytes) => self.switch.send(end, bytes),
            Said::Took(end, cost) => self.switch.took(end, cost),
            Said::Closed(end) => {
                self.tunnels.ended(end);
                self.switch.close(end)
            }
        };
        self.act(act, outside);
    }

    fn act(&mut self, acts: impl IntoIterator<Item = Act>, outside: Outside<'_>) {
        for act in acts {
            match act {
                // A link that refuses it has overrun. The next tick closes it with all circuits
                // over it.
                Act::Send(to, frame) => drop(outside.0.send(to, Message::Relay(Box::new(frame)))),
                Act::Begun(end, nodes) => self.answer(end, nodes, outside),
                Act::Bytes(end, bytes) => self.tunnels.bytes(end, bytes),
                Act::Room(end, cost) => self.tunnels.room(end, cost),
                Act::Ended(end) => self.tunnels.ended(end),
            }
        }
    }

    /// Answers a new circuit. Circuits beyond the limit per neighbour are closed unread.
    fn answer(&mut self, end: End, nodes: Vec<MemberId>, outside: Outside<'_>) {
        let neighbour = last_before_this_one(&nodes);
        if !neighbour.is_some_and(|neighbour| self.answering.begin(neighbour)) {
            self.turned_away += 1;
            let close = self.switch.close(end);
            return self.act(close, outside);
        }
        outside.1.answer_circuit(self.tunnels.begin(end), nodes);
    }

    /// The handshake over a circuit that another node opened has ended.
    pub(super) fn answered(&mut self, nodes: &[MemberId]) {
        let neighbour = last_before_this_one(nodes);
        neighbour.into_iter().for_each(|neighbour| self.answering.end(neighbour));
    }

    /// The number of circuits that were not answered.
    pub(super) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Ends the circuits over a neighbour whose link has ended.
    pub(super) fn end_over(&mut self, neighbour: MemberId, outside: Outside<'_>) {
        let acts = self.switch.unlinked(neighbour);
        self.act(acts, outside);
    }

    /// Members whose link has ended lately.
    pub(super) fn is_lost(&self, id: MemberId) -> bool {
        self.lost.contains_key(&id)
    }

    /// A member's link has ended.
    pub(super) fn lose(&mut self, now: u64, member: MemberId, dial: DirectDial) {
        self.lost.insert(member, (now + LOST_MS, dial));
    }

    /// The search for members whose link has ended long ago is not urgent any more.
    pub(super) fn forget_long_lost(&mut self, now: u64) {
        self.lost.retain(|_, (until, _)| now < *until);
    }

    /// No path leads to the member any more.
    pub(super) fn give_up(&mut self, member: MemberId) {
        self.lost.remove(&member);
    }

    /// The member has a link.
    pub(super) fn found(&mut self, id: MemberId) {
        self.seeker.found(id);
        self.lost.remove(&id);
    }

    /// The circuits to try now: to whom, and over which nodes.
    pub(super) fn due(
        &mut self,
        now: u64,
        wanted: &BTreeMap<MemberId, Want>,
        links: &LinkMap,
        direct: &BTreeSet<MemberId>,
    ) -> Vec<(MemberId, Vec<MemberId>)> {
        let me = self.me;
        self.seeker.want(now, wanted);
        self.seeker.due(now, |to, failed| route(links, me, to, &(direct - failed)))
    }

    /// Opens a circuit, and begins a link over it.
    pub(super) fn open(
        &mut self,
        now: u64,
        to: MemberId,
        nodes: Vec<MemberId>,
        outside: Outside<'_>,
    ) {
        let Some((end, open)) = self.switch.open(nodes.clone()) else {
            // No more circuits are allowed.
            return self.failed(now, to);
        };
        let stream = self.tunnels.begin(end);
        self.act([open], outside);
        outside.1.dial_circuit(stream, to, nodes);
    }

    /// A circuit to a member came to nothing, and no other one is tried at once.
    pub(super) fn failed(&mut self, now: u64, to: MemberId) {
        self.seeker.failed(now, to, |_| false);
    }

    /// A circuit to a member came to nothing. Another one is tried, if there is one.
    pub(super) fn failed_once(
        &mut self,
        now: u64,
        to: MemberId,
        links: &LinkMap,
        direct: &BTreeSet<MemberId>,
    ) {
        let me = self.me;
        self.seeker.failed(now, to, |failed| route(links, me, to, &(direct - failed)).is_some());
    }

    /// Members whose link has ended to which no path is left: none to be tried, none being tried,
    /// and none that begins with a neighbour whose own link is being redialled.
    pub(super) fn hopeless(
        &self,
        wanted: &BTreeMap<MemberId, Want>,
        links: &LinkMap,
    ) -> Vec<MemberId> {
        let in_state = |state: DirectDial| {
            self.lost.iter().filter(move |(_, (_, dial))| *dial == state).map(|(id, _)| *id)
        };
        let may_be_back = in_state(DirectDial::UnderWay).collect();
        let reached_then = within_reach(links, self.me, &may_be_back);
        let is_hopeless = |id: &MemberId| {
            !wanted.contains_key(id) && !self.seeker.is_trying(*id) && !reached_then.contains(id)
        };
        in_state(DirectDial::Over).filter(is_hopeless).collect()
    }
}

/// The neighbour over which a circuit reaches its last node.
fn last_before_this_one(nodes: &[MemberId]) -> Option<MemberId> {
    nodes.iter().rev().nth(1).copied()
}
