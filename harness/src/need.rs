//! The requirements of tests on the machine, and their probes. Each probe performs the real
//! operation, once per process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::lab::Lab;

/// A requirement of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Run as root, or as root of a user namespace.
    Root,
    /// A [`Lab`] can be brought up.
    Lab,
    /// A multicast datagram sent on the loopback interface is received there.
    LoopbackMulticast,
    /// The radio of the lab can be simulated.
    Radio,
    /// A disk of the lab can die.
    DyingDisk,
    /// A process can read about itself in /proc.
    Proc,
    /// This program is on the search path.
    Command(&'static str),
    /// Always unmet: the test itself has found out that this is missing.
    Missing(&'static str),
}

/// A probe's answer: the reason why the need is not met, or `None`.
type Unmet = Option<String>;

impl Need {
    /// The reason why the need is not met on this machine; `None` if it is met.
    pub fn unmet(self) -> Option<String> {
        static ROOT: OnceLock<Unmet> = OnceLock::new();
        static LAB: OnceLock<Unmet> = OnceLock::new();
        static MULTICAST: OnceLock<Unmet> = OnceLock::new();
        match self {
            Need::Root => ROOT.get_or_init(probe_root).clone(),
            Need::Lab => LAB.get_or_init(probe_lab).clone(),
            Need::LoopbackMulticast => MULTICAST.get_or_init(probe_multicast).clone(),
            Need::Radio => probe_file("/dev/net/tun", "the radio"),
            Need::DyingDisk => {
                let loops = probe_file("/dev/loop-control", "a disk that dies");
                loops.or_else(|| probe_command("mkfs.ext4"))
            }
            Need::Proc => probe_file("/proc/self/status", "the test"),
            Need::Command(program) => probe_command(program),
            Need::Missing(what) => Some(what.to_owned()),
        }
    }
}

/// The first need that is not met.
pub fn first_unmet(needs: &[Need]) -> Option<String> {
    needs.iter().find_map(|need| need.unmet())
}

fn probe_root() -> Unmet {
    let root = rustix::process::geteuid().is_root();
    (!root).then(|| "needs root; or run the tests under `lab/lab sandbox -- `".into())
}

fn probe_lab() -> Unmet {
    if !cfg!(target_os = "linux") {
        return Some("the lab is made of Linux network namespaces".into());
    }
    if let Some(reason) = probe_root() {
        return Some(format!("the lab {reason}"));
    }
    // Two rate-limited machines on a switch need namespaces, veth, bridge and htb.
    let refused = Lab::up_with("gbe4", 2).err()?.to_string();
    // Messages of the script begin with its name. Any other text means that the script is broken:
    // the test must fail and not be skipped.
    refused.starts_with("lab").then(|| format!("no lab here: {refused}"))
}

fn probe_multicast() -> Unmet {
    match hear_oneself() {
        Ok(()) => None,
        Err(error) => Some(format!("no multicast on the loopback interface: {error}")),
    }
}

fn hear_oneself() -> std::io::Result<()> {
    // Not the mDNS group: other programs may listen there.
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 77, 77);
    let ear = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    ear.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    ear.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST)?;
    ear.set_read_timeout(Some(Duration::from_secs(1)))?;
    let port = ear.local_addr()?.as_socket().map_or(0, |a| a.port());

    let mouth = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    mouth.set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
    mouth.set_multicast_ttl_v4(0)?; // never beyond this machine
    mouth.send_to(b"anybody?", &SocketAddr::from((GROUP, port)).into())?;
    std::io::Read::read(&mut &ear, &mut [0; 16]).map(|_| ())
}

fn probe_file(path: &str, whose: &str) -> Unmet {
    (!Path::new(path).exists()).then(|| format!("{whose} needs {path}"))
}

fn probe_command(program: &str) -> Unmet {
    let found = Command::new("sh")
        .args(["-c", "command -v -- \"$1\"", "sh", program])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    (!found).then(|| format!("needs the program `{program}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_there_or_it_is_named() {
        assert_eq!(Need::Command("sh").unmet(), None);
        let reason = Need::Command("a-program-nobody-has").unmet();
        assert!(reason.is_some_and(|r| r.contains("a-program-nobody-has")));
    }

    #[test]
    fn the_first_unmet_need_is_told() {
        let needs = [Need::Command("sh"), Need::Command("nobody-1"), Need::Command("nobody-2")];
        assert!(first_unmet(&needs).is_some_and(|r| r.contains("nobody-1")));
    }
}
