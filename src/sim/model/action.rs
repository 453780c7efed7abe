//! The transitions of the model.

use super::shared::Shared;
use super::state::{ModelState, Packet, Step, place};
use crate::protocol::{Lane, OpId, ViewDigest};

/// A transition of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Propose(u8, Vec<u8>),
    Deliver(Shared<Packet>),
    Write(u8),
    Call(u8, Lane),
    Done(u8, OpId),
    Abort(u8, OpId),
    Remind(u8, u8),
    /// The second hears the first one's View, as data links and heartbeats tell it.
    DataLink(u8, u8),
    Tell(u8, u8),
    /// A control link breaks, with all that is on its way, and is made anew.
    Redial(u8, u8),
    Report(u8),
    HoldAll(u8),
    Decide(u8),
    CutOff(u8),
    Crash(u8),
}

impl Action {
    /// The node that takes the step.
    pub(super) fn place(&self) -> usize {
        match self {
            Action::Deliver(packet) => place(packet.to),
            Action::Propose(n, _)
            | Action::Write(n)
            | Action::Call(n, _)
            | Action::Done(n, _)
            | Action::Abort(n, _)
            | Action::Remind(n, _)
            | Action::DataLink(_, n)
            | Action::Tell(_, n)
            | Action::Redial(n, _)
            | Action::Report(n)
            | Action::HoldAll(n)
            | Action::Decide(n)
            | Action::CutOff(n)
            | Action::Crash(n) => usize::from(*n),
        }
    }

    /// The action in words, for traces.
    pub(super) fn describe(&self) -> String {
        let n = letter(self.place());
        match self {
            Action::Propose(_, members) => {
                let names: Vec<String> = members.iter().map(|m| letter(usize::from(*m))).collect();
                format!("{n} proposes [{}]", names.join(" "))
            }
            Action::Deliver(packet) => {
                format!("{n} hears from {}: {}", letter(place(packet.from)), packet.describe())
            }
            Action::Write(_) => format!("{n} has written"),
            Action::Call(_, lane) => format!("{n} calls in {lane:?}"),
            Action::Done(_, op) => format!("{n} holds the result of {op}"),
            Action::Abort(_, op) => format!("{n} has enough of {op}"),
            Action::Remind(_, to) => format!("{n} says all again to {}", letter(usize::from(*to))),
            Action::DataLink(from, _) => {
                format!("{n} takes a data link from {}", letter(usize::from(*from)))
            }
            Action::Tell(from, _) => {
                format!("{n} is told of its View by {}", letter(usize::from(*from)))
            }
            Action::Redial(_, to) => {
                format!("the link of {n} and {} is made anew", letter(usize::from(*to)))
            }
            Action::Report(_) => format!("{n} reports decided operations"),
            Action::HoldAll(_) => format!("{n} lets all hold their calls"),
            Action::Decide(_) => format!("{n} announces a plan"),
            Action::CutOff(_) => format!("{n} gives up its View"),
            Action::Crash(_) => format!("{n} crashes and starts again"),
        }
    }

    /// The node that acts, and its step.
    pub(super) fn step<'a>(&'a self, state: &ModelState) -> (usize, Step<'a>) {
        let id = |n: &u8| state.nodes[usize::from(*n)].me;
        let step = match self {
            Action::Propose(_, members) => Step::Propose(members.iter().map(id).collect()),
            Action::Deliver(packet) => Step::Hear(packet),
            Action::Write(_) => Step::Write,
            Action::Call(_, lane) => Step::Call(*lane),
            Action::Done(_, op) => Step::Done(*op),
            Action::Abort(_, op) => Step::Abort(*op),
            Action::Remind(_, to) | Action::Redial(_, to) => Step::Remind(id(to)),
            Action::Report(_) => Step::Report,
            Action::HoldAll(_) => Step::HoldAll,
            Action::Decide(_) => Step::Decide,
            Action::Tell(from, _) => {
                let view = state.nodes[usize::from(*from)].agreement.installed_id();
                Step::Told(id(from), view)
            }
            Action::DataLink(from, _) => {
                let view = state.nodes[usize::from(*from)].view.as_ref();
                Step::DataLink(view.map_or(ViewDigest([0; 32]), |v| v.digest()))
            }
            Action::CutOff(_) => Step::CutOff,
            Action::Crash(_) => Step::Crash,
        };
        (self.place(), step)
    }
}

pub(super) fn letter(n: usize) -> String {
    char::from(b'A' + n as u8).to_string()
}
