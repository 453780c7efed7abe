//! Data links over TCP: frames on a blocking socket, with one thread per direction.
//!
//! While the peer's window is full, the sender blocks until the link's [`Shutdown`], or until the
//! system ends the connection (see `give_up_in_time`). The first error of either half ends the
//! whole link.

use super::frame::{FrameReader, FrameWriter, Source};
use super::hello::Wire;
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
    let protection = match channel.wire {
        Wire::Untrusted => channel.suite.to_string(),
        Wire::Trusted => "none: both ends trust the wire".to_owned(),
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
        let (sealer, opener) = match channel.wire {
            Wire::Untrusted => {
                let (sealer, opener) = channel.into_halves();
                (Some(sealer), Some(opener))
            }
            Wire::Trusted => (None, None),
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
mod contract {
    use super::super::handshake::{channel_pair_of, channel_pair_over, control};
    use super::super::memory_data_link::data_pair;
    use super::super::suite::Suite;
    use super::super::testing::sockets;
    use super::super::transport::{PAYLOAD_BYTES_MAX, Phase};
    use super::*;
    use crate::memory::Pool;
    use crate::protocol::{Lane, OpId};
    use rustix::time::{ClockId, clock_gettime};
    use std::thread;
    use std::time::Duration;

    type Halves = (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>);

    fn tcp((a, b): (SecureChannel, SecureChannel)) -> (Halves, Halves) {
        tcp_of((a, b), |link| link)
    }

    /// Both senders use a writer thread.
    fn pressed((a, b): (SecureChannel, SecureChannel)) -> (Halves, Halves) {
        tcp_of((a, b), TcpData::pressed)
    }

    fn tcp_of(
        (a, b): (SecureChannel, SecureChannel),
        made: fn(TcpData) -> TcpData,
    ) -> (Halves, Halves) {
        let (near, far) = sockets();
        let link = |socket, channel| {
            Box::new(made(TcpData::new(socket, channel).expect("a link"))).split()
        };
        (link(near, a), link(far, b))
    }

    fn all() -> Vec<(&'static str, (Halves, Halves))> {
        let (a, b) = data_pair();
        let trusted = super::super::terms::Terms { wire: Wire::Trusted, ..control() };
        vec![
            ("memory", (a.split(), b.split())),
            ("tcp, AES-256-GCM", tcp(channel_pair_of(Suite::Aes256Gcm))),
            ("tcp, ChaCha20-Poly1305", tcp(channel_pair_of(Suite::ChaCha20Poly1305))),
            ("tcp, AES-256-GCM, two threads", pressed(channel_pair_of(Suite::Aes256Gcm))),
            (
                "tcp, ChaCha20-Poly1305, two threads",
                pressed(channel_pair_of(Suite::ChaCha20Poly1305)),
            ),
            ("tcp, trusted", tcp(channel_pair_over(trusted))),
        ]
    }

    fn header(number: usize, len: usize) -> DataHeader {
        let op = OpId { lane: Lane::MAIN, number: number as u64 };
        DataHeader { op, flow: 1, chunk: number as u32, phase: Phase::Gather, len: len as u32 }
    }

    const SIZES: [usize; 10] = [
        0,
        1,
        65_486,
        65_487,
        65_488,
        65_519,
        2 * 65_487,
        256 * 1024,
        PAYLOAD_BYTES_MAX - 1,
        PAYLOAD_BYTES_MAX,
    ];

    #[test]
    fn frames_of_all_sizes_arrive_both_ways_in_order() {
        for (name, (a, b)) in all() {
            let talk = |(mut to, mut from, keep): Halves, salt: usize| {
                let sending = thread::spawn(move || {
                    for (n, len) in SIZES.into_iter().enumerate() {
                        let payload: Vec<u8> =
                            (0..len).map(|i| (i * 31 + n + salt) as u8).collect();
                        to.send(&header(n, len), &payload).expect("sent");
                    }
                    to
                });
                let receiving = thread::spawn(move || {
                    let pool = Pool::new();
                    for (n, len) in SIZES.into_iter().enumerate() {
                        let (got, block) = from.recv(&pool).expect("received");
                        assert_eq!(got, header(n, len));
                        assert!(
                            block
                                .bytes()
                                .iter()
                                .enumerate()
                                .all(|(i, b)| *b == (i * 31 + n + 1 - salt) as u8)
                        );
                    }
                    from
                });
                (sending, receiving, keep)
            };
            let (a, b) = (talk(a, 0), talk(b, 1));
            // Keep all halves to the end: dropping a receiver ends its link.
            let received = [a.1.join(), b.1.join()];
            let sent = [a.0.join(), b.0.join()];
            assert!(received.iter().all(Result::is_ok) && sent.iter().all(Result::is_ok), "{name}");
        }
    }

    #[test]
    fn shutdown_frees_a_blocked_receiver_and_a_blocked_sender() {
        for (name, (a, b)) in all() {
            let ((mut to, mut from, end), _peer) = (a, b);
            let sending = thread::spawn(move || {
                loop {
                    if let Err(error) =
                        to.send(&header(0, PAYLOAD_BYTES_MAX), &[0; PAYLOAD_BYTES_MAX])
                    {
                        return (to, error);
                    }
                }
            });
            let receiving = thread::spawn(move || {
                from.recv(&Pool::new()).map(drop).expect_err("nothing was sent")
            });
            end.shutdown();
            end.shutdown();
            let (mut to, _) = sending.join().expect("the sender ends");
            receiving.join().expect("the receiver ends");
            assert!(to.send(&header(0, 0), &[]).is_err(), "{name}: a send after the end");
        }
    }

    #[test]
    fn after_shutdown_nothing_more_is_received() {
        for (name, (a, b)) in all() {
            let ((mut to, _from, _), (_to, mut from, end)) = (a, b);
            to.send(&header(0, 10), &[1; 10]).expect("sent");
            to.send(&header(1, 10), &[1; 10]).expect("sent");
            let pool = Pool::new();
            from.recv(&pool).expect("the first");
            end.shutdown();
            assert!(from.recv(&pool).is_err(), "{name}");
        }
    }

    #[test]
    fn the_peer_of_an_ended_link_gets_an_error_on_both_halves() {
        for (name, (a, b)) in all() {
            let ((_to, _from, end), (mut to, mut from, _)) = (a, b);
            end.shutdown();
            assert!(from.recv(&Pool::new()).is_err(), "{name}");
            let refused = (0..1000)
                .any(|_| to.send(&header(0, PAYLOAD_BYTES_MAX), &[0; PAYLOAD_BYTES_MAX]).is_err());
            assert!(refused, "{name}");
        }
    }

    #[test]
    fn what_was_sent_before_a_drop_arrives() {
        for (name, (a, b)) in all() {
            let ((mut to, from, _), (_to, mut back, _)) = (a, b);
            to.send(&header(0, 1000), &[5; 1000]).expect("sent");
            drop(to);
            let (got, block) = back.recv(&Pool::new()).expect(name);
            assert_eq!((got, block.bytes()), (header(0, 1000), [5; 1000].as_slice()));
            assert!(back.recv(&Pool::new()).is_err(), "{name}: the end");
            drop(from);
        }
    }

    /// Prints the speed of one core per direction: `cargo test --release -p potluck --lib
    /// frame_after_frame -- --nocapture`.
    #[test]
    fn frame_after_frame_is_what_it_was() {
        const FRAMES: usize = 64;
        let payload: Vec<u8> = (0..PAYLOAD_BYTES_MAX).map(|i| (i * 31 + i / 253) as u8).collect();
        for (name, (a, b)) in all() {
            let ((mut to, _from, _), (_to, mut from, _)) = (a, b);
            let [mut sending, mut receiving] = [Duration::ZERO; 2];
            thread::scope(|scope| {
                let (sent, sending) = (&payload, &mut sending);
                // Return the half, so that its drop ends nothing early.
                scope.spawn(move || {
                    for n in 0..FRAMES {
                        *sending += worked(|| to.send(&header(n, sent.len()), sent).expect("sent"));
                    }
                    to
                });
                let mut into = vec![0; payload.len()];
                for n in 0..FRAMES {
                    receiving += worked(|| {
                        assert_eq!(from.header().expect("received"), header(n, payload.len()));
                        from.payload(&mut into).expect("received");
                    });
                    assert_eq!(into, payload, "{name}");
                    into.fill(0);
                }
            });
            let speed =
                |work: Duration| (FRAMES * PAYLOAD_BYTES_MAX) as f64 / work.as_nanos() as f64;
            println!(
                "{name}: a core sends {:.2} GB/s, receives {:.2} GB/s",
                speed(sending),
                speed(receiving)
            );
        }
    }

    /// The processor time that `doing` takes on this thread.
    fn worked(doing: impl FnOnce()) -> Duration {
        let now = || {
            Duration::try_from(clock_gettime(ClockId::ThreadCPUTime))
                .expect("since the thread began")
        };
        let began = now();
        doing();
        now() - began
    }

    #[test]
    fn a_header_that_lies_about_its_payload_is_not_sent() {
        for (name, (a, _b)) in all() {
            let (mut to, ..) = a;
            let error = to.send(&header(0, 5), b"four").expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
