//! The supervisor of this machine: a member of the group that runs the programs.
//!
//! The supervisors tell each other their states in rounds. The consequence of the reports of a
//! round is the same on all machines, since all of them have the same reports or none.

use super::command::Command;
use super::layout::Layout;
use super::machine::Machine;
use super::notice::Notice;
use super::offer::interface;
use super::report::{Report, Rules, Stage};
use super::signals::{Ask, Signals};
use super::variables::Place;
use super::verdict::{Reason, Verdict, verdict};
use super::writer::Writer;
use crate::exit::{Exit, Stop};
use crate::output::Output;
use crate::picture::plain;
use anyhow::{Context as _, Result};
use potluck::report::State;
use potluck::{Cluster, Config, Context, Peer};
use rustix::process::Signal;
use std::future::pending;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// The supervisor of this machine.
pub struct Supervisor {
    cluster: Cluster,
    machine: Machine,
    signals: Signals,
    notice: Notice,
    /// How long too few machines are waited for.
    patience: Option<Duration>,
    /// Since when no program is to run, for want of machines.
    ready_since: Instant,
    /// The machines of the last generation, in the order of the View.
    started: Vec<Peer>,
    /// When to leave after an interrupt, also if the others do not answer.
    leave_at: Option<Instant>,
}

/// The consequence of a round.
enum Next {
    Round,
    /// The run ends on all machines.
    End(Reason, Vec<Peer>),
}

impl Supervisor {
    /// Joins the group of this run.
    pub async fn start(
        config: Config,
        rules: Rules,
        command: Command,
        patience: Option<Duration>,
        output: &Output,
    ) -> Result<Supervisor> {
        let (signals, writer) = (Signals::catch()?, Writer::start(output)?);
        let cluster = Cluster::join_with(config).await?;
        Ok(Supervisor {
            cluster,
            machine: Machine::new(rules, command, output, &writer),
            signals,
            notice: Notice::new(writer),
            patience,
            ready_since: Instant::now(),
            started: Vec::new(),
            leave_at: None,
        })
    }

    /// Supervises the run until it ends.
    pub async fn supervise(&mut self) -> Result<Exit> {
        loop {
            let (cluster, notice) = (self.cluster.clone(), self.notice.clone());
            let mut context = self.during(next_context(&cluster, &notice)).await??;
            let settled_at = Instant::now() + SETTLE;
            loop {
                let is_settled = Instant::now() >= settled_at;
                match self.round(&mut context, is_settled).await? {
                    None => break,
                    Some(Next::Round) => self.pause().await?,
                    Some(Next::End(why, members)) => return self.end(context, why, &members).await,
                }
            }
        }
    }

    /// Kills the programs that still run, shows their last output, and leaves the group.
    pub async fn leave(self) {
        let Supervisor { machine, cluster, notice, .. } = self;
        machine.finish();
        cluster.leave().await;
        notice.finish();
    }

    /// Exchanges the reports of all machines and acts on them. None when the View has changed.
    async fn round(&mut self, context: &mut Context, is_settled: bool) -> Result<Option<Next>> {
        let members = context.members();
        let own = self.machine.report(&self.cluster.status(), &members, is_settled)?;
        let bytes = own.encoded()?;
        let told = match self.during(context.all_gather_uneven(&bytes)).await? {
            Ok(told) => told,
            Err(error) if error.can_renew() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let decoded = |(bytes, peer): (&[u8], &Peer)| {
            Report::decoded(bytes, members.len()).map_err(|problem| not_a_report(peer, &problem))
        };
        let reports = told.iter().zip(&members).map(decoded).collect::<Result<Vec<Report>>>()?;
        match verdict(&reports) {
            Verdict::End(why) => return Ok(Some(Next::End(why, members))),
            Verdict::Stop { why, restarts } => self.stop(why, restarts, &members),
            // The others learn of an interrupt in the next round.
            Verdict::Start if self.machine.is_interrupted() => {}
            Verdict::Start => self.start_programs(context.rank().index(), &reports, &members)?,
            Verdict::Wait if own.stage == Stage::Ready => {
                let (here, wanted) = (members.len(), own.rules.members);
                self.notice.waits(&format!("{here} of {wanted} machines are here"));
            }
            Verdict::Wait => {}
        }
        if own.stage == Stage::Interrupted && self.machine.is_idle() {
            return Err(interrupted());
        }
        Ok(Some(Next::Round))
    }

    fn stop(&mut self, why: Reason, restarts: u32, members: &[Peer]) {
        self.machine.note_restarts(restarts);
        self.ready_since = Instant::now();
        if matches!(self.machine.stage(), Stage::Started { .. }) {
            self.notice.stopped(self.machine.generation(), &why, &self.started, members);
            self.machine.stop();
        }
    }

    /// Starts the next generation, if the offers allow it.
    fn start_programs(&mut self, me: usize, reports: &[Report], members: &[Peer]) -> Result<()> {
        let offers: Vec<_> = reports.iter().filter_map(|report| report.offer.as_ref()).collect();
        let layout = match Layout::of(&offers) {
            Ok(layout) => layout,
            // The links may be there a moment later.
            Err(problem) => {
                self.notice.waits(&problem.to_string());
                return Ok(());
            }
        };
        let place = layout.place(me).context("every member has a place")?;
        let generation = reports.iter().map(|report| report.generation).max().unwrap_or(0) + 1;
        let first = layout.order.first().copied().unwrap_or(me);
        let other = if first == me { layout.order.get(1) } else { Some(&first) };
        let status = self.cluster.status();
        let place = Place {
            machine: place,
            interface: other.and_then(|other| interface(&status, members.get(*other)?)),
            generation,
            restarts: self.machine.restarts(),
            layout: &layout,
        };
        self.notice.commands(&offers, me, members);
        self.notice.started(&place, members);
        self.started = members.to_vec();
        self.machine.start(&place)
    }

    /// Tells all that the run ends, ends the programs of this machine, and says why.
    async fn end(&mut self, mut context: Context, why: Reason, members: &[Peer]) -> Result<Exit> {
        let me = context.rank().index();
        // The run has a verdict, however long its programs take to end.
        self.patience = None;
        // Nobody leaves before all have the verdict: a machine that calls again has it.
        let bytes = self.machine.report(&self.cluster.status(), members, false)?.encoded()?;
        let last = tokio::time::timeout(LAST_ROUND, context.all_gather_uneven(&bytes));
        // An error means that others have gone already.
        let _ = self.during(last).await?;
        self.machine.stop();
        while !self.machine.is_idle() {
            self.during(sleep(PACE)).await?;
        }
        match why {
            Reason::Finished => Ok(self.notice.finished()),
            Reason::Interrupted { machine } if machine == me => Err(interrupted()),
            why => Err(self.notice.ended(&why, &self.started, members)),
        }
    }

    /// Waits until the next round, which comes early when something happens here.
    async fn pause(&mut self) -> Result<()> {
        let (until, stage) = (Instant::now() + PACE, self.machine.stage());
        while self.machine.stage() == stage && Instant::now() < until {
            tokio::select! {
                () = sleep_until(until) => {}
                event = self.event() => self.react(event)?,
            }
        }
        Ok(())
    }

    /// Does `work`, and meanwhile reacts to this machine's user and programs.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                event = self.event() => self.react(event)?,
            }
        }
    }

    /// The next event of this machine. Cancel-safe.
    async fn event(&mut self) -> Event {
        let give_up_at = self
            .patience
            .filter(|_| self.machine.stage() == Stage::Ready)
            .map(|patience| self.ready_since + patience);
        tokio::select! {
            ask = self.signals.next() => Event::Asked(ask),
            () = self.machine.change() => Event::Programs,
            () = at(self.leave_at) => Event::Leave,
            () = at(give_up_at) => Event::GiveUp,
        }
    }

    fn react(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Asked(ask) => self.machine.interrupt(match ask {
                Ask::Interrupt => Signal::INT,
                Ask::Terminate => Signal::TERM,
            }),
            // The wait for other machines begins when the programs have ended.
            Event::Programs if self.machine.stage() == Stage::Ready => {
                self.ready_since = Instant::now();
            }
            Event::Programs => {}
            Event::Leave => return Err(interrupted()),
            Event::GiveUp => return Err(self.notice.too_few(self.ready_since.elapsed())),
        }
        if self.machine.is_interrupted() && self.machine.is_idle() && self.leave_at.is_none() {
            // Time for one more round. Without a group there is nobody to tell.
            let is_alone = self.started.is_empty();
            self.leave_at = Some(Instant::now() + if is_alone { Duration::ZERO } else { GOODBYE });
        }
        Ok(())
    }
}

/// An event on this machine.
#[derive(Clone, Copy, Debug)]
enum Event {
    Asked(Ask),
    Programs,
    Leave,
    GiveUp,
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// The Context of the newest View. Says why it waits, whenever the reason changes.
async fn next_context(cluster: &Cluster, notice: &Notice) -> potluck::Result<Context> {
    let mut changes = cluster.watch();
    loop {
        tokio::select! {
            biased;
            context = cluster.context() => return context,
            Some(status) = changes.next() => match status.state {
                // A Context follows.
                State::Forming | State::In => {}
                state => notice.waits(&state.to_string()),
            },
        }
    }
}

fn interrupted() -> anyhow::Error {
    Stop::with(Exit::Interrupted, "interrupted", "interrupted; the programs have ended")
}

fn not_a_report(peer: &Peer, problem: &anyhow::Error) -> anyhow::Error {
    // It may name a field of the report, which is another machine's text.
    let problem = plain(&format!("{problem:#}"));
    let sentence = format!(
        "{peer} does not speak as this version does ({problem}): run the same version of potluck \
         on all machines"
    );
    Stop::with(Exit::OtherVersion, "other-version", sentence)
}

/// The time between two rounds.
const PACE: Duration = Duration::from_millis(300);

/// Fewer machines start when none has come or gone for so long.
const SETTLE: Duration = Duration::from_secs(3);

/// How long all are waited for at the end.
const LAST_ROUND: Duration = Duration::from_secs(5);

/// How long the others are waited for after an interrupt.
const GOODBYE: Duration = Duration::from_secs(2);
