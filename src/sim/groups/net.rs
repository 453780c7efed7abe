//! Connections in virtual time: turmoil's TCP with retransmission.
//!
//! turmoil does not retransmit, so a dropped segment would break a connection silently. A lost
//! segment of real TCP is late and delays all segments behind it. The pump of each stream does the
//! same. It breaks the stream after as much time as a data link on Linux does.

use super::conditions::Conditions;
use super::link::SimLink;
use crate::link::{DataLink, Listener, Net, Stream};
use crate::node::Liar;
use async_trait::async_trait;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::sync::Notify;
use tokio::time::timeout;
use turmoil::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use turmoil::net::{TcpListener, TcpStream};

/// The network of one host.
pub struct SimNet {
    pub conditions: Conditions,
    pub ip: IpAddr,
    /// The host lies.
    pub lies: bool,
}

struct SimPort {
    listener: TcpListener,
    port: u16,
    conditions: Conditions,
    lies: bool,
}

struct SimStream {
    /// `None` after it has become a data link.
    halves: Option<(OwnedReadHalf, DuplexStream)>,
    local: SocketAddr,
    peer: SocketAddr,
    is_broken: Arc<AtomicBool>,
    lies: bool,
}

/// Moves the segments of one direction of a stream.
struct Pump {
    from: DuplexStream,
    to: OwnedWriteHalf,
    conditions: Conditions,
    /// The addresses of the sender and the receiver.
    ends: (IpAddr, IpAddr),
    reset: Arc<Notify>,
    is_broken: Arc<AtomicBool>,
}

const PORT: u16 = 47_474;
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// As much as a socket buffer holds.
const UNSENT_BYTES: usize = 64 * 1024;
/// A stream breaks when a segment has not passed for so long.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(10);

#[async_trait]
impl Net for SimNet {
    async fn listen(&self, _ports: &[u16]) -> io::Result<Box<dyn Listener>> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
        let (conditions, lies) = (self.conditions.clone(), self.lies);
        Ok(Box::new(SimPort { listener, port: PORT, conditions, lies }))
    }

    async fn dial(&self, to: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let connected = async {
            self.conditions.passing(self.ip, to.ip()).await;
            self.conditions.passing(to.ip(), self.ip).await;
            TcpStream::connect(to).await
        };
        let stream =
            timeout(DIAL_TIMEOUT, connected).await.map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(Box::new(SimStream::new(stream, self.conditions.clone(), self.lies)?))
    }
}

#[async_trait]
impl Listener for SimPort {
    fn port(&self) -> u16 {
        self.port
    }

    async fn accept(&mut self) -> io::Result<(Box<dyn Stream>, SocketAddr)> {
        let (stream, from) = self.listener.accept().await?;
        Ok((Box::new(SimStream::new(stream, self.conditions.clone(), self.lies)?), from))
    }
}

impl SimStream {
    fn new(stream: TcpStream, conditions: Conditions, lies: bool) -> io::Result<SimStream> {
        let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
        let (reads, to) = stream.into_split();
        let (writes, from) = tokio::io::duplex(UNSENT_BYTES);
        let is_broken = Arc::new(AtomicBool::new(false));
        let ends = (local.ip(), peer.ip());
        let reset = conditions.streams(ends.0, ends.1);
        let pump = Pump { from, to, conditions, ends, reset, is_broken: Arc::clone(&is_broken) };
        tokio::spawn(pump.run());
        Ok(SimStream { halves: Some((reads, writes)), local, peer, is_broken, lies })
    }
}

impl Pump {
    async fn run(mut self) {
        let mut segment = vec![0; 1448];
        loop {
            let read = tokio::select! {
                biased;
                () = self.reset.notified() => break,
                read = self.from.read(&mut segment) => read,
            };
            // Zero bytes or an error mean that either end has closed.
            let Ok(n @ 1..) = read else { break };
            let delay = self.conditions.delay();
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            if !self.passes().await || self.to.write_all(&segment[..n]).await.is_err() {
                break;
            }
        }
        self.is_broken.store(true, Ordering::Relaxed);
        // The end of the stream takes the same way.
        self.passes().await;
        let _ = self.to.shutdown().await;
    }

    /// Waits until segments pass; false if they do not for too long.
    async fn passes(&self) -> bool {
        let passing = self.conditions.passing(self.ends.0, self.ends.1);
        timeout(GIVEN_UP_AFTER, passing).await.is_ok()
    }
}

impl Stream for SimStream {
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
        let (reads, writes) = self.halves.take()?;
        let liar = self.lies.then(Liar::new);
        Some(Box::new(SimLink::new(reads, writes, Arc::clone(&self.is_broken), liar)))
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.halves {
            Some((reads, _)) => Pin::new(reads).poll_read(cx, out),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.halves {
            Some((_, writes)) => Pin::new(writes).poll_write(cx, bytes),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.halves {
            Some((_, writes)) => Pin::new(writes).poll_flush(cx),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.halves {
            Some((_, writes)) => Pin::new(writes).poll_shutdown(cx),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}
