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
    let Some(paying) = CodecChoice::new(members, links, &plan) else { return plan };
    let autos: Vec<AutoCodecs> = plan.classes.iter().map(|class| paying.choice(class)).collect();
    plan.classes.iter_mut().zip(autos).for_each(|(class, auto)| class.auto = auto);
    plan.reason = format!("{}{}", without_codecs(&plan.reason), paying.reason(&plan));
    plan
}

/// The same plan with other codecs, if these save more than a tenth of the time of a large buffer
/// according to the current measurements; otherwise `None`. A smaller gain does not justify holding
/// calls.
pub fn with_better_codecs(members: &[MemberId], links: &LinkMap, present: &Plan) -> Option<Plan> {
    let paying = CodecChoice::new(members, links, present)?;
    let better = with_codecs(members, links, present.clone());
    let (class, other) = (better.class_for(LARGE_BYTES), present.class_for(LARGE_BYTES));
    let gains = |coarsest: &Coarsest| {
        let us = |class: &PlanClass| paying.us(class, LARGE_BYTES, class.auto.up_to(*coarsest));
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
    fn choice(&self, class: &PlanClass) -> AutoCodecs {
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
mod tests {
    use super::super::arrangement::arrange;
    use super::super::homes::{Home, Lan};
    use super::super::planner::gloo_plan;
    use super::*;
    use crate::protocol::{CodingSpeed, Engines};
    use crate::wire::assert_codec;
    use std::collections::BTreeMap;

    /// Wired members with these rates in Mbit/s, each of which encodes and decodes `mbps` MB/s.
    fn links_of(wired: &[u32], mbps: u32) -> (Vec<MemberId>, LinkMap) {
        let home = Home::new(&wired.iter().map(|rate| Lan::Wired(*rate)).collect::<Vec<_>>(), &[]);
        let mut links = home.link_map(|_| 0);
        home.members()
            .into_iter()
            .for_each(|member| links.set_coding(member, CodingSpeed::new(|_| mbps)));
        (home.members(), links)
    }

    fn taken(wired: &[u32], mbps: u32, engines: Engines) -> ([CodecId; 3], Plan) {
        let (members, links) = links_of(wired, mbps);
        let members: BTreeMap<MemberId, Engines> =
            members.into_iter().map(|member| (member, engines)).collect();
        let plan = arrange(&members, None, None, &links).plan;
        (
            Coarsest::ALL.map(|coarsest| plan.class_for(LARGE_BYTES).auto.up_to(coarsest).codec()),
            plan,
        )
    }

    #[test]
    fn slow_links_take_the_coarsest_and_fast_ones_none() {
        let all = Coarsest::ALL.map(Coarsest::id);
        for engines in [Engines::NATIVE, Engines::GLOO] {
            for size in [2, 3, 4, 8] {
                for (rate, expected) in
                    [(20, all), (94, all), (940, all), (25_000, [CodecId::None; 3])]
                {
                    let (taken, plan) = taken(&vec![rate; size], 5000, engines);
                    assert_eq!(taken, expected, "{size} of {rate} Mbit/s: {}", plan.reason);
                    assert!(
                        plan.reason.contains("Codec::auto takes")
                            && plan.reason.len() <= Plan::REASON_BYTES_MAX
                    );
                    assert_codec(&plan);
                }
            }
        }
    }

    #[test]
    fn a_slow_processor_makes_a_codec_not_worth_it() {
        let none = [CodecId::None; 3];
        assert_eq!(taken(&[940; 4], 100, Engines::NATIVE).0, none);
        assert_ne!(taken(&[94; 4], 100, Engines::NATIVE).0, none);
        let (members, mut links) = links_of(&[940; 4], 5000);
        links.set_coding(members[2], CodingSpeed::new(|_| 50));
        let slow = with_codecs(&members, &links, gloo_plan(4));
        assert_eq!(
            slow.class_for(LARGE_BYTES).auto,
            AutoCodecs::NONE,
            "one is enough: {}",
            slow.reason
        );
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let (members, mut links) = links_of(&[94; 4], 5000);
        links.set_coding(members[3], CodingSpeed::default());
        let plan = with_codecs(&members, &links, gloo_plan(4));
        assert!(plan.classes.iter().all(|class| class.auto == AutoCodecs::NONE));
        assert!(plan.reason.contains("not known how fast"), "{}", plan.reason);
        let (members, mut links) = links_of(&[94; 4], 5000);
        for member in &members {
            for other in members.iter().filter(|other| *other != member) {
                links.observe(*member, *other, super::super::link_map::Path::unmeasured(100));
            }
        }
        assert_eq!(with_codecs(&members, &links, gloo_plan(4)), gloo_plan(4));
    }

    #[test]
    fn another_choice_must_be_worth_it() {
        let (members, links) = links_of(&[94; 4], 5000);
        let better = with_better_codecs(&members, &links, &gloo_plan(4))
            .expect("int8 is four times as fast");
        assert_eq!(better.class_for(LARGE_BYTES).auto.up_to(Coarsest::Int8).codec(), CodecId::Int8);
        assert_eq!(with_better_codecs(&members, &links, &better), None);
        let (members, fast) = links_of(&[25_000; 4], 5000);
        let back = with_better_codecs(&members, &fast, &better)
            .expect("the links have become faster than the codec");
        assert_eq!(back.class_for(LARGE_BYTES).auto, AutoCodecs::NONE);
        assert_eq!(back.reason.matches(MARK).count(), 1, "{}", back.reason);
    }

    #[test]
    fn unequal_links_are_told_by_their_slowest() {
        let (taken, plan) = taken(&[9400, 9400, 9400, 94], 5000, Engines::NATIVE);
        assert_eq!(taken, Coarsest::ALL.map(Coarsest::id), "{}", plan.reason);
    }

    /// The plan of a home whose members encode at this speed, and its coding with int8 for a large
    /// buffer.
    fn plain(home: &Home, mbps: u32) -> (Plan, Coding) {
        let (members, mut links) = (home.members(), home.link_map(|_| 0));
        members.iter().for_each(|member| links.set_coding(*member, CodingSpeed::new(|_| mbps)));
        let members = members.into_iter().map(|member| (member, Engines::NATIVE)).collect();
        let plan = arrange(&members, None, None, &links).plan;
        let coding = plan.class_for(LARGE_BYTES).auto.up_to(Coarsest::Int8);
        assert!(plan.fits(home.size()));
        assert_codec(&plan);
        (plan, coding)
    }

    fn set(ranks: &[u8]) -> RankSet {
        ranks.iter().copied().map(Rank).collect()
    }

    #[test]
    fn a_cable_beside_a_radio_goes_without() {
        let home =
            Home::new(&[Lan::Wired(940), Lan::Wired(940), Lan::Radio(300), Lan::Radio(100)], &[]);
        let (plan, coding) = plain(&home, 5000);
        assert_eq!(coding, Coding::but_for(CodecId::Int8, set(&[0, 1])), "{}", plan.reason);
        assert!(plan.reason.contains("takes int8, but as it is from 0 to 1:"), "{}", plan.reason);
        // A slow processor makes skipping worth it too, or makes every codec too slow.
        assert_eq!(plain(&home, 500).1, coding);
        assert_eq!(plain(&home, 20).1, Coding::NONE);
    }

    #[test]
    fn a_cable_that_is_as_slow_as_the_rest_does_not() {
        // Unencoded data would take longer at the port of the rank that adds it.
        let (plan, coding) = plain(
            &Home::new(&[Lan::Wired(940), Lan::Wired(940), Lan::Wired(940), Lan::Wired(200)], &[]),
            5000,
        );
        let Algorithm::Trees { trees } = &plan.class_for(LARGE_BYTES).algorithm else {
            panic!("{plan:?}")
        };
        let root = trees[0].tree.root(4).expect("a root");
        assert_eq!(
            (trees.len(), coding),
            (1, Coding::but_for(CodecId::Int8, set(&[root.0]))),
            "{}",
            plan.reason
        );
        assert!(
            plan.reason.contains("takes int8: 64 MiB"),
            "nobody sends as it is: {}",
            plan.reason
        );
        // Beside a slower port it does not.
        let (plan, coding) = plain(
            &Home::new(&[Lan::Wired(940), Lan::Wired(940), Lan::Wired(940), Lan::Wired(100)], &[]),
            5000,
        );
        assert_eq!(coding, Coding::but_for(CodecId::Int8, set(&[0, 1, 2])), "{}", plan.reason);
        // One star of equal links: only the root, which has no uplink, skips the codec at no cost.
        let (members, links) = links_of(&[94; 4], 5000);
        let mut plan = Plan::mesh(4);
        plan.classes[0].algorithm = Algorithm::tree(Tree::star(Rank(2), 4));
        let coded = with_codecs(&members, &links, plan);
        assert_eq!(
            coded.classes[0].auto.up_to(Coarsest::Int8),
            Coding::but_for(CodecId::Int8, set(&[2]))
        );
        // Two stars: no rank is the root of both.
        let mut plan = coded;
        let star = |root| TreeShare { tree: Tree::star(Rank(root), 4), ppm: 500_000 };
        plan.classes[0].algorithm = Algorithm::Trees { trees: vec![star(0), star(1)] };
        let coded = with_codecs(&members, &links, plan);
        assert_eq!(coded.classes[0].auto.up_to(Coarsest::Int8), CodecId::Int8.into());
    }

    #[test]
    fn where_all_ways_are_fast_there_is_no_codec() {
        let (plan, coding) =
            plain(&Home::new(&[Lan::No; 3], &[(0, 1, 25_000), (1, 2, 16_000)]), 5000);
        assert_eq!(coding, Coding::NONE, "{}", plan.reason);
        assert!(plan.reason.contains("takes nothing:"), "{}", plan.reason);
    }

    #[test]
    fn rings_and_gloo_know_no_fast_and_slow_ways() {
        for engines in [Engines::NATIVE, Engines::GLOO] {
            let (_, plan) = taken(&[94; 4], 5000, engines);
            assert!(plan.classes.iter().all(|class| {
                Coarsest::ALL.iter().all(|c| class.auto.up_to(*c).plain().is_empty())
            }));
        }
    }

    #[test]
    fn many_ways_fit_in_a_sentence() {
        let mut machines = vec![Lan::Wired(9400); 14];
        machines.extend([Lan::Radio(300), Lan::Radio(100)]);
        let (plan, coding) = plain(&Home::new(&machines, &[]), 5000);
        assert_eq!(coding.plain().len(), 14, "{}", plan.reason);
        assert!(
            plan.reason.len() <= Plan::REASON_BYTES_MAX && plan.reason.contains(" more: 64 MiB"),
            "{}",
            plan.reason
        );
    }

    /// The knowledge of rank 0 while calls are held for measuring: each port has been measured, but
    /// not each path.
    #[test]
    fn ports_are_enough() {
        let members: Vec<MemberId> = Home::new(&[Lan::No; 4], &[]).members();
        let mut links = LinkMap::new();
        for (from, to) in members.iter().flat_map(|a| members.iter().map(move |b| (*a, *b))) {
            links.observe(from, to, super::super::link_map::Path::unmeasured(200));
        }
        let port = super::super::port::Port::unmeasured(crate::os::InterfaceKind::Ethernet, 0);
        for (a, b, kbps) in [
            (0, 1, 94_065),
            (1, 2, 93_978),
            (2, 3, 93_924),
            (3, 0, 94_148),
            (1, 3, 94_011),
            (0, 3, 93_851),
            (3, 1, 93_798),
            (3, 2, 94_111),
        ] {
            links.rate(
                members[a],
                members[b],
                port,
                std::num::NonZeroU32::new(kbps).expect("not 0"),
            );
        }
        members.iter().for_each(|member| links.set_coding(*member, CodingSpeed::new(|_| 5000)));
        let plan = super::super::planner::plan(&members, &links);
        let better =
            with_better_codecs(&members, &links, &plan).expect("int8 is four times as fast");
        assert_eq!(better.class_for(LARGE_BYTES).auto.up_to(Coarsest::Int8).codec(), CodecId::Int8);
    }
}
