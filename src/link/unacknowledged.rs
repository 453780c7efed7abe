//! The bytes of a socket that its peer has not acknowledged.

use std::net::TcpStream;

/// Written bytes that are on their way or still in this machine (`SIOCOUTQ`, tcp(7)). 0 if the
/// system does not tell.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no library that is used here knows this request")]
pub fn unacknowledged_bytes(socket: &TcpStream) -> usize {
    use std::os::fd::AsRawFd as _;

    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as the socket is borrowed, and the request writes one
    // `int`.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if told == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// Written bytes that are on their way. 0: the system does not tell.
#[cfg(not(target_os = "linux"))]
pub fn unacknowledged_bytes(_: &TcpStream) -> usize {
    0
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::super::testing::sockets;
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn bytes_count_until_the_peer_has_them() {
        let (mut near, mut far) = sockets();
        assert_eq!(unacknowledged_bytes(&near), 0);
        near.set_nonblocking(true).expect("a socket");
        let (piece, mut written) = (vec![1; 64 * 1024], 0);
        while let Ok(more) = near.write(&piece) {
            written += more;
        }
        let waiting = unacknowledged_bytes(&near);
        assert!((1..=written).contains(&waiting), "{waiting} of {written}");
        far.read_exact(&mut vec![0; written]).expect("all of it");
        while unacknowledged_bytes(&near) > 0 {
            std::thread::yield_now();
        }
    }
}
