//! The faults: of hosts, of cables, of single connections and of disks.

use std::time::Duration;

use anyhow::{Result, bail};
use potluck_harness::{Chance, Flow, Lab};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL; the node starts again afterwards.
    Kill,
    /// The node leaves in an orderly way, and starts again.
    Leave,
    /// SIGSTOP, then SIGCONT.
    Stop,
    /// The machine's cable is pulled.
    Cut,
    /// Two machines stop reaching each other.
    Pair,
    /// All that the machine sends, or all that it is sent, is dropped.
    OneWay,
    /// One TCP connection is reset.
    FlowKilled,
    /// The packets of one TCP connection are dropped.
    FlowSwallowed,
    /// The packets of one TCP connection are dropped for a moment, and then it is reset: what was
    /// sent meanwhile is lost.
    FlowLost,
    /// Large packets are dropped.
    LargePackets,
    /// The disk with the node's state is full.
    DiskFull,
}

/// Each as often as it stands here.
const FAULTS: [Fault; 18] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Leave,
    Fault::Stop,
    Fault::Stop,
    Fault::Cut,
    Fault::Pair,
    Fault::Pair,
    Fault::OneWay,
    Fault::FlowKilled,
    Fault::FlowKilled,
    Fault::FlowKilled,
    Fault::FlowSwallowed,
    Fault::FlowLost,
    Fault::FlowLost,
    Fault::FlowLost,
    Fault::LargePackets,
    Fault::DiskFull,
];

impl Fault {
    pub fn drawn(chance: &mut Chance) -> Fault {
        FAULTS[chance.below(FAULTS.len())]
    }

    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Leave => "leave",
            Fault::Stop => "stop",
            Fault::Cut => "cut",
            Fault::Pair => "cut-between",
            Fault::OneWay => "one-way",
            Fault::FlowKilled => "flow-killed",
            Fault::FlowSwallowed => "flow-swallowed",
            Fault::FlowLost => "flow-lost",
            Fault::LargePackets => "large-packets",
            Fault::DiskFull => "disk-full",
        }
    }

    /// Whether the process ends.
    pub fn ends_process(self) -> bool {
        matches!(self, Fault::Kill | Fault::Leave)
    }

    /// How long it lasts; for a process that has ended, how long it stays away.
    pub fn lasts(self, chance: &mut Chance) -> Duration {
        let (least_ms, most_ms) = match self {
            Fault::Kill | Fault::Leave => (100, 3000),
            Fault::Stop | Fault::Cut | Fault::Pair => (100, 5000),
            Fault::OneWay | Fault::LargePackets => (100, 4000),
            Fault::FlowKilled => (0, 1),
            Fault::FlowSwallowed => (300, 8000),
            Fault::FlowLost => (50, 800),
            Fault::DiskFull => (300, 9000),
        };
        Duration::from_millis((least_ms + chance.below(most_ms - least_ms)) as u64)
    }
}

/// A command of the lab, in words.
pub type Command = Vec<String>;

/// The commands of the lab that strike one machine with a fault of the network or of its disk, and
/// those that end the fault. There are none if there is nothing that the fault could hit.
pub fn strike(
    fault: Fault,
    lab: &Lab,
    (machine, other): (&str, &str),
    chance: &mut Chance,
) -> Result<(Vec<Command>, Vec<Command>)> {
    let words = |words: &[&str]| vec![words.iter().map(|word| (*word).to_owned()).collect()];
    Ok(match fault {
        Fault::Cut => (words(&["cut", machine]), words(&["join", machine])),
        Fault::Pair => (words(&["cut", machine, other]), words(&["join", machine, other])),
        Fault::OneWay => {
            let handling = ["up", "down"][chance.below(2)];
            (words(&["loss", machine, "100", handling]), words(&["loss", machine, "0"]))
        }
        Fault::FlowKilled | Fault::FlowSwallowed | Fault::FlowLost => {
            let flows = Flow::all_of(lab, machine)?;
            if flows.is_empty() {
                return Ok((Vec::new(), Vec::new()));
            }
            let Flow { port, other, .. } = flows[chance.below(flows.len())];
            let (port, other) = (port.to_string(), other.to_string());
            let sever = words(&["sever", machine, &port, &other]);
            let swallow = words(&["swallow", machine, &port, &other, "both"]);
            let pass = words(&["swallow", machine, "0", "0"]);
            match fault {
                Fault::FlowKilled => (sever, Vec::new()),
                Fault::FlowSwallowed => (swallow, pass),
                // In this order, so that nothing is sent again.
                _ => (swallow, [sever, pass].concat()),
            }
        }
        Fault::LargePackets => {
            (words(&["narrow", machine, "1000"]), words(&["narrow", machine, "0"]))
        }
        Fault::DiskFull => (words(&["spoil", machine]), words(&["mend", machine])),
        Fault::Kill | Fault::Leave | Fault::Stop => bail!("a fault of a process"),
    })
}
