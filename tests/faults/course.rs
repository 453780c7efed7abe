//! One cell: a group, its trouble, and what must hold.
//!
//! - *Bound.* Whoever has lost a member, or all of them, has its answer within the time that is
//!   promised.
//! - *Buffer.* On every error it is as it was; a result is the reference, bit for bit.
//! - *Agreement.* Those who go on together have one outcome, and who is left out of their View does
//!   not know it; who was only frozen has no other; who was cut off and saw another one has to
//!   sync.
//! - *Next.* Those who are left do the next operation right, or say that they are too few; and so
//!   do all, when all are back.
//! - Nobody thinks that another one broke the protocol.

use std::fmt;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::outcome::{all_exact, all_failed_as, answered_after, one_outcome, one_story};
use potluck_harness::peer::now_ms;
use potluck_harness::{Chance, Group, Lag};
use serde_json::{Value, json};

use crate::cells::Cell;
use crate::fault::Fault;
use crate::phase::Phase;

/// Cables that make a call last about a second.
const MBIT: u32 = 100;
/// 8 MiB of f32.
const LEN: usize = 2 << 20;

/// What the caller gives a call that may lose packets.
const DEADLINE_MS: f64 = 10_000.0;
/// For members of whom nothing is heard any more, until everybody has an answer.
const SILENCE_MS: f64 = 3000.0;
/// For each further one that is lost while the View changes; and until a member that is in no one's
/// View any more asks for another.
const FURTHER_MS: f64 = 2000.0;

/// What the others said of the call that was hit.
pub struct Answer {
    pub after_ms: f64,
    /// The outcome, if any of them knows it.
    pub ok: Option<bool>,
    /// How many were not in the next View that was made of theirs, and so cannot know.
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

/// Runs the cell. What its nodes wrote is kept if it fails.
pub fn run(cell: &Cell, seed: u64) -> Result<Answer> {
    let mut chance = Chance::named(seed, &format!("{}/{}", cell.engine, cell.name()));
    let mut group = Group::up_at("loop", cell.members + cell.phase.extra(), MBIT)?;
    let victim = chance.below(cell.members);
    let result = Course { cell, group: &mut group, victim, lag: None }.take(&mut chance);
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
    /// Of this machine, since the fault.
    lag: Option<Lag>,
}

impl Course<'_> {
    fn take(&mut self, chance: &mut Chance) -> Result<Answer> {
        let contexts = self.group.meet()?;
        ensure!(contexts[0]["engine"] == self.cell.engine, "not on that engine: {}", contexts[0]);
        self.group.remember()?;
        let ready = self.cell.fault.ready(self.group, self.victim, chance)?;
        let order = self.order();
        let called_ms = now_ms();
        self.cell.phase.struck_by(ready, self.group, self.victim, &order, chance)?;
        let (struck, struck_ms) = (Instant::now(), now_ms());
        self.lag = Some(Lag::begin());
        let mut since_ms = struck_ms;
        if self.cell.phase == Phase::Idle {
            self.everybody_calls(&order)?;
            since_ms = now_ms();
        }
        if self.cell.fault == Fault::Loss {
            since_ms = if self.cell.phase == Phase::Idle { since_ms } else { called_ms };
        }
        let answer = match self.cell.fault {
            Fault::Kill | Fault::Leave | Fault::Restart => self.dies(since_ms)?,
            Fault::Stop(1) => self.pauses(since_ms, struck)?,
            Fault::Stop(_) => self.freezes(since_ms, struck)?,
            Fault::OneWay | Fault::Cut => self.is_cut_off(since_ms)?,
            Fault::Loss | Fault::NewAddress => self.is_disturbed(since_ms)?,
        };
        self.nobody_is_blamed()?;
        Ok(answer)
    }

    fn order(&self) -> Value {
        let mut order = json!({"do": "all_reduce", "len": LEN, "seed": 5});
        if self.cell.fault == Fault::Loss {
            order["deadline_ms"] = (DEADLINE_MS as u64).into();
        }
        order
    }

    fn everybody_calls(&mut self, order: &Value) -> Result<()> {
        let is_gone = self.cell.fault.is_death();
        for (_, peer) in self
            .group
            .peers
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| !is_gone || *index != self.victim)
        {
            peer.order(order)?;
        }
        Ok(())
    }

    /// The process has ended, and may have been started again.
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
        } else if self.cell.members > 2 {
            return self.others_go_on().map(|()| answer);
        } else {
            self.group.waits_alone(1 - victim)?;
            self.group.restart(victim)?.ask(
                &json!({"do": "join", "min": 2}),
                "joined",
                PATIENCE,
            )?;
            self.group.synced(victim).context("with the one that started again")?;
        }
        all_exact(
            &self.group.all(&json!({"do": "all_reduce", "len": 100_001, "seed": 6}), "done")?,
        )?;
        Ok(answer)
    }

    /// It is gone for less time than anybody is missed after: mostly nothing happens.
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
        thread::sleep(self.cell.fault.lasts().saturating_sub(struck.elapsed()));
        self.cell.fault.heal(self.group, self.victim)
    }

    /// Both sides have lost each other, and both have their answer before that is mended.
    fn is_cut_off(&mut self, since_ms: f64) -> Result<Answer> {
        let (others, answer) = self.others_answer(since_ms)?;
        let own = self.own_answer(since_ms, &others)?;
        self.others_go_on()?;
        let alone = |status: &Value| {
            status["view"]["members"].as_array().is_some_and(|members| members.len() == 1)
        };
        self.group.peers[self.victim].status_where(alone, PATIENCE)?;
        self.cell.fault.heal(self.group, self.victim)?;
        self.comes_back(&others, &own)?;
        Ok(answer)
    }

    /// It may be lost or not.
    fn is_disturbed(&mut self, since_ms: f64) -> Result<Answer> {
        let (others, answer) = self.others_answer(since_ms)?;
        let own = self.own_answer(since_ms, &others)?;
        // Somebody is in the next View, or there would be no next View.
        ensure!(
            answer.ok.is_some() || own["code"] != "indeterminate",
            "nobody knows: {own} {others:?}"
        );
        self.cell.fault.heal(self.group, self.victim)?;
        self.comes_back(&others, &own)?;
        Ok(answer)
    }

    /// All but the victim, within the bound and with one outcome.
    fn others_answer(&mut self, since_ms: f64) -> Result<(Vec<Value>, Answer)> {
        let victim = self.victim;
        let others =
            self.group.events(|index| index != victim, "done", PATIENCE).context("the others")?;
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
            // They may have heard of it before they called.
            Some(false) if self.cell.phase == Phase::Idle => {
                all_failed_as(&together, &["aborted", "view-changed"])?
            }
            Some(_) => one_outcome(&together)?,
            None => {}
        }
        let answer = Answer { after_ms, ok, left_out: left_out.len() };
        Ok((others, answer))
    }

    /// While one of them loses and finds others one by one, even those who never lost each other
    /// may part for a moment.
    fn may_be_left_out(&self) -> bool {
        matches!(self.cell.fault, Fault::NewAddress | Fault::Loss)
    }

    /// The victim's own, within the bound, its buffer right or untouched. One that was frozen knows
    /// no other outcome.
    fn own_answer(&mut self, since_ms: f64, others: &[Value]) -> Result<Value> {
        let own = self.group.peers[self.victim].event("done", PATIENCE).context("the victim")?;
        let after_ms = answered_after(std::slice::from_ref(&own), since_ms);
        // The others may have found it again before it has missed them: then it learns from what
        // they say that they went on.
        let found_ms = if self.cell.fault == Fault::NewAddress { FURTHER_MS } else { 0.0 };
        self.in_time(after_ms, self.bound_ms() + found_ms)
            .with_context(|| format!("the victim: {own}"))?;
        let verdict = if own["ok"] == true { "exact" } else { "untouched" };
        ensure!(own["verdict"] == verdict, "{own}");
        let known = ["aborted", "indeterminate", "view-changed"];
        ensure!(own["ok"] == true || known.iter().any(|code| own["code"] == *code), "{own}");
        if matches!(self.cell.fault, Fault::Stop(_)) && self.cell.phase != Phase::Idle {
            one_story(others, &own)?;
        }
        Ok(own)
    }

    /// What this machine itself was late does not count.
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
            Fault::Stop(1) => 1000.0 + SILENCE_MS,
            _ => SILENCE_MS,
        };
        if self.cell.phase == Phase::ViewChange { once + FURTHER_MS } else { once }
    }

    /// Without the victim.
    fn others_go_on(&mut self) -> Result<()> {
        let victim = self.victim;
        if self.cell.members == 2 {
            return self.group.waits_alone(1 - victim);
        }
        self.group.go_on(|index| index != victim).context("the others' next operation")
    }

    fn comes_back(&mut self, others: &[Value], own: &Value) -> Result<()> {
        self.group.catch_up(others, own).context("all together again")
    }

    fn nobody_is_blamed(&mut self) -> Result<()> {
        let victim = self.victim;
        let stays_away =
            self.cell.members > 2 && matches!(self.cell.fault, Fault::Kill | Fault::Leave);
        for (_, peer) in self
            .group
            .peers
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| !stays_away || *index != victim)
        {
            let status = peer.status()?;
            ensure!(status["counters"]["misbehaviours"] == 0, "{status}");
        }
        Ok(())
    }
}
