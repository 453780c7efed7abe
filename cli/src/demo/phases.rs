//! The phases of the demo.

use super::group::{Agreed, Group};
use super::member::STATE_BYTES;
use super::message::{Answer, Event, Order};
use super::report::PhaseReport;
use crate::exit::{Exit, Stop};
use anyhow::{Context, Result, bail, ensure};
use std::time::Instant;

/// A phase of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Find,
    Sum,
    Kill,
    GoOn,
    Return,
}

/// A running demo.
pub struct Story {
    group: Group,
    seed: u64,
    killed: Option<(usize, Instant)>,
}

impl Phase {
    /// All phases in order.
    pub const ALL: [Phase; 5] = [Phase::Find, Phase::Sum, Phase::Kill, Phase::GoOn, Phase::Return];

    /// Its name in the JSON document. Stable.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Find => "find",
            Phase::Sum => "sum",
            Phase::Kill => "kill",
            Phase::GoOn => "go-on",
            Phase::Return => "return",
        }
    }

    /// Its row title in the table.
    pub fn title(self) -> &'static str {
        match self {
            Phase::Find => "find each other, one View",
            Phase::Sum => "all_reduce of 25 MiB",
            Phase::Kill => "a kill in the middle of 64 MiB",
            Phase::GoOn => "the others go on",
            Phase::Return => "the killed one is back",
        }
    }

    /// The text shown while it runs.
    pub fn doing(self) -> &'static str {
        match self {
            Phase::Find => "peers find each other by multicast DNS",
            Phase::Sum => "adding up 25 MiB",
            Phase::Kill => "killing one in the middle of 64 MiB",
            Phase::GoOn => "the others form a new group and go on",
            Phase::Return => "the killed one is started again and brought up to date",
        }
    }
}

impl Story {
    /// A demo before any peer is started.
    pub fn new(group: Group) -> Story {
        Story { group, seed: 1, killed: None }
    }

    /// Runs one phase; phases must run in order.
    pub async fn run(&mut self, phase: Phase) -> Result<PhaseReport> {
        match phase {
            Phase::Find => self.find().await,
            Phase::Sum => self.sum().await,
            Phase::Kill => self.kill().await,
            Phase::GoOn => self.go_on().await,
            Phase::Return => self.take_back().await,
        }
    }

    /// Lets all peers leave.
    pub async fn end(self) {
        for peer in self.group.peers {
            peer.end().await;
        }
    }

    /// Kills all peers; returns when all have ended, so that nothing is written any more.
    pub async fn interrupted(self) -> anyhow::Error {
        for mut peer in self.group.peers {
            // An error means that it has ended already.
            let _ = peer.kill().await;
        }
        Stop::with(Exit::Interrupted, "interrupted", "interrupted; the peers are ended")
    }

    async fn find(&mut self) -> Result<PhaseReport> {
        for place in 0..self.group.size() {
            self.group.start(place)?;
        }
        let started = Instant::now();
        for peer in &mut self.group.peers {
            peer.joined().await?;
        }
        let agreed = self.group.agree().await?;
        let note = format!("View {}, by mDNS, timed from the last start", agreed.view);
        Ok(PhaseReport::done(Phase::Find, &agreed, started.elapsed().as_secs_f64(), note))
    }

    async fn sum(&mut self) -> Result<PhaseReport> {
        // The first call in a View also opens the data links, so it is measured apart.
        let (agreed, cold) = self.reduced(SUM_LEN).await?;
        let mut warm = Vec::new();
        for _ in 0..ROUNDS {
            warm.push(self.reduced(SUM_LEN).await?.1);
        }
        warm.sort_by(f64::total_cmp);
        let median = warm[ROUNDS / 2];
        let note = format!("exact on every rank, {} times; the first took {cold:.3} s", ROUNDS + 1);
        Ok(PhaseReport::moved(Phase::Sum, &agreed, median, bus(agreed.size, SUM_LEN, median), note))
    }

    async fn kill(&mut self) -> Result<PhaseReport> {
        for _ in 0..TRIES {
            let agreed = self.group.agree().await?;
            if let Some(report) = self.kill_in(&agreed).await? {
                return Ok(report);
            }
        }
        bail!("the operation was over before the peer could be killed in it, {TRIES} times")
    }

    /// `None` if the operation ended before a peer could be killed in the middle of it.
    async fn kill_in(&mut self, agreed: &Agreed) -> Result<Option<PhaseReport>> {
        let started = Instant::now();
        let seed = self.next_seed();
        let order = |report_at| Order::Sum { len: KILL_LEN, seed, report_at };
        let survivors = self.group.peers.len() - 1;
        for peer in &mut self.group.peers[..survivors] {
            peer.tell(&order(None)).await?;
        }
        let victim = self.group.peers.last_mut().context("nobody runs")?;
        victim.tell(&order(Some(1.0 / 3.0))).await?;
        match victim.event().await? {
            Event::Progress => {}
            Event::Answered(own) => {
                let mut answers = Vec::new();
                for peer in &mut self.group.peers[..survivors] {
                    answers.push(peer.answer().await?);
                }
                answers.push(own);
                self.group.judge(&answers)?;
                return Ok(None);
            }
            other => bail!("{} said {other:?} in a call", victim.name()),
        }
        let killed_at = Instant::now();
        victim.kill().await?;
        self.group.peers.truncate(survivors);
        self.killed = Some((survivors, killed_at));
        let answers = self.group.answers().await?;
        let note = self.outcome(&answers)?;
        Ok(Some(PhaseReport::done(Phase::Kill, agreed, started.elapsed().as_secs_f64(), note)))
    }

    fn outcome(&self, answers: &[Answer]) -> Result<String> {
        self.group.judge(answers)?;
        let code = |answer: &Answer| answer.failure.as_ref().map(|failure| failure.code.clone());
        let first = code(&answers[0]);
        ensure!(
            answers.iter().all(|answer| code(answer) == first),
            "the survivors got different errors: {answers:?}"
        );
        let n = answers.len();
        let then = match first {
            None => format!("all {n} got the whole sum"),
            Some(code) => format!("all {n} got `{code}`, every buffer untouched"),
        };
        Ok(format!("SIGKILL when one had received a third; {then}"))
    }

    async fn go_on(&mut self) -> Result<PhaseReport> {
        let (_, killed_at) = self.killed.context("nobody was killed")?;
        let (agreed, _) = self.reduced(SMALL_LEN).await?;
        let note = format!(
            "View {}; from the kill to the next exact sum, all 64 MiB buffers checked in between",
            agreed.view
        );
        Ok(PhaseReport::done(Phase::GoOn, &agreed, killed_at.elapsed().as_secs_f64(), note))
    }

    async fn take_back(&mut self) -> Result<PhaseReport> {
        // In a View that is in sync this transfers nothing and reports the survivors' state.
        self.group.tell_all(&Order::Sync { version: VERSION }).await?;
        let held = self.group.answers().await?.first().context("nobody survived")?.hash;
        let started = Instant::now();
        let (place, _) = self.killed.context("nobody was killed")?;
        self.group.start(place)?;
        self.group.peers[place].joined().await?;
        while !self.synced(held).await? {}
        let (agreed, _) = self.reduced(SMALL_LEN).await?;
        let note =
            format!("View {}; it took over {STATE_BYTES} bytes of version {VERSION}", agreed.view);
        Ok(PhaseReport::done(Phase::Return, &agreed, started.elapsed().as_secs_f64(), note))
    }

    /// Brings all peers to one state. False if the View was replaced meanwhile.
    async fn synced(&mut self, expected: u64) -> Result<bool> {
        self.group.agree().await?;
        let newcomer = self.group.peers.len() - 1;
        for (i, peer) in self.group.peers.iter_mut().enumerate() {
            let version = if i == newcomer { 0 } else { VERSION };
            peer.tell(&Order::Sync { version }).await?;
        }
        let answers = self.group.answers().await?;
        let failures = || answers.iter().filter_map(|answer| answer.failure.as_ref());
        ensure!(
            failures().all(|failure| failure.is_retryable),
            "the states cannot be brought together: {answers:?}"
        );
        if failures().next().is_some() {
            return Ok(false);
        }
        ensure!(
            answers.iter().all(|answer| answer.hash == expected),
            "the peers hold different states: {answers:?}"
        );
        Ok(true)
    }

    /// One `all_reduce`, repeated until it runs in a stable View.
    async fn reduced(&mut self, len: usize) -> Result<(Agreed, f64)> {
        loop {
            let agreed = self.group.agree().await?;
            let seed = self.next_seed();
            if let Some(seconds) = self.group.all_reduce(len, seed).await? {
                return Ok((agreed, seconds));
            }
        }
    }

    fn next_seed(&mut self) -> u64 {
        self.seed += 1;
        self.seed
    }
}

/// The bus bandwidth: gigabytes per second that every all_reduce must move over the busiest link, 2
/// (n - 1) / n of the buffer.
fn bus(size: usize, len: usize, seconds: f64) -> f64 {
    let n = size as f64;
    2.0 * (n - 1.0) / n * (len * size_of::<f32>()) as f64 / seconds / 1e9
}

const SUM_LEN: usize = 25 << 18;
const KILL_LEN: usize = 64 << 18;
const SMALL_LEN: usize = 1 << 18;
const VERSION: u64 = 3;
const ROUNDS: usize = 3;
const TRIES: usize = 3;
