//! `potluck completions`: the script by which a shell completes the command line.

use crate::exit::Exit;
use crate::output::Output;
use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use serde_json::json;

/// Print a script with which a shell completes the commands and options of potluck
///
/// For example: `potluck completions bash > ~/.local/share/bash-completion/completions/potluck`, or
/// `potluck completions fish > ~/.config/fish/completions/potluck.fish`; zsh reads a file
/// `_potluck` in a folder of its `fpath`. JSON: {ok, shell, script}.
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints the script for this command line.
    pub fn run(self, whole: &Command, output: &Output) -> Result<Exit> {
        let (mut command, mut script) = (visible(whole), Vec::new());
        clap_complete::generate(self.shell, &mut command, whole.get_name(), &mut script);
        let script = String::from_utf8(script).context("the script is not text")?;
        let document = json!({ "ok": true, "shell": self.shell.to_string(), "script": script });
        output.result(&document, || script.clone())?;
        Ok(Exit::Done)
    }
}

/// The command line without hidden commands, which the generators would list. Its `help` is that of
/// the parser, for which they complete the names of the others.
fn visible(whole: &Command) -> Command {
    let is_typed = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    let commands = whole.get_subcommands().filter(is_typed);
    Command::new("potluck")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments().cloned())
        .subcommands(commands.cloned())
}
