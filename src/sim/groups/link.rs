//! A data link over a stream in virtual time. It never blocks: frames wait in queues on both sides.

use crate::link::{DataHeader, DataLink, DataReceiver, DataSender, Shutdown};
use crate::node::Liar;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use turmoil::net::tcp::OwnedReadHalf;

/// A data link, or one of its halves.
pub struct SimLink {
    stream: Arc<Stream>,
    /// The payload of the frame whose header was taken.
    payload: Vec<u8>,
}

struct Stream {
    has_ended: Arc<AtomicBool>,
    /// Changes the host's messages, if the host lies.
    liar: Option<Mutex<Liar>>,
    /// Dropping it closes the stream.
    frames: Mutex<Option<mpsc::UnboundedSender<Vec<u8>>>>,
    arrived: Mutex<VecDeque<(DataHeader, Vec<u8>)>>,
}

impl SimLink {
    /// A link over the two halves of a stream; `has_ended` is set when the stream breaks. `liar`
    /// says other things than the host.
    pub fn new(
        reads: OwnedReadHalf,
        writes: DuplexStream,
        has_ended: Arc<AtomicBool>,
        liar: Option<Liar>,
    ) -> SimLink {
        let (frames, queue) = mpsc::unbounded_channel();
        let frames = Mutex::new(Some(frames));
        let liar = liar.map(Mutex::new);
        let stream = Arc::new(Stream { has_ended, liar, frames, arrived: Mutex::default() });
        tokio::spawn(write_all(queue, writes));
        tokio::spawn(read_all(reads, Arc::clone(&stream)));
        SimLink { stream, payload: Vec::new() }
    }

    fn half(&self) -> SimLink {
        SimLink { stream: Arc::clone(&self.stream), payload: Vec::new() }
    }
}

async fn write_all(mut queue: mpsc::UnboundedReceiver<Vec<u8>>, mut to: DuplexStream) {
    while let Some(frame) = queue.recv().await {
        // The stream reports its end to the receiving half.
        if to.write_all(&frame).await.is_err() {
            return;
        }
    }
}

async fn read_all(mut from: OwnedReadHalf, stream: Arc<Stream>) {
    // Any error ends the link.
    while let Ok(frame) = read(&mut from).await {
        lock(&stream.arrived).push_back(frame);
    }
    stream.has_ended.store(true, Ordering::Relaxed);
}

async fn read(from: &mut OwnedReadHalf) -> io::Result<(DataHeader, Vec<u8>)> {
    let mut header = [0; DataHeader::BYTES];
    from.read_exact(&mut header).await?;
    let header = DataHeader::from_bytes(&header).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut payload = vec![0; header.len as usize];
    from.read_exact(&mut payload).await?;
    Ok((header, payload))
}

impl DataLink for SimLink {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        (Box::new(self.half()), Box::new(self.half()), Arc::new(*self))
    }
}

impl DataSender for SimLink {
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        let frame = [&header.to_bytes(), payload].concat();
        let said = match &self.stream.liar {
            Some(liar) => lock(liar).say(frame),
            None => vec![frame],
        };
        let frames = lock(&self.stream.frames);
        let frames = frames.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let sent = said.into_iter().try_for_each(|frame| frames.send(frame));
        sent.map_err(|_| io::ErrorKind::NotConnected.into())
    }
}

impl DataReceiver for SimLink {
    fn header(&mut self) -> io::Result<DataHeader> {
        if let Some((header, payload)) = lock(&self.stream.arrived).pop_front() {
            self.payload = payload;
            return Ok(header);
        }
        let has_ended = self.stream.has_ended.load(Ordering::Relaxed);
        Err(if has_ended { io::ErrorKind::ConnectionReset } else { io::ErrorKind::WouldBlock }
            .into())
    }

    fn skip(&mut self, len: usize) -> io::Result<()> {
        let payload = std::mem::take(&mut self.payload);
        if payload.len() == len { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        let payload = std::mem::take(&mut self.payload);
        if payload.len() != into.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        into.copy_from_slice(&payload);
        Ok(())
    }
}

impl Shutdown for SimLink {
    fn shutdown(&self) {
        lock(&self.stream.frames).take();
        self.stream.has_ended.store(true, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
