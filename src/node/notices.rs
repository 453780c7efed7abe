//! One line on stderr when a program that has installed no subscriber for traces would otherwise
//! wait in silence.

use crate::os::{Mutex, lock};
use crate::protocol::OpId;
use crate::report::{NoLinkReason, State, Status};
use crate::trace;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a program waits for a Context before it is told why.
const CONTEXT_AFTER: Duration = Duration::from_secs(3);

/// How long a call waits for other members before the program is told for which.
const CALL_AFTER: Duration = Duration::from_secs(10);

/// Writes the lines of one node, never two about one wait.
pub(super) struct Notices {
    is_on: bool,
    waits: Waits,
    /// The wait for a Context: its number, since when, and whether the program was told.
    context: Option<(u64, Instant, bool)>,
    /// The call about which it was told.
    call: Option<OpId>,
}

/// The futures of a node's handles that wait for a Context. Those that overlap are one wait.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    futures: usize,
    /// The number of the present or last wait.
    number: u64,
}

/// One future that waits, until it is dropped.
pub struct Wait(Waits);

impl Waits {
    /// Counts one more that waits.
    pub fn begin(&self) -> Wait {
        let mut waiting = lock(&self.0);
        waiting.number += u64::from(waiting.futures == 0);
        waiting.futures += 1;
        Wait(self.clone())
    }

    /// The number of the present wait.
    fn number(&self) -> Option<u64> {
        let waiting = lock(&self.0);
        (waiting.futures > 0).then_some(waiting.number)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        lock(&self.0.0).futures -= 1;
    }
}

impl Notices {
    /// `is_on`: the program has not switched them off.
    pub(super) fn new(is_on: bool, waits: Waits) -> Notices {
        Notices { is_on, waits, context: None, call: None }
    }

    /// Writes the lines that are due.
    pub(super) fn watch(&mut self, status: &Status, now: Instant) {
        for line in self.due(status, now) {
            if self.is_on && !trace::has_subscriber() {
                // A program may have closed its stderr.
                let _ = writeln!(std::io::stderr(), "potluck: {line}");
            }
        }
    }

    fn due(&mut self, status: &Status, now: Instant) -> Vec<String> {
        let known = self.context;
        self.context = self.waits.number().map(|number| match known {
            Some(known) if known.0 == number => known,
            _ => (number, now, false),
        });
        let mut due = Vec::new();
        if let Some((_, since, told)) = &mut self.context
            && now.duration_since(*since) >= CONTEXT_AFTER
            && !std::mem::replace(told, true)
        {
            due.push(waits_for_context(status));
        }
        let late = status.waiting.as_ref().filter(|waiting| waiting.since >= CALL_AFTER);
        if let Some(waiting) = late.filter(|waiting| self.call != Some(waiting.op)) {
            let who = match waiting.ranks[..] {
                [_] => "that member lives and has not called it",
                _ => "those members live and have not called it",
            };
            due.push(format!("{waiting}; {who}"));
        }
        self.call = late.map(|waiting| waiting.op);
        due
    }
}

/// Names the linked nodes and the most likely reason why members are missing.
fn waits_for_context(status: &Status) -> String {
    let job = &status.job;
    let names: Vec<&str> = status.peers.iter().map(|peer| peer.name.as_str()).collect();
    let here = match names[..] {
        [] => "no other node of it is linked".to_owned(),
        _ => format!("linked are {}", names.join(", ")),
    };
    let state = match &status.state {
        State::Alone { .. } => String::new(),
        state => format!("{state}; "),
    };
    let why = reason(status).map(|why| format!("; {why}")).unwrap_or_default();
    format!("job `{job}` waits for its group: {state}{here}{why}. `potluck status` tells more")
}

/// Another job or cluster that is seen, else the report of discovery on the first interface in use.
fn reason(status: &Status) -> Option<String> {
    let other_job = status.other_jobs.first().map(ToString::to_string);
    let heard = || {
        let State::Alone { interfaces } = &status.state else { return None };
        let used = interfaces.iter().find(|on| !matches!(on.why, NoLinkReason::Skipped(_)))?;
        Some(format!("{}: {}", used.interface, used.why))
    };
    let other = || status.others.first().map(ToString::to_string);
    other_job.or_else(other).or_else(heard)
}
