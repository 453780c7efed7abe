//! The course of one cell: a group, its fault, and the conditions that must hold.
//!
//! - *Bound.* A member that has lost another one, or all others, gets its answer within the
//!   promised time.
//! - *Buffer.* On every error it is unchanged; a result equals the reference, bit for bit.
//! - *Agreement.* Members that continue together have one outcome. A member left out of their View
//!   does not know the outcome. A member that was only frozen has no other outcome. A member that
//!   was cut off and saw another outcome must sync.
//! - *Next.* The remaining members complete the next operation correctly, or report that they are
//!   too few. So do all members after the fault has ended.
//! - No member reports that another one violated the protocol.

use std::fmt;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use potluck_harness::group::{PATIENCE, has_members};
use potluck_harness::outcome::{all_failed_as, answered_after, one_outcome, one_story};
use potluck_harness::peer::now_ms;
use potluck_harness::{Chance, Group, Lag};
use serde_json::{Value, json};

use crate::cells::Cell;
use crate::fault::{Fault, Held};
use crate::phase::Phase;

/// A line rate at which a call takes about a second.
const MBIT: u32 = 100;
/// 8 MiB of f32.
const LEN: usize = 2 << 20;

/// The deadline of a call that may lose packets.
const DEADLINE_MS: f64 = 10_000.0;
/// How much later a call with a deadline may end if the member that holds it up lives.
const GRACE_MS: f64 = 5000.0;
/// The bound for answers if members fall silent.
const SILENCE_MS: f64 = 3000.0;
/// The time after which a data link ends of which nothing is acknowledged.
const SWALLOWED_MS: f64 = 10_000.0;
/// The time after which a member is left out that waits for its disk.
const DISK_MS: f64 = 5000.0;
/// Added for each further member that is lost during the View change; also the time until a member
/// that is in no View asks for one.
const FURTHER_MS: f64 = 2000.0;

/// The other members' outcome of the call that the fault hit.
pub struct Answer {
    pub after_ms: f64,
    /// The outcome, if any of them knows it.
    pub ok: Option<bool>,
    /// How many of them were left out of the next View, so they cannot know the outcome.
    pub left_out: usize,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.ok {
            Some(true) => "ok",
            Some(false) => "aborted",
            None => "unknown",
        };
        write!(f, "{:.0} ms {outcome}", self.after_ms)?;
        if self.left_out > 0 { write!(f, ", {} left out", self.left_out) } else { Ok(()) }
    }
}

/// Runs the cell. On failure the nodes' logs are kept.
pub fn run(cell: &Cell, seed: u64) -> Result<Answer> {
    let mut chance = Chance::named(seed, &format!("{}/{}", cell.engine, cell.name()));
    let size = cell.members + cell.phase.extra();
    let victim = chance.below(cell.members);
    let group = Group::empty_at("loop", size, MBIT)?;
    cell.fault.prepare(&group, victim)?;
    let mut group = group.filled(size, 2)?;
    let result =
        Course { cell, group: &mut group, victim, lag: None, held: None }.take(&mut chance);
    result.map_err(|error| {
        let kept = group.keep_logs(&format!(
            "faults/{}-{}",
            cell.engine,
            cell.name().replace(", ", "-").replace(' ', "-")
        ));
        error.context(format!(
            "victim n{}; what the nodes wrote: {kept}; again: {}",
            victim + 1,
            cell.replay(seed)
        ))
    })
}

struct Course<'a> {
    cell: &'a Cell,
    group: &'a mut Group,
    victim: usize,
    /// This machine's scheduling delay since the fault.
    lag: Option<Lag>,
    /// The guard that has held the fault since then.
    held: Option<Held>,
}

impl Course<'_> {
    fn take(&mut self, chance: &mut Chance) -> Result<Answer> {
        let contexts = self.group.meet()?;
        ensure!(contexts[0]["engine"] == self.cell.engine, "not on that engine: {}", contexts[0]);
        self.group.remember()?;
        let ready = self.cell.fault.ready(self.group, self.victim, chance)?;
        let order = self.order(&contexts);
        let called_ms = now_ms();
        let call = (&order, self.callers());
        let held = self.cell.phase.struck_by(ready, self.group, self.victim, call, chance)?;
        self.held = Some(held);
        let (struck, struck_ms) = (Instant::now(), now_ms());
        self.lag = Some(Lag::begin());
        let mut since_ms = struck_ms;
        if self.cell.phase == Phase::Idle {
            self.everybody_calls(&order)?;
            since_ms = now_ms();
        }
        if self.cell.fault.has_deadline() {
            since_ms = if self.cell.phase == Phase::Idle { since_ms } else { called_ms };
        }
        let answer = match self.cell.fault {
            Fault::Kill | Fault::Leave | Fault::Restart => self.dies(since_ms)?,
            Fault::Stop(1) => self.pauses(since_ms, struck)?,
            Fault::Stop(_) => self.freezes(since_ms, struck)?,
            Fault::OneWay | Fault::Cut => self.is_cut_off(since_ms)?,
            Fault::Loss
            | Fault::NewAddress
            | Fault::Mtu
            | Fault::Flow
            | Fault::FlowOneWay
            | Fault::Reset => self.is_disturbed(since_ms)?,
            Fault::Redial => self.is_dialled_again(since_ms)?,
            Fault::DiskFull | Fault::DiskError => self.loses_its_disk(since_ms)?,
            Fault::Thread => self.is_halted(since_ms)?,
        };
        self.nobody_is_blamed()?;
        Ok(answer)
    }

    /// How many members make the call: the first ones.
    fn callers(&self) -> usize {
        match self.cell.phase {
            Phase::SubGroup => self.cell.members,
            _ => self.group.peers.len(),
        }
    }

    /// Whether a single member is left without the victim.
    fn is_of_two(&self) -> bool {
        self.group.peers.len() == 2
    }

    fn order(&self, contexts: &[Value]) -> Value {
        let mut order = json!({"do": "all_reduce", "len": LEN, "seed": 5});
        if self.cell.phase == Phase::SubGroup {
            let ranks = contexts.iter().take(self.callers()).map(|context| context["rank"].clone());
            order["group"] = ranks.collect();
        }
        if self.cell.fault.has_deadline() {
            order["deadline_ms"] = (DEADLINE_MS as u64).into();
        }
        order
    }

    fn everybody_calls(&mut self, order: &Value) -> Result<()> {
        let (is_gone, victim) = (self.cell.fault.is_death(), self.victim);
        let mut callers = self.group.chosen(|index| !is_gone || index != victim);
        callers.try_for_each(|peer| peer.order(order))
    }

    /// The victim's process has ended, and may have been started again.
    fn dies(&mut self, since_ms: f64) -> Result<Answer> {
        let (_, answer) = self.others_answer(since_ms)?;
        let victim = self.victim;
        if self.cell.fault == Fault::Leave {
            let ended = self.group.peers[victim].process().wait(PATIENCE)?;
            ensure!(ended.success(), "who left ended with {ended}");
        }
        if self.cell.fault == Fault::Restart {
            self.group.peers[victim].event("joined", PATIENCE)?;
            self.group.synced(victim).context("with the one that started again")?;
        } else if !self.is_of_two() {
            return self.others_go_on().map(|()| answer);
        } else {
            self.group.waits_alone(1 - victim)?;
            self.group.rejoin(victim)?;
            self.group.synced(victim).context("with the one that started again")?;
        }
        self.group.sum(100_001, 6)?;
        Ok(answer)
    }

    /// The victim is gone for less than the failure detector's timeout: usually nothing happens.
    fn pauses(&mut self, since_ms: f64, struck: Instant) -> Result<Answer> {
        self.thaws(struck)?;
        let (others, answer) = self.others_answer(since_ms)?;
        let own = self.own_answer(now_ms(), &others)?;
        self.comes_back(&others, &own)?;
        Ok(answer)
    }

    fn freezes(&mut self, since_ms: f64, struck: Instant) -> Result<Answer> {
        let (others, answer) = self.others_answer(since_ms)?;
        self.others_go_on()?;
        self.thaws(struck)?;
        let own = self.own_answer(now_ms(), &others)?;
        self.comes_back(&others, &own)?;
        Ok(answer)
    }

    fn thaws(&mut self, struck: Instant) -> Result<()> {
        // The duration of the fault.
        thread::sleep(self.cell.fault.lasts().saturating_sub(struck.elapsed()));
        self.heals()
    }

    fn heals(&mut self) -> Result<()> {
        drop(self.held.take());
        self.cell.fault.heal(self.group, self.victim)
    }

    /// One thread of the victim stands still, and its program waits with it.
    fn is_halted(&mut self, since_ms: f64) -> Result<Answer> {
        let (others, answer) = self.others_answer(since_ms)?;
        self.heals()?;
        let own = self.own_answer(now_ms(), &others)?;
        self.comes_back(&others, &own)?;
        Ok(answer)
    }

    /// The victim can promise nothing: it gives its calls up and says why, and the others go on.
    fn loses_its_disk(&mut self, since_ms: f64) -> Result<Answer> {
        let (others, answer) = self.others_answer(since_ms)?;
        let own = self.own_answer(since_ms, &others)?;
        let says = |status: &Value| status["reasons"].to_string().contains("for its disk");
        self.group.peers[self.victim].status_where(says, PATIENCE).context("it does not say so")?;
        self.others_go_on()?;
        self.heals()?;
        self.comes_back(&others, &own)?;
        Ok(answer)
    }

    /// A control link that is made anew costs nothing.
    fn is_dialled_again(&mut self, since_ms: f64) -> Result<Answer> {
        let before = self.group.peers[self.victim].status()?;
        let answer = self.is_disturbed(since_ms)?;
        if self.cell.phase != Phase::ViewChange {
            let after = self.group.peers[self.victim].status()?;
            let same = before["view"]["id"] == after["view"]["id"];
            ensure!(same && answer.ok == Some(true), "another View: {before}, then {after}");
        }
        Ok(answer)
    }

    /// Both sides have lost each other, and both get their answer before the cut is healed.
    fn is_cut_off(&mut self, since_ms: f64) -> Result<Answer> {
        let (others, answer) = self.others_answer(since_ms)?;
        let own = self.own_answer(since_ms, &others)?;
        self.others_go_on()?;
        self.group.peers[self.victim].status_where(|status| has_members(status, 1), PATIENCE)?;
        self.heals()?;
        self.comes_back(&others, &own)?;
        Ok(answer)
    }

    /// The victim may be lost or not.
    fn is_disturbed(&mut self, since_ms: f64) -> Result<Answer> {
        let (others, answer) = self.others_answer(since_ms)?;
        let own = self.own_answer(since_ms, &others)?;
        // At least one member is in the next View.
        ensure!(
            answer.ok.is_some() || own["code"] != "indeterminate",
            "nobody knows: {own} {others:?}"
        );
        self.heals()?;
        self.comes_back(&others, &own)?;
        Ok(answer)
    }

    /// The answers of all but the victim: within the bound, and with one outcome.
    fn others_answer(&mut self, since_ms: f64) -> Result<(Vec<Value>, Answer)> {
        let (victim, callers) = (self.victim, self.callers());
        let others = self
            .group
            .events(|index| index != victim && index < callers, "done", PATIENCE)
            .context("the others")?;
        let after_ms = answered_after(&others, since_ms);
        self.in_time(after_ms, self.bound_ms())
            .with_context(|| format!("the others: {others:?}"))?;
        let (left_out, together): (Vec<Value>, Vec<Value>) = others
            .iter()
            .cloned()
            .partition(|event| event["code"] == "indeterminate" && self.may_be_left_out());
        all_failed_as(&left_out, &["indeterminate"])?;
        let ok = together.first().map(|event| event["ok"] == true);
        match ok {
            // They may have known of the fault before they called.
            Some(false) if self.cell.phase == Phase::Idle => {
                all_failed_as(&together, &["aborted", "view-changed"])?;
            }
            Some(_) => one_outcome(&together)?,
            None => {}
        }
        let answer = Answer { after_ms, ok, left_out: left_out.len() };
        Ok((others, answer))
    }

    /// While the View loses and regains members one by one, even members that never lost each other
    /// may be separated for a moment. Of two, the one whose disk is well may make no View alone.
    fn may_be_left_out(&self) -> bool {
        let alone = self.is_of_two() && self.cell.fault.is_of_the_disk();
        alone || matches!(self.cell.fault, Fault::NewAddress | Fault::Loss)
    }

    /// The victim's answer: within the bound, with a correct or unchanged buffer. A frozen victim
    /// has no other outcome than the others.
    fn own_answer(&mut self, since_ms: f64, others: &[Value]) -> Result<Value> {
        let own = self.group.peers[self.victim].event("done", PATIENCE).context("the victim")?;
        let after_ms = answered_after(std::slice::from_ref(&own), since_ms);
        self.in_time(after_ms, self.bound_ms()).with_context(|| format!("the victim: {own}"))?;
        let verdict = if own["ok"] == true { "exact" } else { "untouched" };
        ensure!(own["verdict"] == verdict, "{own}");
        let known = ["aborted", "indeterminate", "view-changed"];
        ensure!(own["ok"] == true || known.iter().any(|code| own["code"] == *code), "{own}");
        let stood_still = matches!(self.cell.fault, Fault::Stop(_) | Fault::Thread);
        if stood_still && self.cell.phase != Phase::Idle {
            one_story(others, &own)?;
        }
        Ok(own)
    }

    /// The scheduling delay of this machine is added to the bound.
    fn in_time(&self, after_ms: f64, bound_ms: f64) -> Result<()> {
        let late_ms = self.lag.as_ref().map_or(0.0, Lag::ms);
        ensure!(
            after_ms <= bound_ms + late_ms,
            "answered after {after_ms:.0} ms, the machine being {late_ms:.0} ms late"
        );
        Ok(())
    }

    fn bound_ms(&self) -> f64 {
        let once = match self.cell.fault {
            Fault::Loss => DEADLINE_MS + SILENCE_MS,
            Fault::Thread => DEADLINE_MS + GRACE_MS,
            Fault::Stop(1) => 1000.0 + SILENCE_MS,
            // One side may find the other again before that has noticed a loss; then it learns from
            // messages that it was left out.
            Fault::NewAddress => SILENCE_MS + FURTHER_MS,
            fault if fault.swallows() => SWALLOWED_MS + SILENCE_MS,
            fault if fault.is_of_the_disk() => DISK_MS + SILENCE_MS + FURTHER_MS,
            _ => SILENCE_MS,
        };
        if self.cell.phase == Phase::ViewChange { once + FURTHER_MS } else { once }
    }

    /// The next operation without the victim.
    fn others_go_on(&mut self) -> Result<()> {
        let victim = self.victim;
        if self.is_of_two() {
            return self.group.waits_alone(1 - victim);
        }
        self.group.go_on(|index| index != victim).context("the others' next operation")
    }

    fn comes_back(&mut self, others: &[Value], own: &Value) -> Result<()> {
        self.group.catch_up(others, own).context("all together again")
    }

    fn nobody_is_blamed(&mut self) -> Result<()> {
        let victim = self.victim;
        let stays_away = !self.is_of_two() && matches!(self.cell.fault, Fault::Kill | Fault::Leave);
        for peer in self.group.chosen(|index| !stays_away || index != victim) {
            let status = peer.status()?;
            ensure!(status["counters"]["misbehaviours"] == 0, "{status}");
        }
        Ok(())
    }
}
