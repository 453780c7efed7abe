//! The faults of a member, and how they are injected.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::{Armed, Chance, Flow, Group, Halt, Need};
use serde_json::json;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT after this many seconds.
    Stop(u64),
    /// All traffic in one direction is dropped: from the machine, or to it.
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
    /// Packets above a size are dropped on its cable, both ways, as where an MTU differs.
    Mtu,
    /// All packets of one of its data links are dropped, and no others.
    Flow,
    /// The packets of one of its data links are dropped in one direction.
    FlowOneWay,
    /// One of its data links is reset.
    Reset,
    /// One of its control links is reset, and has to be dialled again.
    Redial,
    /// Its disk is full when the View has to change, which a reset data link causes.
    DiskFull,
    /// Its disk answers with I/O errors when the View has to change.
    DiskError,
    /// One of its threads is stopped: one that sends, one that receives, or the one that controls.
    Thread,
}

/// Faults of hosts and of their cables.
pub const HOSTS: [Fault; 10] = [
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

/// Faults of a part of a host: of one connection, of the disk, of one thread.
pub const PARTS: [Fault; 8] = [
    Fault::Mtu,
    Fault::Flow,
    Fault::FlowOneWay,
    Fault::Reset,
    Fault::Redial,
    Fault::DiskFull,
    Fault::DiskError,
    Fault::Thread,
];

/// All faults, in the order of the table.
pub fn all() -> impl Iterator<Item = Fault> {
    HOSTS.into_iter().chain(PARTS)
}

/// A prepared fault.
pub enum Ready {
    Process(Fault),
    Lab(Armed),
    Thread(Halt),
}

/// A guard that holds a fault as long as it exists.
#[must_use = "dropping it ends the fault"]
pub struct Held {
    _thread: Option<Halt>,
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
            Fault::Mtu => "mtu",
            Fault::Flow => "flow",
            Fault::FlowOneWay => "flow-one-way",
            Fault::Reset => "reset",
            Fault::Redial => "redial",
            Fault::DiskFull => "disk-full",
            Fault::DiskError => "disk-error",
            Fault::Thread => "thread",
        }
    }

    /// Its needs besides the [needs](crate::NEEDS) of all.
    pub fn needs(self) -> Vec<Need> {
        match self {
            Fault::Flow | Fault::FlowOneWay | Fault::Reset | Fault::Redial | Fault::DiskFull => {
                vec![Need::Command("ss")]
            }
            Fault::DiskError => vec![Need::Command("ss"), Need::DyingDisk],
            _ => Vec::new(),
        }
    }

    /// Whether the calls have a deadline: where nothing else ends them.
    pub fn has_deadline(self) -> bool {
        matches!(self, Fault::Loss | Fault::Thread)
    }

    /// Whether the victim can promise nothing while the fault lasts.
    pub fn is_of_the_disk(self) -> bool {
        matches!(self, Fault::DiskFull | Fault::DiskError)
    }

    /// Whether data of a link that stands does not arrive.
    pub fn swallows(self) -> bool {
        matches!(self, Fault::Mtu | Fault::Flow | Fault::FlowOneWay)
    }

    /// Whether the process ends.
    pub fn is_death(self) -> bool {
        matches!(self, Fault::Kill | Fault::Leave | Fault::Restart)
    }

    /// Prepares the machine at `victim`, before its node starts.
    pub fn prepare(self, group: &Group, victim: usize) -> Result<()> {
        match self {
            Fault::DiskFull => group.disk(victim, "full"),
            Fault::DiskError => group.disk(victim, "dead"),
            _ => Ok(()),
        }
    }

    /// Prepares the fault of the node at `victim`.
    pub fn ready(self, group: &mut Group, victim: usize, chance: &mut Chance) -> Result<Ready> {
        let machine = format!("n{}", victim + 1);
        let way = ["up", "down"][chance.below(2)];
        let away_ms = (50 + chance.below(450)).to_string();
        let change: Vec<String> = match self {
            Fault::OneWay => words(&["loss", &machine, "100", way]),
            Fault::Cut => words(&["cut", &machine]),
            Fault::Loss => words(&["loss", &machine, "20", "both"]),
            Fault::NewAddress => words(&["readdress", &machine, &away_ms]),
            Fault::Kill | Fault::Stop(_) | Fault::Leave | Fault::Restart => {
                return Ok(Ready::Process(self));
            }
            Fault::Mtu => words(&["narrow", &machine, &(600 + chance.below(800)).to_string()]),
            Fault::Flow => on("swallow", &machine, data_link(group, victim, chance)?, &["both"]),
            Fault::FlowOneWay => on("swallow", &machine, data_link(group, victim, chance)?, &[way]),
            Fault::Reset => on("sever", &machine, data_link(group, victim, chance)?, &[]),
            Fault::Redial => on("sever", &machine, control_link(group, victim, chance)?, &[]),
            Fault::DiskFull | Fault::DiskError => {
                // Nothing is written before the View changes.
                group.lab.tell(&["spoil", &machine])?;
                on("sever", &machine, data_link(group, victim, chance)?, &[])
            }
            Fault::Thread => {
                let thread = THREADS[chance.below(THREADS.len())];
                return Ok(Ready::Thread(Halt::ready(group.peers[victim].process(), thread)?));
            }
        };
        let change: Vec<&str> = change.iter().map(String::as_str).collect();
        Ok(Ready::Lab(group.lab.armed(&change)?))
    }

    /// Ends the fault as far as possible.
    pub fn heal(self, group: &mut Group, victim: usize) -> Result<()> {
        let machine = format!("n{}", victim + 1);
        match self {
            Fault::Stop(_) => group.peers[victim].process().resume(),
            Fault::OneWay | Fault::Loss => group.lab.tell(&["loss", &machine, "0"]).map(drop),
            Fault::Cut => group.lab.join(&machine),
            Fault::Mtu => group.lab.tell(&["narrow", &machine, "0"]).map(drop),
            Fault::Flow | Fault::FlowOneWay => {
                group.lab.tell(&["swallow", &machine, "0", "0"]).map(drop)
            }
            Fault::DiskFull | Fault::DiskError => group.lab.tell(&["mend", &machine]).map(drop),
            // A stopped thread goes on as soon as its guard is dropped.
            Fault::NewAddress | Fault::Reset | Fault::Redial | Fault::Thread => Ok(()),
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
            Ready::Lab(change) => return change.fire(),
            Ready::Thread(halt) => return halt.fire(),
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
    pub fn struck(self, group: &mut Group, victim: usize) -> Result<Held> {
        let mut thread = None;
        match self {
            Ready::Lab(change) => change.made()?,
            Ready::Thread(mut halt) => {
                halt.made()?;
                thread = Some(halt);
            }
            Ready::Process(Fault::Restart) => {
                group.restart(victim)?.order(&json!({"do": "join", "min": 2}))?;
            }
            Ready::Process(_) => {}
        }
        Ok(Held { _thread: thread })
    }

    /// Whether the injection takes a while.
    pub fn is_slow(&self) -> bool {
        matches!(self, Ready::Lab(_))
    }
}

/// The beginnings of the names of the threads that send and receive data, and of the one that
/// handles control links and membership.
const THREADS: [&str; 3] = ["potluck-tx-", "potluck-rx-", "potluck-control"];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A command of the lab that concerns one connection of a machine.
fn on(verb: &str, machine: &str, link: Flow, more: &[&str]) -> Vec<String> {
    let (port, other) = (link.port.to_string(), link.other.to_string());
    words(&[&[verb, machine, port.as_str(), other.as_str()][..], more].concat())
}

fn data_link(group: &mut Group, victim: usize, chance: &mut Chance) -> Result<Flow> {
    let (_, data) = links(group, victim)?;
    Ok(data[chance.below(data.len())])
}

fn control_link(group: &mut Group, victim: usize, chance: &mut Chance) -> Result<Flow> {
    let (control, _) = links(group, victim)?;
    Ok(control[chance.below(control.len())])
}

/// Bytes that a control link does not carry within seconds, and less than `EACH` each way.
const MANY_BYTES: u64 = 200_000;
/// Elements that every member sends to each other one.
const EACH: usize = 1 << 15;

/// The control links and the data links of a node: one of each with every other one. They are told
/// apart by what they have carried.
fn links(group: &mut Group, victim: usize) -> Result<(Vec<Flow>, Vec<Flow>)> {
    group.exact(&json!({"do": "all_to_all", "len": EACH, "seed": 4}))?;
    let others = group.peers.len() - 1;
    let until = Instant::now() + PATIENCE;
    loop {
        let flows = Flow::all_of(&group.lab, &format!("n{}", victim + 1))?;
        let (data, control): (Vec<Flow>, Vec<Flow>) =
            flows.iter().copied().partition(|flow| flow.bytes >= MANY_BYTES);
        if (control.len(), data.len()) == (others, others) {
            return Ok((control, data));
        }
        ensure!(Instant::now() < until, "not two links with each of {others}: {flows:?}");
        // Polls the condition: a link that was replaced is closed a few seconds later.
        thread::sleep(Duration::from_millis(20));
    }
}
