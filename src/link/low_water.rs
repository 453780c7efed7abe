//! Lets a socket gather bytes before it wakes the thread that reads from it.
//!
//! If the wire is slower than the processor, a blocking reader is woken for every packet. The
//! kernel can be told to wait for more bytes (`SO_RCVLOWAT`, socket(7)): fewer wake-ups, and less
//! processor time.

use std::io;
use std::io::IoSliceMut;
use std::net::TcpStream;

/// The receive low-water mark of one socket, whose only reader uses it.
#[derive(Debug)]
pub struct LowWater {
    /// The mark set on the socket; initially 1 byte.
    #[cfg(target_os = "linux")]
    mark: usize,
}

impl LowWater {
    /// For a socket with the default mark.
    pub fn new() -> LowWater {
        LowWater {
            #[cfg(target_os = "linux")]
            mark: 1,
        }
    }

    /// Waits until `wanted` bytes are here, but at most 68 KiB of them, and only one byte if
    /// `wanted` is below 32 KiB; or until the stream has ended. Then reads all available bytes into
    /// `into`. `wanted` is the number of bytes that the peer is certain to send before it waits for
    /// anything.
    ///
    /// # Errors
    /// Those of a read from a socket. `WouldBlock` and `Interrupted` mean that nothing was read;
    /// try again.
    #[cfg(target_os = "linux")]
    pub fn read(
        &mut self,
        socket: &TcpStream,
        wanted: usize,
        into: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        use io::Read as _;
        use rustix::event::{PollFd, PollFlags, poll};
        use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

        let mark = if wanted < WORTH_BYTES { 1 } else { wanted.min(MARK_BYTES_MAX) };
        if mark != self.mark {
            mark_of(socket, mark)?;
            self.mark = mark;
        }
        if mark == 1 {
            return (&mut &*socket).read_vectored(into);
        }
        // Do not block in the read itself: after a partial read it would wait for as many bytes
        // again, which may never come.
        poll(&mut [PollFd::new(socket, PollFlags::IN)], None)?;
        let read = recvmsg(socket, into, &mut RecvAncillaryBuffer::default(), RecvFlags::DONTWAIT)?;
        Ok(read.bytes)
    }

    /// Waits for at least one byte, then reads all available bytes into `into`.
    ///
    /// # Errors
    /// Those of a read from a socket.
    #[cfg(not(target_os = "linux"))]
    pub fn read(
        &mut self,
        mut socket: &TcpStream,
        _wanted: usize,
        into: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        io::Read::read_vectored(&mut socket, into)
    }
}

/// Below this, two additional system calls cost more than they save.
#[cfg(target_os = "linux")]
const WORTH_BYTES: usize = 32 * 1024;

/// About one record. The bytes waited for must fit the socket's receive buffer, which starts at 128
/// KiB.
#[cfg(target_os = "linux")]
const MARK_BYTES_MAX: usize = 68 * 1024;

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no library that is used here knows this option")]
fn mark_of(socket: &TcpStream, mark: usize) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    let value = libc::c_int::try_from(mark).map_err(|_| io::ErrorKind::InvalidInput)?;
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open as long as the socket is borrowed, and `len` is how long
    // `value` is.
    let told = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            len,
        )
    };
    if told == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::super::testing::sockets;
    use super::*;
    use std::io::Write as _;
    use std::thread;

    fn connected() -> (TcpStream, TcpStream) {
        let (near, far) = sockets();
        near.set_nodelay(true).expect("connected");
        (near, far)
    }

    /// Reads until `wanted` bytes are here, as a frame reader does.
    fn read_all(low_water: &mut LowWater, socket: &TcpStream, wanted: usize) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; 256 * 1024]);
        while all.len() < wanted {
            let rest = wanted - all.len();
            match low_water.read(socket, rest, &mut [IoSliceMut::new(&mut buffer[..rest])]) {
                Ok(0) => break,
                Ok(read) => all.extend_from_slice(&buffer[..read]),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                    ) => {}
                Err(error) => panic!("{error}"),
            }
        }
        all
    }

    #[test]
    fn whatever_the_pieces_are_all_of_it_comes_and_nothing_is_waited_for_in_vain() {
        // Around the smallest and the largest mark, and several times the largest.
        let lengths =
            [1, 32 * 1024 - 1, 32 * 1024, 68 * 1024, 68 * 1024 + 1, 100 * 1024, 256 * 1024];
        for piece in [1000, 7 * 1024, 40 * 1024, 256 * 1024] {
            let (mut near, far) = connected();
            let sending = thread::spawn(move || {
                let bytes: Vec<u8> = lengths
                    .into_iter()
                    .flat_map(|len| (0..len).map(move |i| (i * 31 + len) as u8))
                    .collect();
                bytes.chunks(piece).for_each(|part| near.write_all(part).expect("sent"));
                near
            });
            let mut low_water = LowWater::new();
            for len in lengths {
                let came = read_all(&mut low_water, &far, len);
                assert!(
                    came.len() == len
                        && came.iter().enumerate().all(|(i, b)| *b == (i * 31 + len) as u8),
                    "{len} by {piece}"
                );
            }
            drop(sending.join());
            assert!(read_all(&mut low_water, &far, 256 * 1024).is_empty(), "the end");
        }
    }

    #[test]
    fn the_end_of_the_stream_ends_the_wait_and_what_came_before_it_is_read() {
        let (mut near, far) = connected();
        near.write_all(&[7; 1000]).expect("sent");
        drop(near);
        assert_eq!(read_all(&mut LowWater::new(), &far, 256 * 1024), [7; 1000]);
    }

    #[test]
    fn a_shutdown_on_another_thread_ends_the_wait() {
        let (_near, far) = connected();
        let ours = far.try_clone().expect("a descriptor");
        let reading = thread::spawn(move || read_all(&mut LowWater::new(), &ours, 256 * 1024));
        far.shutdown(std::net::Shutdown::Both).expect("open until now");
        assert!(reading.join().expect("it ends").is_empty());
    }
}
