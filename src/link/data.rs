//! Data links over TCP: frames on a blocking socket, with one thread per direction.
//!
//! While the peer's window is full, the sender blocks until the link's [`Shutdown`], or until the
//! system ends the connection (see `give_up_in_time`). The first error of either half ends the
//! whole link.

use super::frame::{FrameReader, FrameWriter, Source};
use super::hello::DataEncryption;
use super::low_water::LowWater;
use super::pipelined_writer::Threads;
use super::secure_channel::SecureChannel;
use super::transport::{DataHeader, DataLink, DataReceiver, DataSender, Shutdown, Stream};
use crate::identity::MemberId;
use crate::trace;
use std::io;
use std::io::{IoSlice, IoSliceMut, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Makes a data link from a stream whose handshake has finished: from the socket of a TCP
/// connection, or from the in-memory data link of an in-memory stream.
///
/// The link is encrypted unless the session's wire is trusted; in-memory links never are.
///
/// # Errors
/// `Unsupported` if the stream has no blocking socket below it, or an error of the socket.
pub fn into_data_link(
    mut stream: Box<dyn Stream>,
    channel: SecureChannel,
) -> io::Result<Box<dyn DataLink>> {
    if let Some(twin) = stream.take_twin() {
        return Ok(twin);
    }
    let tcp = stream.into_tcp().ok_or(io::ErrorKind::Unsupported)?;
    let protection = match channel.encryption {
        DataEncryption::Required => channel.suite.to_string(),
        DataEncryption::Waived => "none: both ends trust the wire".to_owned(),
    };
    trace::debug!(peer = %channel.peer.id, name = %channel.peer.name, protection, "a data link \
        stands");
    Ok(Box::new(TcpData::new(tcp, channel)?))
}

/// A data link over TCP.
pub struct TcpData {
    sender: TcpSender,
    receiver: TcpReceiver,
    connection: Arc<Connection>,
}

/// The sending half. When dropped, it first writes the remaining frames (`frames` is the first
/// field and drops first), then ends the stream in this direction.
struct TcpSender {
    frames: FrameWriter<Outward>,
    connection: EndOfStream,
}

/// Shuts down the socket's writing direction when dropped.
struct EndOfStream(Arc<Connection>);

/// The receiving half. When dropped, it ends the whole link.
struct TcpReceiver {
    frames: FrameReader<Inward>,
    connection: Arc<Connection>,
}

/// The socket of the link, shared by both halves, and whether it was shut down.
struct Connection {
    peer: MemberId,
    socket: TcpStream,
    closed: AtomicBool,
}

/// The socket as the sending half uses it: every write fails after a shutdown, even if the kernel
/// would still accept bytes.
struct Outward(Arc<Connection>);

/// The socket as the receiving half uses it: every read fails after a shutdown, even if the kernel
/// still holds received bytes.
struct Inward {
    connection: Arc<Connection>,
    low_water: LowWater,
}

impl TcpData {
    /// Makes a link from a connected socket, and makes the socket blocking.
    pub fn new(socket: TcpStream, channel: SecureChannel) -> io::Result<TcpData> {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        keep_little_unsent(&socket);
        give_up_in_time(&socket);
        let peer = channel.peer.id;
        let (sealer, opener) = match channel.encryption {
            DataEncryption::Required => {
                let (sealer, opener) = channel.into_halves();
                (Some(sealer), Some(opener))
            }
            DataEncryption::Waived => (None, None),
        };
        let connection = Arc::new(Connection { peer, socket, closed: AtomicBool::new(false) });
        let sender = TcpSender {
            frames: FrameWriter::new(
                Outward(Arc::clone(&connection)),
                sealer,
                Threads::of_this_machine(),
            ),
            connection: EndOfStream(Arc::clone(&connection)),
        };
        let inward = Inward { connection: Arc::clone(&connection), low_water: LowWater::new() };
        let receiver = TcpReceiver {
            frames: FrameReader::new(inward, opener),
            connection: Arc::clone(&connection),
        };
        Ok(TcpData { sender, receiver, connection })
    }
}

#[cfg(test)]
impl TcpData {
    /// Makes the sender use a writer thread, as on a machine with spare cores and a wire faster
    /// than one core.
    pub fn pressed(mut self) -> TcpData {
        self.sender.frames.press();
        self
    }
}

impl DataLink for TcpData {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        (Box::new(self.sender), Box::new(self.receiver), self.connection)
    }
}

impl DataSender for TcpSender {
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        self.connection.0.check()?;
        self.frames.send(header, payload).inspect_err(|error| self.connection.0.broke(error))
    }
}

impl DataReceiver for TcpReceiver {
    fn header(&mut self) -> io::Result<DataHeader> {
        // Needed although `Inward` also checks: the reader may hold whole frames in its buffer.
        self.connection.check()?;
        self.frames.header().inspect_err(|error| self.connection.broke(error))
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.frames.payload(into).inspect_err(|error| self.connection.broke(error))
    }

    fn skip(&mut self, len: usize) -> io::Result<()> {
        self.frames.skip(len).inspect_err(|error| self.connection.broke(error))
    }
}

impl Drop for EndOfStream {
    fn drop(&mut self) {
        // The peer reads everything that was sent, then the end of the stream. An error means that
        // the connection has already ended.
        let _ = self.0.socket.shutdown(std::net::Shutdown::Write);
    }
}

impl Drop for TcpReceiver {
    fn drop(&mut self) {
        self.connection.shutdown();
    }
}

impl Shutdown for Connection {
    fn shutdown(&self) {
        self.closed.store(true, Ordering::Release);
        // An error means that the connection has already ended.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

impl Connection {
    fn check(&self) -> io::Result<()> {
        if self.closed.load(Ordering::Acquire) {
            Err(io::ErrorKind::NotConnected.into())
        } else {
            Ok(())
        }
    }

    /// Ends the link after the first error of a half.
    fn broke(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::TimedOut {
            trace::warn!(
                peer = %self.peer,
                "nothing that was sent on a data link was acknowledged for ten seconds: if the \
                 peer lives, large packets do not get through; compare the MTU of both machines \
                 and of what lies between them"
            );
        }
        self.shutdown();
    }
}

impl Source for Inward {
    fn read(&mut self, wanted: usize, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.connection.check()?;
        self.low_water.read(&self.connection.socket, wanted, into)
    }
}

impl Write for Outward {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.check()?;
        (&self.0.socket).write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.check()?;
        (&self.0.socket).write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that the kernel may hold unsent (`TCP_NOTSENT_LOWAT`): enough to keep a gigabit wire busy
/// for 4 ms, the time that a sending thread on a busy machine may have to wait for a core; and few
/// enough that the order of the next frames is still decided in this process.
#[cfg(target_os = "linux")]
const NOTSENT_LOWAT_BYTES: u32 = 512 * 1024;

/// Makes the system end the link if the peer acknowledges none of the sent bytes for [`SWALLOWED`]
/// (`TCP_USER_TIMEOUT`). A path that loses only large packets shows no other symptom, and TCP by
/// itself retries for about 15 minutes. Systems without this option keep their default.
fn give_up_in_time(socket: &TcpStream) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = socket2::SockRef::from(socket).set_tcp_user_timeout(Some(SWALLOWED));
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = (socket, SWALLOWED);
}

/// Longer than the interruption when a Wi-Fi station changes its access point.
const SWALLOWED: Duration = Duration::from_secs(10);

/// A kernel that refuses the option is no error: the link then only reacts later.
#[cfg(target_os = "linux")]
fn keep_little_unsent(socket: &TcpStream) {
    if let Err(error) = socket2::SockRef::from(socket).set_tcp_notsent_lowat(NOTSENT_LOWAT_BYTES) {
        trace::debug!(%error, "TCP_NOTSENT_LOWAT is not available");
    }
}

#[cfg(not(target_os = "linux"))]
fn keep_little_unsent(_: &TcpStream) {}

/// The behaviour that all implementations of `DataLink` share.
#[cfg(test)]
mod contract;
