//! The changes from one look to the next: events, and calls per second.

use crate::document::short;
use crate::picture::plain;
use potluck::report::document::{StatusDocument, ViewDocument};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The looks of the last seconds, and the events between them.
#[derive(Debug, Default)]
pub struct History {
    nodes: BTreeMap<String, Seen>,
    /// The View of each job that was seen last, with the members' names by key.
    views: BTreeMap<String, (String, BTreeMap<String, String>)>,
    events: VecDeque<Event>,
    has_looked: bool,
}

/// An event, and when it was noticed, since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Duration,
    pub text: String,
}

/// A node at the last look.
#[derive(Debug)]
struct Seen {
    named: String,
    job: String,
    process: u32,
    state: String,
    plan: Option<(String, String)>,
    /// Committed operations at the looks of the last seconds, the oldest first.
    committed: VecDeque<(Duration, u64)>,
}

/// The time over which calls are counted. Nodes tell observers their status once per second, so a
/// shorter time would show twice the rate, or none, by turns.
const WINDOW: Duration = Duration::from_secs(5);
/// The number of events that are kept.
const EVENTS_MAX: usize = 100;

impl History {
    /// Takes the present documents of the nodes; `at` is the time since the start and never
    /// decreases.
    pub fn look(&mut self, nodes: &[StatusDocument], at: Duration) {
        let mut events = Vec::new();
        self.views_changed(nodes, &mut events);
        self.nodes_gone(nodes, &mut events);
        for node in nodes {
            match self.nodes.get_mut(&node.node) {
                Some(seen) => seen.changed(node, at, &mut events),
                None => {
                    let seen = Seen::of(node, at);
                    events.push(format!("{} of job {} is here", seen.named, seen.job));
                    self.nodes.insert(node.node.clone(), seen);
                }
            }
        }
        // The state at the first look is no event.
        if std::mem::replace(&mut self.has_looked, true) {
            self.events.extend(events.into_iter().map(|text| Event { at, text: plain(&text) }));
        }
        while self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// The last events, the newest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().rev()
    }

    /// Operations that this node commits per second; `None` before the second look.
    pub fn calls_per_s(&self, node: &str) -> Option<f64> {
        let committed = &self.nodes.get(node)?.committed;
        let ((from, before), (to, now)) = (committed.front()?, committed.back()?);
        let seconds = to.saturating_sub(*from).as_secs_f64();
        (seconds > 0.0).then(|| now.saturating_sub(*before) as f64 / seconds)
    }

    fn nodes_gone(&mut self, nodes: &[StatusDocument], events: &mut Vec<String>) {
        self.nodes.retain(|node, seen| {
            let is_here = nodes.iter().any(|document| document.node == *node);
            if !is_here {
                events.push(format!("{} of job {} is gone", seen.named, seen.job));
            }
            is_here
        });
    }

    /// The View of each job, told once for all of its members.
    fn views_changed(&mut self, nodes: &[StatusDocument], events: &mut Vec<String>) {
        let mut now: BTreeMap<String, &ViewDocument> = BTreeMap::new();
        for node in nodes {
            let Some(view) = &node.view else { continue };
            // A node may tell of the next View later than others.
            if now.get(&node.job).is_none_or(|known| round(&known.id) < round(&view.id)) {
                now.insert(node.job.clone(), view);
            }
        }
        for (job, view) in now {
            let members: BTreeMap<String, String> =
                view.members.iter().map(|m| (m.node.clone(), named(&m.name, &m.node))).collect();
            let before = self.views.insert(job.clone(), (view.id.clone(), members.clone()));
            let (id, old) = before.unwrap_or_default();
            if id != view.id {
                events.push(view_text(&job, view, &old, &members));
            }
        }
        self.views.retain(|job, _| nodes.iter().any(|node| node.job == *job));
    }
}

impl Seen {
    fn of(node: &StatusDocument, at: Duration) -> Seen {
        Seen {
            named: named(&node.name, &node.node),
            job: node.job.clone(),
            process: node.process,
            state: node.state.clone(),
            plan: plan(node),
            committed: VecDeque::from([(at, node.counters.committed)]),
        }
    }

    fn changed(&mut self, node: &StatusDocument, at: Duration, events: &mut Vec<String>) {
        if self.process != node.process {
            events.push(format!("{} has started again", self.named));
            *self = Seen::of(node, at);
            return;
        }
        // The number of an observer's nodes is not its news.
        if self.state != node.state && !node.observer {
            events.push(format!("{}: {}", self.named, node.state_text));
        }
        let plan = plan(node);
        if let (Some((view, _)), Some((same, new))) = (&self.plan, &plan)
            && view == same
            && self.plan != plan
        {
            events.push(format!("{} has a new plan: {new}", self.named));
        }
        (self.state, self.plan) = (node.state.clone(), plan);
        self.committed.push_back((at, node.counters.committed));
        while self.committed.get(1).is_some_and(|(first, _)| at.saturating_sub(*first) >= WINDOW) {
            self.committed.pop_front();
        }
    }
}

/// The View and its plan.
fn plan(node: &StatusDocument) -> Option<(String, String)> {
    node.view.as_ref().map(|view| (view.id.clone(), view.plan.clone()))
}

/// The number at the beginning of a View's identifier, which grows.
pub fn round(view: &str) -> u64 {
    let digits: String = view.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

fn view_text(
    job: &str,
    view: &ViewDocument,
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
) -> String {
    let less = |these: &BTreeMap<String, String>, those: &BTreeMap<String, String>| {
        let others = these.iter().filter(|(node, _)| !those.contains_key(*node));
        others.map(|(_, named)| named.clone()).collect::<Vec<_>>().join(", ")
    };
    let mut text = format!("job {job}: view {} of {}", view.id, new.len());
    for (word, names) in [("without", less(old, new)), ("with", less(new, old))] {
        if !names.is_empty() {
            text += &format!(", {word} {names}");
        }
    }
    text
}

fn named(name: &str, node: &str) -> String {
    format!("\"{name}\" {}", short(node))
}
