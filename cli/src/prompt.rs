//! Reading a secret: from a terminal without showing it, from a pipe, from a file.

use crate::exit::{Exit, Stop};
use anyhow::{Context, Result};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;
use zeroize::Zeroizing;

/// One line from the terminal without echo, or all of a pipe, which may hold the key in several
/// groups.
///
/// Ctrl-C gives the terminal back as it was.
pub async fn secret(question: &str) -> Result<Zeroizing<String>> {
    if !io::stdin().is_terminal() {
        return limited(io::stdin().lock()).context("reading the standard input");
    }
    let _hidden = Hidden::on_terminal()?;
    say(question);
    let (done, line) = tokio::sync::oneshot::channel();
    // A thread of its own and not the runtime's pool, which would wait for the line when we have
    // given up.
    std::thread::spawn(move || drop(done.send(line_of(io::stdin().lock()))));
    let line = tokio::select! {
        line = line => line??,
        _ = tokio::signal::ctrl_c() => {
            say("\n");
            return Err(Stop::with(Exit::Interrupted, "interrupted", "interrupted"));
        }
    };
    // The line break that was typed was not shown either.
    say("\n");
    Ok(line)
}

/// All of a file; `-` is the standard input.
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
    // Without a stderr the person types blindly.
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

/// The terminal does not show what is typed as long as this lives.
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
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

// A key has 60 characters; people put blanks and line breaks between them. Allocated at once:
// growing leaves copies.
const BYTES_MAX: u64 = 4096;
