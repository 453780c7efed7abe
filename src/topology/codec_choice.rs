//! The choice of codecs for calls that leave it to the plan.
//!
//! The member that makes a plan chooses codecs for each size class and ships them with the plan, so
//! that they are the same for all members. The choice depends on the measured rates of the links
//! and on the coding speed that each member has measured of itself. If any of these is unknown,
//! nothing is encoded.
//!
//! In tree plans, members with fast uplinks skip the codec if that hardly lengthens the call:
//! encoding for a cable beside a radio gains nothing, and unencoded data is exact.

use super::forecast::{GLOO_SEGMENT_BYTES_MAX, forecast_longer_us, forecast_us};
use super::link_map::LinkMap;
use super::network::Network;
use crate::compression::codec;
use crate::identity::MemberId;
use crate::protocol::{
    Algorithm, AutoCodecs, Coarsest, CodecId, Coding, Plan, PlanClass, Rank, RankSet, Tree,
    TreeShare, ranks,
};
use std::collections::BTreeSet;

/// The same plan with the codecs that are worth it according to the current measurements.
pub(super) fn with_codecs(members: &[MemberId], links: &LinkMap, mut plan: Plan) -> Plan {
    let Some(choice) = CodecChoice::new(members, links, &plan) else { return plan };
    let autos: Vec<AutoCodecs> =
        plan.classes.iter().map(|class| choice.codecs_for(class)).collect();
    plan.classes.iter_mut().zip(autos).for_each(|(class, auto)| class.auto = auto);
    let codecs = choice.reason(&plan);
    let before = Plan::cut_reason(without_codecs(&plan.reason), codecs.len());
    plan.reason = format!("{before}{codecs}");
    plan
}

/// The same plan with other codecs, if these save more than a tenth of the time of a large buffer
/// according to the current measurements; otherwise `None`. A smaller gain does not justify holding
/// calls.
pub fn with_better_codecs(members: &[MemberId], links: &LinkMap, present: &Plan) -> Option<Plan> {
    let choice = CodecChoice::new(members, links, present)?;
    let better = with_codecs(members, links, present.clone());
    let (class, other) = (better.class_for(LARGE_BYTES), present.class_for(LARGE_BYTES));
    let gains = |coarsest: &Coarsest| {
        let us = |class: &PlanClass| choice.us(class, LARGE_BYTES, class.auto.up_to(*coarsest));
        Some(us(other)? > us(class)? * WORTH_A_CHANGE)
    };
    Coarsest::ALL.iter().any(|coarsest| gains(coarsest) == Some(true)).then_some(better)
}

/// The inputs for predicting the duration of an encoded call.
pub(super) struct CodecChoice<'a> {
    network: Network,
    members: &'a [MemberId],
    links: &'a LinkMap,
    /// All pairs have a direct link and the plan relies on that, so a contribution is encoded once
    /// and sent directly to the rank that adds it.
    straight: bool,
}

impl<'a> CodecChoice<'a> {
    pub(super) fn new(
        members: &'a [MemberId],
        links: &'a LinkMap,
        plan: &Plan,
    ) -> Option<CodecChoice<'a>> {
        let network = Network::of(members, links).filter(|network| network.size > 1)?;
        let goes_whole = |class: &PlanClass| {
            !matches!(class.algorithm, Algorithm::Ring { .. } | Algorithm::Trees { .. })
        };
        Some(CodecChoice {
            straight: network.is_mesh() && plan.classes.iter().any(goes_whole),
            network,
            members,
            links,
        })
    }

    /// The codecs for a size class. Going from finer to coarser codecs, a codec is taken if the
    /// call then needs at most two thirds of the time with the best choice so far.
    fn codecs_for(&self, class: &PlanClass) -> AutoCodecs {
        let bytes = typical_bytes(class);
        AutoCodecs::new(|coarsest| {
            let Some(us) = self.us(class, bytes, Coding::NONE) else { return Coding::NONE };
            let rungs = Coarsest::ALL.into_iter().filter(|rung| *rung <= coarsest);
            let timed = rungs.filter_map(|rung| self.best(class, bytes, rung.id()));
            timed
                .fold(
                    (Coding::NONE, us),
                    |best, next| if next.1 * PAYS <= best.1 { next } else { best },
                )
                .0
        })
    }

    /// The best coding with one codec, and its duration in microseconds. Of the codings within 3 %
    /// of the shortest duration it is the one that most members skip.
    fn best(&self, class: &PlanClass, bytes: u64, id: CodecId) -> Option<(Coding, f64)> {
        let codings =
            self.plain_sets(&class.algorithm)?.into_iter().map(|plain| Coding::but_for(id, plain));
        let timed: Vec<(Coding, f64)> = codings
            .map(|coding| Some((coding, self.us(class, bytes, coding)?)))
            .collect::<Option<_>>()?;
        let least = timed.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
        timed
            .into_iter()
            .filter(|(_, us)| *us <= least * HARDLY_MORE)
            .max_by_key(|(coding, _)| coding.plain().len())
    }

    /// The candidate sets of members that skip the codec. In a tree plan they are the empty set
    /// and, for each uplink rate, the members whose uplinks all have at least this rate. The set of
    /// all members is left out.
    fn plain_sets(&self, algorithm: &Algorithm) -> Option<Vec<RankSet>> {
        let Algorithm::Trees { trees } = algorithm else { return Some(vec![RankSet::EMPTY]) };
        let kbps = |rank: Rank| {
            let links = trees.iter().filter_map(|share| share.tree.parent(rank));
            links
                .map(|parent| self.network.kbps(rank, parent))
                .try_fold(u32::MAX, |least, kbps| Some(least.min(kbps?)))
        };
        let slowest: Vec<(Rank, u32)> = ranks(self.network.size)
            .map(|rank| Some((rank, kbps(rank)?)))
            .collect::<Option<_>>()?;
        let rates: BTreeSet<u32> = slowest.iter().map(|(_, kbps)| *kbps).collect();
        let from = |least: &u32| {
            slowest.iter().filter(|(_, kbps)| kbps >= least).map(|(rank, _)| *rank).collect()
        };
        // The lowest rate would select all members.
        Some(rates.iter().skip(1).map(from).chain([RankSet::EMPTY]).collect())
    }

    /// The predicted duration for a buffer of `bytes` bytes, in microseconds; `None` if an input is
    /// unknown.
    fn us(&self, class: &PlanClass, bytes: u64, coding: Coding) -> Option<f64> {
        let [travel_us, coding_us] = self.travel_and_coding_us(class, bytes, coding)?;
        // One chunk is encoded while another one travels.
        Some(f64::max(travel_us, coding_us))
    }

    /// The travel time, and the coding time of the rank that has the most to encode and decode,
    /// with the load of a busy processor included. Both in microseconds; `None` if an input is
    /// unknown.
    pub(super) fn travel_and_coding_us(
        &self,
        class: &PlanClass,
        bytes: u64,
        coding: Coding,
    ) -> Option<[f64; 2]> {
        let is_gloo = matches!(
            class.algorithm,
            Algorithm::GlooRing | Algorithm::GlooBcube | Algorithm::GlooExchange
        );
        let chunk_bytes =
            if is_gloo { class.chunk_bytes.min(GLOO_SEGMENT_BYTES_MAX) } else { class.chunk_bytes };
        let Some(codec) = codec(coding.codec()) else {
            return Some([
                forecast_us(
                    &self.network,
                    &self.native_equivalent(&class.algorithm, false),
                    bytes,
                    chunk_bytes,
                )?,
                0.0,
            ]);
        };
        let algorithm = self.native_equivalent(&class.algorithm, true);
        // A class may allow more bytes than this machine can address.
        let elements = usize::try_from(bytes / 4).ok()?;
        let chunk = codec.encoded_len(chunk_bytes as usize / 4) as u32;
        let encoded = codec.encoded_len(elements) as u64;
        let longer_up = |rank| {
            if coding.plain().contains(rank) { bytes as f64 / encoded.max(1) as f64 } else { 1.0 }
        };
        let travel_us = forecast_longer_us(&self.network, &algorithm, encoded, chunk, longer_up)?;
        let coding_us = |rank: Rank| {
            let mbps =
                f64::from(self.links.coding(self.members[rank.index()]).mbps(coding.codec())?);
            Some(turns(&algorithm, rank, self.network.size, coding) * bytes as f64 / mbps)
        };
        let coding_us = ranks(self.network.size)
            .map(coding_us)
            .try_fold(0.0, |most, us| Some(f64::max(most, us?)))?;
        Some([travel_us, coding_us * BUSY])
    }

    /// An equivalent schedule of the native engine, which moves as many bytes over the same ports.
    /// For encoded calls, Gloo's schedules become a mesh of equal stars, and so do rings if
    /// `straight`.
    fn native_equivalent(&self, algorithm: &Algorithm, is_coded: bool) -> Algorithm {
        let size = self.network.size;
        let mesh = || {
            let ppm = |rank: Rank| {
                1_000_000 / size as u32 + u32::from(rank.0 == 0) * (1_000_000 % size as u32)
            };
            let star = |rank| TreeShare { tree: Tree::star(rank, size), ppm: ppm(rank) };
            Algorithm::Trees { trees: ranks(size).map(star).collect() }
        };
        match algorithm {
            Algorithm::Ring { .. } if is_coded && self.straight => mesh(),
            Algorithm::GlooRing | Algorithm::GlooBcube | Algorithm::GlooExchange if is_coded => {
                mesh()
            }
            Algorithm::GlooExchange => Algorithm::OneShot,
            Algorithm::GlooRing | Algorithm::GlooBcube => {
                Algorithm::Ring { order: ranks(size).collect() }
            }
            other => other.clone(),
        }
    }

    fn reason(&self, plan: &Plan) -> String {
        let class = plan.class_for(LARGE_BYTES);
        let time = |us: f64| format!("{:.0} ms", us / 1e3);
        let taken = class.auto.up_to(Coarsest::Int8);
        let Some(plain) = self.us(class, LARGE_BYTES, Coding::NONE).map(time) else {
            return String::new();
        };
        let codings = |id| Some(format!("{id} {}", time(self.best(class, LARGE_BYTES, id)?.1)));
        let coded: Vec<String> =
            [CodecId::Bf16, CodecId::Int8].into_iter().filter_map(codings).collect();
        if coded.is_empty() {
            return format!("{MARK}nothing, as it is not known how fast all members encode");
        }
        let name =
            if taken == Coding::NONE { "nothing".to_owned() } else { taken.codec().to_string() };
        let but = but_as_it_is(&class.algorithm, taken.plain());
        format!("{MARK}{name}{but}: 64 MiB take about {plain} as they are, {}", coded.join(", "))
    }
}

/// The part of a reason that names the uplinks with unencoded data; empty if there are none.
fn but_as_it_is(algorithm: &Algorithm, plain: RankSet) -> String {
    let Algorithm::Trees { trees } = algorithm else { return String::new() };
    let up = |share: &TreeShare, rank: Rank| Some((rank, share.tree.parent(rank)?));
    let links: BTreeSet<(Rank, Rank)> =
        trees.iter().flat_map(|share| plain.iter().filter_map(|rank| up(share, rank))).collect();
    let named: Vec<String> =
        links.iter().take(NAMED_MAX).map(|(from, to)| format!("{from} to {to}")).collect();
    match links.len() {
        0 => String::new(),
        all if all > NAMED_MAX => {
            format!(", but as it is from {} and over {} more", named.join(", "), all - NAMED_MAX)
        }
        _ => format!(", but as it is from {}", named.join(", ")),
    }
}

fn without_codecs(reason: &str) -> &str {
    reason.split(MARK).next().unwrap_or(reason)
}

/// The part of a reason that states the choices of `Codec::auto`, to follow another sentence.
pub fn of_codecs(reason: &str) -> &str {
    &reason[without_codecs(reason).len()..]
}

/// The buffer size for which the choice is made: [`LARGE_BYTES`] for classes that contain it,
/// otherwise half of the largest buffer of the class.
fn typical_bytes(class: &PlanClass) -> u64 {
    class.bytes_max.min(LARGE_BYTES) / if class.bytes_max < LARGE_BYTES { 2 } else { 1 }
}

/// How many times a rank encodes and decodes the whole buffer; only encoding or only decoding it
/// counts as one half.
fn turns(algorithm: &Algorithm, rank: Rank, size: usize, coding: Coding) -> f64 {
    let half_turns = match algorithm {
        // Its own contribution is encoded, and then all of them are decoded.
        Algorithm::OneShot => 1.0 + size as f64,
        Algorithm::Trees { trees } => trees
            .iter()
            .map(|share| f64::from(share.ppm) / 1e6 * in_tree(&share.tree, rank, coding) as f64)
            .sum(),
        Algorithm::Ring { .. } => 5.0,
        Algorithm::GlooExchange | Algorithm::GlooRing | Algorithm::GlooBcube => 0.0,
    };
    half_turns / 2.0
}

fn in_tree(tree: &Tree, rank: Rank, coding: Coding) -> usize {
    let is_coded = |rank: &Rank| !coding.plain().contains(*rank);
    let (children, is_root) = (tree.children(rank), tree.parents.get(rank.index()) == Some(&None));
    let below = children.iter().filter(|child| is_coded(child)).count();
    // Half turns for the data that goes up. A leaf encodes its contribution. An inner node encodes
    // and decodes its contribution, which rounds it, and encodes the sum. The root only rounds. A
    // member that skips the codec does none of this.
    let above = match (is_coded(&rank), is_root) {
        (false, _) => 0,
        (true, true) => 2,
        (true, false) if children.is_empty() => 1,
        (true, false) => 3,
    };
    // Every rank decodes the result; the root encodes it first.
    below + above + if is_root { 2 } else { 1 }
}

/// Separates the sentence about codecs from the rest of a plan's reason.
const MARK: &str = "; Codec::auto takes ";
/// The minimum speed-up for a lossy codec.
const PAYS: f64 = 1.5;
const WORTH_A_CHANGE: f64 = 1.1;
/// Skipping the codec may lengthen a call by this factor, because unencoded data is exact.
const HARDLY_MORE: f64 = 1.03;
/// The maximum number of uplinks that a reason names, which bounds its length.
const NAMED_MAX: usize = 6;
/// The slow-down of encoding in a call against encoding alone: the same threads also add, encrypt
/// and wait for each other, on processors that a program computes on.
const BUSY: f64 = 4.0;
const LARGE_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests;
