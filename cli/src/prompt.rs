//! Reads a secret from a terminal without echo, from a pipe, or from a file.

use crate::exit::{Exit, Stop};
use anyhow::{Context, Result};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;
use zeroize::Zeroizing;

/// Reads one line from the terminal without echo, or the whole of a pipe, whose text may contain
/// white space.
///
/// On Ctrl-C the terminal's settings are restored.
pub async fn secret(question: &str) -> Result<Zeroizing<String>> {
    if !io::stdin().is_terminal() {
        return limited(io::stdin().lock()).context("reading the standard input");
    }
    let _hidden = Hidden::on_terminal()?;
    say(question);
    let (done, line) = tokio::sync::oneshot::channel();
    // Not on the runtime's blocking pool: at shutdown that would wait for the line after Ctrl-C.
    std::thread::spawn(move || drop(done.send(line_of(io::stdin().lock()))));
    let line = tokio::select! {
        line = line => line??,
        _ = tokio::signal::ctrl_c() => {
            say("\n");
            return Err(Stop::with(Exit::Interrupted, "interrupted", "interrupted"));
        }
    };
    // The user's line break was not echoed either.
    say("\n");
    Ok(line)
}

/// Reads a whole file; `-` is the standard input.
pub fn secret_of(file: &Path) -> Result<Zeroizing<String>> {
    if file == Path::new("-") {
        return limited(io::stdin().lock()).context("reading the standard input");
    }
    let opened = std::fs::File::open(file)
        .with_context(|| format!("{}: cannot be opened", file.display()))?;
    limited(opened).with_context(|| format!("{}: cannot be read", file.display()))
}

fn say(text: &str) {
    let mut err = io::stderr().lock();
    // If stderr is closed, the user types without a prompt.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

fn line_of(input: impl BufRead) -> io::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::with_capacity(BYTES_MAX as usize));
    input.take(BYTES_MAX).read_line(&mut line)?;
    Ok(line)
}

fn limited(input: impl Read) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::with_capacity(BYTES_MAX as usize));
    input.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Turns off the terminal's echo while it lives.
struct Hidden {
    before: Termios,
}

impl Hidden {
    fn on_terminal() -> Result<Hidden> {
        let before = tcgetattr(io::stdin()).context("the terminal cannot be asked")?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &quiet)
            .context("the terminal cannot be made to hide the key")?;
        Ok(Hidden { before })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // An error means that the terminal is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

// A key has 60 characters; users may add blanks and line breaks. The buffer is allocated at full
// size, because growing it would leave copies of the secret in memory.
const BYTES_MAX: u64 = 4096;
