//! How this command starts itself again: it may be a program, or run inside of another one.

use anyhow::{Context, Result};
use std::ffi::OsString;
use std::process::Command;
use std::sync::OnceLock;

struct Itself {
    words: Vec<OsString>,
    arguments: Vec<OsString>,
}

static ITSELF: OnceLock<Itself> = OnceLock::new();

/// The words that start it, and the arguments that it has now.
pub fn set(words: Vec<OsString>, arguments: Vec<OsString>) {
    // Only the first ones count.
    let _ = ITSELF.set(Itself { words, arguments });
}

/// The words that start it again.
///
/// # Errors
/// They are not known.
pub fn words() -> Result<&'static [OsString]> {
    let words = ITSELF.get().map(|itself| itself.words.as_slice());
    words.filter(|words| !words.is_empty()).context("the path of this program is not known")
}

/// The arguments that it has now.
pub fn arguments() -> &'static [OsString] {
    ITSELF.get().map_or(&[], |itself| &itself.arguments)
}

/// A command that starts it again, without arguments.
///
/// # Errors
/// The words are not known.
pub fn command() -> Result<Command> {
    let words = words()?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    Ok(command)
}
