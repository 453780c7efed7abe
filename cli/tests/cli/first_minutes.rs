//! From nothing to a verified sum on two machines, by `scripts/first-minutes.sh`.

use crate::run::run;
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;

pub fn by_code() -> Result<()> {
    by("code")
}

pub fn by_key() -> Result<()> {
    by("key")
}

fn by(what: &str) -> Result<()> {
    let potluck = Path::new(env!("CARGO_BIN_EXE_potluck"));
    let quickstart = potluck.with_file_name("examples").join("quickstart");
    ensure!(quickstart.is_file(), "build {} first", quickstart.display());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/first-minutes.sh");
    let mut command = Command::new(script);
    command.arg(what).env("POTLUCK", potluck).env("QUICKSTART", quickstart);
    for variable in ["POTLUCK_HOME", "POTLUCK_KEY", "POTLUCK_LOG", "POTLUCK_NAMESPACE"] {
        command.env_remove(variable);
    }
    let ran = run(&mut command, "")?;
    let last = format!("From nothing to a verified sum by {what}: two machines, two commands each");
    ensure!(
        ran.code == 0 && ran.out.lines().last().is_some_and(|l| l.starts_with(&last)),
        "{ran:?}"
    );
    Ok(())
}
