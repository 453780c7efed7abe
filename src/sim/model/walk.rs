//! Random walks: long executions of larger groups, too many to explore exhaustively.
//!
//! During a walk the network splits, heals, loses and repeats messages, and nodes repeat their
//! messages as they do when links return. At the end all messages in flight are lost, and one node
//! proposes a View of all.

use super::super::claims::Claim;
use super::action::Action;
use super::state::{Budget, ModelState, place};
use super::{Calls, Group, Partition};
use crate::collective::LedgerBounds;
use crate::protocol::Mutant;

/// Steps of a walk, at most.
const STEPS: u32 = 400;

/// The result of a walk.
#[derive(Clone, Debug, Default)]
pub(super) struct WalkResult {
    pub(super) steps: u64,
    pub(super) broken: Vec<Claim>,
    /// The final proposal of all nodes did not succeed although nothing hindered it.
    pub(super) stuck: bool,
}

/// The walk with this seed. Without `nodes` the seed chooses 3 to 5 nodes.
pub(super) fn walk(
    seed: u64,
    nodes: Option<u8>,
    (partition, kind): (Partition, WalkKind),
    mutant: Option<Mutant>,
    trace: &mut Vec<String>,
) -> WalkResult {
    let mut rng = Rng::of(seed);
    let nodes = nodes.unwrap_or_else(|| 3 + rng.below(3) as u8);
    let calls = if rng.below(3) == 0 {
        Calls::AtInstall
    } else {
        Calls::ByPrograms(1 + rng.below(3) as usize)
    };
    let cut_offs = if partition == Partition::Majority && rng.below(2) == 0 { 4 } else { 0 };
    let budget = Budget {
        proposals: 40,
        crashes: 6,
        aborts: if rng.below(2) == 0 { 0 } else { 6 },
        cut_offs,
        calls: 300,
        ..Budget::default()
    };
    let slow_disks = rng.below(2) == 0;
    let plain = Group { nodes, calls, slow_disks, mutant, ..Group::of(partition, budget) };
    let group = match kind {
        WalkKind::Basic => plain,
        WalkKind::Extended => extended(plain, &mut rng),
    };
    let mut state = group.first();
    let mut walked = WalkResult::default();
    let mut sides = vec![0; usize::from(nodes)];
    for _ in 0..STEPS {
        match rng.below(50) {
            0 | 1 => sides.iter_mut().for_each(|side| *side = rng.below(2)),
            2 | 3 => sides.fill(0),
            _ => {}
        }
        let Some(action) = pick(&group, &state, &sides, &mut rng) else { continue };
        state = group.after_traced(&state, &action, trace);
        walked.steps += 1;
        if !group.answers && rng.below(40) == 0 && !state.packets.is_empty() {
            state.packets.remove(rng.below(state.packets.len() as u64) as usize);
        }
        if broken(&group, &state).next().is_some() {
            break;
        }
    }
    if broken(&group, &state).next().is_none() {
        state = settle(&group, state, &mut rng, &mut walked, trace);
    }
    walked.broken = broken(&group, &state).collect();
    walked
}

/// How much happens in a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkKind {
    /// Calls in one lane, and single messages are lost.
    Basic,
    /// Calls in several lanes, also of a sub-group, small limits, changes of the plan, nodes that
    /// tell each other of their Views; messages are lost with their links, which are made anew.
    Extended,
}

fn extended(group: Group, rng: &mut Rng) -> Group {
    let lanes = 1 + rng.below(3) as u32;
    let bounds = LedgerBounds { in_flight: 2, listed: 2 };
    let has_plans = rng.below(2) == 0;
    let has_sub_group = rng.below(2) == 0;
    let by_programs = lanes > 1 || has_sub_group;
    Group {
        calls: if by_programs { Calls::ByPrograms(4) } else { group.calls },
        lanes,
        has_sub_group,
        bounds: if rng.below(2) == 0 { bounds } else { LedgerBounds::default() },
        has_plans,
        keeps_together: group.partition == Partition::Continue && rng.below(2) == 0,
        answers: true,
        budget: Budget { losses: 20, plans: if has_plans { 10 } else { 0 }, ..group.budget },
        ..group
    }
}

fn broken<'a>(group: &'a Group, state: &'a ModelState) -> impl Iterator<Item = Claim> {
    group.claims().filter(|claim| !group.holds(*claim, state))
}

fn pick(group: &Group, state: &ModelState, sides: &[u64], rng: &mut Rng) -> Option<Action> {
    let n = rng.below(u64::from(group.nodes)) as u8;
    let other = rng.below(u64::from(group.nodes)) as u8;
    let apart = |a: usize, b: usize| sides[a] != sides[b];
    let mut some = Vec::new();
    if group.answers && rng.below(8) == 0 {
        match rng.below(4) {
            0 if state.budget.losses > 0 && n != other => some.push(Action::Redial(n, other)),
            1 if state.budget.plans > 0 && state.nodes[usize::from(n)].may_lead() => {
                some.push(Action::HoldAll(n));
            }
            2 => {
                group.tell(n, state, &mut some);
                some.retain(|tell| {
                    !matches!(
                        tell,
                        Action::Tell(from, _) if apart(usize::from(n), usize::from(*from))
                    )
                });
            }
            _ => {
                group.progress(state, &mut some);
                some.retain(|action| !matches!(action, Action::Deliver(_)));
            }
        }
        return (!some.is_empty()).then(|| some.swap_remove(rng.below(some.len() as u64) as usize));
    }
    match rng.below(100) {
        0..12 if state.budget.proposals > 0 => {
            // Mostly all reachable nodes, as an election would.
            let reach: Vec<u8> =
                (0..group.nodes).filter(|m| !apart(usize::from(n), usize::from(*m))).collect();
            if rng.below(2) == 0
                && reach.len() >= group.least()
                && group.may_propose(state, n, &reach)
            {
                return Some(Action::Propose(n, reach));
            }
            let may = group.proposals(n).filter(|members| group.may_propose(state, n, members));
            some.extend(may.map(|members| Action::Propose(n, members)));
        }
        12..14 if state.budget.crashes > 0 => some.push(Action::Crash(n)),
        14..18 if n != other && !apart(usize::from(n), usize::from(other)) => {
            some.push(Action::Remind(n, other));
        }
        18..19 if n != other && !apart(usize::from(n), usize::from(other)) => {
            some.push(Action::DataLink(n, other));
        }
        19 if state.budget.cut_offs > 0 && state.nodes[usize::from(n)].may_be_cut_off() => {
            some.push(Action::CutOff(n));
        }
        20..42 => (0..group.nodes).for_each(|n| group.calls(n, state, &mut some)),
        42..52 => {
            let writing =
                (0..group.nodes).filter(|n| !state.nodes[usize::from(*n)].writes.is_empty());
            some.extend(writing.map(Action::Write));
        }
        _ => {
            let arriving = state.packets.iter().filter(|p| !apart(place(p.from), place(p.to)));
            some.extend(arriving.cloned().map(Action::Deliver));
        }
    }
    // Callers give up less often than engines finish.
    if rng.below(4) > 0 {
        some.retain(|action| !matches!(action, Action::Abort(..)));
    }
    (!some.is_empty()).then(|| some.swap_remove(rng.below(some.len() as u64) as usize))
}

/// Loses all messages in flight. Then one node, which knows the highest ballot, proposes a View of
/// all; the proposal must always succeed.
fn settle(
    group: &Group,
    mut state: ModelState,
    rng: &mut Rng,
    walked: &mut WalkResult,
    trace: &mut Vec<String>,
) -> ModelState {
    write_all(group, &mut state);
    state.packets.clear();
    state.budget.proposals = 1;
    let n = rng.below(u64::from(group.nodes)) as u8;
    let round = state.nodes.iter().map(|node| node.agreement.promised().round).max().unwrap_or(0);
    state.nodes[usize::from(n)].change(|node| node.agreement.hear_of(round));
    state = group.after(&state, &Action::Propose(n, (0..group.nodes).collect()));
    for _ in 0..1000 {
        write_all(group, &mut state);
        let Some(packet) = state.packets.first().cloned() else { break };
        state = group.after_traced(&state, &Action::Deliver(packet), trace);
        walked.steps += 1;
    }
    let view = state.nodes[usize::from(n)].view.clone();
    let whole = view
        .as_ref()
        .is_some_and(|v| v.size() == usize::from(group.nodes) && v.ballot.round == round + 1);
    walked.stuck =
        !(whole && state.nodes.iter().all(|node| node.view == view && !node.agreement.is_frozen()));
    state
}

fn write_all(group: &Group, state: &mut ModelState) {
    while let Some(n) = (0..group.nodes).find(|n| !state.nodes[usize::from(*n)].writes.is_empty()) {
        *state = group.after(state, &Action::Write(n));
    }
}

/// A xorshift generator (Marsaglia 2003).
struct Rng(u64);

impl Rng {
    fn of(seed: u64) -> Rng {
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03);
        (0..8).for_each(|_| _ = rng.below(2));
        rng
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}
