//! [`Net`] over the operating system's TCP: one listening port for everything.

use super::transport::{Listener, Net, Stream};
use async_trait::async_trait;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Timeout of a dial.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(2);

/// TCP on this host.
#[derive(Clone, Copy, Debug)]
pub struct TcpNet {
    bind: Bind,
}

/// The addresses to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bind {
    /// All addresses of the host, IPv6 and IPv4; on a host without IPv6, IPv4 only.
    Everywhere,
    /// One address.
    At(IpAddr),
}

impl TcpNet {
    /// Makes a network that listens on `bind`.
    pub fn new(bind: Bind) -> TcpNet {
        TcpNet { bind }
    }

    fn listen_on(self, port: u16) -> io::Result<Socket> {
        match self.bind {
            Bind::At(ip) => listening(SocketAddr::new(ip, port)),
            Bind::Everywhere => match listening((Ipv6Addr::UNSPECIFIED, port).into()) {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    listening((Ipv4Addr::UNSPECIFIED, port).into())
                }
                other => other,
            },
        }
    }
}

#[async_trait]
impl Net for TcpNet {
    async fn listen(&self, ports: &[u16]) -> io::Result<Box<dyn Listener>> {
        let given = ports.iter().find_map(|port| self.listen_on(*port).ok());
        let socket = given.map_or_else(|| self.listen_on(0), Ok)?;
        let listener = TcpListener::from_std(socket.into())?;
        let port = listener.local_addr()?.port();
        Ok(Box::new(TcpPort { listener, port }))
    }

    async fn dial(&self, to: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let stream = tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(to))
            .await
            .map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(Box::new(TcpLink::new(stream)?))
    }
}

struct TcpPort {
    listener: TcpListener,
    port: u16,
}

#[async_trait]
impl Listener for TcpPort {
    fn port(&self) -> u16 {
        self.port
    }

    async fn accept(&mut self) -> io::Result<(Box<dyn Stream>, SocketAddr)> {
        loop {
            match self.listener.accept().await {
                // A connection that fails here died before it was accepted: skip it.
                Ok((stream, from)) => {
                    if let Ok(stream) = TcpLink::new(stream) {
                        return Ok((Box::new(stream), canonical(from)));
                    }
                }
                Err(error) => match after_error(&error) {
                    AfterError::GoOn => (),
                    AfterError::BackOff => tokio::time::sleep(BACK_OFF).await,
                    AfterError::Fail => return Err(error),
                },
            }
        }
    }
}

/// The consequence of an error of accept.
#[derive(Debug, PartialEq, Eq)]
enum AfterError {
    /// One connection is lost; accept the next one.
    GoOn,
    /// The process or the host has no file descriptors or memory left; retry later.
    BackOff,
    /// The listening socket is broken.
    Fail,
}

fn after_error(error: &io::Error) -> AfterError {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => AfterError::BackOff,
        // A socket that no longer listens returns EINVAL for ever.
        Some(Errno::BADF | Errno::NOTSOCK | Errno::OPNOTSUPP | Errno::FAULT | Errno::INVAL)
        | None => AfterError::Fail,
        // Linux reports pending network errors of the new connection here.
        Some(_) => AfterError::GoOn,
    }
}

const BACK_OFF: Duration = Duration::from_millis(100);

/// Length of the kernel's accept queue: more than one second's worth at the limiter's common rate.
const BACKLOG: i32 = 128;

fn listening(at: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    if at.is_ipv6() && at.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    // A restarted node must get its port back at once.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::new(v4.into(), address.port()),
        // Keep the whole address, with its scope.
        IpAddr::V6(_) => address,
    }
}

struct TcpLink(TcpStream);

impl TcpLink {
    fn new(stream: TcpStream) -> io::Result<TcpLink> {
        stream.set_nodelay(true)?;
        Ok(TcpLink(stream))
    }
}

impl Stream for TcpLink {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr().map(canonical)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr().map(canonical)
    }

    fn into_tcp(self: Box<Self>) -> Option<std::net::TcpStream> {
        let stream = self.0.into_std().ok()?;
        stream.set_nonblocking(false).ok()?;
        Some(stream)
    }
}

impl AsyncRead for TcpLink {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, out)
    }
}

impl AsyncWrite for TcpLink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn a_dialled_connection_carries_bytes_and_becomes_a_blocking_socket() {
        let net = TcpNet::new(Bind::At(LOOPBACK));
        let mut listener = net.listen(&[]).await.expect("a port");
        let mut near = net.dial((LOOPBACK, listener.port()).into()).await.expect("connected");
        let (mut far, from) = listener.accept().await.expect("accepted");
        assert_eq!(from, near.local_addr().expect("connected"));
        assert_eq!(far.peer_addr().expect("connected"), from);
        assert_eq!(near.peer_addr().expect("connected"), far.local_addr().expect("connected"));
        near.write_all(b"hello").await.expect("written");
        let mut got = [0; 5];
        far.read_exact(&mut got).await.expect("read");
        assert_eq!(&got, b"hello");
        let (mut near, mut far) = (near.into_tcp().expect("tcp"), far.into_tcp().expect("tcp"));
        assert!(near.nodelay().expect("an option") && far.nodelay().expect("an option"));
        let reading =
            std::thread::spawn(move || std::io::Read::read_exact(&mut far, &mut got).map(|()| got));
        std::io::Write::write_all(&mut near, b"again").expect("written");
        assert_eq!(&reading.join().expect("no panic").expect("read"), b"again");
    }

    #[tokio::test]
    async fn a_busy_port_is_passed_over() {
        let net = TcpNet::new(Bind::At(LOOPBACK));
        let first = net.listen(&[]).await.expect("a port");
        let spare = net.listen(&[]).await.expect("a port").port();
        let second = net.listen(&[first.port(), spare]).await.expect("the spare one");
        assert_eq!(second.port(), spare);
        let third = net.listen(&[first.port(), spare]).await.expect("any");
        assert!(![first.port(), spare, 0].contains(&third.port()));
    }

    #[tokio::test]
    async fn nobody_listens() {
        let net = TcpNet::new(Bind::At(LOOPBACK));
        let port = net.listen(&[]).await.expect("a port").port();
        let error = net.dial((LOOPBACK, port).into()).await.map(drop).expect_err("closed");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn accept_goes_on_when_it_can() {
        let of = |errno: Errno| after_error(&io::Error::from_raw_os_error(errno.raw_os_error()));
        assert_eq!(
            (of(Errno::MFILE), of(Errno::NFILE)),
            (AfterError::BackOff, AfterError::BackOff)
        );
        assert_eq!(
            (of(Errno::CONNABORTED), of(Errno::HOSTUNREACH)),
            (AfterError::GoOn, AfterError::GoOn)
        );
        assert_eq!((of(Errno::BADF), of(Errno::INVAL)), (AfterError::Fail, AfterError::Fail));
    }

    #[test]
    fn a_mapped_address_is_shown_as_what_it_is() {
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:9".parse().expect("an address");
        assert_eq!(canonical(mapped).to_string(), "10.0.0.1:9");
        let scoped: SocketAddr = "[fe80::1%3]:9".parse().expect("an address");
        assert_eq!(canonical(scoped), scoped);
    }
}
