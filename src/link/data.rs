//! Data links over TCP: frames on a blocking socket, with one thread per direction.
//!
//! Between two processes of one host the frames travel in the clear through shared memory
//! (`shared_ring.rs`), and the connection only tells when the other process has ended. The first
//! bytes of each direction are an announcement, sealed like all others: the name of the memory, or
//! that there is none.
//!
//! While the peer's window is full, the sender blocks until the link's [`Shutdown`], or until the
//! system ends the connection (see `give_up_in_time`). The first error of either half ends the
//! whole link.

use super::frame::{FrameReader, FrameWriter, Source};
use super::hello::DataEncryption;
use super::low_water::LowWater;
use super::pipelined_writer::Threads;
use super::rings::Rings;
use super::secure_channel::{Opener, SecureChannel};
use super::shared_ring::{Liveness, Side};
use super::transport::{DataHeader, DataLink, DataReceiver, DataSender, Shutdown, Stream};
use super::unacknowledged::unacknowledged_bytes;
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
    if let Some(memory_link) = stream.take_memory_link() {
        return Ok(memory_link);
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

/// Ends the writing direction when dropped.
struct EndOfStream(Arc<Connection>);

/// The receiving half. When dropped, it ends the whole link.
struct TcpReceiver {
    frames: Frames,
    connection: Arc<Connection>,
}

/// The incoming frames.
enum Frames {
    /// Between processes of one host, before the announcement was read.
    Unannounced(Option<Opener>),
    /// Where they come from is known.
    Coming(FrameReader<Inward>),
}

/// The socket of the link, shared by both halves, and whether it was shut down.
struct Connection {
    peer: MemberId,
    socket: TcpStream,
    closed: AtomicBool,
    /// The shared memory for each direction; none over a network.
    rings: Rings,
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
        let (peer, shares_host) = (channel.peer.id, channel.shares_host);
        let (mut sealer, opener) = match channel.encryption {
            DataEncryption::Required => {
                let (sealer, opener) = channel.into_halves();
                (Some(sealer), Some(opener))
            }
            DataEncryption::Waived => (None, None),
        };
        let rings =
            if shares_host { Rings::announced(&socket, sealer.as_mut())? } else { Rings::none() };
        // Data that goes through memory needs no cipher.
        let sealer = sealer.filter(|_| rings.outgoing().is_none());
        let closed = AtomicBool::new(false);
        let connection = Arc::new(Connection { peer, socket, closed, rings });
        let sender = TcpSender {
            frames: FrameWriter::new(
                Outward(Arc::clone(&connection)),
                sealer,
                Threads::of_this_machine(),
            ),
            connection: EndOfStream(Arc::clone(&connection)),
        };
        let frames = if shares_host {
            Frames::Unannounced(opener)
        } else {
            Frames::Coming(FrameReader::new(Inward::of(&connection), opener))
        };
        let receiver = TcpReceiver { frames, connection: Arc::clone(&connection) };
        Ok(TcpData { sender, receiver, connection })
    }
}

impl Frames {
    /// The reader; the first time, reads the announcement of where the frames come from.
    fn reader(&mut self, connection: &Arc<Connection>) -> io::Result<&mut FrameReader<Inward>> {
        if let Frames::Unannounced(opener) = self {
            let mut opener = opener.take();
            let is_by_memory = connection.rings.hear(&connection.socket, opener.as_mut())?;
            let opener = opener.filter(|_| !is_by_memory);
            *self = Frames::Coming(FrameReader::new(Inward::of(connection), opener));
        }
        match self {
            Frames::Coming(reader) => Ok(reader),
            Frames::Unannounced(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Inward {
    fn of(connection: &Arc<Connection>) -> Inward {
        Inward { connection: Arc::clone(connection), low_water: LowWater::new() }
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

    fn unacknowledged_bytes(&self) -> usize {
        unacknowledged_bytes(&self.connection.0.socket)
    }
}

impl DataReceiver for TcpReceiver {
    fn header(&mut self) -> io::Result<DataHeader> {
        // Needed although `Inward` also checks: the reader may hold whole frames in its buffer.
        self.connection.check()?;
        let frames = self.frames.reader(&self.connection);
        frames.and_then(FrameReader::header).inspect_err(|error| self.connection.broke(error))
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        let frames = self.frames.reader(&self.connection);
        let read = frames.and_then(|frames| frames.payload(into));
        read.inspect_err(|error| self.connection.broke(error))
    }

    fn skip(&mut self, len: usize) -> io::Result<()> {
        let frames = self.frames.reader(&self.connection);
        let read = frames.and_then(|frames| frames.skip(len));
        read.inspect_err(|error| self.connection.broke(error))
    }
}

impl Drop for EndOfStream {
    fn drop(&mut self) {
        // The peer reads everything that was sent, then the end of the stream. An error means that
        // the connection has already ended.
        match self.0.rings.outgoing() {
            Some(ring) => ring.end(Side::Writer),
            None => drop(self.0.socket.shutdown(std::net::Shutdown::Write)),
        }
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
        self.rings.end();
        // An error means that the connection has already ended.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

impl Liveness for Connection {
    fn check(&self) -> io::Result<()> {
        Connection::check(self)
    }

    fn look(&self) -> io::Result<()> {
        self.check()?;
        // After the announcement nothing comes over the connection but its end.
        match ended(&self.socket) {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(()),
        }
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
                 and of the devices between them"
            );
        }
        self.shutdown();
    }
}

impl Source for Inward {
    fn read(&mut self, wanted: usize, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.connection.check()?;
        match self.connection.rings.incoming() {
            Some(ring) => ring.read(into, &*self.connection),
            None => self.low_water.read(&self.connection.socket, wanted, into),
        }
    }
}

impl Write for Outward {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.check()?;
        match self.0.rings.outgoing() {
            Some(ring) => ring.write(parts, &*self.0),
            None => (&self.0.socket).write_vectored(parts),
        }
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

/// Whether the peer has ended the connection.
fn ended(socket: &TcpStream) -> bool {
    use rustix::net::{RecvFlags, recv};

    let waits = |error: rustix::io::Errno| error == rustix::io::Errno::WOULDBLOCK;
    match recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((read, _)) => read == 0,
        Err(error) => !waits(error) && error != rustix::io::Errno::INTR,
    }
}

/// A kernel that refuses the option is no error: the link then only reacts later.
#[cfg(target_os = "linux")]
fn keep_little_unsent(socket: &TcpStream) {
    if let Err(error) = socket2::SockRef::from(socket).set_tcp_notsent_lowat(NOTSENT_LOWAT_BYTES) {
        trace::debug!(%error, "TCP_NOTSENT_LOWAT is not available");
    }
}

#[cfg(not(target_os = "linux"))]
fn keep_little_unsent(_: &TcpStream) {}

#[cfg(test)]
mod contract;
