//! A network namespace for the demo, so that it neither receives nor sends other traffic.

use crate::itself;
use serde::Serialize;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The network of a demo's peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// The loopback interface of a separate network namespace.
    Own,
    /// This machine's loopback interface.
    Loopback,
}

/// Re-executes this program in a new network namespace, with `--inside`. Returns if that is not
/// possible here.
pub fn enter_own() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let Ok(program) = itself::words() else { return };
    for ways in WAYS {
        if !try_out(ways) {
            continue;
        }
        let mut again = unshare(ways);
        again
            .arg(format!("{SET_UP} && exec \"$@\""))
            .arg("demo")
            .args(program)
            .args(itself::arguments())
            .arg("--inside");
        // `exec` returns only on failure; the demo then uses the loopback interface.
        drop(again.exec());
    }
}

fn try_out(ways: &[&str]) -> bool {
    let quiet = || Stdio::null();
    unshare(ways)
        .arg(SET_UP)
        .stdin(quiet())
        .stdout(quiet())
        .stderr(quiet())
        .status()
        .is_ok_and(|status| status.success())
}

fn unshare(ways: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(ways).args(["sh", "-c"]);
    command
}

/// As root; else as root of a user namespace, if the system permits user namespaces.
const WAYS: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];

/// In a new namespace the loopback interface is down and has neither multicast nor a route for it.
/// A user's `PATH` may not contain `ip`.
const SET_UP: &str = "PATH=\"$PATH:/usr/sbin:/sbin\" && ip link set lo up \
    && ip link set lo multicast on && ip route add 224.0.0.0/4 dev lo";
