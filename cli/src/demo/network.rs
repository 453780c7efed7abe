//! A network namespace of our own, so that the demo neither hears nor disturbs anything else.

use serde::Serialize;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Where the peers of a demo meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// The loopback interface of a network namespace made for them.
    Own,
    /// This machine's loopback interface.
    Loopback,
}

/// Starts this program anew in its own network namespace, with `--inside`. Returns when that is not
/// possible here.
pub fn enter_own() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    for ways in WAYS {
        if !try_out(ways) {
            continue;
        }
        let mut again = unshare(ways);
        again
            .arg(format!("{SET_UP} && exec \"$@\""))
            .arg("demo")
            .arg(&program)
            .args(std::env::args_os().skip(1))
            .arg("--inside");
        // Comes back only on failure; the demo then runs in the next best network.
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

/// As root, else as root of a user namespace, where the system lets users have one.
const WAYS: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];

/// In a new namespace the loopback interface is down, has no multicast and no route for it. A
/// user's path may lack `ip`.
const SET_UP: &str = "PATH=\"$PATH:/usr/sbin:/sbin\" && ip link set lo up && ip link set lo multicast on \
&& ip route add 224.0.0.0/4 dev lo";
