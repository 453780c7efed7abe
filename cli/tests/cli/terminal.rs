//! A command in a terminal of its own: its output, and the terminal after it.

use crate::run::clean;
use anyhow::{Result, bail, ensure};
use potluck_harness::Lab;
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The terminal and the command in it. Dropping it kills the command.
pub struct Terminal {
    keyboard: File,
    line: File,
    child: Child,
    shown: Arc<(Mutex<String>, Condvar)>,
    /// The modes before the command has started.
    before: LocalModes,
}

impl Terminal {
    /// Starts `potluck` with these arguments on a machine, without colours.
    pub fn start(
        lab: &Lab,
        machine: &str,
        home: &Path,
        arguments: &[&str],
        size: (u16, u16),
    ) -> Result<Terminal> {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&keyboard)?;
        unlockpt(&keyboard)?;
        let name = ptsname(&keyboard, Vec::new())?;
        let line = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NOCTTY.bits().cast_signed())
            .open(name.to_str()?)?;
        let keyboard = File::from(keyboard);
        tcsetwinsize(&line, winsize(size))?;
        let before = tcgetattr(&line)?.local_modes;
        // The terminal belongs to a session of its own, so Ctrl-C reaches the command.
        let mut command = lab.command(machine, "setsid");
        command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_potluck")]).args(arguments);
        clean(&mut command, home);
        command.env("NO_COLOR", "1").env("LANG", "C.UTF-8").env("TERM", "xterm");
        command.stdin(line.try_clone()?).stdout(line.try_clone()?).stderr(line.try_clone()?);
        let child = command.spawn()?;
        let shown = Arc::new((Mutex::new(String::new()), Condvar::new()));
        let (reader, into) = (keyboard.try_clone()?, Arc::clone(&shown));
        thread::spawn(move || collect(reader, &into));
        Ok(Terminal { keyboard, line, child, shown, before })
    }

    /// Changes the size, as when a window is resized.
    pub fn resize(&self, size: (u16, u16)) -> Result<()> {
        Ok(tcsetwinsize(&self.line, winsize(size))?)
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        Ok(self.keyboard.write_all(keys.as_bytes())?)
    }

    /// The first frame from now on that satisfies `likes`.
    pub fn frame_where(&self, likes: impl Fn(&str) -> bool, within: Duration) -> Result<String> {
        let until = Instant::now() + within;
        let (shown, changed) = &*self.shown;
        let mut text = shown.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(frame) = last_frame(&text).filter(|frame| likes(frame)) {
                return Ok(frame);
            }
            let left = until.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "no such frame, the last was\n{:?}", last_frame(&text));
            text = changed.wait_timeout(text, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the end of the command, and checks that the terminal is as before.
    pub fn ended(mut self, within: Duration) -> Result<ExitStatus> {
        let until = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() >= until {
                bail!("it has not ended within {within:?}: {:?}", self.text());
            }
            // Polls: a process has no other sign of its end that can be waited for with a limit.
            thread::sleep(Duration::from_millis(10));
        };
        let after = tcgetattr(&self.line)?.local_modes;
        ensure!(after == self.before, "the modes were {:?} and are {after:?}", self.before);
        let (shown, changed) = &*self.shown;
        let mut text = shown.lock().unwrap_or_else(PoisonError::into_inner);
        while !text.ends_with("\u{1b}[?25h\u{1b}[?1049l") {
            let left = until.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "the page is not restored: {text:?}");
            text = changed.wait_timeout(text, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(text);
        Ok(status)
    }

    fn text(&self) -> String {
        self.shown.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn winsize((columns, rows): (u16, u16)) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Reads until the last end of the line is closed.
fn collect(mut reader: File, (shown, changed): &(Mutex<String>, Condvar)) {
    let (mut bytes, mut rest) = ([0; 4096], Vec::new());
    while let Ok(count @ 1..) = reader.read(&mut bytes) {
        rest.extend_from_slice(&bytes[..count]);
        // A character may be read in two parts.
        let whole = match std::str::from_utf8(&rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8_lossy(&rest[..whole]).into_owned();
        rest.drain(..whole);
        shown.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        changed.notify_all();
    }
}

/// The last whole frame, as lines of text.
fn last_frame(shown: &str) -> Option<String> {
    let (before, _) = shown.rsplit_once("\u{1b}[J")?;
    let (_, frame) = before.rsplit_once("\u{1b}[H")?;
    Some(frame.replace("\u{1b}[K", "").replace("\r\n", "\n").replace('\r', "") + "\n")
}
