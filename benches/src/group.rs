//! A group of peers, of potluck or of bare Gloo, on machines of a lab, which executes commands.

use crate::machine::{Engine, Machines, PATIENCE};
use crate::turns::{Turn, Watch};
use anyhow::{Context, Result, ensure};
use potluck_harness::Child;
use serde_json::Value;
use std::path::Path;

/// The program that makes the calls.
#[derive(Clone, Copy, Debug)]
pub enum Who<'a> {
    /// This program with this engine; unencrypted over this interface, or "-" for none.
    Ours(Engine, &'a str),
    /// This program on a ring in the order of the peers, on the native engine; needs Gloo.
    Ring,
    /// The program at this path: Gloo without potluck.
    Bare(&'a Path),
}

/// The forming of a group of potluck.
#[derive(Clone, Copy, Debug)]
pub struct Forming {
    /// From the first start to the last member's View.
    pub took_s: f64,
    /// Processor seconds of all members until their Views.
    pub cpu_s: f64,
}

/// A running group, see the module.
pub struct Group {
    peers: Vec<Child>,
    /// A member of the View of a ring that is not in the ring, see `peer.rs`.
    beside: Option<Child>,
    is_bare: bool,
    forming: Option<Forming>,
    /// Declared after the processes, so it is dropped after them.
    _machines: Machines,
}

impl Group {
    /// One peer on each of `size` machines; returns when all are in the group and have measured
    /// their links.
    pub fn up(machines: Machines, size: usize, who: Who<'_>) -> Result<Group> {
        let start = |n: usize| match who {
            Who::Bare(program) => machines.bare(n, size, program),
            Who::Ours(engine, trusted) => machines.serve(n, size, trusted, engine),
            Who::Ring => {
                let mut peer = machines.ring(n, size + 1)?;
                let joined = said(&mut peer)?;
                ensure!(joined["joined"] == n, "not member {n}: {joined}");
                Ok(peer)
            }
        };
        let mut peers: Vec<Child> = (1..=size).map(start).collect::<Result<_>>()?;
        let beside = matches!(who, Who::Ring).then(|| start(size + 1)).transpose()?;
        let (engine, is_bare) = match who {
            Who::Bare(_) => (Value::Null, true),
            Who::Ours(engine, _) => (engine.word().into(), false),
            Who::Ring => (Engine::Native.word().into(), false),
        };
        let (mut born_s, mut formed_s, mut cpu_s) = (f64::MAX, 0.0, 0.0);
        for peer in &mut peers {
            let ready = said(peer)?;
            // Bare Gloo does not tell.
            let told = |what: &str| ready[what].as_f64().unwrap_or(f64::NAN);
            (born_s, formed_s) = (told("born_s").min(born_s), told("formed_s").max(formed_s));
            cpu_s += told("cpu_s");
            // A measurement must not be reported under the wrong engine.
            ensure!(
                ready["ready"] == true && ready["engine"] == engine,
                "not ready with engine {engine}: {ready}"
            );
        }
        let forming = (!is_bare).then_some(Forming { took_s: formed_s - born_s, cpu_s });
        let mut group = Group { peers, beside, is_bare, forming, _machines: machines };
        if !is_bare {
            group.ask("rest")?;
        }
        Ok(group)
    }

    /// `None` for bare Gloo.
    pub fn forming(&self) -> Option<Forming> {
        self.forming
    }

    pub fn size(&self) -> usize {
        self.peers.len()
    }

    /// Checks a sum, because the time of a wrong sum is meaningless. Also warms up. `how` is bare
    /// Gloo's algorithm, or potluck's codec, or empty.
    pub fn check(&mut self, bytes: usize, how: &str) -> Result<()> {
        let answers = self.ask(&self.order(bytes, 0, how))?;
        ensure!(
            answers.iter().all(|answer| answer["right"] == true),
            "a wrong sum at {bytes} bytes"
        );
        Ok(())
    }

    /// Makes `calls` calls in sequence, with a barrier before each.
    pub fn calls(&mut self, bytes: usize, calls: usize, how: &str) -> Result<Turn> {
        let watch = Watch::begin();
        let answers = self.ask(&self.order(bytes, calls, how))?;
        let mut turn = Turn { seconds: vec![0.0; calls], cpu_s: 0.0, stolen: watch.stolen() };
        for answer in &answers {
            let times = answer["us"]
                .as_array()
                .filter(|times| times.len() == calls)
                .context("a time for every call")?;
            for (slowest, time) in turn.seconds.iter_mut().zip(times) {
                *slowest = f64::max(*slowest, time.as_f64().context("a time")? / 1e6);
            }
            turn.cpu_s += answer["cpu_s"].as_f64().context("processor time")?;
        }
        Ok(turn)
    }

    fn order(&self, bytes: usize, calls: usize, how: &str) -> String {
        let words = if self.is_bare {
            format!("{bytes} {how} {calls}")
        } else {
            format!("{bytes} {calls} {how}")
        };
        words.trim_end().to_owned()
    }

    /// Sends a command to all peers; returns their answers.
    pub fn ask(&mut self, order: &str) -> Result<Vec<Value>> {
        self.peers.iter_mut().try_for_each(|peer| peer.tell(order))?;
        self.peers.iter_mut().map(said).collect()
    }

    pub fn end(mut self) -> Result<()> {
        self.peers.iter_mut().for_each(Child::end_input);
        // If it left first, the View would end during the others' last call.
        for peer in self.peers.iter_mut().chain(&mut self.beside) {
            peer.end_input();
            let status = peer.wait(PATIENCE)?;
            ensure!(status.success(), "a peer ended with {status}: {:?}", peer.stderr().last());
        }
        Ok(())
    }
}

/// The next line of JSON.
fn said(peer: &mut Child) -> Result<Value> {
    Ok(serde_json::from_str(&peer.wait_for_line(|line| line.starts_with('{'), PATIENCE)?)?)
}
