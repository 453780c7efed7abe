//! One end of a circuit as a byte stream: the handshake and the control link run over it as over
//! any other.

use super::switch::End;
use crate::link::Stream;
use crate::protocol::{FRAME_COST, RelayBody, WINDOW, cost};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

/// A message from an end of a circuit to the task that has the links.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// Bytes for the other end.
    Bytes(End, Vec<u8>),
    /// Frames of this total cost were read.
    Took(End, u32),
    /// The end was closed.
    Closed(End),
}

/// One end of a circuit. Dropping it closes the circuit.
pub struct Tunnel {
    end: End,
    pipe: Arc<Pipe>,
    said: mpsc::UnboundedSender<Said>,
}

/// The ends of this node's circuits, as used by the task that has the links.
pub struct Tunnels {
    pipes: BTreeMap<End, Arc<Pipe>>,
    /// The queue is unbounded; the windows of all ends bound its contents.
    said: mpsc::UnboundedSender<Said>,
}

struct Pipe(Mutex<PipeState>);

struct PipeState {
    /// Received frames, each with the number of its bytes already read.
    unread: VecDeque<(Vec<u8>, usize)>,
    room: u32,
    over: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Tunnels {
    /// Makes an empty set, and the receiver of the messages of its ends.
    pub fn new() -> (Tunnels, mpsc::UnboundedReceiver<Said>) {
        let (said, heard) = mpsc::unbounded_channel();
        (Tunnels { pipes: BTreeMap::new(), said }, heard)
    }

    /// Adds an end, and returns its stream.
    pub fn begin(&mut self, end: End) -> Box<dyn Stream> {
        let state = PipeState {
            unread: VecDeque::new(),
            room: WINDOW,
            over: false,
            reader: None,
            writer: None,
        };
        let pipe = Arc::new(Pipe(Mutex::new(state)));
        self.pipes.insert(end, Arc::clone(&pipe));
        Box::new(Tunnel { end, pipe, said: self.said.clone() })
    }

    /// Delivers bytes to an end. The caller has checked the window.
    pub fn bytes(&self, end: End, bytes: Vec<u8>) {
        self.change(end, |state| state.unread.push_back((bytes, 0)));
    }

    /// The other end consumed frames of this total cost, which frees window.
    pub fn room(&self, end: End, cost: u32) {
        self.change(end, |state| state.room = state.room.saturating_add(cost).min(WINDOW));
    }

    /// The circuit has ended. Received bytes can still be read.
    pub fn ended(&mut self, end: End) {
        self.change(end, |state| state.over = true);
        self.pipes.remove(&end);
    }

    fn change(&self, end: End, change: impl FnOnce(&mut PipeState)) {
        if let Some(pipe) = self.pipes.get(&end) {
            pipe.change(change);
        }
    }
}

impl Pipe {
    /// Changes the state and wakes the tasks that wait for that.
    fn change(&self, change: impl FnOnce(&mut PipeState)) {
        let mut state = self.state();
        change(&mut state);
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, PipeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tunnel {
    fn say(&self, said: Said) -> io::Result<()> {
        self.said.send(said).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Stream for Tunnel {
    /// The unspecified address: a circuit belongs to no interface, so no wire is trusted for it.
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    }

    /// The unspecified address, too: no path is proven by a circuit.
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    }

    fn into_tcp(self: Box<Self>) -> Option<std::net::TcpStream> {
        None
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (mut state, mut taken) = (self.pipe.state(), 0);
        let mut got = false;
        while let Some((bytes, read)) = state.unread.front_mut().filter(|_| out.remaining() > 0) {
            let more = &bytes[*read..];
            let n = more.len().min(out.remaining());
            out.put_slice(&more[..n]);
            (*read, got) = (*read + n, true);
            if *read == bytes.len() {
                taken += cost(bytes.len());
                state.unread.pop_front();
            }
        }
        if !got && !state.over && out.remaining() > 0 {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        if taken > 0 {
            self.say(Said::Took(self.end, taken))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.pipe.state();
        if state.over {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let n = bytes
            .len()
            .min(RelayBody::BYTES_MAX)
            .min(state.room.saturating_sub(FRAME_COST) as usize);
        if n == 0 && !bytes.is_empty() {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if n > 0 {
            state.room -= cost(n);
            drop(state);
            self.say(Said::Bytes(self.end, bytes[..n].to_vec()))?;
        }
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.change(|state| state.over = true);
        Poll::Ready(self.say(Said::Closed(self.end)))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // The task that had the links may have ended.
        let _ = self.say(Said::Closed(self.end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn one() -> (Tunnels, mpsc::UnboundedReceiver<Said>, Box<dyn Stream>) {
        let (mut tunnels, heard) = Tunnels::new();
        let stream = tunnels.begin(End(1));
        (tunnels, heard, stream)
    }

    #[tokio::test]
    async fn what_comes_is_read_in_order_and_told_as_taken_frame_by_frame() {
        let (mut tunnels, mut heard, mut stream) = one();
        tunnels.bytes(End(1), b"abc".to_vec());
        tunnels.bytes(End(1), b"de".to_vec());
        let mut got = [0; 4];
        stream.read_exact(&mut got).await.expect("it has come");
        assert_eq!(&got, b"abcd");
        assert_eq!(heard.try_recv(), Ok(Said::Took(End(1), cost(3))));
        tunnels.ended(End(1));
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.expect("an end like any other");
        assert_eq!(rest, b"e");
        assert_eq!(heard.try_recv(), Ok(Said::Took(End(1), cost(2))));
        let error = stream.write_all(b"late").await.map_err(|e| e.kind());
        assert_eq!(error, Err(io::ErrorKind::BrokenPipe));
        drop(stream);
        assert_eq!(heard.try_recv(), Ok(Said::Closed(End(1))));
    }

    #[tokio::test]
    async fn who_writes_waits_for_room() {
        let (tunnels, mut heard, mut stream) = one();
        let all = vec![7; 3 * WINDOW as usize];
        let mut sent = 0;
        let writing = tokio::spawn(async move {
            stream.write_all(&all).await.expect("in the end");
            stream
        });
        let mut under_way = 0;
        while sent < 3 * WINDOW as usize {
            let Some(Said::Bytes(_, bytes)) = heard.recv().await else { panic!("only bytes") };
            (sent, under_way) = (sent + bytes.len(), under_way + cost(bytes.len()));
            assert!(bytes.len() <= RelayBody::BYTES_MAX && under_way <= WINDOW, "{under_way}");
            // The other end is slow, but reads everything.
            if under_way > WINDOW - cost(RelayBody::BYTES_MAX) {
                tunnels.room(End(1), std::mem::take(&mut under_way));
            }
        }
        drop(writing.await.expect("no panic"));
    }

    #[test]
    fn a_circuit_has_no_addresses() {
        let (_tunnels, _heard, stream) = one();
        for at in [stream.local_addr(), stream.peer_addr()] {
            assert!(at.expect("an address").ip().is_unspecified());
        }
    }

    #[tokio::test]
    async fn who_reads_hears_that_the_other_half_of_its_end_has_closed_it() {
        let (_tunnels, mut heard, stream) = one();
        let (mut reading, mut writing) = tokio::io::split(stream);
        let reader = tokio::spawn(async move { reading.read(&mut [0; 1]).await });
        // The reader waits before the other half closes.
        tokio::task::yield_now().await;
        writing.shutdown().await.expect("it stands");
        let read = tokio::time::timeout(std::time::Duration::from_secs(20), reader).await;
        let read = read.expect("it still waits").expect("no panic");
        assert_eq!(read.map_err(|e| e.kind()), Ok(0));
        assert_eq!(heard.try_recv(), Ok(Said::Closed(End(1))));
    }

    #[tokio::test]
    async fn an_end_without_anybody_who_has_the_links_is_over() {
        let (tunnels, heard, mut stream) = one();
        drop((tunnels, heard));
        assert!(stream.write_all(b"x").await.is_err());
    }
}
