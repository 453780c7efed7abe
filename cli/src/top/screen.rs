//! The terminal while frames are shown: another page, no cursor, no echo. Dropping it restores all
//! of that.

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::io::{self, IsTerminal, Read, Write};
use std::thread;
use tokio::sync::mpsc;

/// The terminal of stdout, and of stdin if that is one.
pub struct Screen {
    /// The settings of stdin before.
    before: Option<Termios>,
}

impl Screen {
    /// Turns to the other page.
    pub fn open() -> io::Result<Screen> {
        let before = tcgetattr(io::stdin()).ok().filter(|_| io::stdin().is_terminal());
        let screen = Screen { before };
        if let Some(before) = &screen.before {
            let mut settings = before.clone();
            // Keys are read one by one and not shown. Ctrl-C still interrupts; Ctrl-Z would leave
            // the shell on this page, so it does nothing.
            settings.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
            settings.special_codes[SpecialCodeIndex::VSUSP] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &settings)?;
        }
        write(OPEN)?;
        Ok(screen)
    }

    /// Shows these lines, which are not wider or more than the terminal has.
    pub fn show(&self, lines: &[String]) -> io::Result<()> {
        let mut text = HOME.to_owned();
        text += &lines.join(&format!("{CLEAR_LINE}\r\n"));
        text += CLEAR_REST;
        write(&text)
    }

    /// The keys that are pressed from now on; never one if stdin is no terminal.
    pub fn keys(&self) -> mpsc::Receiver<u8> {
        let (pressed, keys) = mpsc::channel(KEYS_MAX);
        if self.before.is_some() {
            // A read of a terminal cannot be cancelled, so a task would hold up the end of the
            // program. Without the thread there are no keys, and Ctrl-C ends the program.
            drop(thread::Builder::new().name("keys".to_owned()).spawn(move || {
                for key in io::stdin().lock().bytes().map_while(Result::ok) {
                    if pressed.blocking_send(key).is_err() {
                        return;
                    }
                }
            }));
        }
        keys
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone there is nothing to restore.
        let _ = write(CLOSE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Keys that wait for the next frame.
const KEYS_MAX: usize = 16;
/// The other page, without a cursor.
const OPEN: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
/// The cursor, and the page that was there before.
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
/// The rest of the line and all below it.
const CLEAR_REST: &str = "\x1b[J";
