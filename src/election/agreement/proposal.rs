//! A running proposal: the members asked, their promises and acceptances, and the drafted View.

use super::environment::Environment;
use crate::election::recovery;
use crate::identity::MemberId;
use crate::protocol::{Ballot, Member, Mutation, Promise, View};
use crate::topology::Arrangement;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A ballot that this node has started.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Proposal {
    pub(super) ballot: Ballot,
    pub(super) members: BTreeSet<MemberId>,
    pub(super) promises: BTreeMap<MemberId, Promise>,
    pub(super) view: Option<Arc<View>>,
    pub(super) accepted: BTreeSet<MemberId>,
}

impl Proposal {
    /// Drafts the View from the promises of all members.
    pub(super) fn draft(
        &self,
        current: Option<&View>,
        environment: &dyn Environment,
        mutation: Mutation,
    ) -> View {
        let recovery = recovery::read(&self.promises, mutation);
        let engines = self.promises.iter().map(|(id, promise)| (*id, promise.engines)).collect();
        let Arrangement { order, engine, plan, no_direct_link } =
            environment.arrange(&engines, current);
        let member = |id: &MemberId| {
            let promise = self.promises.get(id)?;
            let in_sync = recovery.in_sync.contains(id);
            Some(Member {
                id: *id,
                name: promise.name.clone(),
                stateless: promise.stateless,
                in_sync,
                sizes: promise.sizes,
            })
        };
        let to_begin = self.promises.values().map(|promise| promise.sizes.members()).max();
        let is_enough = to_begin.is_some_and(|wanted| self.promises.len() >= wanted);
        View {
            ballot: self.ballot,
            parent: recovery.tip,
            committed: recovery.committed,
            failed: recovery.failed,
            decided_by: recovery.decided_by,
            history: recovery.history,
            members: order.iter().filter_map(member).collect(),
            begun: is_enough || self.promises.values().any(|promise| promise.begun),
            plan,
            engine,
            no_direct_link,
        }
    }
}
