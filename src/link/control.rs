//! Control links: each message is one sealed record, prefixed with its length (`u16`,
//! little-endian), or several if it is long. After a record with 56 KiB of a message, another one
//! follows.
//!
//! The length is checked before anything is read or allocated for it, and each link has one receive
//! buffer of fixed size. An error of either half is final: drop both halves, which closes the
//! connection.

use super::keys::TAG_BYTES;
use super::secure_channel::{Opener, Sealer, SecureChannel};
use super::transport::Stream;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

/// Largest control message in bytes. The longest one that occurs, the Accept of a View with the
/// maximum number of committed operations, has less than 100 KiB.
pub const CONTROL_BYTES_MAX: usize = 2 * PART_BYTES;

/// The sending half of a control link.
pub struct ControlSender {
    to: WriteHalf<Box<dyn Stream>>,
    sealer: Sealer,
    unsent: Vec<u8>,
    sent: usize,
}

/// The receiving half of a control link.
pub struct ControlReceiver {
    from: ReadHalf<Box<dyn Stream>>,
    opener: Opener,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The first records of a long message.
    parts: Vec<u8>,
}

/// Makes the two halves of a control link from a stream whose handshake has finished.
pub fn into_control(
    stream: Box<dyn Stream>,
    channel: SecureChannel,
) -> (ControlSender, ControlReceiver) {
    let (from, to) = tokio::io::split(stream);
    let (sealer, opener) = channel.into_halves();
    let buffer = vec![0; LENGTH_BYTES + SEALED_BYTES_MAX].into_boxed_slice();
    (
        ControlSender { to, sealer, unsent: Vec::new(), sent: 0 },
        ControlReceiver { from, opener, buffer, start: 0, end: 0, parts: Vec::new() },
    )
}

impl ControlSender {
    /// Seals one message of at most [`CONTROL_BYTES_MAX`] bytes and appends it to the unsent bytes.
    /// The next [`flush`](ControlSender::flush) sends them, so messages added together leave in one
    /// write.
    ///
    /// # Errors
    /// `InvalidInput` for a longer message, which leaves the link usable; every other error is
    /// final.
    pub fn add(&mut self, message: &[u8]) -> io::Result<()> {
        if message.len() > CONTROL_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the control message is longer than 112 KiB",
            ));
        }
        let (mut part, mut rest) = message.split_at(message.len().min(PART_BYTES));
        self.add_record(part)?;
        while part.len() == PART_BYTES {
            (part, rest) = rest.split_at(rest.len().min(PART_BYTES));
            self.add_record(part)?;
        }
        Ok(())
    }

    fn add_record(&mut self, part: &[u8]) -> io::Result<()> {
        let start = self.unsent.len();
        self.unsent.resize(start + LENGTH_BYTES + part.len() + TAG_BYTES, 0);
        let (length, record) = self.unsent[start..].split_at_mut(LENGTH_BYTES);
        let sealed = self.sealer.seal(part, record)?;
        length.copy_from_slice(&(sealed as u16).to_le_bytes());
        Ok(())
    }

    /// Bytes not yet written to the stream.
    pub fn unsent(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Adds one message and flushes.
    #[cfg(test)]
    pub async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.add(message)?;
        self.flush().await
    }

    /// Sends all added messages; waits while the peer's window is full. Cancel-safe: the next call
    /// continues where a dropped one stopped.
    ///
    /// # Errors
    /// All are final.
    pub async fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.unsent.len() {
            match self.to.write(&self.unsent[self.sent..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => self.sent += n,
            }
        }
        self.unsent.clear();
        self.sent = 0;
        self.to.flush().await
    }
}

impl ControlReceiver {
    /// Receives the next message. Cancel-safe: a partly received message is kept for the next call.
    ///
    /// # Errors
    /// `UnexpectedEof` if the peer closed the link, `InvalidData` if a record is too short, too
    /// long or not authentic, or the stream's own error. All are final.
    pub async fn recv(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(message) = self.take_message()? {
                return Ok(message);
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            match self.from.read(&mut self.buffer[self.end..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => self.end += n,
            }
        }
    }

    /// The next message, if its last record has been received.
    fn take_message(&mut self) -> io::Result<Option<Vec<u8>>> {
        while let Some(record) = self.take_record()? {
            let is_last = record.len() < PART_BYTES;
            if is_last && self.parts.is_empty() {
                return Ok(Some(record));
            }
            if self.parts.len() + record.len() > CONTROL_BYTES_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the peer sent a control message that is longer than 112 KiB",
                ));
            }
            self.parts.extend_from_slice(&record);
            if is_last {
                return Ok(Some(std::mem::take(&mut self.parts)));
            }
        }
        Ok(None)
    }

    fn take_record(&mut self) -> io::Result<Option<Vec<u8>>> {
        let received = &self.buffer[self.start..self.end];
        let Some((length, rest)) = received.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_le_bytes(*length));
        if !(TAG_BYTES..=SEALED_BYTES_MAX).contains(&length) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer announced a control record of impossible size",
            ));
        }
        let Some(sealed) = rest.get(..length) else { return Ok(None) };
        let mut message = vec![0; length];
        let plain = self.opener.open(sealed, &mut message)?;
        message.truncate(plain);
        self.start += LENGTH_BYTES + length;
        Ok(Some(message))
    }
}

const LENGTH_BYTES: usize = 2;
/// The part of a message in one record; less in its last record.
const PART_BYTES: usize = 56 * 1024;
const SEALED_BYTES_MAX: usize = PART_BYTES + TAG_BYTES;

#[cfg(test)]
mod tests;
