//! The logs of all programs of a run. The harness checks them at the end. Claims about hangs and
//! about reachability, which only the simulation knows, are checked here during the run.

use super::histories::Histories;
use super::host::name_of;
use super::node::watch::Watch;
use potluck_harness::history::{History, Report, claims};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// The logs of a run. Cheap to clone; all clones share them.
#[derive(Clone, Default)]
pub struct Observer(Arc<Mutex<ObserverState>>);

#[derive(Default)]
struct ObserverState {
    /// All programs, in the order of their starts.
    processes: Vec<Process>,
    /// The last program of each host, in `processes`.
    last: BTreeMap<usize, usize>,
    /// The log of the faults.
    faults: String,
    /// The members of each View, as hosts.
    views: BTreeMap<String, Vec<usize>>,
    /// By host: the round of the last View that it installed.
    rounds: BTreeMap<usize, u64>,
    /// The last result of each host that entered a state: its View, and when.
    applied: BTreeMap<usize, (String, Duration)>,
    histories: Histories,
    /// A host that lies to the others; its events are ignored.
    liar: Option<usize>,
    wrong: Vec<String>,
}

/// One program.
struct Process {
    host: usize,
    number: u64,
    log: String,
    watch: Watch,
    has_left: bool,
}

impl Observer {
    /// Only a majority goes on after a partition: all members have one outcome of each call.
    pub fn majority(&self) {
        self.fault(Duration::ZERO, json!({"e": "majority"}));
    }

    /// This host lies to the others.
    pub fn set_liar(&self, host: usize) {
        self.state().liar = Some(host);
        self.fault(Duration::ZERO, json!({"e": "liar", "node": name_of(host)}));
    }

    /// An event of the program on a host, with its time.
    pub fn record(&self, host: usize, event: &Value) {
        let state = &mut *self.state();
        if state.liar == Some(host) {
            return;
        }
        if event["e"] == "start" {
            let number = event["life"].as_u64().unwrap_or_default();
            state.last.insert(host, state.processes.len());
            let (log, watch) = (String::new(), Watch::new(&name_of(host)));
            state.processes.push(Process { host, number, log, watch, has_left: false });
        }
        let last = state.last.get(&host);
        let Some(process) = last.and_then(|last| state.processes.get_mut(*last)) else { return };
        process.log += &format!("{event}\n");
        if let Err(error) = process.watch.hear(event) {
            state.wrong.push(format!("{event}: {error:#}"));
        }
        process.has_left |= event["e"] == "left";
        state.check_views(host, event);
    }

    /// An event of the faults.
    pub fn fault(&self, now: Duration, mut event: Value) {
        event["t"] = micros(now).into();
        self.state().faults += &format!("{event}\n");
    }

    /// The program of a host is killed.
    pub fn killed(&self, host: usize, now: Duration) {
        let process = {
            let mut state = self.state();
            let last = state.last.remove(&host);
            last.and_then(|last| state.processes.get(last)).map(|process| process.number)
        };
        if let Some(process) = process {
            self.fault(now, json!({"e": "killed", "node": name_of(host), "life": process}));
        }
    }

    /// The hosts that run, in parts that reach each other.
    pub fn reach(&self, parts: &[BTreeSet<usize>], now: Duration) {
        self.state().histories.reach(parts, now);
    }

    /// A call with a deadline that is open for longer than `bound` after it.
    pub fn overdue(&self, bound: Duration, now: Duration) -> Option<String> {
        let (state, now) = (self.state(), micros(now));
        let processes = state.last.values().filter_map(|last| state.processes.get(*last));
        let mut late = processes.flat_map(|process| {
            let late = process.watch.overdue(now).map(|(call, late)| (&process.watch, call, late));
            late.filter(|(_, call, late)| call.limit_ms.is_some() && *late > micros(bound))
        });
        late.next().map(|(watch, call, late)| {
            let (kind, place, late) = (call.what.kind, &call.place, late as f64 / 1e6);
            format!(
                "{} waits for {kind:?} at {place:?}, {late:.1} s after its deadline; {}",
                watch.node, watch.status
            )
        })
    }

    /// A call that is open for longer than `bound` after its deadline, or a host that is not kept
    /// out and has waited for a View for longer than `view`.
    pub fn hang(&self, bound: Duration, view: Duration, now: Duration) -> Option<String> {
        let state = self.state();
        let now = micros(now);
        let all = || state.last.values().filter_map(|last| state.processes.get(*last));
        let places = |lane: u32| -> Vec<String> {
            let place = |process: &Process| {
                let Watch { node, status, .. } = &process.watch;
                format!("{node} is at {}; {status}", process.watch.place(lane))
            };
            all().map(place).collect()
        };
        for process in all() {
            let mut late = process.watch.overdue(now).filter(|(_, late)| *late > micros(bound));
            if let Some((call, late)) = late.next() {
                let (lane, in_view, k) = &call.place;
                return Some(format!(
                    "{} waits for {:?} in lane {lane}, View {in_view}, call {k} for {:.1} s:\n  {}",
                    process.watch.node,
                    call.what.kind,
                    late as f64 / 1e6,
                    places(*lane).join("\n  ")
                ));
            }
        }
        let is_kept_out =
            |node: &String| all().any(|process| process.watch.kept_out.contains(node));
        let is_lost = |process: &&Process| {
            let since = process.watch.without_view_since();
            since.is_some_and(|since| now.saturating_sub(since) > micros(view))
                && !is_kept_out(&process.watch.node)
                && !waits_for_disk(&process.watch)
        };
        let lost = all().find(is_lost)?;
        Some(format!("{} is in no View: {}", lost.watch.node, places(0).join("\n  ")))
    }

    /// Whether any host keeps others out.
    pub fn is_anybody_out(&self) -> bool {
        let state = self.state();
        let mut all = state.last.values().filter_map(|last| state.processes.get(*last));
        all.any(|process| !process.watch.kept_out.is_empty())
    }

    /// Why these hosts do not form one group: all must have committed in one View since `since`. A
    /// host with a broken disk may be away, if its status says that it waits for the disk.
    pub fn divided(&self, broken: &[bool], since: Duration) -> Option<String> {
        let state = self.state();
        let view = |host: usize| {
            state.applied.get(&host).filter(|(_, at)| *at >= since).map(|(view, _)| view)
        };
        let waits = |host: usize| {
            let process = state.last.get(&host).and_then(|last| state.processes.get(*last));
            broken[host] && process.is_some_and(|process| waits_for_disk(&process.watch))
        };
        let is_there = |host: &usize| !waits(*host) && state.liar != Some(*host);
        let there: Vec<usize> = (0..broken.len()).filter(is_there).collect();
        let first = there.first().and_then(|host| view(*host));
        let is_one = first.is_some_and(|first| {
            there.iter().all(|host| view(*host) == Some(first))
                && state.views.get(first).is_some_and(|members| members.len() >= there.len())
        });
        let said = || -> Vec<String> {
            let processes = state.last.values().filter_map(|last| state.processes.get(*last));
            processes
                .map(|process| format!("{}: {}", process.watch.node, process.watch.status))
                .collect()
        };
        (!is_one).then(|| {
            format!("not one group of {there:?}: {:?}\n  {}", state.applied, said().join("\n  "))
        })
    }

    /// The hosts whose program has not left.
    pub fn rest(&self) -> Vec<usize> {
        let state = self.state();
        let processes = state.last.values().filter_map(|last| state.processes.get(*last));
        processes.filter(|process| !process.has_left).map(|process| process.host).collect()
    }

    /// Records a violation.
    pub fn wrong(&self, what: String) {
        self.state().wrong.push(what);
    }

    /// All violations so far.
    pub fn all_wrong(&self) -> Vec<String> {
        self.state().wrong.clone()
    }

    /// Checks the claims of the harness on all logs.
    pub fn report(&self, seed: u64) -> anyhow::Result<Report> {
        let mut history = History::default();
        self.logs().iter().try_for_each(|(_, log)| history.add(log))?;
        Ok(claims::check(&history, seed))
    }

    /// Writes the logs to a folder.
    pub fn keep(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let write = |(name, log)| std::fs::write(folder.join(format!("{name}.jsonl")), log);
        self.logs().into_iter().try_for_each(write)
    }

    /// A digest of all logs.
    pub fn digest(&self) -> u64 {
        let all: Vec<String> = self.logs().into_iter().map(|(name, log)| name + &log).collect();
        xxh3_64(all.concat().as_bytes())
    }

    /// The logs by name.
    fn logs(&self) -> Vec<(String, String)> {
        let state = self.state();
        let name = |process: &Process| format!("{}-{}", name_of(process.host), process.number);
        let processes = state.processes.iter().map(|process| (name(process), process.log.clone()));
        processes.chain([("faults".to_owned(), state.faults.clone())]).collect()
    }

    fn state(&self) -> MutexGuard<'_, ObserverState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObserverState {
    /// Checks the claims about Views: S2, a part of S3, and A5.
    fn check_views(&mut self, host: usize, event: &Value) {
        let Some(view) = event["view"].as_str() else { return };
        match event["e"].as_str() {
            Some(kind @ ("took" | "installed")) => {
                let names = event["members"].as_array().into_iter().flatten();
                let members: Vec<usize> =
                    names.filter_map(|name| host_of(name.as_str()?)).collect();
                if kind == "installed" {
                    self.check_installed(host, view, &members);
                }
                self.views.insert(view.to_owned(), members);
            }
            // A kept result may have been decided long ago.
            Some("applied") if event["kept"] != true => {
                let at = Duration::from_micros(event["t"].as_u64().unwrap_or_default());
                self.applied.insert(host, (view.to_owned(), at));
                let members = self.views.get(view).cloned().unwrap_or_default();
                let beside = self.histories.committed(view, &members, at);
                if let Some(beside) = beside.filter(|_| self.liar.is_none()) {
                    self.wrong.push(format!(
                        "host {host}: Views {view} and {beside} go on beside each other, though \
                         all their members could have met"
                    ));
                }
            }
            _ => {}
        }
    }

    /// A node installs only Views of which it is a member, and their rounds do not fall, also
    /// across restarts.
    fn check_installed(&mut self, host: usize, view: &str, members: &[usize]) {
        let round = round_of(view);
        let last = round.and_then(|round| self.rounds.insert(host, round));
        if round.is_none() || last > round || !members.contains(&host) {
            let text = format!(
                "host {host} installs View {view} of {members:?} after one of round {last:?}"
            );
            self.wrong.push(text);
        }
    }
}

/// The round of the View with this name.
fn round_of(view: &str) -> Option<u64> {
    view.split_once('#')?.0.parse().ok()
}

/// Whether the node says that it waits for its disk.
fn waits_for_disk(watch: &Watch) -> bool {
    let status: Value = serde_json::from_str(&watch.status).unwrap_or_default();
    status["disk_waits_ms"].as_u64().is_some()
}

/// The host with this name.
fn host_of(name: &str) -> Option<usize> {
    name.strip_prefix(&name_of(0)[..name_of(0).len() - 1])?.parse().ok()
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_harness::history::what::{Kind, What};

    const BOUND: Duration = Duration::from_secs(20);
    const VIEW: Duration = Duration::from_secs(40);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The logs of one program that waits for a View for a second.
    fn waiting() -> Observer {
        let observer = Observer::default();
        observer.record(0, &json!({"e": "start", "t": 0, "node": name_of(0), "life": 0}));
        observer.record(0, &json!({"e": "waits", "t": 1_000_000, "lane": 1}));
        observer
    }

    fn took(observer: &Observer) {
        observer.record(0, &json!({"e": "took", "t": 2_000_000, "lane": 1, "view": "1#aa"}));
    }

    #[test]
    fn a_call_without_an_answer_is_a_hang_after_the_bound() {
        let observer = waiting();
        took(&observer);
        let hang = |now| observer.hang(BOUND, VIEW, now);
        let call = |id: u64, limit_ms: Option<u64>| {
            json!({
                "e": "call", "t": 3_000_000, "id": id, "lane": 1, "view": "1#aa", "k": id,
                "what": What::of(Kind::Barrier), "way": "await", "before": 0, "limit_ms": limit_ms,
            })
        };
        let ended = |id: u64| {
            let end = json!({
                "e": "return", "t": 4_000_000, "id": id, "code": "ok", "cause": "", "after": 0,
            });
            observer.record(0, &end);
        };
        observer.record(0, &call(7, None));
        assert_eq!((hang(seconds(23)), observer.overdue(BOUND, seconds(99))), (None, None));
        let found = hang(seconds(24)).expect("a hang");
        assert!(found.contains("waits for Barrier in lane 1, View 1#aa, call 7"), "{found}");
        ended(7);
        assert_eq!(hang(seconds(99)), None);
        // Its deadline is 5 s after its beginning, and the bound begins then.
        observer.record(0, &call(8, Some(5000)));
        let both = |now| (hang(now).is_some(), observer.overdue(BOUND, now).is_some());
        assert_eq!((both(seconds(28)), both(seconds(29))), ((false, false), (true, true)));
        ended(8);
        assert_eq!(both(seconds(99)), (false, false));
        assert!(observer.state().wrong.is_empty(), "{:?}", observer.state().wrong);
    }

    #[test]
    fn a_host_without_a_view_is_a_hang_unless_it_is_kept_out_or_waits_for_its_disk() {
        let observer = waiting();
        let hang = |now| observer.hang(BOUND, VIEW, now);
        assert_eq!(hang(seconds(41)), None);
        assert!(hang(seconds(42)).is_some_and(|found| found.contains("is in no View")));
        let status = |event: &Value| observer.record(0, event);
        status(&json!({"e": "status", "t": 2, "kept_out": [name_of(0)]}));
        assert_eq!(hang(seconds(42)), None);
        status(&json!({"e": "status", "t": 3, "kept_out": [], "disk_waits_ms": 900}));
        assert_eq!(hang(seconds(42)), None);
        status(&json!({"e": "status", "t": 4, "kept_out": []}));
        assert!(hang(seconds(42)).is_some());
        took(&observer);
        assert_eq!(hang(seconds(99)), None);
    }
}
