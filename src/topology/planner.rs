//! The plan for homogeneous or unmeasured links: whole buffers to all ranks while they are small, a
//! ring above. If the direct links form no ring, all sizes use a tree.
//!
//! The proposer of a View plans and ships the result; followers only check that the plan fits the
//! View's size, its engine and its pairs without a direct link. The same members and links give the
//! same plan.

use super::link_map::LinkMap;
use super::rings::Rings;
use crate::identity::MemberId;
use crate::protocol::{Algorithm, Plan, PlanClass, Rank, Tree, ranks};
use std::collections::BTreeSet;

/// The plan for the members of a View, given in rank order; at most `MEMBERS_MAX`.
///
/// Small buffers are exchanged whole in one step if all pairs have a direct link. Larger ones use a
/// ring in the order with the smallest sum of round-trip times: the optimum for up to eight
/// members, a nearest-neighbour order above. Pairs without a direct link are not neighbours. If the
/// links form no ring, all sizes use the lowest tree of direct links. Two members also form a ring:
/// each reduces one half.
pub fn plan(members: &[MemberId], links: &LinkMap) -> Plan {
    if members.len() == 2 {
        return plan_of_two();
    }
    let rings = Rings::new(members, links);
    let direct = links.is_mesh(&members.iter().copied().collect());
    let ring = rings.best().filter(|_| members.len() > 2);
    let tree = if direct || ring.is_some() { None } else { lowest_tree(members, links) };
    let (reason, classes) = match (ring, tree) {
        (Some(order), _) => {
            let small = direct.then(|| class(SMALL_BYTES_MAX, 16, Algorithm::OneShot));
            (
                ring_reason(members, links, &order, &rings, direct),
                small.into_iter().chain(ring_classes(&order)).collect(),
            )
        }
        (None, Some(tree)) => {
            (tree_reason(members.len(), &tree), chunked(&Algorithm::tree(tree)).into())
        }
        (None, None) => (exchange_reason(members.len(), direct), exchange_classes()),
    };
    Plan { revision: 0, reason, classes }
}

/// Two members have only one ring, and they reach each other, because otherwise they would not
/// share a View.
fn plan_of_two() -> Plan {
    let small = class(SMALL_OF_TWO_BYTES_MAX, 64, Algorithm::OneShot);
    let classes = std::iter::once(small).chain(ring_classes(&[Rank(0), Rank(1)])).collect();
    let reason = "two members exchange whole buffers up to 32 KiB, which takes one step; of larger \
                  ones each adds up one half, which moves no more bytes and takes half the work";
    Plan { revision: 0, reason: reason.to_owned(), classes }
}

/// The classes for members of which nothing is known but that all pairs have a direct link.
pub(super) fn classes_by_rank(size: usize) -> Vec<PlanClass> {
    let order: Vec<Rank> = ranks(size).collect();
    let small = match size {
        0 | 1 => return exchange_classes(),
        2 => class(SMALL_OF_TWO_BYTES_MAX, 64, Algorithm::OneShot),
        _ => class(SMALL_BYTES_MAX, 16, Algorithm::OneShot),
    };
    std::iter::once(small).chain(ring_classes(&order)).collect()
}

/// The plan for members that run on Gloo, whose algorithms follow rank order.
pub fn gloo_plan(size: usize) -> Plan {
    // `chunk_bytes` is the segment size of Gloo's ring; the other algorithms ignore it. Threads
    // wait for each other at every segment, and over fast links that takes longer than the transfer
    // of a short segment. A longer segment is used only if each rank has at least four of them, so
    // that two are always in flight.
    let exchange = |bytes_max| class(bytes_max, 1024, Algorithm::GlooExchange);
    let bcube = class(MIB, 1024, Algorithm::GlooBcube);
    let four_each_of = |mib: u64| 4 * size as u64 * mib * MIB;
    let ring = |bytes_max, chunk_kib| class(bytes_max, chunk_kib, Algorithm::GlooRing);
    let rings =
        [ring(four_each_of(2) - 1, 1024), ring(four_each_of(4) - 1, 2048), ring(u64::MAX, 4096)];
    let (reason, classes) = if size == 2 {
        let reason = "two members on Gloo exchange whole buffers up to 64 KiB, which takes one \
                      step; bcube up to 1 MiB, its ring above";
        (reason.to_owned(), vec![exchange(64 * KIB), bcube])
    } else {
        let reason = format!(
            "{size} members on Gloo: bcube up to 1 MiB, which takes the fewest steps, and its \
             ring above"
        );
        (reason, vec![bcube])
    };
    let classes = classes.into_iter().chain(rings).collect();
    Plan { revision: 0, reason, classes }
}

/// The rank order of the next View: the staying members in their present order, then the joiners by
/// id.
pub fn rank_order(current: &[MemberId], members: &BTreeSet<MemberId>) -> Vec<MemberId> {
    let staying: Vec<MemberId> =
        current.iter().copied().filter(|id| members.contains(id)).collect();
    let joiners = members.iter().copied().filter(|id| !staying.contains(id));
    staying.iter().copied().chain(joiners).collect()
}

/// The lowest tree of direct links; `None` if these do not connect all members.
fn lowest_tree(members: &[MemberId], links: &LinkMap) -> Option<Tree> {
    let is_direct =
        |a: Rank, b: Rank| links.direct_both_ways(members[a.index()], members[b.index()]);
    Tree::lowest(members.len(), |at| {
        ranks(members.len()).filter(move |other| is_direct(at, *other))
    })
}

fn ring_classes(order: &[Rank]) -> [PlanClass; 3] {
    chunked(&Algorithm::Ring { order: order.to_vec() })
}

fn chunked(algorithm: &Algorithm) -> [PlanClass; 3] {
    let same = || algorithm.clone();
    // A segment should have several chunks, so that receiving, adding and sending overlap. But
    // below 32 KiB the cost per chunk exceeds the gain. Above 1 MiB, 256 KiB is the compromise
    // between the processor's cache and the cost of system calls.
    [class(256 * KIB, 32, same()), class(1024 * KIB, 64, same()), class(u64::MAX, 256, same())]
}

fn exchange_classes() -> Vec<PlanClass> {
    vec![class(1024 * KIB, 64, Algorithm::OneShot), class(u64::MAX, 256, Algorithm::OneShot)]
}

fn class(bytes_max: u64, chunk_kib: u32, algorithm: Algorithm) -> PlanClass {
    PlanClass::new(bytes_max, chunk_kib * 1024, algorithm)
}

fn exchange_reason(size: usize, direct: bool) -> String {
    match (size, direct) {
        (0 | 1, _) => "one member has nobody to talk to".to_owned(),
        (size, true) => format!("{size} members exchange whole buffers"),
        (size, false) => format!(
            "{size} members exchange whole buffers, because direct links do not join all of them"
        ),
    }
}

fn tree_reason(size: usize, tree: &Tree) -> String {
    let root = tree.root(size).map_or_else(String::new, |root| root.to_string());
    format!("{size} members over a tree of direct links to {root}, because these form no ring")
}

fn ring_reason(
    members: &[MemberId],
    links: &LinkMap,
    order: &[Rank],
    rings: &Rings,
    direct: bool,
) -> String {
    let (size, names) =
        (members.len(), order.iter().map(Rank::to_string).collect::<Vec<_>>().join("-"));
    let mut reason = format!("{size} members in a ring ({names}");
    let (slowest_us, round_us) = (slowest_us(members, links), rings.round_us(order));
    let Some((slowest_us, round_us)) = slowest_us.zip(round_us) else {
        return reason + "), chosen before all round trips were measured";
    };
    reason += &format!(", {} round", ms(round_us));
    let by_rank =
        (0..size).filter_map(|rank| u8::try_from(rank).ok()).map(Rank).collect::<Vec<_>>();
    if let Some(other_us) = rings.round_us(&by_rank).filter(|other_us| *other_us != round_us) {
        reason += &format!(" where rank order takes {}", ms(other_us));
    }
    if !direct {
        return reason + "); some pairs have no direct link";
    }
    // 2 (n - 1) steps of half an average round trip: 2 (n - 1) * round_us / n / 2.
    let ring_us = round_us * (size as u64 - 1) / size as u64;
    reason
        + &format!(
            "); small buffers go whole to everybody, about {} of latency against {}",
            ms(slowest_us / 2),
            ms(ring_us)
        )
}

/// The longest round-trip time of any pair; `None` if a pair is not measured.
fn slowest_us(members: &[MemberId], links: &LinkMap) -> Option<u64> {
    let pairs =
        members.iter().enumerate().flat_map(|(i, a)| members[..i].iter().map(move |b| (*a, *b)));
    let measured: Option<Vec<u32>> = pairs.map(|(a, b)| links.rtt_us(a, b)).collect();
    measured?.into_iter().max().map(u64::from)
}

fn ms(us: u64) -> String {
    format!("{}.{:02} ms", us / 1000, us % 1000 / 10)
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// Up to this size one step is faster than the ring's many steps on a wire (0.6 ms against 1.4 ms
/// at four members and 1 Gbit/s).
const SMALL_BYTES_MAX: u64 = 16 * KIB;
/// The same for two members: at 32 KiB both take 0.3 ms; at 64 KiB the ring takes 0.61 ms and the
/// exchange 0.70 ms.
const SMALL_OF_TWO_BYTES_MAX: u64 = 32 * KIB;

#[cfg(test)]
mod tests;
