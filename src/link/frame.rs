//! Frames of bulk data on a byte stream, sealed or in the clear.
//!
//! A sealed frame is a sequence of records, each prefixed with its length (`u16`, little-endian).
//! The first record holds the header and the first `len % FULL_BYTES` bytes of the payload, each
//! other record exactly [`FULL_BYTES`] of it. So the header determines the size of every later
//! record, and a record of any other size ends the link. Most payload bytes are read straight into
//! the caller's block and decrypted there. In the clear, a frame is the header followed by the
//! payload.
//!
//! Nothing is allocated for a frame before its header is authentic and within bounds; after that,
//! only its block.

use super::keys::TAG_BYTES;
use super::pipelined_writer::{PipelinedWriter, Threads};
use super::secure_channel::{Opener, RECORD_BYTES_MAX, Sealer};
use super::transport::{DataHeader, DataReceiver, PAYLOAD_BYTES_MAX};
use crate::os::copy;
use crate::wire::Malformed;
use std::io;
use std::io::{IoSlice, IoSliceMut, Write};
use std::time::{Duration, Instant};

/// Payload bytes of every record but the first.
pub const FULL_BYTES: usize = RECORD_BYTES_MAX - DataHeader::BYTES;

/// Writes frames.
pub struct FrameWriter<W> {
    writer: PipelinedWriter<W>,
    /// `None`: writes in the clear.
    sealer: Option<Sealer>,
    first: Box<[u8]>,
    /// Bytes of the writer's current batch that are filled.
    filled: usize,
    /// Time spent sealing the current frame.
    sealing: Duration,
}

/// The byte stream below a [`FrameReader`].
pub trait Source {
    /// Waits until at least one byte is available, then reads all available bytes into `into`. A
    /// source may wait for up to `wanted` bytes: the peer is certain to send that many. It must not
    /// wait for more. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// The source's own. After `Interrupted` and `WouldBlock` the caller may try again.
    fn read(&mut self, wanted: usize, into: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
}

/// Reads frames.
pub struct FrameReader<R> {
    from: R,
    /// `None`: reads in the clear.
    opener: Option<Opener>,
    record: Box<[u8]>,
    /// Payload bytes behind the header in `record`, of a sealed frame whose payload has not been
    /// taken yet.
    odd: usize,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<W: Write + Send + 'static> FrameWriter<W> {
    /// Makes a writer to `to` that seals with `sealer`, or writes in the clear without one.
    pub fn new(to: W, sealer: Option<Sealer>, threads: Threads) -> FrameWriter<W> {
        let (first, room) = if sealer.is_some() { (RECORD_BYTES_MAX, BATCH_BYTES) } else { (0, 0) };
        let writer = PipelinedWriter::new(to, room, threads);
        FrameWriter { writer, sealer, first: zeros(first), filled: 0, sealing: Duration::ZERO }
    }

    /// Writes one frame; part of it may still wait for the writer thread on return. An error other
    /// than `InvalidInput` is final, and may be that of an earlier frame.
    pub fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        if header.len as usize != payload.len() || payload.len() > PAYLOAD_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the header's length is not the payload's, or too large",
            ));
        }
        if self.sealer.is_some() {
            self.send_sealed(header, payload)
        } else {
            self.send_clear(header, payload)
        }
    }

    fn send_sealed(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        let began = Instant::now();
        let (odd, full) = payload.split_at(payload.len() % FULL_BYTES);
        // Moved out during `seal`, which borrows all of `self`.
        let mut first = std::mem::take(&mut self.first);
        first[..DataHeader::BYTES].copy_from_slice(&header.to_bytes());
        first[DataHeader::BYTES..DataHeader::BYTES + odd.len()].copy_from_slice(odd);
        let sealed = self.seal(&first[..DataHeader::BYTES + odd.len()]);
        self.first = first;
        sealed?;
        for part in full.chunks_exact(FULL_BYTES) {
            self.seal(part)?;
        }
        self.flush()?;
        let sealing = std::mem::take(&mut self.sealing);
        // A frame without a full record does not count: most of its time goes elsewhere.
        if !full.is_empty() {
            self.writer.count(sealing, began.elapsed());
        }
        Ok(())
    }

    fn seal(&mut self, plain: &[u8]) -> io::Result<()> {
        if BATCH_BYTES - self.filled < LENGTH_BYTES + plain.len() + TAG_BYTES {
            self.flush()?;
        }
        let began = Instant::now();
        let Some(sealer) = &mut self.sealer else { return Err(io::ErrorKind::InvalidInput.into()) };
        let (length, rest) = self.writer.room()[self.filled..].split_at_mut(LENGTH_BYTES);
        let sealed = sealer.seal(plain, rest)?;
        length.copy_from_slice(&(sealed as u16).to_le_bytes());
        self.filled += LENGTH_BYTES + sealed;
        self.sealing += began.elapsed();
        Ok(())
    }

    /// Writes header and payload with one vectored write, without a copy.
    fn send_clear(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        let header = header.to_bytes();
        let parts = &mut [IoSlice::new(&header), IoSlice::new(payload)];
        let (mut rest, mut to) = (&mut parts[..], self.writer.by_hand());
        while rest.iter().any(|part| !part.is_empty()) {
            match to.write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.write(std::mem::take(&mut self.filled))
    }
}

#[cfg(test)]
impl<W: Write + Send + 'static> FrameWriter<W> {
    /// Makes the writer assume that sealing takes all of the time, so that it starts its thread.
    pub fn press(&mut self) {
        self.writer.press();
    }

    fn into_inner(self) -> io::Result<W> {
        self.writer.into_inner()
    }
}

impl<R: Source> FrameReader<R> {
    /// Makes a reader from `from` that decrypts with `opener`, or reads in the clear without one.
    pub fn new(from: R, opener: Option<Opener>) -> FrameReader<R> {
        let (record, buffer) = match opener {
            Some(_) => (RECORD_BYTES_MAX, RECORD_BYTES_MAX + TAG_BYTES + AHEAD_BYTES),
            None => (0, AHEAD_BYTES),
        };
        FrameReader {
            from,
            opener,
            record: zeros(record),
            odd: 0,
            buffer: zeros(buffer),
            start: 0,
            end: 0,
        }
    }

    fn header_sealed(&mut self) -> io::Result<DataHeader> {
        let sealed = self.next_length()?;
        if sealed < DataHeader::BYTES + TAG_BYTES {
            return Err(invalid(Malformed::Truncated));
        }
        let plain = self.open_record(sealed)?;
        let header = header_of(&self.record[..plain])?;
        let (len, odd) = (header.len as usize, plain - DataHeader::BYTES);
        if odd != len % FULL_BYTES {
            return Err(invalid(Malformed::Inconsistent));
        }
        self.odd = odd;
        Ok(header)
    }

    fn payload_sealed(&mut self, into: &mut [u8]) -> io::Result<()> {
        let odd = std::mem::take(&mut self.odd);
        let (head, rest) = into.split_at_mut_checked(odd).ok_or(io::ErrorKind::InvalidInput)?;
        if !rest.len().is_multiple_of(FULL_BYTES) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        head.copy_from_slice(&self.record[DataHeader::BYTES..DataHeader::BYTES + odd]);
        rest.chunks_exact_mut(FULL_BYTES).try_for_each(|text| self.open_into(text))
    }

    fn skip_sealed(&mut self, len: usize) -> io::Result<()> {
        let rest = len.checked_sub(std::mem::take(&mut self.odd));
        let full =
            rest.filter(|rest| rest.is_multiple_of(FULL_BYTES)).map(|rest| rest / FULL_BYTES);
        for _ in 0..full.ok_or(io::ErrorKind::InvalidInput)? {
            let sealed = self.next_length()?;
            if sealed != FULL_BYTES + TAG_BYTES {
                return Err(invalid(Malformed::Inconsistent));
            }
            // Decrypted all the same: the next record is authentic only after this one.
            self.open_record(sealed)?;
        }
        Ok(())
    }

    fn skip_clear(&mut self, len: usize) -> io::Result<()> {
        let mut left = len;
        while left > 0 {
            self.fill(1)?;
            let here = left.min(self.end - self.start);
            self.start += here;
            left -= here;
        }
        Ok(())
    }

    /// Decrypts a full record into `text`. The part that is not in the buffer yet is read straight
    /// into `text`.
    fn open_into(&mut self, text: &mut [u8]) -> io::Result<()> {
        if self.next_length()? != text.len() + TAG_BYTES {
            return Err(invalid(Malformed::Inconsistent));
        }
        let mut tag = [0; TAG_BYTES];
        self.read_both(text, &mut tag)?;
        let Some(opener) = &mut self.opener else { return Err(io::ErrorKind::InvalidInput.into()) };
        Ok(opener.open_in_place(text, tag)?)
    }

    /// Decrypts the next `sealed` bytes into `record`; returns the number of plain bytes.
    fn open_record(&mut self, sealed: usize) -> io::Result<usize> {
        self.fill(sealed)?;
        let Some(opener) = &mut self.opener else { return Err(io::ErrorKind::InvalidInput.into()) };
        let plain = opener.open(&self.buffer[self.start..self.start + sealed], &mut self.record)?;
        self.start += sealed;
        Ok(plain)
    }

    fn header_clear(&mut self) -> io::Result<DataHeader> {
        self.fill(DataHeader::BYTES)?;
        let header = header_of(&self.buffer[self.start..self.end])?;
        self.start += DataHeader::BYTES;
        Ok(header)
    }

    /// Fills `first` and then `second`, and lets the buffer take up to `AHEAD_BYTES` of the bytes
    /// behind them. For example, with 100 and 16 bytes missing, a read of 130 bytes fills both and
    /// leaves 14 bytes in the buffer; a read of 104 bytes fills `first` and 4 bytes of `second`,
    /// and the loop reads again.
    fn read_both(&mut self, first: &mut [u8], second: &mut [u8]) -> io::Result<()> {
        let (mut first, mut second) = (self.take(first), second);
        if first.is_empty() {
            second = self.take(second);
        }
        // Here the buffer is empty, or no byte is missing.
        while !(first.is_empty() && second.is_empty()) {
            let (wanted, of_first) = (first.len() + second.len(), first.len());
            let parts = &mut [
                IoSliceMut::new(first),
                IoSliceMut::new(second),
                IoSliceMut::new(&mut self.buffer[..AHEAD_BYTES]),
            ];
            let read = some(&mut self.from, wanted, parts)?;
            (self.start, self.end) = (0, read.saturating_sub(wanted));
            first = &mut first[read.min(of_first)..];
            second = &mut second[read.min(wanted).saturating_sub(of_first)..];
        }
        Ok(())
    }

    /// Copies buffered bytes to the front of `into`; returns the part of `into` that is still
    /// missing.
    fn take<'a>(&mut self, into: &'a mut [u8]) -> &'a mut [u8] {
        let here = into.len().min(self.end - self.start);
        let (taken, missing) = into.split_at_mut(here);
        copy(taken, &self.buffer[self.start..self.start + here]);
        self.start += here;
        missing
    }

    fn next_length(&mut self) -> io::Result<usize> {
        self.fill(LENGTH_BYTES)?;
        let length = u16::from_le_bytes([self.buffer[self.start], self.buffer[self.start + 1]]);
        self.start += LENGTH_BYTES;
        Ok(usize::from(length))
    }

    /// Reads until the buffer holds at least `n` contiguous bytes.
    fn fill(&mut self, n: usize) -> io::Result<()> {
        if self.buffer.len() - self.start < n || self.start == self.end {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < n {
            let wanted = n - (self.end - self.start);
            let room = self.buffer.len().min(self.end + wanted.max(AHEAD_BYTES));
            self.end += some(
                &mut self.from,
                wanted,
                &mut [IoSliceMut::new(&mut self.buffer[self.end..room])],
            )?;
        }
        Ok(())
    }
}

impl<R: Source + Send> DataReceiver for FrameReader<R> {
    fn header(&mut self) -> io::Result<DataHeader> {
        if self.opener.is_some() { self.header_sealed() } else { self.header_clear() }
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        if self.opener.is_some() {
            self.payload_sealed(into)
        } else {
            self.read_both(into, &mut [])
        }
    }

    fn skip(&mut self, len: usize) -> io::Result<()> {
        if self.opener.is_some() { self.skip_sealed(len) } else { self.skip_clear(len) }
    }
}

/// Reads at least one byte.
fn some(from: &mut impl Source, wanted: usize, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    loop {
        match from.read(wanted, into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => return Ok(read),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

fn header_of(bytes: &[u8]) -> io::Result<DataHeader> {
    let header = bytes.first_chunk().ok_or_else(|| invalid(Malformed::Truncated))?;
    DataHeader::from_bytes(header).map_err(invalid)
}

fn invalid(why: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn zeros(len: usize) -> Box<[u8]> {
    vec![0; len].into_boxed_slice()
}

const LENGTH_BYTES: usize = 2;
/// Five records: a chunk of 256 KiB leaves in one write.
const BATCH_BYTES: usize = 5 * (LENGTH_BYTES + RECORD_BYTES_MAX + TAG_BYTES);
/// Bytes read ahead, before their destination is known: enough for a whole frame of 16 KiB, and few
/// enough that little of a large frame is copied twice.
const AHEAD_BYTES: usize = LENGTH_BYTES + DataHeader::BYTES + 16 * 1024 + TAG_BYTES;

#[cfg(any(test, fuzzing))]
impl<B: AsRef<[u8]>> Source for io::Cursor<B> {
    fn read(&mut self, _wanted: usize, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        io::Read::read_vectored(self, into)
    }
}

#[cfg(test)]
mod tests;
