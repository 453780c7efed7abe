//! Layer: Core.
//!
//! What a handshake leaves behind: who the peer is, and a key for each direction.
//!
//! # Counting
//! Every record has the next number of its direction as its nonce, starting at 0; neither end ever sends it, so a
//! record that is lost, repeated, swapped or changed does not open, and the link is over. Every 2^24 records
//! (about a tebibyte) both ends derive the direction's next key by Noise's own rekey function.

use super::hello::{Hello, Wire};
use super::preamble::Purpose;
use super::refusal::Refusal;
use snow::{HandshakeState, StatelessTransportState};
use std::fmt;
use std::sync::{Arc, RwLock};

/// An authenticated peer and the keys shared with it.
pub struct Session {
    /// What the peer proved of itself.
    pub peer: Hello,
    /// What the link is for.
    pub purpose: Purpose,
    /// Trusted when both ends said so.
    pub wire: Wire,
    sealer: Sealer,
    opener: Opener,
}

/// Encrypts one direction. The two halves may be used by two threads.
pub struct Sealer {
    keys: Arc<RwLock<StatelessTransportState>>,
    next: u64,
}

/// Decrypts the other direction.
pub struct Opener {
    keys: Arc<RwLock<StatelessTransportState>>,
    next: u64,
}

/// Bytes that sealing adds.
pub const TAG_BYTES: usize = 16;

/// Most plain bytes of one record: Noise's limit.
pub const RECORD_BYTES_MAX: usize = 65_535 - TAG_BYTES;

/// Records after which a direction gets its next key.
pub const REKEY_RECORDS: u64 = 1 << 24;

/// Why a record could not be sealed or opened. The link is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The record is not the next one that the peer sealed.
    Forged,
    /// The record or the room for it has the wrong size.
    Size,
    /// The direction has used up its numbers.
    Exhausted,
}

impl Session {
    /// The session of a handshake that is through; any other is refused.
    pub(super) fn new(noise: HandshakeState, peer: Hello, purpose: Purpose, wire: Wire) -> Result<Session, Refusal> {
        let keys = noise.into_stateless_transport_mode().map_err(|_| Refusal::Forged)?;
        let keys = Arc::new(RwLock::new(keys));
        let (sealer, opener) = (Sealer { keys: Arc::clone(&keys), next: 0 }, Opener { keys, next: 0 });
        Ok(Session { peer, purpose, wire, sealer, opener })
    }

    /// The two directions.
    pub fn into_halves(self) -> (Sealer, Opener) {
        (self.sealer, self.opener)
    }
}

impl Sealer {
    /// Seals `plain` into the front of `out` and says how many bytes that took: [`TAG_BYTES`] more than `plain` has.
    pub fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, Broken> {
        if plain.len() > RECORD_BYTES_MAX || out.len() < plain.len() + TAG_BYTES {
            return Err(Broken::Size);
        }
        let number = take_number(&mut self.next)?;
        if rekey_is_due(number) {
            self.keys.write().map_err(|_| Broken::Exhausted)?.rekey_outgoing();
        }
        let keys = self.keys.read().map_err(|_| Broken::Exhausted)?;
        keys.write_message(number, plain, out).map_err(|_| Broken::Size)
    }
}

impl Opener {
    /// Opens `sealed` into the front of `out`, which needs room for the plain bytes; with room for the tag as well
    /// nothing is allocated. What `out` holds after an error is unspecified.
    pub fn open(&mut self, sealed: &[u8], out: &mut [u8]) -> Result<usize, Broken> {
        if sealed.len() < TAG_BYTES || sealed.len() > RECORD_BYTES_MAX + TAG_BYTES || out.len() < sealed.len() - TAG_BYTES {
            return Err(Broken::Size);
        }
        let number = take_number(&mut self.next)?;
        if rekey_is_due(number) {
            self.keys.write().map_err(|_| Broken::Exhausted)?.rekey_incoming();
        }
        let keys = self.keys.read().map_err(|_| Broken::Exhausted)?;
        keys.read_message(number, sealed, out).map_err(|_| Broken::Forged)
    }
}

/// Advances by one whatever happens to the record, so that no number is ever used twice.
fn take_number(next: &mut u64) -> Result<u64, Broken> {
    let number = *next;
    // The last number is Noise's own, for rekeying.
    if number == u64::MAX {
        return Err(Broken::Exhausted);
    }
    *next += 1;
    Ok(number)
}

fn rekey_is_due(number: u64) -> bool {
    number != 0 && number.is_multiple_of(REKEY_RECORDS)
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?}, {:?}, {:?}, keys hidden)", self.peer.id, self.purpose, self.wire)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::Forged => "a record is not the one that the peer sealed; the link is closed",
            Broken::Size => "a record has an impossible size; the link is closed",
            Broken::Exhausted => "the link has used up its record numbers; open a new one",
        })
    }
}

impl std::error::Error for Broken {}

impl From<Broken> for std::io::Error {
    fn from(why: Broken) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, why)
    }
}

#[cfg(test)]
mod tests {
    use super::super::handshake::testing::session_pair;
    use super::*;

    fn halves() -> (Sealer, Opener) {
        let (a, b) = session_pair();
        (a.into_halves().0, b.into_halves().1)
    }

    #[test]
    fn records_open_in_order_and_only_in_order() {
        let (mut seal, mut open) = halves();
        let (mut one, mut out) = ([0; 64], [0; 64]);
        let n = seal.seal(b"one", &mut one).expect("room enough");
        assert_eq!(open.open(&one[..n], &mut out), Ok(3));
        assert_eq!(&out[..3], b"one");
        assert_eq!(open.open(&one[..n], &mut out), Err(Broken::Forged), "a repeated record");
    }

    #[test]
    fn a_swapped_or_bent_record_does_not_open() {
        let (mut seal, mut open) = halves();
        let (mut one, mut two, mut out) = ([0; 64], [0; 64], [0; 64]);
        let n = seal.seal(b"one", &mut one).expect("room enough");
        let m = seal.seal(b"two", &mut two).expect("room enough");
        assert_eq!(open.open(&two[..m], &mut out), Err(Broken::Forged));
        let (_, mut open) = halves();
        one[0] ^= 1;
        assert_eq!(open.open(&one[..n], &mut out), Err(Broken::Forged));
    }

    #[test]
    fn the_directions_have_different_keys() {
        let (a, _b) = session_pair();
        let (mut seal, mut open) = a.into_halves();
        let mut sealed = [0; 64];
        let n = seal.seal(b"mine", &mut sealed).expect("room enough");
        assert_eq!(open.open(&sealed[..n], &mut [0; 64]), Err(Broken::Forged));
    }

    #[test]
    fn both_ends_change_keys_at_the_same_record() {
        let (mut seal, mut open) = halves();
        (seal.next, open.next) = (REKEY_RECORDS - 1, REKEY_RECORDS - 1);
        let (mut sealed, mut out) = ([0; 64], [0; 64]);
        for _ in 0..3 {
            let n = seal.seal(b"go on", &mut sealed).expect("room enough");
            assert_eq!(open.open(&sealed[..n], &mut out), Ok(5));
        }
        let (_, mut without) = halves();
        without.next = seal.next;
        let n = seal.seal(b"go on", &mut sealed).expect("room enough");
        assert_eq!(without.open(&sealed[..n], &mut out), Err(Broken::Forged));
        assert_eq!(open.open(&sealed[..n], &mut out), Ok(5));
    }

    #[test]
    fn numbers_run_out_instead_of_round() {
        let (mut seal, mut open) = halves();
        (seal.next, open.next) = (u64::MAX, u64::MAX);
        assert_eq!(seal.seal(b"x", &mut [0; 64]), Err(Broken::Exhausted));
        assert_eq!(open.open(&[0; 17], &mut [0; 64]), Err(Broken::Exhausted));
    }

    #[test]
    fn sizes_are_checked_first() {
        let (mut seal, mut open) = halves();
        assert_eq!(seal.seal(&[0; RECORD_BYTES_MAX + 1], &mut [0; 70_000]), Err(Broken::Size));
        assert_eq!(seal.seal(b"x", &mut [0; 16]), Err(Broken::Size));
        assert_eq!(open.open(&[0; 15], &mut [0; 64]), Err(Broken::Size));
        assert_eq!(open.open(&[0; 32], &mut [0; 15]), Err(Broken::Size));
    }
}
