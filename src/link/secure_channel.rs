//! The result of a handshake: the peer's identity, and a key for each direction.
//!
//! # Counting
//! The nonce of a record is its number in its direction, starting at 0. The number is never sent,
//! so a record that is lost, repeated, reordered or changed does not decrypt, and the link ends.
//! Every 2^24 records (about a tebibyte) both ends derive the direction's next key. That is within
//! the limits of both suites for one key: 2^36 blocks of AES-GCM can be told from noise with a
//! probability below 2^-56, and since the first forgery ends the link, an attacker has a single
//! attempt.

use super::endpoints::PathProof;
use super::hello::{DataEncryption, Hello};
use super::keys::{BothDirections, Broken, Keys, TAG_BYTES};
use super::local::PskNumber;
use super::preamble::Purpose;
use super::refusal::Refusal;
use super::suite::Suite;
use crate::os::copy;
use snow::HandshakeState;
use std::fmt;

/// An authenticated peer and the keys shared with it.
pub struct SecureChannel {
    /// The peer's proven introduction.
    pub peer: Hello,
    /// The purpose of the link.
    pub purpose: Purpose,
    /// Whether bulk data is encrypted: waived only if both ends waive it.
    pub encryption: DataEncryption,
    /// The cipher of the records.
    pub suite: Suite,
    /// Whether both ends see the same addresses.
    pub path: PathProof,
    /// Both ends can share memory.
    pub shares_host: bool,
    /// The pre-shared key that admitted the peer.
    pub psk: PskNumber,
    /// The first 8 bytes of the handshake hash: a random number that both ends share.
    pub number: u64,
    sealer: Sealer,
    opener: Opener,
}

/// Encrypts one direction. The sealer and the opener of a session may be used by two threads.
pub struct Sealer(Direction);

/// Decrypts the other direction.
pub struct Opener(Direction);

/// The keys of a direction, and the number of its next record.
struct Direction {
    keys: Keys,
    next: u64,
}

/// Most plain bytes of one record; with its tag a record has at most 65,535 bytes, Noise's limit.
pub const RECORD_BYTES_MAX: usize = 65_535 - TAG_BYTES;

/// The number of records per key.
pub const REKEY_RECORDS: u64 = 1 << 24;

impl SecureChannel {
    /// Makes the session from a finished handshake between this end's introduction and the peer's;
    /// an unfinished one is refused.
    pub(super) fn new(
        mut noise: HandshakeState,
        psk: PskNumber,
        own: &Hello,
        peer: Hello,
        purpose: Purpose,
    ) -> Result<SecureChannel, Refusal> {
        if !noise.is_handshake_finished() {
            return Err(Refusal::Forged);
        }
        let both = [own.encryption, peer.encryption] == [DataEncryption::Waived; 2];
        let encryption = if both { DataEncryption::Waived } else { DataEncryption::Required };
        let suite = own.suite.shared_with(peer.suite);
        let path = PathProof::of(own.endpoints, peer.endpoints);
        let shares_host = own.host.is_some() && own.host == peer.host;
        let number = noise
            .get_handshake_hash()
            .iter()
            .take(8)
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        let keys = BothDirections::of(&mut noise, suite);
        let direction = |keys| Direction { keys, next: 0 };
        let (sealer, opener) = (Sealer(direction(keys.outgoing)), Opener(direction(keys.incoming)));
        Ok(SecureChannel {
            peer,
            purpose,
            encryption,
            suite,
            path,
            shares_host,
            psk,
            number,
            sealer,
            opener,
        })
    }

    /// Splits the session into its two directions.
    pub fn into_halves(self) -> (Sealer, Opener) {
        (self.sealer, self.opener)
    }
}

impl Sealer {
    /// Seals `plain` into the front of `out` and returns the sealed length, `plain.len()` +
    /// [`TAG_BYTES`].
    pub fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, Broken> {
        if plain.len() > RECORD_BYTES_MAX || out.len() < plain.len() + TAG_BYTES {
            return Err(Broken::Size);
        }
        let number = self.0.take_number()?;
        self.0.keys.seal(number, plain, out)
    }
}

impl Opener {
    /// Opens `sealed` into the front of `out`, which must have room for the plain bytes; returns
    /// their number. The contents of `out` after an error are unspecified.
    pub fn open(&mut self, sealed: &[u8], out: &mut [u8]) -> Result<usize, Broken> {
        let (text, tag) = sealed.split_last_chunk::<TAG_BYTES>().ok_or(Broken::Size)?;
        let out = out.get_mut(..text.len()).ok_or(Broken::Size)?;
        copy(out, text);
        self.open_in_place(out, *tag)?;
        Ok(text.len())
    }

    /// Opens a record in place; `tag` is the tag that followed it. The contents of `text` after an
    /// error are unspecified.
    pub fn open_in_place(&mut self, text: &mut [u8], tag: [u8; TAG_BYTES]) -> Result<(), Broken> {
        if text.len() > RECORD_BYTES_MAX {
            return Err(Broken::Size);
        }
        let number = self.0.take_number()?;
        self.0.keys.open(number, text, tag)
    }
}

impl Direction {
    /// The number of the next record, under its keys. Advances even if the record then fails, so
    /// that no number is used twice.
    fn take_number(&mut self) -> Result<u64, Broken> {
        let number = self.next;
        // The last number stays unused, so that `next` never overflows.
        self.next = number.checked_add(1).ok_or(Broken::Exhausted)?;
        if number != 0 && number.is_multiple_of(REKEY_RECORDS) {
            self.keys.renew();
        }
        Ok(number)
    }
}

impl fmt::Debug for SecureChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Session({:?}, {:?}, {:?}, {}, keys hidden)",
            self.peer.id, self.purpose, self.encryption, self.suite
        )
    }
}

impl From<Broken> for std::io::Error {
    fn from(why: Broken) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, why)
    }
}

#[cfg(test)]
mod tests {
    use super::super::handshake::{channel_pair, channel_pair_of};
    use super::*;
    use std::time::{Duration, Instant};

    const SUITES: [Suite; 2] = [Suite::Aes256Gcm, Suite::ChaCha20Poly1305];

    fn halves(suite: Suite) -> (Sealer, Opener) {
        let (a, b) = channel_pair_of(suite);
        assert_eq!((a.suite, b.suite), (suite, suite));
        (a.into_halves().0, b.into_halves().1)
    }

    #[test]
    fn records_open_in_order_and_only_in_order() {
        for suite in SUITES {
            let (mut seal, mut open) = halves(suite);
            let (mut one, mut out) = ([0; 64], [0; 64]);
            let n = seal.seal(b"one", &mut one).expect("room enough");
            assert_eq!(open.open(&one[..n], &mut out), Ok(3));
            assert_eq!(&out[..3], b"one");
            assert_eq!(open.open(&one[..n], &mut out), Err(Broken::Forged), "a repeated record");
        }
    }

    #[test]
    fn a_swapped_or_bent_record_does_not_open() {
        for suite in SUITES {
            let (mut seal, mut open) = halves(suite);
            let (mut one, mut two, mut out) = ([0; 64], [0; 64], [0; 64]);
            let n = seal.seal(b"one", &mut one).expect("room enough");
            let m = seal.seal(b"two", &mut two).expect("room enough");
            assert_eq!(open.open(&two[..m], &mut out), Err(Broken::Forged));
            for at in 0..n {
                let (a, b) = channel_pair_of(suite);
                let (mut seal, mut open) = (a.into_halves().0, b.into_halves().1);
                seal.seal(b"one", &mut one).expect("room enough");
                one[at] ^= 1;
                assert_eq!(
                    open.open(&one[..n], &mut out),
                    Err(Broken::Forged),
                    "{suite}, byte {at}"
                );
            }
        }
    }

    #[test]
    fn the_directions_have_different_keys() {
        for suite in SUITES {
            let (mut seal, mut open) = channel_pair_of(suite).0.into_halves();
            let mut sealed = [0; 64];
            let n = seal.seal(b"mine", &mut sealed).expect("room enough");
            assert_eq!(open.open(&sealed[..n], &mut [0; 64]), Err(Broken::Forged));
        }
    }

    #[test]
    fn both_ends_change_keys_at_the_same_record() {
        for suite in SUITES {
            let (mut seal, mut open) = halves(suite);
            (seal.0.next, open.0.next) = (REKEY_RECORDS - 1, REKEY_RECORDS - 1);
            let (mut sealed, mut out) = ([0; 64], [0; 64]);
            for _ in 0..3 {
                let n = seal.seal(b"go on", &mut sealed).expect("room enough");
                assert_eq!(open.open(&sealed[..n], &mut out), Ok(5));
            }
            // An opener that skipped the key change does not open the records behind it.
            let (a, b) = channel_pair_of(suite);
            let ((mut seal, _), (_, mut open)) = (a.into_halves(), b.into_halves());
            (seal.0.next, open.0.next) = (REKEY_RECORDS, REKEY_RECORDS + 1);
            seal.seal(b"changed", &mut sealed).expect("room enough");
            let n = seal.seal(b"go on", &mut sealed).expect("room enough");
            assert_eq!(open.open(&sealed[..n], &mut out), Err(Broken::Forged));
        }
    }

    #[test]
    fn numbers_run_out_instead_of_round() {
        for suite in SUITES {
            let (mut seal, mut open) = halves(suite);
            (seal.0.next, open.0.next) = (u64::MAX, u64::MAX);
            assert_eq!(seal.seal(b"x", &mut [0; 64]), Err(Broken::Exhausted));
            assert_eq!(open.open(&[0; 17], &mut [0; 64]), Err(Broken::Exhausted));
        }
    }

    #[test]
    fn sizes_are_checked_first() {
        for suite in SUITES {
            let (mut seal, mut open) = halves(suite);
            assert_eq!(seal.seal(&[0; RECORD_BYTES_MAX + 1], &mut [0; 70_000]), Err(Broken::Size));
            assert_eq!(seal.seal(b"x", &mut [0; 16]), Err(Broken::Size));
            assert_eq!(open.open(&[0; 15], &mut [0; 64]), Err(Broken::Size));
            assert_eq!(open.open(&[0; 32], &mut [0; 15]), Err(Broken::Size));
            // A record refused for its size uses no number.
            let mut sealed = [0; 64];
            let n = seal.seal(b"fits", &mut sealed).expect("room enough");
            assert_eq!(open.open(&sealed[..n], &mut [0; 4]), Ok(4));
        }
    }

    #[test]
    fn a_session_tells_no_keys() {
        let (a, _b) = channel_pair();
        assert!(format!("{a:?}").ends_with("AES-256-GCM, keys hidden)"), "{a:?}");
    }

    /// Prints the speed of one core: `cargo test --release -p potluck --lib full_records --
    /// --nocapture`.
    #[test]
    fn full_records_are_what_they_were_however_many() {
        const RECORDS: usize = 256;
        for suite in SUITES {
            let (mut seal, mut open) = halves(suite);
            let plain: Vec<u8> = (0..RECORD_BYTES_MAX).map(|i| (i * 31 + i / 253) as u8).collect();
            let (mut sealed, mut out) =
                (vec![0; RECORD_BYTES_MAX + TAG_BYTES], vec![0; RECORD_BYTES_MAX]);
            let (mut sealing, mut opening) = ([Duration::ZERO; RECORDS], [Duration::ZERO; RECORDS]);
            for (seals, opens) in sealing.iter_mut().zip(&mut opening) {
                let began = Instant::now();
                let n = seal.seal(&plain, &mut sealed).expect("room enough");
                *seals = began.elapsed();
                out.fill(0);
                let began = Instant::now();
                assert_eq!(open.open(&sealed[..n], &mut out), Ok(RECORD_BYTES_MAX));
                *opens = began.elapsed();
                assert_eq!(out, plain);
            }
            // Take the median record: other tests run at the same time.
            let speed = |mut took: [Duration; RECORDS]| {
                took.sort_unstable();
                RECORD_BYTES_MAX as f64 / took[RECORDS / 2].as_nanos() as f64
            };
            println!("{suite}: seals {:.2} GB/s, opens {:.2} GB/s", speed(sealing), speed(opening));
        }
    }
}
