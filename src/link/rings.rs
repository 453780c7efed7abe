//! The shared memory of a data link between two processes of one host.

use super::keys::TAG_BYTES;
use super::secure_channel::{Opener, Sealer};
use super::shared_ring::{SharedRing, Side};
use crate::trace;
use std::io;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;

/// A ring for each direction, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Rings {
    outgoing: Option<SharedRing>,
    incoming: OnceLock<SharedRing>,
}

impl Rings {
    /// Over a network there are none.
    pub(super) fn none() -> Rings {
        Rings::default()
    }

    /// Makes the outgoing ring, and announces it to the peer. Without memory it announces that
    /// there is none, and the frames travel over the connection.
    ///
    /// # Errors
    /// Those of the connection.
    pub(super) fn announced(
        mut socket: &TcpStream,
        sealer: Option<&mut Sealer>,
    ) -> io::Result<Rings> {
        let outgoing = SharedRing::make();
        if let Err(error) = &outgoing {
            trace::debug!(%error, "a data link does without shared memory");
        }
        let outgoing = outgoing.ok();
        let mut plain = [0; ANNOUNCEMENT_BYTES];
        if let Some(name) = outgoing.as_ref().and_then(SharedRing::name) {
            plain[0] = 1;
            plain[1..].copy_from_slice(name);
        }
        let mut sealed = [0; ANNOUNCEMENT_BYTES + TAG_BYTES];
        let said = match sealer {
            Some(sealer) => {
                let len = sealer.seal(&plain, &mut sealed)?;
                &sealed[..len]
            }
            None => &plain[..],
        };
        socket.write_all(said)?;
        Ok(Rings { outgoing, incoming: OnceLock::new() })
    }

    /// Waits for the peer's announcement. Returns whether its frames come through memory.
    ///
    /// # Errors
    /// Those of the connection and of the memory, and `InvalidData` for anything else.
    pub(super) fn hear(
        &self,
        mut socket: &TcpStream,
        opener: Option<&mut Opener>,
    ) -> io::Result<bool> {
        let mut plain = [0; ANNOUNCEMENT_BYTES];
        match opener {
            Some(opener) => {
                let mut sealed = [0; ANNOUNCEMENT_BYTES + TAG_BYTES];
                socket.read_exact(&mut sealed)?;
                opener.open(&sealed, &mut plain)?;
            }
            None => socket.read_exact(&mut plain)?,
        }
        match plain.split_first_chunk::<1>() {
            Some(([1], name)) => {
                let name = name.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
                let ring = SharedRing::open(name)?;
                self.incoming.set(ring).map_err(|_| io::ErrorKind::InvalidData)?;
                Ok(true)
            }
            Some(([0], _)) => Ok(false),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    pub(super) fn outgoing(&self) -> Option<&SharedRing> {
        self.outgoing.as_ref()
    }

    pub(super) fn incoming(&self) -> Option<&SharedRing> {
        self.incoming.get()
    }

    /// Ends both directions, for both processes.
    pub(super) fn end(&self) {
        self.outgoing.iter().for_each(|ring| ring.end(Side::Writer));
        self.incoming.get().iter().for_each(|ring| ring.end(Side::Reader));
    }
}

/// Whether there is a ring, and its name.
const ANNOUNCEMENT_BYTES: usize = 1 + 16;
