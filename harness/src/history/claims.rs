//! The claims that must hold of every history, and the search for violations.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::record::{Call, Fault, History, Life};
use super::reference::{Expected, Place};
use super::what::Kind;

/// The claims, by name.
pub const CLAIMS: [(&str, &str); 10] = [
    ("call", "members call the same at one place of a lane, in order, and no call is blamed"),
    ("outcome", "members that go on together have one outcome for each call"),
    ("value", "a result is the fold of all contributions, bit for bit"),
    ("buffer", "a buffer is as before, except for a result"),
    ("state", "members of a View hold the same state after the same calls"),
    ("sync", "a sync brings one state, which one of the members had"),
    ("one-history", "members that reach each other do not go on in two groups"),
    ("vote", "nobody is kept out for withholding a vote"),
    ("hang", "a call that all members have made ends"),
    ("open", "nothing is open in the end"),
];

/// A claim that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its name in [`CLAIMS`].
    pub claim: &'static str,
    /// The place of the violation.
    pub text: String,
}

/// The result of the search.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The violations.
    pub violations: Vec<Violation>,
    /// Calls that took a number.
    pub calls: usize,
    /// Of these, calls that have succeeded.
    pub succeeded: usize,
    /// Views of which a member took a Context.
    pub views: usize,
    /// Faults by kind.
    pub faults: BTreeMap<String, usize>,
    /// The longest time from a call to its end, in microseconds.
    pub longest_us: u64,
    /// Pairs of states that differ after the same earlier state.
    pub forks: usize,
}

/// Two groups may exist for this long after the last fault: dials between them have backed off, the
/// new links are watched for a while, and operations under way may end. Of 500 simulated runs the
/// slowest took 6.4 s.
const APART_US: u64 = 10_000_000;

/// The errors that faults explain. A deadline, a dropped call and a lost member are among the
/// causes of `aborted`.
const EXPLAINED: [&str; 10] = [
    "ok",
    "aborted",
    "indeterminate",
    "view-changed",
    "needs-sync",
    "lost-result",
    "too-many-in-flight",
    "closed",
    "dropped",
    "forgotten",
];

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.claim, self.text)
    }
}

/// Checks all claims on a history of contributions that follow from this seed.
///
/// A [liar](History::liar) may contribute any numbers and make any call fail. Beside one, only the
/// claims are checked that hold among the others: one outcome, one value, one state, untouched
/// buffers, and nothing open.
pub fn check(history: &History, seed: u64) -> Report {
    let mut search = Search { history, seed, members: BTreeMap::new(), report: Report::default() };
    search.views();
    search.calls();
    search.lanes();
    search.states();
    search.groups();
    search.ends();
    search.figures();
    search.report
}

/// The calls of all members at one place, each with its life.
type Calls<'a> = Vec<(&'a Life, &'a Call)>;

/// A lane and a View, and the number of a call there.
type At = (u32, String, u64);

struct Search<'a> {
    history: &'a History,
    seed: u64,
    /// By View.
    members: BTreeMap<&'a str, &'a [String]>,
    report: Report,
}

impl<'a> Search<'a> {
    fn broken(&mut self, claim: &'static str, text: String) {
        self.report.violations.push(Violation { claim, text });
    }

    fn views(&mut self) {
        for life in &self.history.lives {
            for (view, members) in &life.members {
                let known = self.members.entry(view).or_insert(members);
                if *known != members {
                    let text = format!("View {view} has members {known:?} and {members:?}");
                    self.broken("call", text);
                }
            }
        }
        self.report.views = self.members.len();
    }

    /// Everything about the calls at one place.
    fn calls(&mut self) {
        let mut places: BTreeMap<&At, Calls<'a>> = BTreeMap::new();
        for life in &self.history.lives {
            for call in life.calls.iter().filter(|c| c.what.kind != Kind::Sync && c.is_numbered()) {
                places.entry(&call.place).or_default().push((life, call));
            }
        }
        for (at, calls) in places {
            self.one_call(at, &calls);
            self.one_outcome(at, &calls);
            self.results(at, &calls);
        }
    }

    /// All members have called the same there.
    fn one_call(&mut self, at: &At, calls: &Calls<'_>) {
        for pair in calls.windows(2) {
            let [(one, first), (other, second)] = pair else { continue };
            if first.what != second.what {
                let (a, b) = (&first.what, &second.what);
                let text = format!("{}: {} called {a:?}, {} {b:?}", name(at), one.node, other.node);
                self.broken("call", text);
            }
        }
    }

    /// Of the members that are in the next View together, none has `ok` while another one has an
    /// abort. An abort that the next View did not decide was voted by all members, so no member has
    /// `ok`. The same holds if there is only one next View.
    fn one_outcome(&mut self, at: &At, calls: &Calls<'_>) {
        if calls.iter().any(|(_, call)| call.what.best_effort) {
            return;
        }
        let succeeded = calls.iter().filter(|(_, call)| call.is_ok());
        for (life, ok) in succeeded {
            let aborted = calls.iter().filter(|(_, call)| call.code() == "aborted");
            for (other, end) in aborted {
                let cause = end.end.as_ref().map_or("", |end| &end.cause);
                let voted = cause != "member-lost" || self.history.has_majority;
                let next = (after(life, &at.1), after(other, &at.1));
                if voted || next.0.is_some() && next.0 == next.1 {
                    let text = format!(
                        "{} {:?}: {} has its result (call {}), and for {} it was aborted \
                         ({cause}, call {}); they go on in {:?} and {:?}",
                        name(at),
                        ok.what.kind,
                        life.node,
                        ok.id,
                        other.node,
                        end.id,
                        next.0,
                        next.1
                    );
                    self.broken("outcome", text);
                }
            }
        }
    }

    fn results(&mut self, at: &At, calls: &Calls<'_>) {
        let Some(members) = self.members.get(at.1.as_str()).copied() else {
            return self.broken("call", format!("{}: nobody knows the View's members", name(at)));
        };
        // That all have called the same is a claim of its own.
        let members =
            &calls.first().map_or_else(Vec::new, |(_, call)| call.what.among(members))[..];
        let flags: Vec<u8> = calls.iter().map(|(_, call)| call.flag).collect();
        let place = Place { seed: self.seed, view: &at.1, lane: at.0, k: at.2, members };
        // A result that is the same for all ranks is computed once.
        let mut known: BTreeMap<usize, Expected> = BTreeMap::new();
        let mut hashes = BTreeSet::new();
        for (life, call) in calls {
            let Some(rank) = members.iter().position(|member| *member == life.node) else {
                let text = format!("{}: {} is none of {members:?}", name(at), life.node);
                self.broken("call", text);
                continue;
            };
            let by = if is_common(call.what.kind) { 0 } else { rank };
            if call.is_ok() && !known.contains_key(&by) && self.history.liar.is_none() {
                known.insert(by, place.expected(&call.what, rank, &flags));
            }
            self.result(at, life, call, known.get(&by));
            // Without a vote there is no agreement, so a liar may send each member other data.
            let is_agreed = !call.what.best_effort || self.history.liar.is_none();
            if call.is_ok() && is_agreed && is_common(call.what.kind) {
                let end = call.end.as_ref();
                hashes.extend(call.kept.or(end.map(|end| end.result.unwrap_or(end.after))));
            }
        }
        if hashes.len() > 1 {
            self.broken("value", format!("{}: the members have different results", name(at)));
        }
    }

    /// The buffer and the result of one call.
    fn result(&mut self, at: &At, life: &Life, call: &Call, expected: Option<&Expected>) {
        let Some(end) = &call.end else { return };
        let whose =
            format!("{} {:?} of {} (call {})", name(at), call.what.kind, life.node, call.id);
        if let Some(expected) = expected.filter(|_| call.code() == "ok") {
            let (buffer, is_right) = match expected {
                Expected::Buffer(hash) => (*hash, true),
                Expected::Result(hash) => (call.before, end.result == Some(*hash)),
                Expected::Nothing => (call.before, true),
                Expected::Near(exact, most) => (end.after, near(&end.values, exact, *most)),
                Expected::Noisy(exact, most) => (end.after, noisy(&end.values, exact, *most)),
            };
            if !is_right || matches!(expected, Expected::Buffer(hash) if *hash != end.after) {
                self.broken("value", format!("{whose} is not the fold of the contributions"));
            } else if buffer != end.after {
                self.broken("buffer", format!("{whose}: it has changed beside the result"));
            }
        } else if end.after != call.before && !(call.is_ok() && self.history.liar.is_some()) {
            let text = format!("{whose}: it has changed although the call ended as {}", end.code);
            self.broken("buffer", text);
        }
        match expected {
            Some(Expected::Buffer(hash) | Expected::Result(hash))
                if call.kept.is_some_and(|kept| kept != *hash) =>
            {
                let text = format!("{whose}: what was kept is not the fold of the contributions");
                self.broken("value", text);
            }
            _ => {}
        }
    }

    /// The order of calls in each lane, and their errors.
    fn lanes(&mut self) {
        for life in &self.history.lives {
            let mut next: BTreeMap<(u32, &str), u64> = BTreeMap::new();
            let mut dropped: BTreeSet<u32> = BTreeSet::new();
            for call in &life.calls {
                let (lane, view, k) = &call.place;
                let whose = format!("{} of {} (call {})", name(&call.place), life.node, call.id);
                let code = call.code();
                let cause = call.end.as_ref().map_or("", |end| &end.cause);
                // Messages are not forwarded, so a cut between their two ends refuses them.
                let lacks_link = call.what.kind == Kind::Message && cause == "no-direct-link";
                let is_explained =
                    EXPLAINED.contains(&code) || lacks_link || self.history.liar.is_some();
                if !code.is_empty() && !is_explained {
                    self.broken("call", format!("{whose} ended as {code}: {cause}"));
                }
                if code == "lost-result" && !dropped.contains(lane) {
                    let text = format!("{whose}: a lost result, though nothing was dropped there");
                    self.broken("call", text);
                }
                if call.way == "drop" {
                    dropped.insert(*lane);
                }
                if call.what.kind == Kind::Sync || !call.is_numbered() {
                    continue;
                }
                let next = next.entry((*lane, view.as_str())).or_insert(0);
                if *k < *next {
                    self.broken("call", format!("{whose} is out of order: {next} is next"));
                }
                *next = k + 1;
            }
        }
    }

    /// The states of the lanes, and those that syncs bring.
    fn states(&mut self) {
        let mut after: BTreeMap<&At, (&str, u64, u64)> = BTreeMap::new();
        let mut forks: BTreeMap<(u32, u64), BTreeSet<u64>> = BTreeMap::new();
        for life in &self.history.lives {
            for applied in &life.applied {
                let now = (life.node.as_str(), applied.version, applied.digest);
                let known = *after.entry(&applied.place).or_insert(now);
                if (known.1, known.2) != (now.1, now.2) {
                    let text = format!(
                        "after {}: {} has version {} ({:016x}), {} version {} ({:016x})",
                        name(&applied.place),
                        known.0,
                        known.1,
                        known.2,
                        now.0,
                        now.1,
                        now.2
                    );
                    self.broken("state", text);
                }
                forks.entry((applied.place.0, applied.version)).or_default().insert(applied.digest);
            }
        }
        self.report.forks = forks.values().filter(|digests| digests.len() > 1).count();
        self.syncs();
    }

    fn syncs(&mut self) {
        let mut views: BTreeMap<(u32, &str), Calls<'a>> = BTreeMap::new();
        for life in &self.history.lives {
            for call in life.calls.iter().filter(|call| call.what.kind == Kind::Sync) {
                views.entry((call.place.0, call.place.1.as_str())).or_default().push((life, call));
            }
        }
        // A sync that was dropped may bring its state in a later View, so a state that a member of
        // any View has had is one.
        let mut had: BTreeMap<u32, BTreeSet<(u64, u64)>> = BTreeMap::new();
        for ((lane, _), calls) in &views {
            had.entry(*lane).or_default().extend(calls.iter().map(|(_, call)| call.state));
        }
        for ((lane, view), calls) in views {
            let mut first: Option<(&Life, (u64, u64))> = None;
            for (life, call) in calls.iter().filter(|(_, call)| call.code() == "ok") {
                let Some(state) = call.end.as_ref().map(|end| end.state) else { continue };
                let whose = format!("lane {lane} of View {view}, {} (call {})", life.node, call.id);
                let is_had = had.get(&lane).is_some_and(|had| had.contains(&state));
                if !is_had && self.history.liar.is_none() {
                    let text = format!("{whose}: version {} is of no member", state.0);
                    self.broken("sync", text);
                }
                let (other, known) = *first.get_or_insert((*life, state));
                if known != state {
                    let text = format!(
                        "{whose}: version {} ({:016x}), and {} has version {} ({:016x})",
                        state.0, state.1, other.node, known.0, known.1
                    );
                    self.broken("sync", text);
                }
            }
        }
    }

    /// No two Views without a common member commit at the same time, once there has been no fault
    /// for a while, and no member of one has been kept out by the other for as long.
    fn groups(&mut self) {
        if self.history.liar.is_some() {
            return;
        }
        let mut committed: Vec<(u64, &str)> = Vec::new();
        for life in &self.history.lives {
            let timely = life.applied.iter().filter(|a| !a.kept);
            committed.extend(timely.map(|a| (a.at, a.place.1.as_str())));
        }
        committed.sort_unstable();
        let calm = calm(self.history);
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        let mut told = BTreeSet::new();
        for (at, view) in committed {
            let Some(since) = calm.iter().find(|(from, to)| (*from..*to).contains(&at)) else {
                continue;
            };
            last.insert(view, at);
            let mine = self.members.get(view).copied().unwrap_or_default();
            let others: Vec<&str> = last
                .iter()
                .filter(|(other, when)| **other != view && at.min(**when) >= since.0 + APART_US)
                .filter(|(other, when)| {
                    let theirs = self.members.get(**other).copied().unwrap_or_default();
                    let kept_out = || self.last_kept_out(mine, theirs, at).unwrap_or(0);
                    theirs.iter().all(|member| !mine.contains(member))
                        && at.min(**when) >= kept_out() + APART_US
                })
                .map(|(other, _)| *other)
                .collect();
            for other in others {
                if told.insert((view.min(other), view.max(other))) {
                    let theirs = self.members.get(other).copied().unwrap_or_default();
                    let text = format!(
                        "{mine:?} commit in View {view} and {theirs:?} in View {other}, {} ms \
                         after the last fault",
                        (at - since.0) / 1000
                    );
                    self.broken("one-history", text);
                }
            }
        }
    }

    /// The last time up to `at` at which a member of one of these groups reported that one of the
    /// other is kept out.
    fn last_kept_out(&self, one: &[String], other: &[String], at: u64) -> Option<u64> {
        let times = self.history.lives.iter().flat_map(|life| {
            let others = if one.contains(&life.node) { other } else { one };
            let is_in_one = one.contains(&life.node) || other.contains(&life.node);
            let said = life.kept_out.iter().take_while(move |(when, _)| *when <= at);
            said.filter(move |(_, who)| is_in_one && who.iter().any(|who| others.contains(who)))
        });
        times.map(|(when, _)| *when).max()
    }

    fn ends(&mut self) {
        for life in &self.history.lives {
            if let Some(who) = life.withheld.first().filter(|_| self.history.liar.is_none()) {
                self.broken("vote", format!("{} knows {who} to be kept out for it", life.node));
            }
            let killed = self.history.killed.contains_key(&(life.node.clone(), life.life));
            let open: Vec<&Call> = life.calls.iter().filter(|call| call.end.is_none()).collect();
            if let Some(call) = open.first().filter(|_| !killed) {
                let text = format!(
                    "{} calls of {}, the first is {} {:?} (call {})",
                    open.len(),
                    life.node,
                    name(&call.place),
                    call.what.kind,
                    call.id
                );
                self.broken("open", text);
            }
        }
        for hang in &self.history.hangs {
            self.broken("hang", hang.clone());
        }
    }

    fn figures(&mut self) {
        for fault in &self.history.faults {
            *self.report.faults.entry(fault.kind.clone()).or_default() += 1;
        }
        for life in &self.history.lives {
            for call in life.calls.iter().filter(|call| call.is_numbered()) {
                self.report.calls += 1;
                self.report.succeeded += usize::from(call.is_ok());
                if let Some(end) = &call.end {
                    self.report.longest_us = self.report.longest_us.max(end.at - call.at);
                }
            }
        }
    }
}

/// Whether all ranks get the same result.
fn is_common(kind: Kind) -> bool {
    use Kind::{AllGather, AllReduce, Broadcast, Control, Step};
    matches!(kind, AllReduce | Broadcast | AllGather | Step | Control)
}

fn near(values: &[f64], exact: &[f64], most: f64) -> bool {
    values.len() == exact.len() && values.iter().zip(exact).all(|(a, b)| (a - b).abs() <= most)
}

/// Whether the root mean square of the errors is at most this.
fn noisy(values: &[f64], exact: &[f64], most: f64) -> bool {
    let squares: f64 = values.iter().zip(exact).map(|(a, b)| (a - b).powi(2)).sum();
    values.len() == exact.len() && squares <= most * most * exact.len() as f64
}

/// The View that a process installed after this one.
fn after<'a>(life: &'a Life, view: &str) -> Option<&'a str> {
    let at = life.installed.iter().position(|(_, installed)| installed == view)?;
    life.installed.get(at + 1).map(|(_, next)| next.as_str())
}

fn name((lane, view, k): &At) -> String {
    format!("lane {lane}, View {view}, call {k}")
}

/// The times without a fault, from the end of one to the beginning of the next; the start of a
/// process ends them too.
fn calm(history: &History) -> Vec<(u64, u64)> {
    let of_fault = |fault: &Fault| (fault.from, fault.until.unwrap_or(u64::MAX));
    let mut busy: Vec<(u64, u64)> = history.faults.iter().map(of_fault).collect();
    busy.extend(history.lives.iter().map(|life| (life.from, life.from)));
    busy.extend(history.killed.values().map(|at| (*at, *at)));
    busy.extend(history.lives.iter().filter_map(|life| life.left).map(|at| (at, at)));
    busy.sort_unstable();
    let (mut calm, mut free) = (Vec::new(), 0);
    for (from, until) in busy {
        if from > free {
            calm.push((free, from));
        }
        free = free.max(until);
    }
    if history.end > free {
        calm.push((free, history.end + 1));
    }
    calm
}
