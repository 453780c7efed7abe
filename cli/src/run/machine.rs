//! This machine's part in a run: its programs, or the ports for the next ones.

use super::command::Command;
use super::lines::Copiers;
use super::offer::{Offer, networks, paths};
use super::ports::Ports;
use super::programs::Programs;
use super::report::{Report, Rules, Stage};
use super::variables::Place;
use super::writer::Writer;
use crate::output::Output;
use anyhow::Result;
use potluck::{Peer, Status};
use rustix::process::Signal;

/// This machine's part in a run.
#[derive(Debug)]
pub struct Machine {
    rules: Rules,
    command: Command,
    copiers: Copiers,
    programs: Option<Programs>,
    /// For the next generation.
    ports: Option<Ports>,
    /// How many machines the generation has.
    machines: u8,
    generation: u32,
    restarts: u32,
    is_stopping: bool,
    is_interrupted: bool,
}

impl Machine {
    /// Before the first generation.
    pub fn new(rules: Rules, command: Command, output: &Output, writer: &Writer) -> Machine {
        Machine {
            rules,
            command,
            copiers: Copiers::new(output, writer),
            programs: None,
            ports: None,
            machines: 0,
            generation: 0,
            restarts: 0,
            is_stopping: false,
            is_interrupted: false,
        }
    }

    /// The stage of its programs.
    pub fn stage(&self) -> Stage {
        match &self.programs {
            _ if self.is_interrupted => Stage::Interrupted,
            None => Stage::Ready,
            Some(_) if self.is_stopping => Stage::Stopping,
            Some(programs) => {
                Stage::Started { machines: self.machines, progress: programs.progress() }
            }
        }
    }

    /// Its report to the members of a View, of which it has this status.
    pub fn report(
        &mut self,
        status: &Status,
        members: &[Peer],
        is_settled: bool,
    ) -> Result<Report> {
        let stage = self.stage();
        let offer = match stage {
            Stage::Ready => Some(self.offer(status, members)?),
            _ => None,
        };
        let Machine { generation, restarts, rules, .. } = *self;
        Ok(Report { stage, generation, restarts, is_settled, rules, offer })
    }

    fn offer(&mut self, status: &Status, members: &[Peer]) -> Result<Offer> {
        let Command { processes, port, .. } = self.command;
        let ports = match &mut self.ports {
            Some(ports) => ports,
            none => none.insert(Ports::hold(Offer::ports_of(processes), port)?),
        };
        Ok(Offer {
            processes,
            ports: ports.numbers().to_vec(),
            paths: paths(status, members),
            networks: networks(status),
            command: self.command.digest(),
        })
    }

    /// Starts the programs of a generation.
    pub fn start(&mut self, place: &Place<'_>) -> Result<()> {
        if let Some(ports) = self.ports.take() {
            ports.release();
        }
        self.generation = place.generation;
        self.machines = u8::try_from(place.layout.order.len()).unwrap_or(u8::MAX);
        self.programs = Some(Programs::start(place, &self.command, &self.copiers)?);
        Ok(())
    }

    /// Takes over how many restarts the group has used up.
    pub fn note_restarts(&mut self, restarts: u32) {
        self.restarts = restarts;
    }

    /// Ends its programs, if any run.
    pub fn stop(&mut self) {
        self.is_stopping = true;
        self.end(Signal::TERM);
    }

    /// Ends its programs, as its user wishes. A second time it kills them.
    pub fn interrupt(&mut self, signal: Signal) {
        if self.is_interrupted {
            self.programs.iter_mut().for_each(Programs::kill);
        } else {
            self.is_interrupted = true;
            self.end(signal);
        }
    }

    fn end(&mut self, signal: Signal) {
        let grace = self.command.grace;
        self.programs.iter_mut().for_each(|programs| programs.stop(signal, grace));
        self.tidy();
    }

    /// Whether its user has interrupted the run.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Whether no program runs.
    pub fn is_idle(&self) -> bool {
        self.programs.as_ref().is_none_or(Programs::have_ended)
    }

    /// Waits until something changes in its programs. Cancel-safe.
    pub async fn change(&mut self) {
        match &mut self.programs {
            Some(programs) => programs.change().await,
            None => std::future::pending().await,
        }
        self.tidy();
    }

    /// Forgets programs that were to end and have.
    fn tidy(&mut self) {
        if (self.is_stopping || self.is_interrupted) && self.is_idle() {
            self.programs = None;
            self.is_stopping = false;
        }
    }

    /// The last generation that it has started; 0 before the first.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// How often the run may start again, as its user has asked for.
    pub fn restarts(&self) -> u32 {
        self.rules.restarts
    }

    /// Kills the programs that still run, and shows their last output.
    pub fn finish(self) {
        let Machine { programs, copiers, .. } = self;
        programs.into_iter().for_each(|mut programs| programs.kill());
        copiers.finish();
    }
}
