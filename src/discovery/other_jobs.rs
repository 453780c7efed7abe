//! The nodes of this cluster that run other jobs: they are named, and otherwise left alone.
//!
//! An advert shows that a node runs another job, not which one: a node says that in a handshake. So
//! a node that waits for its own group dials each of them now and then, and both refuse the link.
//! A node that has its group dials none of them.

use super::sighting::Advert;
use crate::identity::{Boot, JobMember};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// How long a node waits for its own group before it asks for the names of others.
const ASKS_AFTER_MS: u64 = 3000;

/// Interval between two questions to one node.
const ASKS_AGAIN_MS: u64 = 30_000;

/// How long a name counts after the last answer.
const MET_MS: u64 = 40_000;

/// Most nodes. The one that was seen first gives way.
const NODES_MAX: usize = 64;

/// Most adverts of a node. A correct node makes one; a copy may show other addresses.
const ADVERTS_MAX: usize = 4;

/// Most addresses of an advert that are dialled for one question.
const ADDRESSES_ASKED: usize = 2;

/// The nodes of other jobs; see the module. Times are in milliseconds on the caller's clock.
#[derive(Default)]
pub(super) struct OtherJobs {
    nodes: BTreeMap<Boot, Node>,
    /// Since when this node has waited for its own group.
    waits_since_ms: Option<u64>,
}

#[derive(Default)]
struct Node {
    /// The addresses in its adverts, by instance.
    adverts: BTreeMap<String, Vec<SocketAddr>>,
    /// When it was asked last.
    asked_ms: Option<u64>,
    /// The answer to the last handshake, and when.
    met: Option<(JobMember, u64)>,
    seen_ms: u64,
}

impl OtherJobs {
    /// Whether announcements of this boot are received.
    pub(super) fn hears(&self, boot: Boot) -> bool {
        self.nodes.get(&boot).is_some_and(|node| !node.adverts.is_empty())
    }

    /// Whether one is announced.
    pub(super) fn any(&self) -> bool {
        self.nodes.values().any(|node| !node.adverts.is_empty())
    }

    /// A node of another job is announced.
    pub(super) fn appeared(&mut self, advert: Advert, now_ms: u64) {
        let node = self.node(advert.boot, now_ms);
        node.adverts.insert(advert.instance, advert.addresses);
        if node.adverts.len() > ADVERTS_MAX {
            node.adverts.pop_first();
        }
    }

    /// An announcement was withdrawn, or is one of another kind now.
    pub(super) fn vanished(&mut self, instance: &str) {
        for node in self.nodes.values_mut() {
            if node.adverts.remove(instance).is_some() && node.adverts.is_empty() {
                node.met = None;
            }
        }
        self.nodes.retain(|_, node| !node.adverts.is_empty() || node.met.is_some());
    }

    /// A handshake has shown the job of a node, dialled by either end.
    pub(super) fn meets(&mut self, member: JobMember, now_ms: u64) {
        let boot = member.id.boot;
        self.node(boot, now_ms).met = Some((member, now_ms));
    }

    /// Whether this node waits for its own group from now on.
    pub(super) fn set_waiting(&mut self, waits: bool, now_ms: u64) {
        self.waits_since_ms = waits.then(|| self.waits_since_ms.unwrap_or(now_ms));
    }

    /// The addresses to dial now, so that the nodes there say their jobs.
    pub(super) fn questions(&mut self, now_ms: u64) -> Vec<SocketAddr> {
        let Some(from_ms) = self.asks_from() else { return Vec::new() };
        let is_due = |node: &Node| node.due_ms(from_ms).is_some_and(|due_ms| due_ms <= now_ms);
        let due = self.nodes.values_mut().filter(|node| is_due(node));
        let addresses = due.flat_map(|node| {
            node.asked_ms = Some(now_ms);
            node.adverts.values().flat_map(|to| to.iter().take(ADDRESSES_ASKED)).copied()
        });
        addresses.collect()
    }

    /// When the next question is due; `None` without one.
    pub(super) fn next_due(&self) -> Option<u64> {
        let from_ms = self.asks_from()?;
        self.nodes.values().filter_map(|node| node.due_ms(from_ms)).min()
    }

    /// The nodes whose jobs are known and that are still there, as far as this node knows.
    pub(super) fn named(&self, now_ms: u64) -> impl Iterator<Item = &JobMember> {
        let waits = self.waits_since_ms.is_some();
        self.nodes.values().filter_map(move |node| {
            let (member, at_ms) = node.met.as_ref()?;
            let is_fresh = now_ms < at_ms + MET_MS;
            (is_fresh || !waits && !node.adverts.is_empty()).then_some(member)
        })
    }

    fn asks_from(&self) -> Option<u64> {
        self.waits_since_ms.map(|since_ms| since_ms + ASKS_AFTER_MS)
    }

    fn node(&mut self, boot: Boot, now_ms: u64) -> &mut Node {
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(&boot) {
            let oldest = self.nodes.iter().min_by_key(|(boot, node)| (node.seen_ms, **boot));
            let oldest = oldest.map(|(boot, _)| *boot);
            oldest.map(|boot| self.nodes.remove(&boot));
        }
        let node = self.nodes.entry(boot).or_default();
        node.seen_ms = now_ms;
        node
    }
}

impl Node {
    /// When it is to be asked, by a node that asks from this time on. An answer to any handshake
    /// counts as a question.
    fn due_ms(&self, from_ms: u64) -> Option<u64> {
        let met_ms = self.met.as_ref().map(|(_, at_ms)| *at_ms);
        let again_ms = self.asked_ms.max(met_ms).map(|last_ms| last_ms + ASKS_AGAIN_MS);
        (!self.adverts.is_empty()).then(|| again_ms.unwrap_or(0).max(from_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sighting::advert;
    use super::*;
    use crate::identity::{JobName, MemberId, Name, NodeId};

    fn port(n: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 40_000 + n))
    }

    fn member(n: u8, job: &str) -> JobMember {
        JobMember {
            id: MemberId { node: NodeId([n; 32]), boot: Boot(u64::from(n)) },
            name: Name::from_lossy(&format!("n{n}")),
            job: JobName::parse(job).expect("a name"),
        }
    }

    fn named(others: &OtherJobs, now_ms: u64) -> Vec<String> {
        others.named(now_ms).map(|it| format!("{} {}", it.name.as_str(), it.job)).collect()
    }

    #[test]
    fn a_node_that_has_its_group_asks_nobody() {
        let mut others = OtherJobs::default();
        others.appeared(advert(1, Some([1; 8])), 0);
        assert_eq!((others.questions(1_000_000), others.next_due()), (vec![], None));
        others.set_waiting(true, 1_000_000);
        others.set_waiting(false, 1_001_000);
        assert_eq!((others.questions(2_000_000), others.next_due()), (vec![], None));
    }

    #[test]
    fn a_node_that_waits_asks_once_in_half_a_minute() {
        let mut others = OtherJobs::default();
        others.set_waiting(true, 1000);
        others.appeared(advert(1, Some([1; 8])), 2000);
        others.set_waiting(true, 2500);
        assert_eq!((others.questions(3999), others.next_due()), (vec![], Some(4000)));
        assert_eq!(others.questions(4000), [port(1)]);
        assert_eq!((others.questions(33_999), others.next_due()), (vec![], Some(34_000)));
        others.appeared(advert(1, Some([1; 8])), 34_000);
        assert_eq!(others.questions(34_000), [port(1)]);
        others.meets(member(1, "train"), 60_000);
        assert_eq!(
            others.next_due(),
            Some(90_000),
            "a handshake is an answer, in either direction"
        );
    }

    #[test]
    fn a_name_counts_while_the_node_answers() {
        let mut others = OtherJobs::default();
        others.set_waiting(true, 0);
        others.appeared(advert(1, Some([1; 8])), 0);
        others.meets(member(1, "train"), 10);
        // This one is not announced: a fixed peer.
        others.meets(member(2, "other"), 20);
        assert_eq!(named(&others, 30), ["n1 train", "n2 other"]);
        assert_eq!(named(&others, 40_019), ["n2 other"], "no answer any more");
        others.set_waiting(false, 50_000);
        assert_eq!(named(&others, 60_000), ["n1 train"], "nobody was asked");
        others.vanished(&advert(1, None).instance);
        assert_eq!(named(&others, 60_000), Vec::<String>::new());
    }

    #[test]
    fn copies_of_one_advert_and_floods_are_bounded() {
        let mut others = OtherJobs::default();
        others.set_waiting(true, 0);
        for n in 0..100 {
            let instance = format!("copy{n}");
            let addresses = (0..16).map(port).collect();
            others.appeared(Advert { instance, addresses, ..advert(1, None) }, n);
        }
        assert_eq!(others.questions(3000).len(), ADVERTS_MAX * ADDRESSES_ASKED);
        (0..1000).for_each(|n| others.appeared(advert(n, None), 4000 + u64::from(n)));
        assert_eq!(others.nodes.len(), NODES_MAX);
        assert!(others.nodes.contains_key(&Boot(999)));
    }
}
