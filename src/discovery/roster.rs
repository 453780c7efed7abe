//! The candidate addresses of other nodes, and which of them are worth a dial now.
//!
//! Every entry is unverified until a handshake, so everything is bounded: the table, the share of
//! each source, and the rate of dials to unverified addresses. Verified entries are evicted last.
//! Several adverts, addresses and origins may belong to one peer; its boot joins them, and while it
//! has a link none of its addresses is dialled.

mod adverts;
mod dials;
mod direct_links;
mod limits;
#[cfg(test)]
mod tests;
mod told_addresses;

use super::address_evidence::AddressEvidence;
use super::candidate::Candidate;
use super::dial_outcome::DialOutcome;
use super::origin::Origin;
use super::other_jobs::OtherJobs;
use super::relation::Relation;
use super::sighting::{Advert, Sighting, Tags};
use crate::identity::{Boot, JobMember, MemberId};
use crate::link::{Rate, TokenBucket};
use crate::os::{AddressPolicy, is_dialable};
use crate::wire::PROTOCOL_VERSION;
use adverts::{Adverts, Seen};
pub use dials::Dial;
use direct_links::DirectLinks;
pub use limits::Limits;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use told_addresses::ToldAddresses;

/// One entry of the table, for tests.
#[cfg(test)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address.
    pub address: SocketAddr,
    /// Boots that advertise it.
    pub boots: Vec<Boot>,
    /// Its other origins.
    pub origins: Vec<Origin>,
    /// The member that was last verified there.
    pub verified: Option<MemberId>,
    /// Whether the expected peer has a link.
    pub linked: bool,
    /// Failed dials in a row.
    pub failures: u32,
    /// The outcome of the last dial, if a node that is no peer answered, or a peer over an unproven
    /// path.
    pub outcome: Option<DialOutcome>,
}

/// The candidate addresses; see the module. Times are in milliseconds on the caller's clock.
pub struct Roster {
    limits: Limits,
    policy: AddressPolicy,
    me: Boot,
    relation: Box<dyn Fn(Boot, Tags) -> Relation + Send>,
    /// For dials to unverified addresses.
    rate: TokenBucket,
    candidates: BTreeMap<SocketAddr, Candidate>,
    /// Adverts of our job, and of other namespaces and versions.
    adverts: Adverts,
    /// Nodes of our namespace that run other jobs.
    other_jobs: OtherJobs,
    links: DirectLinks,
    told: ToldAddresses,
}

impl Roster {
    /// An empty roster. `relation` reads the tags in the advert of a boot.
    pub fn new(
        limits: Limits,
        policy: AddressPolicy,
        me: Boot,
        relation: impl Fn(Boot, Tags) -> Relation + Send + 'static,
    ) -> Roster {
        let per_second = u64::from(limits.dials_per_second.max(1));
        let rate = Rate { per_second, burst: u64::from(limits.dial_burst) };
        Roster {
            rate: TokenBucket::full(rate, 0),
            limits,
            policy,
            me,
            relation: Box::new(relation),
            candidates: BTreeMap::new(),
            adverts: Adverts::default(),
            other_jobs: OtherJobs::default(),
            links: DirectLinks::default(),
            told: ToldAddresses::default(),
        }
    }

    /// Handles a sighting from discovery.
    pub fn sighted(&mut self, sighting: Sighting, now_ms: u64) {
        match sighting {
            Sighting::Appeared(advert) if advert.boot == self.me => {}
            // An invitation is no node, and its port answers none.
            Sighting::Appeared(advert) if advert.pairing.is_some() => {}
            Sighting::Appeared(advert) => match self.relation_of(&advert) {
                Relation::SameJob => self.appeared(advert, false, now_ms),
                Relation::Observer => self.appeared(advert, true, now_ms),
                Relation::OtherJob => self.other_job_appeared(advert, now_ms),
                Relation::OtherCluster => self.other_appeared(advert, now_ms),
            },
            Sighting::Vanished { instance } => self.vanished(&instance),
        }
    }

    /// Replaces the reading of tags, because the keys have changed, and applies it to all adverts.
    /// Other jobs are read again when they are announced again.
    pub fn set_relation(
        &mut self,
        relation: impl Fn(Boot, Tags) -> Relation + Send + 'static,
        now_ms: u64,
    ) {
        self.relation = Box::new(relation);
        let adverts: Vec<Advert> = self.adverts.all().cloned().collect();
        for advert in adverts {
            self.sighted(Sighting::Appeared(advert), now_ms);
        }
        let refused = |c: &&mut Candidate| c.outcome == Some(DialOutcome::OtherNamespace);
        self.candidates.values_mut().filter(refused).for_each(|c| c.refresh(now_ms));
    }

    /// Adds an address of another origin. Ignores addresses that the policy forbids; for fixed
    /// peers only impossible ones are.
    pub fn add(&mut self, to: SocketAddr, origin: Origin, now_ms: u64) {
        let allowed = match origin {
            Origin::Fixed => is_dialable(to.ip()) && to.port() != 0,
            _ => self.policy.allows(to),
        };
        if !allowed {
            return;
        }
        if let Some(candidate) = self.candidate(to, origin == Origin::Fixed)
            && candidate.origins.insert(origin)
        {
            candidate.refresh(now_ms);
        }
    }

    /// The user's name for a peer does not stand for this address any more.
    pub fn is_no_longer_named(&mut self, to: SocketAddr) {
        if let Some(candidate) = self.candidates.get_mut(&to) {
            candidate.origins.remove(&Origin::Fixed);
        }
        self.forget_unknown(to);
    }

    /// Records the outcome of a dial from [`due`](Roster::due). Must be called for every dial.
    pub fn dialled(&mut self, to: SocketAddr, outcome: DialOutcome, now_ms: u64) {
        if let DialOutcome::Authenticated(member) = outcome {
            self.authenticated(to, member, now_ms);
            return;
        }
        if let DialOutcome::Unproven(member) = outcome {
            self.links.answered_unproven(member);
        }
        let Some(candidate) = self.candidates.get_mut(&to) else { return };
        (candidate.dialing, candidate.tried) = (false, true);
        candidate.origins.remove(&Origin::OtherJob);
        match outcome {
            DialOutcome::Failed => candidate.failed(now_ms),
            // Its advert has the tag of this cluster: more likely something on the way has changed
            // a byte.
            DialOutcome::OtherNamespace if !candidate.boots.is_empty() => candidate.failed(now_ms),
            other => candidate.park(other, now_ms),
        }
        self.forget_unknown(to);
    }

    /// A handshake has shown that this node of our namespace runs another job.
    pub fn meets(&mut self, member: JobMember, now_ms: u64) {
        self.other_jobs.meets(member, now_ms);
    }

    /// Whether this node waits for its group: only then it asks nodes of other jobs for their
    /// names.
    pub fn set_waiting(&mut self, waits: bool, now_ms: u64) {
        self.other_jobs.set_waiting(waits, now_ms);
    }

    /// A link to `member` over a proven path is established, dialled by either end.
    pub fn link_up(&mut self, member: MemberId) {
        self.links.up(member);
    }

    /// A link to `member` over an unproven path is established, dialled by either end, and there is
    /// no other. Its addresses are still dialled, for a proven path; those over which it answered
    /// are not.
    pub fn detour_up(&mut self, member: MemberId) {
        self.links.unproven_up(member);
    }

    /// Replaces the addresses that `member` has told of itself. If its link has an unproven path,
    /// they are dialled.
    pub fn tells(&mut self, member: MemberId, addresses: &[SocketAddr], now_ms: u64) {
        self.told.set(member.boot, addresses, &self.links);
        if self.links.is_unproven(member.boot) {
            let to = addresses.iter().take(Advert::ADDRESSES_MAX);
            to.for_each(|to| self.add(*to, Origin::Gossip, now_ms));
        }
    }

    /// The last link to `member` has ended: its addresses become due at once.
    pub fn link_down(&mut self, member: MemberId, now_ms: u64) {
        self.forget_links(member);
        let answered = |c: &Candidate| c.unproven() == Some(member);
        let detours = self.candidates.iter().filter(|(_, c)| answered(c)).map(|(to, _)| *to);
        let addresses: BTreeSet<SocketAddr> = self.addresses_of(member).chain(detours).collect();
        for to in addresses {
            if let Some(candidate) = self.candidates.get_mut(&to) {
                candidate.refresh(now_ms);
            }
            self.forget_unknown(to);
        }
    }

    /// Blocks all addresses of `member` for `wait_ms`, even if they are advertised or added again.
    pub fn set_aside(&mut self, member: MemberId, wait_ms: u64, now_ms: u64) {
        self.forget_links(member);
        let theirs = |c: &&mut Candidate| {
            let answered = c.verified.or(c.unproven()) == Some(member);
            answered || c.boots.contains(&member.boot)
        };
        self.candidates
            .values_mut()
            .filter(theirs)
            .for_each(|candidate| candidate.set_aside(now_ms + wait_ms));
    }

    /// Replaces the policy, because our interfaces changed. Drops the addresses that it forbids,
    /// except fixed ones and those with a dial in flight, and takes up advertised ones that it
    /// allows.
    pub fn set_policy(&mut self, policy: AddressPolicy, now_ms: u64) {
        self.candidates.retain(|to, c| c.dialing || c.is_allowed(*to, &policy));
        self.policy = policy;
        let adverts: Vec<(Boot, Vec<SocketAddr>)> = self
            .adverts
            .ours()
            .map(|seen| (seen.advert.boot, seen.advert.addresses.clone()))
            .collect();
        for (boot, addresses) in adverts {
            self.advertised(boot, &addresses, now_ms);
        }
    }

    /// Whether these boots, of which there is at least one, observe, and this node does not.
    fn observe(&self, boots: &BTreeSet<Boot>) -> bool {
        !boots.is_empty() && boots.iter().all(|boot| self.adverts.observes(*boot))
    }

    /// Whether announcements of this boot are received.
    pub fn hears(&self, boot: Boot) -> bool {
        self.adverts.all().any(|advert| advert.boot == boot) || self.other_jobs.hears(boot)
    }

    /// Whether this node may dial `to` because a member has named it.
    pub fn may_dial(&self, to: SocketAddr) -> bool {
        self.policy.allows(to)
    }

    /// The known addresses of `member`, including unverified ones.
    pub fn addresses_of(&self, member: MemberId) -> impl Iterator<Item = SocketAddr> {
        let theirs =
            move |c: &Candidate| c.verified == Some(member) || c.boots.contains(&member.boot);
        self.candidates.iter().filter(move |(_, c)| theirs(c)).map(|(to, _)| *to)
    }

    /// Whether an address that `boot` advertises is being dialled, or is due, for the first time
    /// since it was sighted: a direct link may come up at any moment.
    pub fn expects(&self, boot: Boot, now_ms: u64) -> bool {
        let is_theirs = |c: &&Candidate| c.boots.contains(&boot);
        self.candidates.values().filter(is_theirs).any(|c| c.is_first_dial(now_ms))
    }

    /// The addresses of `member` that may carry its links: those that were proven, and those that
    /// the member has told itself. Any host can send an advert that names the member, so adverts
    /// alone do not count.
    pub fn own_addresses_of(&self, member: MemberId) -> BTreeSet<SocketAddr> {
        let is_other = |c: &Candidate| c.verified.is_some_and(|it| self.links.has(it.boot));
        let theirs = |(to, c): &(&SocketAddr, &Candidate)| {
            c.verified == Some(member) || self.told.has(member.boot, **to) && !is_other(c)
        };
        let known = self.candidates.iter().filter(theirs).map(|(to, _)| *to);
        let told = self.told.of(member.boot);
        let is_new = |to: &SocketAddr| !self.candidates.contains_key(to);
        known.chain(told.filter(|to| self.policy.allows(*to) && is_new(to))).collect()
    }

    /// Adverts of other namespaces or versions, for reports like "another cluster is here". They
    /// are never dialled.
    pub fn others(&self) -> impl Iterator<Item = &Advert> {
        self.adverts.others()
    }

    /// Nodes of our own namespace that have told that they run other jobs.
    pub fn other_jobs(&self, now_ms: u64) -> impl Iterator<Item = &JobMember> {
        self.other_jobs.named(now_ms)
    }

    /// Nodes of our own job that announce no address in our own subnets, and are not linked.
    pub fn elsewhere(&self) -> impl Iterator<Item = &Advert> {
        let is_far = |advert: &&Advert| {
            let near = |to: &SocketAddr| self.policy.allows_advertised(*to);
            !self.links.has(advert.boot) && !advert.addresses.iter().any(near)
        };
        let ours = self.adverts.ours().filter(|seen| !seen.observes);
        ours.map(|seen| &seen.advert).filter(is_far)
    }

    /// Whether another node of our own job is announced that has had no link in this run: one that
    /// was killed is announced for two more minutes.
    pub fn sees_ours(&self) -> bool {
        let is_new = |seen: &Seen| !seen.observes && self.links.met(seen.advert.boot).is_none();
        self.adverts.ours().any(is_new)
    }

    /// Whether the node that has answered at this address has a link.
    pub fn has_link_at(&self, to: SocketAddr) -> bool {
        self.candidates.get(&to).is_some_and(|candidate| candidate.is_linked(self.links.proven()))
    }

    /// Whether a node that has answered on this host has a link.
    pub fn has_link_on(&self, host: IpAddr) -> bool {
        let here = self.candidates.iter().filter(|(to, _)| to.ip() == host);
        here.map(|(_, candidate)| candidate)
            .any(|candidate| candidate.is_linked(self.links.proven()))
    }

    /// Whether any node is announced that is of another cluster, job or version.
    pub fn sees_others(&self) -> bool {
        self.others().next().is_some() || self.other_jobs.any()
    }

    /// The standing of an address; `None` if it is not dialled any more, or is an observer's.
    pub fn evidence(&self, to: SocketAddr) -> Option<AddressEvidence> {
        let is_told = |c: &&Candidate| c.is_known() && !self.observe(&c.boots);
        let candidate = self.candidates.get(&to).filter(is_told)?;
        let announced = candidate.boots.first().copied();
        // Whichever end has dialled.
        let answered = announced.map_or(candidate.verified, |boot| self.links.met(boot));
        Some(match (answered, announced) {
            (Some(member), _) => AddressEvidence::Answered(member),
            (None, Some(boot)) => AddressEvidence::Announced(boot),
            _ if candidate.origins.contains(&Origin::Fixed) => AddressEvidence::ByHand,
            _ => AddressEvidence::Hearsay,
        })
    }

    /// Whether a dial of each configured address of this host has ended, but for those where a node
    /// is known. A peer that is named without a port has 16 addresses.
    pub fn is_tried(&self, host: IpAddr) -> bool {
        let waits = |c: &Candidate| {
            let nobody_is_known = c.boots.is_empty() && c.verified.is_none();
            c.origins.contains(&Origin::Fixed) && nobody_is_known && !c.tried
        };
        let ports = SocketAddr::new(host, 0)..=SocketAddr::new(host, u16::MAX);
        !self.candidates.range(ports).any(|(_, candidate)| waits(candidate))
    }

    /// All entries, in the order of addresses.
    #[cfg(test)]
    pub fn entries(&self) -> Vec<Entry> {
        let entry = |(address, c): (&SocketAddr, &Candidate)| Entry {
            address: *address,
            boots: c.boots.iter().copied().collect(),
            origins: c.origins.iter().copied().collect(),
            verified: c.verified,
            linked: c.is_linked(self.links.proven()),
            failures: c.failures,
            outcome: c.outcome,
        };
        self.candidates.iter().map(entry).collect()
    }

    fn forget_links(&mut self, member: MemberId) {
        self.links.down(member);
        self.told.forget(member.boot);
    }

    fn relation_of(&self, advert: &Advert) -> Relation {
        match advert.tags {
            Some(tags) if advert.version == PROTOCOL_VERSION => (self.relation)(advert.boot, tags),
            _ => Relation::OtherCluster,
        }
    }

    fn appeared(&mut self, mut advert: Advert, observes: bool, now_ms: u64) {
        self.other_jobs.vanished(&advert.instance);
        advert.addresses.truncate(Advert::ADDRESSES_MAX);
        let (boot, addresses) = (advert.boot, advert.addresses.clone());
        let before = self.adverts.insert(Seen { advert, seen_ms: now_ms, observes });
        self.bound_adverts(boot);
        self.advertised(boot, &addresses, now_ms);
        self.withdraw_addresses(before);
    }

    fn advertised(&mut self, boot: Boot, addresses: &[SocketAddr], now_ms: u64) {
        for to in addresses {
            if !self.policy.allows_advertised(*to) {
                continue;
            }
            let Some(candidate) = self.candidate(*to, false) else { continue };
            let new = candidate.boots.insert(boot);
            // If a node that is no peer answered there, only an advert of a new boot makes the
            // address due again.
            if new || candidate.outcome.is_none() {
                candidate.refresh(now_ms);
            }
            candidate.seen_ms = candidate.seen_ms.max(now_ms);
        }
    }

    fn other_job_appeared(&mut self, advert: Advert, now_ms: u64) {
        let before = self.adverts.remove(&advert.instance);
        self.withdraw_addresses(before);
        self.other_jobs.appeared(advert, now_ms);
    }

    fn other_appeared(&mut self, mut advert: Advert, now_ms: u64) {
        self.other_jobs.vanished(&advert.instance);
        advert.addresses.truncate(Advert::ADDRESSES_MAX);
        let seen = Seen { advert, seen_ms: now_ms, observes: false };
        let before = self.adverts.insert_other(seen, self.limits.others);
        self.withdraw_addresses(before);
    }

    fn vanished(&mut self, instance: &str) {
        self.other_jobs.vanished(instance);
        let Some(advert) = self.adverts.remove(instance) else { return };
        for to in &advert.addresses {
            // After a good-bye there is no reason to remember its addresses.
            if let Some(candidate) = self.candidates.get_mut(to)
                && candidate.verified.is_none_or(|member| member.boot == advert.boot)
            {
                candidate.origins.remove(&Origin::Remembered);
            }
        }
        self.withdraw_addresses(Some(advert));
    }

    /// Removes the boot of a removed or replaced advert from addresses that none of its remaining
    /// adverts lists.
    fn withdraw_addresses(&mut self, gone: Option<Advert>) {
        let Some(advert) = gone else { return };
        for to in advert.addresses {
            if !self.adverts.list(advert.boot, to)
                && let Some(candidate) = self.candidates.get_mut(&to)
            {
                candidate.boots.remove(&advert.boot);
            }
            self.forget_unknown(to);
        }
    }

    fn authenticated(&mut self, to: SocketAddr, member: MemberId, now_ms: u64) {
        self.link_up(member);
        if let Some(candidate) = self.candidate(to, true) {
            (candidate.dialing, candidate.tried) = (false, true);
            candidate.authenticated(member, now_ms);
        }
        // Adverts of other boots that list this address are out of date.
        self.adverts.withdraw_from_others(to, member.boot);
    }

    /// Removes an address without boots and origins, unless its link or a dial in flight needs it.
    fn forget_unknown(&mut self, to: SocketAddr) {
        let needed = |c: &Candidate| {
            c.is_known() || c.dialing || c.is_linked(self.links.proven()) && c.verified.is_some()
        };
        if self.candidates.get(&to).is_some_and(|candidate| !needed(candidate)) {
            self.candidates.remove(&to);
        }
    }

    /// The candidate of an address, created if there is room.
    fn candidate(&mut self, to: SocketAddr, trusted: bool) -> Option<&mut Candidate> {
        if !self.candidates.contains_key(&to) && !self.make_room(to, trusted) {
            return None;
        }
        Some(self.candidates.entry(to).or_default())
    }

    fn make_room(&mut self, to: SocketAddr, trusted: bool) -> bool {
        let unproven = |c: &Candidate| !c.is_trusted();
        let same_ip =
            self.candidates.iter().filter(|(at, c)| at.ip() == to.ip() && unproven(c)).count();
        let per_ip =
            if to.ip().is_loopback() { self.limits.per_loopback_ip } else { self.limits.per_ip };
        if !trusted && same_ip >= per_ip {
            return self.evict(|at, c| at.ip() == to.ip() && unproven(c));
        }
        if self.candidates.len() < self.limits.entries {
            return true;
        }
        self.evict(|_, c| unproven(c))
            || trusted && self.evict(|_, c| !c.origins.contains(&Origin::Fixed))
    }

    /// Evicts the address among `which` with the oldest sighting. Addresses with a dial in flight
    /// or a linked peer stay.
    fn evict(&mut self, which: impl Fn(&SocketAddr, &Candidate) -> bool) -> bool {
        let idle = |c: &Candidate| !c.dialing && !c.is_linked(self.links.proven());
        let oldest = self
            .candidates
            .iter()
            .filter(|(at, c)| idle(c) && which(at, c))
            .min_by_key(|(at, c)| (c.seen_ms, **at));
        let Some(oldest) = oldest.map(|(at, _)| *at) else { return false };
        self.candidates.remove(&oldest);
        true
    }

    fn bound_adverts(&mut self, boot: Boot) {
        while let Some(gone) = self.adverts.remove_surplus_of(boot, self.limits.per_boot) {
            self.withdraw_addresses(Some(gone));
        }
        let entries = self.limits.entries;
        while let Some(gone) =
            self.adverts.remove_surplus(entries, |boot| self.links.is_proven(boot))
        {
            self.withdraw_addresses(Some(gone));
        }
    }
}
