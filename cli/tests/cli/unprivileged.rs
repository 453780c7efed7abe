//! Commands of a user without privileges.

use crate::run::{Network, clean, run};
use anyhow::{Result, ensure};
use potluck_harness::lab::ran;
use std::path::Path;
use std::process::{Command, Stdio};

/// `setpriv` as the user nobody, which owns nothing.
const SETPRIV: [&str; 4] = ["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"];

/// potluck on a machine, as this user.
pub fn command(network: &Network, machine: &str, arguments: &[&str]) -> Command {
    let mut command = network.lab.command(machine, "setpriv");
    command.args(SETPRIV).arg(env!("CARGO_BIN_EXE_potluck")).args(arguments);
    clean(&mut command, &network.home(machine));
    command
}

/// Makes this user the owner of a folder and of its contents.
pub fn give(folder: &Path) -> Result<()> {
    ran(Command::new("chown").args(["-R", "65534:65534"]).arg(folder))
}

/// A Python that this user may run: the one in `PATH` may be below the home of another.
pub fn python() -> Option<&'static str> {
    let runs = |python: &&str| {
        let mut command = Command::new("setpriv");
        command.args(SETPRIV).args([python, "-c", "pass"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ["python3", "/usr/bin/python3"].into_iter().find(runs)
}

pub fn one_machine() -> Result<()> {
    let network = crate::launch::network(1)?;
    give(&network.home("n1"))?;
    let ran = run(&mut command(&network, "n1", &["run", "--members", "1", "--", "id", "-u"]), "")?;
    ensure!(ran.code == 0 && ran.out == "[0] 65534\n", "{ran:?}");
    Ok(())
}
