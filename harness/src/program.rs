//! The programs that tests start.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The node that tests control: the program that `POTLUCK_BIN` names, for example one of another
/// version, else `potluck-peer` of this build.
pub fn peer() -> Result<PathBuf> {
    match std::env::var_os("POTLUCK_BIN") {
        Some(path) => Ok(PathBuf::from(path)),
        None => built("potluck-peer"),
    }
}

/// The command line of this build.
pub fn command_line() -> Result<PathBuf> {
    built("potluck")
}

/// Sets the home directory of a node. Of the variables that would change its behaviour, only
/// `POTLUCK_ENGINE` is inherited.
pub fn isolate(command: &mut Command, home: &Path) {
    for variable in [
        "POTLUCK_KEY",
        "POTLUCK_NAMESPACE",
        "POTLUCK_JOB",
        "POTLUCK_PEERS",
        "POTLUCK_INTERFACES",
        "POTLUCK_PARTITION",
        "POTLUCK_MEMBERS",
    ] {
        command.env_remove(variable);
    }
    command.env("POTLUCK_HOME", home);
}

/// The program that cargo has built beside this test's folder.
fn built(name: &str) -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let built = test.ancestors().nth(2).context("a test is two folders deep")?.join(name);
    if !built.exists() {
        bail!(
            "there is no {}: run `cargo test --no-run --test cli --test peer` first, or `make \
             test`",
            built.display()
        );
    }
    Ok(built)
}
