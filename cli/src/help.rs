//! `potluck help`: the help of the program or of a command. It is a command like the others, so
//! that `potluck help --help` has an answer.

use crate::exit::{Exit, Stop};
use crate::output::Output;
use anyhow::Result;
use clap::{Args, Command};
use serde_json::json;

/// Print this help, or that of a command
///
/// `potluck COMMAND --help` prints the same. JSON: {ok, command, help}.
#[derive(Args, Debug)]
pub struct Help {
    /// The command, for example `keys rotate`
    #[arg(value_name = "COMMAND")]
    words: Vec<String>,
}

impl Help {
    /// Prints the help of this command line, or of one of its commands.
    pub fn run(self, mut whole: Command, output: &Output) -> Result<Exit> {
        whole.build();
        let mut command = &mut whole;
        for word in &self.words {
            command = command.find_subcommand_mut(word).ok_or_else(|| {
                Stop::usage(format!("there is no command {word}: `potluck help` lists them"))
            })?;
        }
        let name = command.get_bin_name().unwrap_or("potluck").to_owned();
        let help = command.render_long_help();
        let document = json!({ "ok": true, "command": name, "help": help.to_string() });
        output.result(&document, || {
            if output.paper().colours { help.ansi().to_string() } else { help.to_string() }
        })?;
        Ok(Exit::Done)
    }
}
