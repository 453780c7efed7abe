//! The faults: of hosts, of cables, of single connections and of disks.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use potluck_harness::{Chance, Lab};

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
    /// Large packets are dropped.
    LargePackets,
    /// The disk with the node's state is full.
    DiskFull,
}

/// Each as often as it stands here.
const FAULTS: [Fault; 15] = [
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
            Fault::DiskFull => (300, 9000),
        };
        Duration::from_millis((least_ms + chance.below(most_ms - least_ms)) as u64)
    }
}

/// A fault of the network or of a disk that is active; undone by [`heal`](Active::heal).
pub enum Active {
    Cut(String),
    Pair(String, String),
    OneWay(String),
    /// A table of packet filters.
    Filter(String, String),
    Disk(PathBuf),
    Nothing,
}

impl Active {
    /// Ends the fault.
    pub fn heal(&self, lab: &Lab) -> Result<()> {
        match self {
            Active::Cut(machine) => lab.join(machine),
            Active::Pair(one, other) => lab.join_between(one, other),
            Active::OneWay(machine) => lab.tell(&["loss", machine, "0"]).map(drop),
            Active::Filter(machine, table) => {
                ran(lab.command(machine, "nft").args(["delete", "table", "inet", table]))
            }
            Active::Disk(file) => Ok(fs::remove_file(file)?),
            Active::Nothing => Ok(()),
        }
    }
}

/// Strikes one machine with a fault of the network or of its disk. `None` if there is nothing that
/// the fault could hit.
pub fn strike(
    fault: Fault,
    lab: &Lab,
    (machine, other): (&str, &str),
    home: &Path,
    n: u64,
    chance: &mut Chance,
) -> Result<Option<Active>> {
    Ok(Some(match fault {
        Fault::Cut => {
            lab.cut(machine)?;
            Active::Cut(machine.to_owned())
        }
        Fault::Pair => {
            lab.cut_between(machine, other)?;
            Active::Pair(machine.to_owned(), other.to_owned())
        }
        Fault::OneWay => {
            lab.tell(&["loss", machine, "100", ["up", "down"][chance.below(2)]])?;
            Active::OneWay(machine.to_owned())
        }
        Fault::FlowKilled => {
            let Some((here, there)) = flow(lab, machine, chance)? else { return Ok(None) };
            let (here, there) = (format!(":{here}"), format!(":{there}"));
            let words =
                ["-K", "state", "established", "sport", "=", &here, "and", "dport", "=", &there];
            ran(lab.command(machine, "ss").args(words))?;
            Active::Nothing
        }
        Fault::FlowSwallowed => {
            let Some((here, there)) = flow(lab, machine, chance)? else { return Ok(None) };
            let out = format!("tcp sport {here} tcp dport {there} drop");
            let back = format!("tcp sport {there} tcp dport {here} drop");
            filter(lab, machine, n, &[("output", &out), ("input", &back)])?
        }
        Fault::LargePackets => {
            let large = "meta l4proto tcp meta length > 1000 drop";
            filter(lab, machine, n, &[("output", large)])?
        }
        Fault::DiskFull => Active::Disk(fill(home)?),
        Fault::Kill | Fault::Leave | Fault::Stop => bail!("a fault of a process"),
    }))
}

/// The two ports of a connection of this machine, by chance.
fn flow(lab: &Lab, machine: &str, chance: &mut Chance) -> Result<Option<(u16, u16)>> {
    let output = lab.command(machine, "ss").args(["-Htn", "state", "established"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let port = |word: &str| word.rsplit(':').next().and_then(|port| port.parse().ok());
    let flows: Vec<(u16, u16)> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(2);
            Some((port(words.next()?)?, port(words.next()?)?))
        })
        .collect();
    Ok((!flows.is_empty()).then(|| flows[chance.below(flows.len())]))
}

/// Installs rules at these hooks of a machine.
fn filter(lab: &Lab, machine: &str, n: u64, rules: &[(&str, &str)]) -> Result<Active> {
    let table = format!("soak_{n}");
    let mut script = format!("add table inet {table};");
    for (hook, rule) in rules {
        script += &format!(
            "add chain inet {table} {hook} {{ type filter hook {hook} priority 0; }}; add rule inet {table} {hook} {rule};"
        );
    }
    ran(lab.command(machine, "nft").arg(script))?;
    Ok(Active::Filter(machine.to_owned(), table))
}

/// Fills the disk of a directory.
fn fill(home: &Path) -> Result<PathBuf> {
    let path = home.join("filling");
    let mut file = File::create(&path)?;
    // Ends with the error that the disk is full, which is what is wanted.
    while file.write_all(&[0; 4096]).is_ok() {}
    Ok(path)
}

/// A small disk for the files of one node, removed when it is dropped.
pub struct Disk(PathBuf);

impl Disk {
    pub fn mount(path: &Path) -> Result<Disk> {
        fs::create_dir_all(path)?;
        let size = ["-t", "tmpfs", "-o", "size=512k,mode=700", "potluck-soak"];
        ran(Command::new("mount").args(size).arg(path))?;
        Ok(Disk(path.to_owned()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = ran(Command::new("umount").arg("--lazy").arg(&self.0)) {
            eprintln!("{} may still be mounted: {error:#}", self.0.display());
        }
    }
}

/// Runs a command to its end; its words are the error.
fn ran(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(())
}
