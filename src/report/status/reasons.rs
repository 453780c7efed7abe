//! Sentences that explain why a group waits.

use super::{InterfaceFinding, NoLinkReason, State, Status};
use crate::discovery::{Activity, InterfaceReport};
use crate::identity::NodeId;
use crate::protocol::{SizeSetting, Sizes};
use crate::report::error::Peer;
use std::time::Duration;

impl Status {
    /// Sentences that explain why members are missing or calls wait. Empty if all is well.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        if matches!(self.state, State::Alone { .. } | State::NotEnoughPeers { .. }) {
            let looked = self.interfaces.iter().filter(|report| !report.is_not_asked());
            reasons.extend(looked.map(|report| self.looked_on(report)));
            if self.has_no_network() {
                reasons.push(
                    "this machine has no network: no interface is up with an address; waiting for \
                     one"
                    .to_owned(),
                );
            } else if !self.hears_ours() && self.other_jobs.is_empty() && self.peers.is_empty() {
                reasons.push(
                    "if the other machine runs: potluck up --peer ADDRESS names it by hand"
                        .to_owned(),
                );
            }
        }
        if let State::KeptOut { by, left } = &self.state {
            reasons.push(format!(
                "{by} keeps this node out for {} s more: it was lost three times within a minute, \
                 broke the protocol as often, or answered and did not vote",
                left.as_secs()
            ));
        }
        if !matches!(self.state, State::In | State::NeedsSync | State::Closed) {
            let other_jobs = self.other_jobs.iter();
            reasons.extend(other_jobs.map(|other| format!("{other}; this is `{}`", self.job)));
        }
        reasons.extend(self.larger_wishes());
        reasons.extend(self.others.iter().map(ToString::to_string));
        reasons.extend(self.duplicates.iter().map(|node| self.duplicate(*node)));
        reasons.extend(self.quarantined.iter().map(ToString::to_string));
        if let Some(waits) = self.disk_waits.filter(|waits| *waits >= Duration::from_secs(1)) {
            let seconds = waits.as_secs();
            reasons.push(format!(
                "this node has waited {seconds} s for its disk and can agree to nothing before: is \
                 it full, or its home not writable?"
            ));
        }
        if let Some(waiting) = self.waiting.as_ref().filter(|w| w.since >= Duration::from_secs(1)) {
            reasons.push(waiting.to_string());
        }
        reasons
    }

    /// Members other than this one for which the View is too small, so that they do not call.
    fn larger_wishes(&self) -> Vec<String> {
        let Some(view) = &self.view else { return Vec::new() };
        let others = view.members.iter().zip(&view.sizes).filter(|(m, _)| m.node != self.node);
        let size = view.members.len();
        let wish = |(peer, sizes): (&Peer, &Sizes)| {
            let (setting, wanted) = if view.begun {
                (SizeSetting::MinMembers, sizes.min_members())
            } else {
                (SizeSetting::Members, sizes.members())
            };
            (wanted > size)
                .then(|| format!("{peer} waits for {wanted} members ({setting} = {wanted})"))
        };
        others.filter_map(wish).collect()
    }

    /// Whether discovery has no interface on which it could look.
    fn has_no_network(&self) -> bool {
        let is_used = |on: &InterfaceReport| matches!(on.activity, Activity::Active { .. });
        !self.interfaces.is_empty() && !self.interfaces.iter().any(is_used)
    }

    /// Whether other nodes of this cluster and job announce themselves.
    fn hears_ours(&self) -> bool {
        let State::Alone { interfaces } = &self.state else { return false };
        let is_heard = |on: &InterfaceFinding| on.why == NoLinkReason::NotConnected;
        interfaces.iter().any(is_heard) || self.others.iter().any(|of| of.why.is_announced())
    }

    fn looked_on(&self, report: &InterfaceReport) -> String {
        let alone =
            if let State::Alone { interfaces } = &self.state { &interfaces[..] } else { &[] };
        let why = alone.iter().find(|on| on.interface == report.interface).map(|on| on.why);
        // The report of a skipped interface contains the reason already.
        match why.filter(|why| !matches!(why, NoLinkReason::Skipped(_))) {
            Some(why) => format!("{report}: {why}"),
            None => report.to_string(),
        }
    }

    fn duplicate(&self, node: NodeId) -> String {
        let named = self
            .peers
            .iter()
            .find(|peer| peer.node == node)
            .map(|peer| format!("{} {node}", peer.name));
        let whose = if node == self.node {
            "this node".to_owned()
        } else {
            named.unwrap_or_else(|| node.to_string())
        };
        format!(
            "two processes use the identity of {whose}: potluck's files were copied. On the \
             machine with the copy, move away the file that `potluck identity` names, and start \
             again"
        )
    }
}
