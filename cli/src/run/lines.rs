//! The output of the programs: line by line behind the rank, and into files.

use super::writer::{FLUSH_TIMEOUT, Writer};
use crate::output::Output;
use anyhow::{Context, Result};
use serde_json::json;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

/// The file with the output of one rank.
pub type Log = Arc<Mutex<File>>;

/// An output of a program.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Out => "stdout",
            Stream::Err => "stderr",
        }
    }
}

/// Threads that copy the output of programs, so that a blocked terminal stops no supervisor.
#[derive(Debug)]
pub struct Copiers {
    output: Output,
    writer: Writer,
    /// Each thread has a sender; nothing is ever sent.
    running: SyncSender<()>,
    ended: Receiver<()>,
}

impl Copiers {
    /// None yet. The messages of the command go to this writer.
    pub fn new(output: &Output, writer: &Writer) -> Copiers {
        let (running, ended) = sync_channel(0);
        Copiers { output: output.clone(), writer: writer.clone(), running, ended }
    }

    /// Copies one stream of a program until its end, behind the messages that were ordered before.
    pub fn copy(
        &self,
        source: PipeReader,
        rank: usize,
        stream: Stream,
        log: Option<Log>,
    ) -> Result<()> {
        let (output, running) = (self.output.clone(), self.running.clone());
        let messages = self.writer.mark();
        let copy = move || {
            // The end of this channel.
            let _ = messages.recv();
            for line in Lines::new(BufReader::new(source)) {
                show(&output, rank, stream, &line);
                if let Some(log) = &log {
                    write_to(log, &line);
                }
            }
            drop(running);
        };
        std::thread::Builder::new().name(format!("output-{rank}")).spawn(copy)?;
        Ok(())
    }

    /// Waits until all streams have ended: a program that has left its group may hold one open, and
    /// a terminal may stand still, so not for long.
    pub fn finish(self) {
        let Copiers { running, ended, .. } = self;
        drop(running);
        // Ends early when all senders are gone.
        let _ = ended.recv_timeout(FLUSH_TIMEOUT);
    }
}

/// Makes the folder for the files, for this user alone.
pub fn make_folder(folder: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("{}: cannot be made; choose another --logs", folder.display()))
}

/// Opens the file of a rank, and notes that a generation begins.
pub fn open_log(folder: &Path, rank: usize, generation: u32) -> Result<Log> {
    let path = folder.join(format!("rank-{rank}.log"));
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("{}: cannot be written", path.display()))?;
    writeln!(file, "=== rank {rank}, generation {generation}")?;
    Ok(Arc::new(Mutex::new(file)))
}

/// The lines of a stream, without their ends; a long one in pieces.
#[derive(Debug)]
struct Lines<R> {
    source: R,
    /// The last line ended with a carriage return: a line feed behind it is no line of its own.
    after_return: bool,
}

impl<R: BufRead> Lines<R> {
    fn new(source: R) -> Lines<R> {
        Lines { source, after_return: false }
    }

    /// Takes bytes up to the end of the line or `LINE_MAX`, and returns that end if it is there.
    /// None at the end of the stream.
    fn take(&mut self, line: &mut Vec<u8>) -> Option<Option<u8>> {
        let chunk = loop {
            match self.source.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
                Ok(_) => break self.source.fill_buf().ok()?,
            }
        };
        if chunk.is_empty() {
            return None;
        }
        // A bar of progress ends its lines with a carriage return.
        let end = chunk.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let taken = end.unwrap_or(chunk.len()).min(LINE_MAX - line.len());
        let end = end.filter(|end| *end == taken).map(|end| chunk[end]);
        line.extend_from_slice(&chunk[..taken]);
        self.source.consume(taken + usize::from(end.is_some()));
        Some(end)
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            let Some(end) = self.take(&mut line) else {
                return (!line.is_empty()).then_some(line);
            };
            let is_second_half = end == Some(b'\n') && self.after_return && line.is_empty();
            self.after_return = end == Some(b'\r');
            if !is_second_half && (end.is_some() || line.len() == LINE_MAX) {
                return Some(line);
            }
        }
    }
}

fn show(output: &Output, rank: usize, stream: Stream, line: &[u8]) {
    let text = String::from_utf8_lossy(line);
    match stream {
        _ if output.is_json() => {
            let document = json!({
                "event": "output", "rank": rank, "stream": stream.name(), "line": text,
            });
            // Nobody reads it any more: the program runs on.
            let _ = output.result(&document, String::new);
        }
        Stream::Out => {
            let _ = writeln!(io::stdout().lock(), "[{rank}] {text}");
        }
        Stream::Err => output.say(&format!("[{rank}] {text}")),
    }
}

fn write_to(log: &Log, line: &[u8]) {
    let mut file = log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A full disk must not end the program, which may have a disk of its own to write to.
    let _ = file.write_all(line).and_then(|()| file.write_all(b"\n"));
}

const LINE_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], capacity: usize) -> Vec<String> {
        let lines = Lines::new(BufReader::with_capacity(capacity, text));
        lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
    }

    #[test]
    fn lines_end_with_a_line_feed_a_carriage_return_or_both() {
        for capacity in 1..12 {
            let of = |text: &str| lines(text.as_bytes(), capacity);
            assert_eq!(of("one\ntwo\r\n\nthree"), ["one", "two", "", "three"], "{capacity}");
            assert_eq!(of("10 %\r20 %\r\n"), ["10 %", "20 %"], "{capacity}");
            assert!(of("").is_empty());
        }
    }

    #[test]
    fn a_line_without_an_end_comes_in_pieces() {
        let text = vec![b'x'; 2 * LINE_MAX + 5];
        let lengths: Vec<usize> = lines(&text, 1000).iter().map(String::len).collect();
        assert_eq!(lengths, [LINE_MAX, LINE_MAX, 5]);
    }
}
