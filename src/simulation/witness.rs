//! Layer: Face.
//!
//! Collects the observations of all programs of a run and checks them for contradictions.

use super::histories::Histories;
use crate::identity::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The observations of a run. Cheap to clone; all clones share them.
#[derive(Clone, Default)]
pub struct Witness(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// Only a majority continues after a partition. Then no member may see a call aborted if
    /// another member has its result.
    one_group: bool,
    /// The state after each step, by View and step.
    states: BTreeMap<(String, u64), u64>,
    /// The known outcome of each call, by View, step and attempt.
    ends: BTreeMap<(String, u64, u32), End>,
    /// The members of each View.
    views: BTreeMap<String, Vec<NodeId>>,
    /// The last step of each host: its View, the step, and the time.
    last: BTreeMap<usize, (String, u64, Duration)>,
    /// Hosts that keep others in quarantine.
    strict: BTreeSet<usize>,
    histories: Histories,
    /// The open call of each host, and since when.
    open: BTreeMap<usize, (&'static str, Duration)>,
    counts: Counts,
    wrong: Vec<String>,
}

/// A certain outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Ok,
    Aborted,
}

/// Totals over all hosts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Completed steps.
    pub steps: u64,
    /// Calls that returned an error.
    pub failed: u64,
    /// Views that were given to hosts.
    pub views: u64,
    /// Syncs that changed a host's state.
    pub syncs: u64,
}

impl Witness {
    /// With `one_group`, only a majority continues after a partition.
    pub fn new(one_group: bool) -> Witness {
        Witness(Arc::new(Mutex::new(Seen { one_group, ..Seen::default() })))
    }

    /// A host was given a View. Its members must be the same on all hosts.
    pub fn joined(&self, host: usize, view: &str, members: &[NodeId]) {
        let mut seen = self.seen();
        seen.counts.views += 1;
        let known = seen.views.entry(view.to_owned()).or_insert_with(|| members.to_vec());
        if *known != members {
            let known = known.clone();
            seen.wrong.push(format!(
                "host {host}: View {view} is of {members:?}, and of {known:?} elsewhere"
            ));
        }
    }

    /// A host has completed a step in a View with this state, which must be the same on all hosts.
    pub fn committed(&self, host: usize, view: &str, step: u64, state: u64, at: Duration) {
        let mut seen = self.seen();
        let known = *seen.states.entry((view.to_owned(), step)).or_insert(state);
        if known != state {
            seen.wrong.push(format!("host {host}: step {step} in View {view} left it with {state:x}, others with {known:x}"));
        }
        let members = seen.views.get(view).cloned().unwrap_or_default();
        if let Some(beside) = seen.histories.committed(view, &members, at) {
            seen.wrong.push(format!(
                "host {host}: Views {view} and {beside} go on beside each other, though all their members could have met"
            ));
        }
        seen.counts.steps += 1;
        seen.last.insert(host, (view.to_owned(), step, at));
    }

    /// A call for this step and attempt in a View has ended on a host.
    pub fn ended(&self, host: usize, view: &str, step: u64, attempt: u32, end: End) {
        let mut seen = self.seen();
        let known = *seen.ends.entry((view.to_owned(), step, attempt)).or_insert(end);
        if seen.one_group && known != end {
            seen.wrong
                .push(format!("host {host}: call {attempt} of step {step} in View {view} is {end:?}, and {known:?} elsewhere"));
        }
    }

    /// A host has begun a call. It replaces its open one, which a crash may have left.
    pub fn begins(&self, host: usize, what: &'static str, at: Duration) {
        self.seen().open.insert(host, (what, at));
    }

    /// The call of a host has ended.
    pub fn returns(&self, host: usize) {
        self.seen().open.remove(&host);
    }

    /// The hosts that run, in parts that reach each other.
    pub fn reach(&self, parts: &[BTreeSet<usize>], now: Duration) {
        let mut seen = self.seen();
        let runs = |host: &usize| parts.is_empty() || parts.iter().any(|part| part.contains(host));
        seen.open.retain(|host, _| runs(host));
        seen.histories.reach(parts, now);
    }

    /// Records calls that have been open for longer than `bound`.
    pub fn look_for_hangs(&self, bound: Duration, now: Duration) {
        let mut seen = self.seen();
        let late = |(_, (_, since)): &(&usize, &(&str, Duration))| *since + bound < now;
        let late: Vec<usize> = seen.open.iter().filter(late).map(|(host, _)| *host).collect();
        for host in late {
            if let Some((what, since)) = seen.open.remove(&host) {
                seen.wrong.push(format!("host {host}: {what} is open since {since:?}"));
            }
        }
    }

    /// Records whether a host keeps others in quarantine.
    pub fn keeps_out(&self, host: usize, others: bool) {
        let strict = &mut self.seen().strict;
        if others {
            strict.insert(host);
        } else {
            strict.remove(&host);
        }
    }

    /// Whether any host keeps others in quarantine.
    pub fn is_anybody_out(&self) -> bool {
        !self.seen().strict.is_empty()
    }

    /// Records a fault.
    pub fn wrong(&self, what: String) {
        self.seen().wrong.push(what);
    }

    /// A call has ended with an error.
    pub fn failed(&self) {
        self.seen().counts.failed += 1;
    }

    /// A host has taken over another state.
    pub fn synced(&self) {
        self.seen().counts.syncs += 1;
    }

    /// The totals so far.
    pub fn counts(&self) -> Counts {
        self.seen().counts
    }

    /// All faults so far.
    pub fn faults(&self) -> Vec<String> {
        self.seen().wrong.clone()
    }

    /// Why the hosts do not form one group of `size`, if they do not: all must have completed a
    /// step in the same View since `since`.
    pub fn divided(&self, size: usize, since: Duration) -> Option<String> {
        let seen = self.seen();
        let fresh: BTreeMap<usize, &String> = seen
            .last
            .iter()
            .filter(|(_, (.., at))| *at >= since)
            .map(|(host, (view, ..))| (*host, view))
            .collect();
        let one = fresh.values().next().filter(|first| fresh.values().all(|view| view == *first));
        let whole = one
            .is_some_and(|view| seen.views.get(*view).is_some_and(|members| members.len() == size));
        (fresh.len() < size || !whole).then(|| {
            format!("not one group of {size}: {:?}; open calls: {:?}", seen.last, seen.open)
        })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.steps += more.steps;
        self.failed += more.failed;
        self.views += more.views;
        self.syncs += more.syncs;
    }
}
