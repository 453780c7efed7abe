//! Processes: they start, stop, sleep and die.

use super::session::Session;
use super::world::{World, letter};
use crate::election::{Alone, Applicant, Election, ElectionConfig, Input};
use crate::identity::{Boot, MemberId, Name, NodeId};
use crate::protocol::{Engines, Partition, Sizes};
use std::collections::VecDeque;

/// A process, or the remains of one.
pub(super) struct Node {
    /// The identity it uses: its own number, unless it is a copy.
    pub(super) key: u8,
    pub(super) election: Election,
    pub(super) session: Session,
    pub(super) boot: u64,
    pub(super) alive: bool,
    /// How long its clock has stood still in total, in milliseconds.
    pub(super) behind: u64,
    /// Set while it is stopped or asleep; its inputs are queued.
    pub(super) paused: Option<Paused>,
}

#[derive(Default)]
pub(super) struct Paused {
    pub(super) waiting: VecDeque<Input>,
    /// The time at which it resumes by itself.
    pub(super) until: Option<u64>,
}

impl World {
    /// Sets the partition rule of nodes that start from now on.
    pub(super) fn rule(&mut self, rule: fn(Vec<NodeId>) -> Partition, roster: &[u8]) {
        self.partition = rule(roster.iter().map(|n| NodeId([*n; 32])).collect());
    }

    /// Sets the sizes of the group that these nodes ask for: to begin, to go on, at most.
    pub(super) fn sizes(&mut self, sizes: [usize; 3], who: &[u8]) -> Option<()> {
        let sizes = Sizes::new(sizes[0], sizes[1], sizes[2]).ok()?;
        self.sizes.extend(who.iter().map(|n| (*n, sizes)));
        Some(())
    }

    /// Enables the quarantine on nodes that start from now on.
    pub(super) fn quarantine(&mut self) {
        self.quarantine_ms = ElectionConfig::default().quarantine_ms;
    }

    /// Makes this node's disk slow: each write takes this long.
    pub(super) fn disk(&mut self, n: u8, ms: u64) {
        self.disks.slow.insert(n, ms);
    }

    /// The writes of this node fail for so long; each is tried again until it succeeds.
    pub(super) fn fail_disk(&mut self, n: u8, ms: u64) {
        self.disks.failing.insert(n, self.now.saturating_add(ms));
    }

    pub(super) fn start(&mut self, n: u8) {
        let (key, boot) = self.nodes.get(&n).map_or((n, 1), |old| (old.key, old.boot + 1));
        self.start_as(n, key, boot);
    }

    /// Starts a process with a copy of another node's identity.
    pub(super) fn copy(&mut self, n: u8, of: u8) {
        self.start_as(n, of, 1000);
    }

    pub(super) fn start_as(&mut self, n: u8, key: u8, boot: u64) {
        let sizes = self.sizes.get(&n).copied().unwrap_or_default();
        let config = ElectionConfig {
            alone: if sizes.members() == 1 { Alone::Forms } else { Alone::Waits },
            partition: self.partition.clone(),
            quarantine_ms: self.quarantine_ms,
            seed: self.random(u64::MAX),
            ..ElectionConfig::default()
        };
        let id = MemberId { node: NodeId([key; 32]), boot: Boot(boot) };
        let applicant = Applicant {
            id,
            name: Name::from_lossy(&letter(n)),
            stateless: false,
            engines: Engines::NATIVE,
            sizes,
        };
        let election = Election::new(applicant, self.disks.held(n), config).with(self.mutation);
        self.nodes.insert(
            n,
            Node {
                key,
                election,
                session: Session::default(),
                boot,
                alive: true,
                behind: 0,
                paused: None,
            },
        );
    }

    /// Ends the process at once; everything that is not durable is lost.
    pub(super) fn kill(&mut self, n: u8) {
        let Some(node) = self.nodes.get_mut(&n).filter(|node| node.alive) else { return };
        let id = node.id();
        node.alive = false;
        self.disks.forget(n);
        self.network.forget(n);
        for other in self.network.neighbours(n) {
            self.unlink(n, other);
            self.feed(other, Input::LinkDown(id));
            self.feed(other, Input::Unreachable(id));
        }
    }

    pub(super) fn leave(&mut self, n: u8) {
        self.feed(n, Input::Leave);
        self.run(5);
        self.kill(n);
    }

    /// Stops this node for this long; its inputs are queued.
    pub(super) fn pause(&mut self, n: u8, ms: u64) {
        let until = Some(self.now + ms);
        if let Some(node) = self.nodes.get_mut(&n) {
            node.paused.get_or_insert_default().until = until;
        }
    }

    /// Resumes the process, whose clock went on meanwhile unless `sleep` has set it back.
    pub(super) fn go_on(&mut self, n: u8) {
        let waiting =
            self.nodes.get_mut(&n).and_then(|node| node.paused.take()).unwrap_or_default().waiting;
        waiting.into_iter().for_each(|input| self.feed(n, input));
    }

    /// Runs the world for `ms` with this node stopped.
    pub(super) fn stop(&mut self, n: u8, ms: u64) {
        self.pause(n, u64::MAX / 2);
        self.run(ms);
        self.go_on(n);
    }

    /// The same with its machine asleep: its clock stands still.
    pub(super) fn sleep(&mut self, n: u8, ms: u64) {
        self.pause(n, u64::MAX / 2);
        self.run(ms);
        if let Some(node) = self.nodes.get_mut(&n) {
            node.behind += ms;
            node.paused.get_or_insert_default().waiting.push_front(Input::Woke);
        }
        self.go_on(n);
    }

    pub(super) fn resume_due(&mut self) {
        let is_due = |node: &Node| {
            node.paused
                .as_ref()
                .and_then(|paused| paused.until)
                .is_some_and(|until| until <= self.now)
        };
        let due: Vec<u8> =
            self.nodes.iter().filter(|(_, node)| is_due(node)).map(|(n, _)| *n).collect();
        due.into_iter().for_each(|n| self.go_on(n));
    }
}

impl Node {
    pub(super) fn id(&self) -> MemberId {
        MemberId { node: NodeId([self.key; 32]), boot: Boot(self.boot) }
    }
}
