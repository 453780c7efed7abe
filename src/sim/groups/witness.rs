//! The logs of all programs of a run. The harness judges them at the end; what only the simulation
//! knows, who reaches whom and since when all is well, is judged here, while it goes on.

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
pub struct Witness(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// All programs, in the order of their starts.
    lives: Vec<Life>,
    /// The last program of each host, in `lives`.
    last: BTreeMap<usize, usize>,
    /// The log of the faults.
    faults: String,
    /// The members of each View, as hosts.
    views: BTreeMap<String, Vec<usize>>,
    /// The last result of each host that entered a state: its View, and when.
    applied: BTreeMap<usize, (String, Duration)>,
    histories: Histories,
    /// A host that lies to the others, and is not listened to.
    liar: Option<usize>,
    wrong: Vec<String>,
}

/// One program.
struct Life {
    host: usize,
    number: u64,
    log: String,
    watch: Watch,
    has_left: bool,
}

impl Witness {
    /// Only a majority goes on after a partition: all members have one outcome of each call.
    pub fn majority(&self) {
        self.fault(Duration::ZERO, json!({"e": "majority"}));
    }

    /// This host lies to the others.
    pub fn lies(&self, host: usize) {
        self.seen().liar = Some(host);
        self.fault(Duration::ZERO, json!({"e": "liar", "node": name_of(host)}));
    }

    /// An event of the program on a host, with its time.
    pub fn hear(&self, host: usize, event: &Value) {
        let seen = &mut *self.seen();
        if seen.liar == Some(host) {
            return;
        }
        if event["e"] == "start" {
            let number = event["life"].as_u64().unwrap_or_default();
            seen.last.insert(host, seen.lives.len());
            let (log, watch) = (String::new(), Watch::new(&name_of(host)));
            seen.lives.push(Life { host, number, log, watch, has_left: false });
        }
        let Some(life) = seen.last.get(&host).and_then(|last| seen.lives.get_mut(*last)) else {
            return;
        };
        life.log += &format!("{event}\n");
        if let Err(error) = life.watch.hear(event) {
            seen.wrong.push(format!("{event}: {error:#}"));
        }
        life.has_left |= event["e"] == "left";
        seen.judge(host, event);
    }

    /// An event of the faults.
    pub fn fault(&self, now: Duration, mut event: Value) {
        event["t"] = micros(now).into();
        self.seen().faults += &format!("{event}\n");
    }

    /// The program of a host is killed.
    pub fn killed(&self, host: usize, now: Duration) {
        let life = {
            let mut seen = self.seen();
            let last = seen.last.remove(&host);
            last.and_then(|last| seen.lives.get(last)).map(|life| life.number)
        };
        if let Some(life) = life {
            self.fault(now, json!({"e": "killed", "node": name_of(host), "life": life}));
        }
    }

    /// The hosts that run, in parts that reach each other.
    pub fn reach(&self, parts: &[BTreeSet<usize>], now: Duration) {
        self.seen().histories.reach(parts, now);
    }

    /// A call with a deadline that is open for longer than `bound` after it.
    pub fn overdue(&self, bound: Duration, now: Duration) -> Option<String> {
        let (seen, now) = (self.seen(), micros(now));
        let lives = seen.last.values().filter_map(|last| seen.lives.get(*last));
        let mut late = lives.flat_map(|life| {
            let late = life.watch.overdue(now).map(|(call, late)| (&life.watch, call, late));
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

    /// A call that is open for longer than `bound`, or a host that nobody keeps out and that has
    /// waited for a View for longer than `view`. Deadlines of calls come on top.
    pub fn hang(&self, bound: Duration, view: Duration, now: Duration) -> Option<String> {
        let seen = self.seen();
        let now = micros(now);
        let all = || seen.last.values().filter_map(|last| seen.lives.get(*last));
        let places = |lane: u32| -> Vec<String> {
            let place = |life: &Life| {
                let Watch { node, status, .. } = &life.watch;
                format!("{node} is at {}; {status}", life.watch.place(lane))
            };
            all().map(place).collect()
        };
        for life in all() {
            let mut late = life.watch.overdue(now).filter(|(_, late)| *late > micros(bound));
            if let Some((call, late)) = late.next() {
                let (lane, in_view, k) = &call.place;
                return Some(format!(
                    "{} waits for {:?} in lane {lane}, View {in_view}, call {k} for {:.1} s:\n  {}",
                    life.watch.node,
                    call.what.kind,
                    late as f64 / 1e6,
                    places(*lane).join("\n  ")
                ));
            }
        }
        let is_kept_out = |node: &String| all().any(|life| life.watch.kept_out.contains(node));
        let is_lost = |life: &&Life| {
            let since = life.watch.without_view_since();
            since.is_some_and(|since| now.saturating_sub(since) > micros(view))
                && !is_kept_out(&life.watch.node)
                && !waits_for_disk(&life.watch)
        };
        let lost = all().find(is_lost)?;
        Some(format!("{} is in no View: {}", lost.watch.node, places(0).join("\n  ")))
    }

    /// Whether any host keeps others out.
    pub fn is_anybody_out(&self) -> bool {
        let seen = self.seen();
        let mut all = seen.last.values().filter_map(|last| seen.lives.get(*last));
        all.any(|life| !life.watch.kept_out.is_empty())
    }

    /// Why these hosts, of which the ones of a broken disk may be away, do not form one group: all
    /// must have committed something in one View since `since`. Who is away must say that it waits
    /// for its disk.
    pub fn divided(&self, broken: &[bool], since: Duration) -> Option<String> {
        let seen = self.seen();
        let view = |host: usize| {
            seen.applied.get(&host).filter(|(_, at)| *at >= since).map(|(view, _)| view)
        };
        let waits = |host: usize| {
            let life = seen.last.get(&host).and_then(|last| seen.lives.get(*last));
            broken[host] && life.is_some_and(|life| waits_for_disk(&life.watch))
        };
        let is_there = |host: &usize| !waits(*host) && seen.liar != Some(*host);
        let there: Vec<usize> = (0..broken.len()).filter(is_there).collect();
        let first = there.first().and_then(|host| view(*host));
        let is_one = first.is_some_and(|first| {
            there.iter().all(|host| view(*host) == Some(first))
                && seen.views.get(first).is_some_and(|members| members.len() >= there.len())
        });
        let said = || -> Vec<String> {
            let lives = seen.last.values().filter_map(|last| seen.lives.get(*last));
            lives.map(|life| format!("{}: {}", life.watch.node, life.watch.status)).collect()
        };
        (!is_one).then(|| {
            format!("not one group of {there:?}: {:?}\n  {}", seen.applied, said().join("\n  "))
        })
    }

    /// The hosts whose program has not left.
    pub fn rest(&self) -> Vec<usize> {
        let seen = self.seen();
        let lives = seen.last.values().filter_map(|last| seen.lives.get(*last));
        lives.filter(|life| !life.has_left).map(|life| life.host).collect()
    }

    /// Records a fault of the library.
    pub fn wrong(&self, what: String) {
        self.seen().wrong.push(what);
    }

    /// Everything that is wrong so far.
    pub fn all_wrong(&self) -> Vec<String> {
        self.seen().wrong.clone()
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
        let seen = self.seen();
        let name = |life: &Life| format!("{}-{}", name_of(life.host), life.number);
        let lives = seen.lives.iter().map(|life| (name(life), life.log.clone()));
        lives.chain([("faults".to_owned(), seen.faults.clone())]).collect()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// Views that go on beside each other.
    fn judge(&mut self, host: usize, event: &Value) {
        let Some(view) = event["view"].as_str() else { return };
        match event["e"].as_str() {
            Some("took" | "installed") => {
                let names = event["members"].as_array().into_iter().flatten();
                let members = names.filter_map(|name| host_of(name.as_str()?)).collect();
                self.views.insert(view.to_owned(), members);
            }
            Some("applied") => {
                let at = Duration::from_micros(event["t"].as_u64().unwrap_or_default());
                self.applied.insert(host, (view.to_owned(), at));
                let members = self.views.get(view).cloned().unwrap_or_default();
                let beside = self.histories.committed(view, &members, at);
                if let Some(beside) = beside.filter(|_| self.liar.is_none()) {
                    self.wrong.push(format!(
                        "host {host}: Views {view} and {beside} go on beside each other, though all their members could have met"
                    ));
                }
            }
            _ => {}
        }
    }
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
