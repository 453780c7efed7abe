//! The messages of the command about a run.

use super::offer::Offer;
use super::variables::Place;
use super::verdict::Reason;
use super::writer::Writer;
use crate::exit::{Exit, Stop};
use potluck::Peer;
use serde_json::json;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Reports the events of a run. Clones say nothing twice.
#[derive(Clone)]
pub struct Notice {
    writer: Writer,
    waits: Rc<RefCell<String>>,
}

impl Notice {
    /// Has it written by this writer.
    pub fn new(writer: Writer) -> Notice {
        Notice { writer, waits: Rc::default() }
    }

    /// Waits until all is written, but not for long.
    pub fn finish(&self) {
        self.writer.finish();
    }

    /// The last printed reason of a wait: each is printed once until it changes.
    pub fn waits(&self, what: &str) {
        if *self.waits.borrow() != what {
            self.writer.say(format!("potluck: {what}"));
            what.clone_into(&mut self.waits.borrow_mut());
        }
    }

    /// A generation starts.
    pub fn started(&self, place: &Place<'_>, members: &[Peer]) {
        self.waits.borrow_mut().clear();
        let (layout, generation, master) = (place.layout, place.generation, place.master());
        let machines: Vec<&str> = layout
            .order
            .iter()
            .filter_map(|member| Some(members.get(*member)?.name.as_str()))
            .collect();
        let next = layout.first_ranks.get(place.machine + 1).copied().unwrap_or(layout.world);
        let ranks: Vec<usize> = (place.first_rank()..next).collect();
        let listed: Vec<String> = ranks.iter().map(usize::to_string).collect();
        self.writer.say(format!(
            "potluck: generation {generation} on {}: {} of {} here, master {master}",
            machines.join(", "),
            counted("rank", &listed),
            layout.world
        ));
        let (ip, port) = (master.ip(), master.port());
        self.writer.document(json!({
            "event": "started", "generation": generation, "machines": machines,
            "world": layout.world, "ranks": ranks, "master": ip, "port": port,
        }));
    }

    /// Machines whose users have typed another command are named.
    pub fn commands(&self, offers: &[&Offer], me: usize, members: &[Peer]) {
        let Some(own) = offers.get(me) else { return };
        let others = offers.iter().zip(members).filter(|(offer, _)| offer.command != own.command);
        let names: Vec<String> = others.map(|(_, member)| named(member)).collect();
        if !names.is_empty() {
            self.writer.say(format!(
                "potluck: warning: the commands differ: {} run another one than this machine",
                names.join(", ")
            ));
        }
    }

    /// The programs of a generation end, and others follow.
    pub fn stopped(&self, generation: u32, why: &Reason, started: &[Peer], members: &[Peer]) {
        let why = sentence(why, started, members);
        self.writer.say(format!("potluck: {why}; the programs end and start again"));
        let document = json!({ "event": "stopped", "generation": generation, "why": why });
        self.writer.document(document);
    }

    /// All programs have ended with 0.
    pub fn finished(&self) -> Exit {
        let why = "all programs have ended";
        self.writer.say(format!("potluck: {why}"));
        self.writer.document(json!({ "event": "ended", "why": why, "exit": 0 }));
        Exit::Done
    }

    /// The run has ended in another way.
    pub fn ended(&self, why: &Reason, started: &[Peer], members: &[Peer]) -> anyhow::Error {
        let sentence = sentence(why, started, members);
        match why {
            Reason::Failed { code, .. } => {
                Stop::with(Exit::Program(*code), "program-failed", sentence)
            }
            Reason::Interrupted { .. } => {
                Stop::with(Exit::PeerLost, "interrupted-elsewhere", sentence)
            }
            _ => Stop::with(Exit::PeerLost, "machine-lost", sentence),
        }
    }

    /// Too few machines have come.
    pub fn too_few(&self, waited: Duration) -> anyhow::Error {
        let sentence = format!(
            "gave up after {} s, as --wait says: {}; `potluck status` says more",
            waited.as_secs(),
            self.waits.borrow()
        );
        Stop::with(Exit::NoPeers, "not-enough-peers", sentence)
    }
}

/// Why a generation ends. Some of the machines that have `started` it may be lost.
fn sentence(why: &Reason, started: &[Peer], members: &[Peer]) -> String {
    let name = |machine: usize| members.get(machine).map_or_else(|| "a machine".to_owned(), named);
    match *why {
        Reason::Finished => "all programs have ended".to_owned(),
        Reason::Failed { machine, rank, code } => {
            format!("the program of rank {rank} on {} has ended with code {code}", name(machine))
        }
        Reason::Interrupted { machine } => format!("the run was interrupted on {}", name(machine)),
        Reason::Joined => "a machine has come or returned".to_owned(),
        Reason::Lost => {
            let is_here = |peer: &Peer| members.iter().any(|member| member.node == peer.node);
            let lost: Vec<String> =
                started.iter().filter(|peer| !is_here(peer)).map(named).collect();
            if lost.is_empty() {
                "a machine was lost".to_owned()
            } else {
                format!("{} was lost", lost.join(", "))
            }
        }
    }
}

fn named(peer: &Peer) -> String {
    peer.name.to_string()
}

fn counted(noun: &str, listed: &[String]) -> String {
    let ending = if listed.len() == 1 { "" } else { "s" };
    format!("{noun}{ending} {}", listed.join(", "))
}
