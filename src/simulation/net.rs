//! Layer: Face.
//!
//! Connections in virtual time: turmoil's TCP, in which lost segments are late instead of missing.
//!
//! turmoil does not retransmit, so a dropped segment would silently break a connection. A lost
//! segment of real TCP is late and delays everything behind it; the pump of each stream does the
//! same.

use super::weather::Weather;
use crate::link::{
    DataHeader, DataLink, DataReceiver, DataSender, Listener, Net, Shutdown, Stream,
};
use async_trait::async_trait;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use turmoil::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use turmoil::net::{TcpListener, TcpStream};

/// The network of one host.
pub struct SimNet(pub Weather);

struct SimPort {
    listener: TcpListener,
    port: u16,
    weather: Weather,
}

struct SimStream {
    /// `None` after it has become a data link.
    halves: Option<(OwnedReadHalf, DuplexStream)>,
    local: SocketAddr,
    peer: SocketAddr,
}

/// A data link without data, because contributions take another way (see [`super::engine`]). It
/// only shows that either end has closed.
struct SimLink {
    ended: Arc<AtomicBool>,
    /// Dropping it closes both ends.
    open: Arc<Mutex<Option<DuplexStream>>>,
}

const PORT: u16 = 47_474;
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// As much as a socket buffer holds.
const UNSENT_BYTES: usize = 64 * 1024;

#[async_trait]
impl Net for SimNet {
    async fn listen(&self, _ports: &[u16]) -> io::Result<Box<dyn Listener>> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
        Ok(Box::new(SimPort { listener, port: PORT, weather: self.0.clone() }))
    }

    async fn dial(&self, to: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let stream = tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(to))
            .await
            .map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(Box::new(SimStream::new(stream, self.0.clone())?))
    }
}

#[async_trait]
impl Listener for SimPort {
    fn port(&self) -> u16 {
        self.port
    }

    async fn accept(&mut self) -> io::Result<(Box<dyn Stream>, SocketAddr)> {
        let (stream, from) = self.listener.accept().await?;
        Ok((Box::new(SimStream::new(stream, self.weather.clone())?), from))
    }
}

impl SimStream {
    fn new(stream: TcpStream, weather: Weather) -> io::Result<SimStream> {
        let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
        let (reads, to) = stream.into_split();
        let (writes, from) = tokio::io::duplex(UNSENT_BYTES);
        tokio::spawn(pump(from, to, weather));
        Ok(SimStream { halves: Some((reads, writes)), local, peer })
    }
}

async fn pump(mut from: DuplexStream, mut to: OwnedWriteHalf, weather: Weather) {
    let mut segment = vec![0; 1448];
    // Zero bytes or an error mean that either end has closed.
    while let Ok(n @ 1..) = from.read(&mut segment).await {
        let delay = weather.delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&segment[..n]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
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

    fn take_twin(&mut self) -> Option<Box<dyn DataLink>> {
        self.halves
            .take()
            .map(|(reads, writes)| Box::new(SimLink::new(reads, writes)) as Box<dyn DataLink>)
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

impl SimLink {
    fn new(mut reads: OwnedReadHalf, writes: DuplexStream) -> SimLink {
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        tokio::spawn(async move {
            let mut nothing = [0; 1];
            // No data is sent, so the first result is the end.
            let _ = reads.read(&mut nothing).await;
            seen.store(true, Ordering::Relaxed);
        });
        SimLink { ended, open: Arc::new(Mutex::new(Some(writes))) }
    }

    fn same(&self) -> SimLink {
        SimLink { ended: Arc::clone(&self.ended), open: Arc::clone(&self.open) }
    }
}

impl DataLink for SimLink {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        (Box::new(self.same()), Box::new(self.same()), Arc::new(*self))
    }
}

impl DataSender for SimLink {
    fn send(&mut self, _: &DataHeader, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Never blocks.
impl DataReceiver for SimLink {
    fn header(&mut self) -> io::Result<DataHeader> {
        let ended = self.ended.load(Ordering::Relaxed);
        Err(if ended { io::ErrorKind::ConnectionReset } else { io::ErrorKind::WouldBlock }.into())
    }

    fn payload(&mut self, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn skip(&mut self, _: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Shutdown for SimLink {
    fn shutdown(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
