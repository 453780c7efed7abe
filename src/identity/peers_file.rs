//! The addresses of the last run's peers, as a hint for the next start.

use super::home::make_private_dir;
use super::private_file;
use super::problem::{FileContent, IdentityProblem};
use crate::trace;
use derive_more::Display;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The addresses of the last run's peers in one namespace, as TOML: `peers =
/// ["192.168.1.7:47474"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersFile {
    path: PathBuf,
}

/// Most addresses stored: a View has at most 32 members, each with a few addresses.
pub const PEERS_MAX: usize = 128;

#[derive(Deserialize, Serialize)]
struct Contents {
    peers: Vec<SocketAddr>,
}

/// Why a peers file was ignored.
#[derive(Display)]
enum Ignored {
    #[display("{_0}")]
    Unreadable(IdentityProblem),
    #[display("it is not a list of addresses")]
    NotPeers,
}

impl PeersFile {
    /// The file at `path`, which need not exist.
    pub fn at(path: impl Into<PathBuf>) -> PeersFile {
        PeersFile { path: path.into() }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The addresses, at most [`PEERS_MAX`]. A bad file is ignored with a warning.
    pub fn load(&self) -> Vec<SocketAddr> {
        self.read().unwrap_or_else(|ignored| {
            trace::warn!(path = %self.path.display(), "cached peers ignored: {ignored}");
            Vec::new()
        })
    }

    /// Replaces the addresses, dropping those beyond [`PEERS_MAX`]. Blocks on the disk.
    pub fn save(&self, peers: &[SocketAddr]) -> io::Result<()> {
        let contents = Contents { peers: peers.iter().copied().take(PEERS_MAX).collect() };
        let text = toml::to_string(&contents).map_err(io::Error::other)?;
        if let Some(directory) = self.path.parent() {
            make_private_dir(directory).map_err(io::Error::other)?;
        }
        private_file::replace(&self.path, text.as_bytes())
    }

    fn read(&self) -> Result<Vec<SocketAddr>, Ignored> {
        let bytes = private_file::read(&self.path, FileContent::Peers, FILE_BYTES_MAX)
            .map_err(Ignored::Unreadable)?;
        let Some(bytes) = bytes else { return Ok(Vec::new()) };
        decode_peers(&bytes).ok_or(Ignored::NotPeers)
    }
}

/// Parses a peers file and returns at most [`PEERS_MAX`] addresses; `None` if it is invalid.
pub fn decode_peers(text: &[u8]) -> Option<Vec<SocketAddr>> {
    let contents: Contents = toml::from_str(std::str::from_utf8(text).ok()?).ok()?;
    let mut peers = contents.peers;
    peers.truncate(PEERS_MAX);
    Some(peers)
}

// 128 addresses of at most 58 characters (IPv6 with a scope), with room for comments.
const FILE_BYTES_MAX: u64 = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::net::{Ipv6Addr, SocketAddrV6};

    fn addresses(count: u16) -> Vec<SocketAddr> {
        let long = |port| {
            SocketAddrV6::new(
                Ipv6Addr::from([0xfe80, 1111, 2222, 3333, 4444, 5555, 6666, port]),
                port,
                0,
                u32::MAX,
            )
        };
        (1..=count)
            .map(|i| if i % 2 == 0 { SocketAddr::from(([10, 0, 0, 1], i)) } else { long(i).into() })
            .collect()
    }

    #[test]
    fn peers_survive_their_file_up_to_the_limit() {
        let scratch = Scratch::new();
        let file = PeersFile::at(scratch.path().join("inner/peers-default.toml"));
        assert_eq!(file.load(), []);
        file.save(&addresses(3)).expect("saved");
        assert_eq!(file.load(), addresses(3));
        file.save(&addresses(200)).expect("saved");
        assert_eq!(file.load(), addresses(128));
    }

    #[test]
    fn a_bad_file_is_ignored() {
        let scratch = Scratch::new();
        let file = PeersFile::at(scratch.path().join("peers-default.toml"));
        file.save(&addresses(2)).expect("saved");
        for bad in [&b"peers = [1]"[..], b"peers", b"", b"\xff", &[b'#'; 20_000]] {
            fs::write(file.path(), bad).expect("written");
            assert_eq!(file.load(), []);
        }
    }

    #[test]
    fn an_unknown_line_does_not_hide_the_rest() {
        let text = b"# by hand\nnote = \"den\"\npeers = [\"127.0.0.1:1\"]\n";
        assert_eq!(decode_peers(text), Some(vec![SocketAddr::from(([127, 0, 0, 1], 1))]));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_decoder_panic(text in "(peers = )?[ -~\n]{0,60}") {
            let _ = decode_peers(text.as_bytes());
        }
    }
}
