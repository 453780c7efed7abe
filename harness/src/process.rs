//! A process under test. Signals are sent to this process only, by its process id, and never after
//! it has been reaped.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running program whose output is collected. Dropping it kills the process (SIGKILL) and reaps
/// it.
#[derive(Debug)]
pub struct Child {
    name: String,
    child: std::process::Child,
    out: Arc<Lines>,
    err: Arc<Lines>,
}

/// How long to wait for the end of the output after the program has ended: a process that it has
/// started may keep the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Child {
    /// Starts `command` with an empty input and collects its output.
    pub fn spawn(command: &mut Command) -> Result<Child> {
        Child::start(command, Stdio::null())
    }

    /// Starts `command` with an input that [`tell`](Child::tell) writes to; the input ends when the
    /// guard is dropped.
    pub fn spawn_told(command: &mut Command) -> Result<Child> {
        Child::start(command, Stdio::piped())
    }

    fn start(command: &mut Command, input: Stdio) -> Result<Child> {
        let name = described(command);
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {name}"))?;
        let out = Lines::collect(child.stdout.take());
        let err = Lines::collect(child.stderr.take());
        Ok(Child { name, child, out, err })
    }

    /// Writes a line to its input, see [`spawn_told`](Child::spawn_told).
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let input =
            self.child.stdin.as_mut().with_context(|| format!("{} has no input", self.name))?;
        writeln!(input, "{line}")
            .and_then(|()| input.flush())
            .with_context(|| format!("telling {}", self.name))
    }

    /// Closes its input.
    pub fn end_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The number of its threads. Linux only, like the next two.
    pub fn threads(&self) -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/task", self.id()))?.count())
    }

    /// The number of its open files and sockets.
    pub fn descriptors(&self) -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.id()))?.count())
    }

    /// A field of its `/proc/PID/status` in KiB, for example `VmRSS` or `VmHWM`.
    pub fn memory_kib(&self, field: &str) -> Result<u64> {
        memory_kib(&self.id().to_string(), field)
    }

    /// Sends SIGTERM: a request to end.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub fn interrupt(&mut self) -> Result<()> {
        self.signal(Signal::INT)
    }

    /// Sends SIGABRT: a crash.
    pub fn abort(&mut self) -> Result<()> {
        self.signal(Signal::ABORT)
    }

    /// Sends SIGKILL: ends at once.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL)
    }

    /// Sends SIGSTOP: freezes the process, as when a laptop is closed.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Sends SIGCONT: continues the process.
    pub fn resume(&mut self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        // The process id cannot be reused before the process is reaped.
        if let Some(status) = self.child.try_wait()? {
            bail!("{} has already ended: {status}{}", self.name, self.tail());
        }
        let said = kill_process(Pid::from_child(&self.child), signal);
        said.with_context(|| format!("{signal:?} to {}", self.name))
    }

    /// Waits for the next line of standard output that satisfies `wanted`, starting after the line
    /// that the last call returned. Fails if the output ends or `within` passes first; the error
    /// contains the last lines of both outputs.
    pub fn wait_for_line(
        &mut self,
        wanted: impl Fn(&str) -> bool,
        within: Duration,
    ) -> Result<String> {
        match self.out.wait_for(wanted, within) {
            Ok(line) => Ok(line),
            Err(Missed::Ended) => {
                bail!("{}: its output ended without the line{}", self.name, self.tail())
            }
            Err(Missed::Deadline) => {
                bail!("{}: not that line within {within:?}{}", self.name, self.tail())
            }
        }
    }

    /// Waits for the next line that is a JSON object whose `event` is `kind`, and which `likes`.
    pub fn wait_for_event(
        &mut self,
        kind: &str,
        likes: impl Fn(&Value) -> bool,
        within: Duration,
    ) -> Result<Value> {
        let parsed = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_default();
        let is_it = |line: &str| {
            let event = parsed(line);
            event["event"] == kind && likes(&event)
        };
        self.wait_for_line(is_it, within)
            .map(|line| parsed(&line))
            .with_context(|| format!("no event {kind:?}"))
    }

    /// Waits for the end of the program and of its output. Fails if `within` passes; the program
    /// then continues.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        // The standard library has no wait with a time limit, so this polls every few milliseconds.
        let until = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait()? {
                // The last output may not have been read yet.
                self.out.wait_for_end(LAST_WORDS);
                self.err.wait_for_end(LAST_WORDS);
                return Ok(status);
            }
            if Instant::now() >= until {
                bail!("{} has not ended within {within:?}{}", self.name, self.tail());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The lines of standard output so far, at most the last 10,000.
    pub fn stdout(&self) -> Vec<String> {
        self.out.all()
    }

    /// The lines of standard error so far, at most the last 10,000.
    pub fn stderr(&self) -> Vec<String> {
        self.err.all()
    }

    fn tail(&self) -> String {
        let mut text = String::new();
        for (title, lines) in [("stdout", self.out.all()), ("stderr", self.err.all())] {
            for line in &lines[lines.len().saturating_sub(20)..] {
                text.push_str(&format!("\n  {title}: {line}"));
            }
        }
        text
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A field of `/proc/PID/status` in KiB; `self` for this process.
pub fn memory_kib(pid: &str, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(value.context("no such line")?.trim().trim_end_matches(" kB").parse()?)
}

fn described(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The output of a program, line by line.
#[derive(Debug, Default)]
struct Lines {
    inner: Mutex<Written>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Written {
    lines: VecDeque<String>,
    /// How many of `lines`, from the front, `wait_for` has consumed.
    seen: usize,
    ended: bool,
}

/// A bound on memory; no sound test prints more.
const LINES_MAX: usize = 10_000;

enum Missed {
    Ended,
    Deadline,
}

impl Lines {
    fn collect(source: Option<impl Read + Send + 'static>) -> Arc<Lines> {
        let lines = Arc::new(Lines::default());
        let theirs = Arc::clone(&lines);
        thread::spawn(move || {
            if let Some(source) = source {
                theirs.read_all(source);
            }
            theirs.lock().ended = true;
            theirs.more.notify_all();
        });
        lines
    }

    fn read_all(&self, source: impl Read) {
        let mut source = BufReader::new(source);
        let mut bytes = Vec::new();
        while source.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_string();
            bytes.clear();
            self.lock().push(line);
            self.more.notify_all();
        }
    }

    fn wait_for(&self, wanted: impl Fn(&str) -> bool, within: Duration) -> Result<String, Missed> {
        let until = Instant::now() + within;
        let mut written = self.lock();
        loop {
            if let Some(line) = written.next_liked(&wanted) {
                return Ok(line);
            }
            if written.ended {
                return Err(Missed::Ended);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Missed::Deadline);
            }
            let (woken, _) =
                self.more.wait_timeout(written, left).unwrap_or_else(PoisonError::into_inner);
            written = woken;
        }
    }

    /// Waits for the end of the output, at most `within`.
    fn wait_for_end(&self, within: Duration) {
        drop(self.more.wait_timeout_while(self.lock(), within, |written| !written.ended));
    }

    fn all(&self) -> Vec<String> {
        self.lock().lines.iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Written {
    fn push(&mut self, line: String) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
            self.seen = self.seen.saturating_sub(1);
        }
        self.lines.push_back(line);
    }

    fn next_liked(&mut self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        while let Some(line) = self.lines.get(self.seen) {
            self.seen += 1;
            if wanted(line) {
                return Some(line.clone());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn shell(script: &str) -> Child {
        Child::spawn(Command::new("sh").args(["-c", script])).expect("there is a shell")
    }

    #[test]
    fn lines_come_in_order_and_each_once() -> Result<()> {
        let mut child = shell("echo view 1; echo noise; echo view 2; exec sleep 60");
        let view = |line: &str| line.starts_with("view");
        assert_eq!(child.wait_for_line(view, SOON)?, "view 1");
        assert_eq!(child.wait_for_line(view, SOON)?, "view 2");
        assert!(child.wait_for_line(view, Duration::ZERO).is_err());
        assert_eq!(child.stdout(), ["view 1", "noise", "view 2"]);
        Ok(())
    }

    #[test]
    fn an_ended_output_is_told_at_once_with_what_was_said() -> Result<()> {
        let mut child = shell("echo one; echo two >&2; exit 3");
        let missed = child.wait_for_line(|line| line == "never", SOON);
        let text = missed.expect_err("that line never comes").to_string();
        assert!(text.contains("ended without the line") && text.contains("stdout: one"), "{text}");
        assert_eq!(child.wait(SOON)?.code(), Some(3));
        assert!(child.kill().is_err(), "an ended program is not signalled");
        Ok(())
    }

    #[test]
    fn all_that_a_program_has_written_is_there_when_it_has_ended() -> Result<()> {
        for _ in 0..20 {
            let mut child = shell("seq 2000; echo last >&2");
            assert!(child.wait(SOON)?.success());
            assert_eq!((child.stdout().len(), child.stderr()), (2000, vec!["last".to_owned()]));
        }
        Ok(())
    }

    #[test]
    fn an_output_that_another_program_holds_open_is_not_waited_for_for_ever() -> Result<()> {
        let mut child = shell("sleep 60 & echo $!");
        let began = Instant::now();
        assert!(child.wait(SOON)?.success());
        assert!(began.elapsed() < SOON);
        let sleeper: i32 = child.stdout()[0].parse()?;
        rustix::process::kill_process(Pid::from_raw(sleeper).context("a process")?, Signal::TERM)?;
        Ok(())
    }

    #[test]
    fn a_stopped_program_goes_on_where_it_was() -> Result<()> {
        let mut child =
            shell("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done");
        child.wait_for_line(|line| line == "ready", SOON)?;
        child.stop()?;
        child.terminate()?;
        assert!(child.wait(Duration::from_millis(50)).is_err(), "a stopped program does not end");
        child.resume()?;
        child.wait_for_line(|line| line == "bye", SOON)?;
        assert!(child.wait(SOON)?.success());
        Ok(())
    }

    #[test]
    fn dropping_the_guard_ends_the_program() {
        let child = shell("exec sleep 60");
        let pid = Pid::from_child(&child.child);
        drop(child);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
