//! [`Net`] without a network: hosts in one process, with cables that tests can cut.
//!
//! A cut is a pulled cable, not a closed connection: dials time out, and bytes sent on open
//! connections arrive after the cut is healed. A stream between two hosts also carries the ends of
//! an in-memory data link, so [`into_data_link`](super::data::into_data_link) works as it does on
//! TCP.

#![cfg_attr(
    not(test),
    expect(dead_code, reason = "cables are cut, and ends paired by hand, in tests alone")
)]

#[cfg(test)]
pub(crate) use testing::pipe;
#[cfg(all(test, potluck_threads))]
pub(crate) use testing::pipe_of;

use super::memory_data_link::{Cable, Passage};
use super::tcp::DIAL_TIMEOUT;
use super::transport::{DataLink, Listener, Net, Stream};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;

/// A set of hosts, and the pairs of them whose cable is cut. Clones share the set.
#[derive(Clone, Default)]
pub struct MemoryWorld(Arc<Mutex<World>>);

/// The network as one host of a [`MemoryWorld`] sees it.
#[derive(Clone)]
pub struct MemoryNet {
    world: MemoryWorld,
    ip: IpAddr,
}

impl MemoryWorld {
    /// A world without hosts.
    pub fn new() -> MemoryWorld {
        MemoryWorld::default()
    }

    /// The network of the host with this address.
    pub fn host(&self, ip: IpAddr) -> MemoryNet {
        MemoryNet { world: self.clone(), ip }
    }

    /// Cuts the cable between two hosts, in both directions.
    pub fn cut(&self, a: IpAddr, b: IpAddr) {
        let mut world = self.lock();
        world.cuts.insert(pair(a, b));
        world.set(pair(a, b), Passage::Held);
    }

    /// Drops the attempts of one host to connect to another, as a firewall does.
    #[cfg(test)]
    pub(crate) fn close(&self, from: IpAddr, to: IpAddr) {
        self.lock().closed.insert((from, to));
    }

    /// Heals a cut; the held bytes and frames are delivered.
    pub fn heal(&self, a: IpAddr, b: IpAddr) {
        let mut world = self.lock();
        world.cuts.remove(&pair(a, b));
        world.set(pair(a, b), Passage::Open);
    }

    /// Ends the control links between two hosts, as a reset does; new ones can be made at once.
    /// Data links continue.
    pub fn sever(&self, a: IpAddr, b: IpAddr) {
        let world = self.lock();
        let between = world.connections.iter().filter(|it| it.between == pair(a, b));
        between.filter_map(|it| it.gate.upgrade()).for_each(|gate| gate.end());
    }

    /// The numbers of the oldest living connection between two hosts and of the newest one.
    #[cfg(test)]
    pub(crate) fn connections(&self, a: IpAddr, b: IpAddr) -> Option<(u64, u64)> {
        let world = self.lock();
        let lives = |gate: &&Connection| gate.between == pair(a, b) && gate.lives();
        let mut numbers = world.connections.iter().filter(lives).map(|gate| gate.number);
        let first = numbers.next()?;
        Some((first, numbers.next_back().unwrap_or(first)))
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Net for MemoryNet {
    async fn listen(&self, ports: &[u16]) -> io::Result<Box<dyn Listener>> {
        let mut world = self.world.lock();
        let candidates = ports.iter().copied().chain(EPHEMERAL..=u16::MAX);
        let free =
            |port: &u16| *port != 0 && !world.ports.contains_key(&SocketAddr::new(self.ip, *port));
        let port = candidates.into_iter().find(free).ok_or(io::ErrorKind::AddrInUse)?;
        let (knock, incoming) = mpsc::channel(BACKLOG);
        let at = SocketAddr::new(self.ip, port);
        world.ports.insert(at, knock);
        Ok(Box::new(MemoryPort { world: self.world.clone(), at, incoming }))
    }

    async fn dial(&self, to: SocketAddr) -> io::Result<Box<dyn Stream>> {
        // Bound to a variable, so that no lock is held across the await below.
        let connected = self.world.lock().connect(self.ip, to);
        match connected {
            Some(outcome) => outcome.map(|stream| Box::new(stream) as Box<dyn Stream>),
            None => {
                tokio::time::sleep(DIAL_TIMEOUT).await;
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }
}

#[derive(Default)]
struct World {
    ports: BTreeMap<SocketAddr, mpsc::Sender<(MemoryStream, SocketAddr)>>,
    cuts: BTreeSet<Pair>,
    /// From where, to where no connection can be opened.
    closed: BTreeSet<(IpAddr, IpAddr)>,
    connections: Vec<Connection>,
    dialled: u64,
}

/// A connection that has been made.
struct Connection {
    number: u64,
    between: Pair,
    gate: Weak<StreamGate>,
    cable: Weak<Cable>,
}

impl Connection {
    fn lives(&self) -> bool {
        self.gate.strong_count() + self.cable.strong_count() > 0
    }
}

type Pair = (IpAddr, IpAddr);

impl World {
    /// `None` if the cable is cut.
    fn connect(&mut self, ip: IpAddr, to: SocketAddr) -> Option<io::Result<MemoryStream>> {
        if self.cuts.contains(&pair(ip, to.ip())) || self.closed.contains(&(ip, to.ip())) {
            return None;
        }
        let Some(knock) = self.ports.get(&to).cloned() else {
            return Some(Err(io::ErrorKind::ConnectionRefused.into()));
        };
        self.dialled += 1;
        let from = SocketAddr::new(ip, EPHEMERAL | self.dialled as u16);
        let (near, far) = MemoryStream::pair(from, to);
        self.connections.retain(Connection::lives);
        self.connections.push(Connection {
            number: self.dialled,
            between: pair(ip, to.ip()),
            gate: Arc::downgrade(&near.gate),
            cable: Arc::downgrade(&near.cable),
        });
        match knock.try_send((far, from)) {
            Ok(()) => Some(Ok(near)),
            Err(_) => Some(Err(io::ErrorKind::ConnectionRefused.into())),
        }
    }

    fn set(&self, between: Pair, passage: Passage) {
        for Connection { gate, cable, .. } in
            self.connections.iter().filter(|it| it.between == between)
        {
            if let Some(gate) = gate.upgrade() {
                gate.set(passage);
            }
            if let Some(cable) = cable.upgrade() {
                cable.set(passage);
            }
        }
    }
}

struct MemoryPort {
    world: MemoryWorld,
    at: SocketAddr,
    incoming: mpsc::Receiver<(MemoryStream, SocketAddr)>,
}

#[async_trait]
impl Listener for MemoryPort {
    fn port(&self) -> u16 {
        self.at.port()
    }

    async fn accept(&mut self) -> io::Result<(Box<dyn Stream>, SocketAddr)> {
        // The world keeps a sender while this port is in its table, and it is there until it is
        // dropped.
        let (stream, from) = self.incoming.recv().await.ok_or(io::ErrorKind::NotConnected)?;
        Ok((Box::new(stream), from))
    }
}

impl Drop for MemoryPort {
    fn drop(&mut self) {
        self.world.lock().ports.remove(&self.at);
    }
}

struct MemoryStream {
    bytes: DuplexStream,
    local: SocketAddr,
    peer: SocketAddr,
    side: usize,
    gate: Arc<StreamGate>,
    cable: Arc<Cable>,
    memory_link: Option<Box<dyn DataLink>>,
}

/// Holds the bytes of one stream while its cable is cut.
struct StreamGate(Mutex<GateState>);

struct GateState {
    passage: Passage,
    /// Severed: reads return the end of the stream, writes fail.
    over: bool,
    waiting: [Option<Waker>; 2],
}

impl MemoryStream {
    fn pair(from: SocketAddr, to: SocketAddr) -> (MemoryStream, MemoryStream) {
        MemoryStream::pair_of(STREAM_BYTES, from, to)
    }

    fn pair_of(bytes: usize, from: SocketAddr, to: SocketAddr) -> (MemoryStream, MemoryStream) {
        let (near, far) = tokio::io::duplex(bytes);
        let gate = Arc::new(StreamGate(Mutex::new(GateState {
            passage: Passage::Open,
            over: false,
            waiting: [None, None],
        })));
        let cable = Arc::new(Cable::new());
        let (near_end, far_end) = Cable::pair(&cable);
        let end = |bytes, (local, peer), side, memory_link| {
            let (gate, cable) = (Arc::clone(&gate), Arc::clone(&cable));
            MemoryStream { bytes, local, peer, side, gate, cable, memory_link: Some(memory_link) }
        };
        (end(near, (from, to), 0, near_end), end(far, (to, from), 1, far_end))
    }
}

impl StreamGate {
    fn set(&self, passage: Passage) {
        self.change(|state| state.passage = passage);
    }

    fn end(&self) {
        self.change(|state| state.over = true);
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        state.waiting.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }

    fn is_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).over
    }

    /// Ready while the cable is whole. Registers the reader, which every change wakes.
    fn poll_open(&self, side: usize, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting[side] = Some(cx.waker().clone());
        if state.passage == Passage::Open { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Stream for MemoryStream {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }

    fn into_tcp(self: Box<Self>) -> Option<std::net::TcpStream> {
        None
    }

    fn take_memory_link(&mut self) -> Option<Box<dyn DataLink>> {
        self.memory_link.take()
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.gate.poll_open(self.side, cx) {
            Poll::Ready(()) if self.gate.is_over() => Poll::Ready(Ok(())),
            Poll::Ready(()) => Pin::new(&mut self.bytes).poll_read(cx, out),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.gate.is_over() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.bytes).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(cx)
    }
}

fn pair(a: IpAddr, b: IpAddr) -> Pair {
    (a.min(b), a.max(b))
}

/// Bytes in flight on a stream, as in a socket's buffers.
const STREAM_BYTES: usize = 64 * 1024;
/// Longest queue of connections to be accepted.
const BACKLOG: usize = 128;
const EPHEMERAL: u16 = 0xc000;

#[cfg(test)]
pub(in crate::link) mod testing {
    use super::*;

    /// The two ends of a stream that belongs to no world.
    pub(crate) fn pipe() -> (Box<dyn Stream>, Box<dyn Stream>) {
        pipe_of(STREAM_BYTES)
    }

    /// Like `pipe`, with so many bytes in flight per direction.
    pub(crate) fn pipe_of(bytes: usize) -> (Box<dyn Stream>, Box<dyn Stream>) {
        let at = |n: u8| SocketAddr::from(([10, 0, 0, n], 1));
        let (near, far) = MemoryStream::pair_of(bytes, at(1), at(2));
        (Box::new(near), Box::new(far))
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::into_data_link;
    use super::super::handshake::channel_pair;
    use super::super::testing::header;
    use super::*;
    use crate::memory::Pool;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    async fn connected(world: &MemoryWorld) -> (Box<dyn Stream>, Box<dyn Stream>) {
        let mut listener = world.host(ip(2)).listen(&[]).await.expect("a port");
        let near =
            world.host(ip(1)).dial((ip(2), listener.port()).into()).await.expect("connected");
        let (far, from) = listener.accept().await.expect("accepted");
        assert_eq!(from, near.local_addr().expect("an address"));
        (near, far)
    }

    #[tokio::test]
    async fn hosts_reach_each_other_and_ports_are_freed() {
        let world = MemoryWorld::new();
        let (mut near, mut far) = connected(&world).await;
        near.write_all(b"hello").await.expect("written");
        let mut got = [0; 5];
        far.read_exact(&mut got).await.expect("read");
        assert_eq!(&got, b"hello");
        let listener = world.host(ip(2)).listen(&[77]).await.expect("a port");
        assert_eq!(listener.port(), 77);
        assert_ne!(world.host(ip(2)).listen(&[77]).await.expect("another port").port(), 77);
        drop(listener);
        let error = world.host(ip(1)).dial((ip(2), 77).into()).await.map(drop).expect_err("nobody");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_holds_bytes_up_and_a_healed_one_delivers_them() {
        let world = MemoryWorld::new();
        let (mut near, mut far) = connected(&world).await;
        world.cut(ip(2), ip(1));
        near.write_all(b"late").await.expect("written");
        let mut got = [0; 4];
        assert!(timeout(Duration::from_secs(60), far.read_exact(&mut got)).await.is_err());
        let listener = world.host(ip(2)).listen(&[]).await.expect("a port");
        let error = world
            .host(ip(1))
            .dial((ip(2), listener.port()).into())
            .await
            .map(drop)
            .expect_err("cut");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(
            world.host(ip(3)).dial((ip(2), listener.port()).into()).await.is_ok(),
            "another host"
        );
        let healing = async { world.heal(ip(1), ip(2)) };
        let (read, ()) = tokio::join!(far.read_exact(&mut got), healing);
        read.expect("read");
        assert_eq!(&got, b"late");
    }

    #[tokio::test]
    async fn a_stream_becomes_a_data_link_that_a_cut_holds_up_too() {
        let world = MemoryWorld::new();
        let (near, far) = connected(&world).await;
        let (a, b) = channel_pair();
        let (mut to, _from, _) = into_data_link(near, a).expect("a memory link").split();
        let (_to, mut from, _) = into_data_link(far, b).expect("a memory link").split();
        let header = header(3);
        world.cut(ip(1), ip(2));
        to.send(&header, b"abc").expect("sent");
        let receiving = std::thread::spawn(move || {
            from.recv(&Pool::new()).map(|(_, block)| block.bytes().to_vec())
        });
        assert!(!receiving.is_finished());
        world.heal(ip(1), ip(2));
        assert_eq!(receiving.join().expect("no panic").expect("received"), b"abc");
    }
}
