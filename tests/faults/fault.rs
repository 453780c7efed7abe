//! The faults of a member, and how they are injected.

use std::time::Duration;

use anyhow::{Result, bail};
use potluck_harness::{Armed, Chance, Group};
use serde_json::json;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT after this many seconds.
    Stop(u64),
    /// All traffic in one direction is dropped: what it sends, or what is sent to it.
    OneWay,
    /// Its cable is unplugged.
    Cut,
    /// A fifth of all frames is lost, in both directions.
    Loss,
    /// Its cable is unplugged and plugged in again, with another address.
    NewAddress,
    /// SIGTERM: the node leaves in an orderly way.
    Leave,
    /// SIGKILL, and the same node starts again at once.
    Restart,
}

pub const ALL: [Fault; 10] = [
    Fault::Kill,
    Fault::Stop(1),
    Fault::Stop(5),
    Fault::Stop(30),
    Fault::OneWay,
    Fault::Cut,
    Fault::Loss,
    Fault::NewAddress,
    Fault::Leave,
    Fault::Restart,
];

/// A prepared fault.
pub enum Ready {
    Process(Fault),
    Network(Armed),
}

impl Fault {
    /// The name that `--fault` accepts.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Stop(1) => "stop-1",
            Fault::Stop(5) => "stop-5",
            Fault::Stop(_) => "stop-30",
            Fault::OneWay => "one-way",
            Fault::Cut => "cut",
            Fault::Loss => "loss",
            Fault::NewAddress => "new-address",
            Fault::Leave => "leave",
            Fault::Restart => "restart",
        }
    }

    /// Whether the process ends.
    pub fn is_death(self) -> bool {
        matches!(self, Fault::Kill | Fault::Leave | Fault::Restart)
    }

    /// Prepares the fault of the node at `victim`.
    pub fn ready(self, group: &Group, victim: usize, chance: &mut Chance) -> Result<Ready> {
        let machine = format!("n{}", victim + 1);
        let way = ["up", "down"][chance.below(2)];
        let away_ms = (50 + chance.below(450)).to_string();
        let change: &[&str] = match self {
            Fault::OneWay => &["loss", &machine, "100", way],
            Fault::Cut => &["cut", &machine],
            Fault::Loss => &["loss", &machine, "20", "both"],
            Fault::NewAddress => &["readdress", &machine, &away_ms],
            Fault::Kill | Fault::Stop(_) | Fault::Leave | Fault::Restart => {
                return Ok(Ready::Process(self));
            }
        };
        Ok(Ready::Network(group.lab.armed(change)?))
    }

    /// Ends the fault as far as possible.
    pub fn heal(self, group: &mut Group, victim: usize) -> Result<()> {
        let machine = format!("n{}", victim + 1);
        match self {
            Fault::Stop(_) => group.peers[victim].process().resume(),
            Fault::OneWay | Fault::Loss => group.lab.tell(&["loss", &machine, "0"]).map(drop),
            Fault::Cut => group.lab.join(&machine),
            Fault::NewAddress => Ok(()),
            Fault::Kill | Fault::Leave | Fault::Restart => {
                bail!("a process that has ended does not heal")
            }
        }
    }

    /// The minimum duration of the fault.
    pub fn lasts(self) -> Duration {
        match self {
            Fault::Stop(seconds) => Duration::from_secs(seconds),
            _ => Duration::ZERO,
        }
    }
}

impl Ready {
    /// Injects the fault. A signal takes effect at once, a network change when
    /// [`struck`](Ready::struck) returns.
    pub fn strike(&mut self, group: &mut Group, victim: usize) -> Result<()> {
        let fault = match self {
            Ready::Network(change) => return change.fire(),
            Ready::Process(fault) => fault,
        };
        let process = group.peers[victim].process();
        match fault {
            Fault::Stop(_) => process.stop(),
            Fault::Leave => process.terminate(),
            _ => process.kill(),
        }
    }

    /// Waits until the fault has taken effect; a restarted node is then starting.
    pub fn struck(self, group: &mut Group, victim: usize) -> Result<()> {
        match self {
            Ready::Network(change) => change.made(),
            Ready::Process(Fault::Restart) => {
                group.restart(victim)?.order(&json!({"do": "join", "min": 2}))
            }
            Ready::Process(_) => Ok(()),
        }
    }

    /// Whether the injection takes a while.
    pub fn is_slow(&self) -> bool {
        matches!(self, Ready::Network(_))
    }
}
