//! The record keys of a link's two directions, derived from the handshake.
//!
//! ```text
//! secret = HKDF-Extract(handshake hash, Noise's split for the direction)
//! key    = HKDF-Expand(secret, the suite's label)
//! next   = HKDF-Expand(secret, "potluck/1/next"), which takes the secret's place
//! ```
//!
//! The handshake hash covers both introductions, and so the claims and settings of both ends. The
//! keys that Noise itself would use are never used, so no key serves two ciphers. No secret of an
//! earlier generation is kept.

use super::suite::Suite;
use crate::os::copy;
use derive_more::Display;
use hkdf::Hkdf;
use ring::aead::{Aad, LessSafeKey, Tag, UnboundKey};
use sha2::Sha256;
use snow::HandshakeState;
use zeroize::Zeroizing;

/// The keys of one direction.
pub struct Keys {
    suite: Suite,
    secret: Secret,
    key: LessSafeKey,
}

/// The keys of a link, as one end uses them.
pub struct BothDirections {
    /// Encrypts the records that this end sends.
    pub outgoing: Keys,
    /// Decrypts the records that the peer sends.
    pub incoming: Keys,
}

type Secret = Zeroizing<[u8; 32]>;

impl BothDirections {
    /// Derives the keys of a link with `suite` from a finished handshake.
    pub fn of(noise: &mut HandshakeState, suite: Suite) -> BothDirections {
        let (first, second) = noise.dangerously_get_raw_split();
        let (first, second) = (Zeroizing::new(first), Zeroizing::new(second));
        let keys = |split: &Secret| Keys::of(split, noise.get_handshake_hash(), suite);
        let (from_initiator, from_responder) = (keys(&first), keys(&second));
        if noise.is_initiator() {
            BothDirections { outgoing: from_initiator, incoming: from_responder }
        } else {
            BothDirections { outgoing: from_responder, incoming: from_initiator }
        }
    }
}

impl Keys {
    /// Derives the keys of a direction from Noise's split for it and the handshake hash.
    pub fn of(split: &[u8; 32], hash: &[u8], suite: Suite) -> Keys {
        let (secret, _) = Hkdf::<Sha256>::extract(Some(hash), split);
        Keys::of_secret(Zeroizing::new(secret.into()), suite)
    }

    fn of_secret(secret: Secret, suite: Suite) -> Keys {
        let key = expanded(&secret, suite.key_label());
        // Both suites use keys of 32 bytes.
        let key = UnboundKey::new(suite.algorithm(), key.as_slice()).expect("32 bytes are a key");
        Keys { suite, secret, key: LessSafeKey::new(key) }
    }

    /// Replaces the keys with those of the next generation.
    pub fn renew(&mut self) {
        *self = Keys::of_secret(expanded(&self.secret, b"potluck/1/next"), self.suite);
    }

    /// Seals `plain` into the front of `out`, which must have room for it and the tag; returns the
    /// sealed length. A number may be used only once per generation.
    pub fn seal(&self, number: u64, plain: &[u8], out: &mut [u8]) -> Result<usize, Broken> {
        let (text, rest) = out.split_at_mut_checked(plain.len()).ok_or(Broken::Size)?;
        let place = rest.get_mut(..TAG_BYTES).ok_or(Broken::Size)?;
        copy(text, plain);
        let nonce = self.suite.nonce(number);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::empty(), text)
            .map_err(|_| Broken::Size)?;
        place.copy_from_slice(tag.as_ref());
        Ok(plain.len() + TAG_BYTES)
    }

    /// Opens `text` in place.
    pub fn open(&self, number: u64, text: &mut [u8], tag: [u8; TAG_BYTES]) -> Result<(), Broken> {
        let (nonce, tag) = (self.suite.nonce(number), Tag::from(tag));
        self.key
            .open_in_place_separate_tag(nonce, Aad::empty(), tag, text, 0..)
            .map_err(|_| Broken::Forged)?;
        Ok(())
    }
}

fn expanded(secret: &Secret, label: &[u8]) -> Secret {
    let mut out = Zeroizing::new([0; 32]);
    let hkdf = Hkdf::<Sha256>::from_prk(secret.as_slice())
        .expect("32 bytes are what HKDF-SHA256 extracts");
    hkdf.expand(label, &mut *out).expect("32 bytes are within HKDF's limit");
    out
}

/// Length of the authentication tag that sealing appends, in bytes.
pub const TAG_BYTES: usize = 16;

/// Why a record could not be sealed or opened. The link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Broken {
    /// The record is not authentic, or not the next one that the peer sealed.
    #[display("a record is not the one that the peer sealed; the link is closed")]
    Forged,
    /// The record or the buffer for it has the wrong size.
    #[display("a record has an impossible size; the link is closed")]
    Size,
    /// The direction has used up its record numbers.
    #[display("the link has used up its record numbers; open a new one")]
    Exhausted,
}

impl std::error::Error for Broken {}

#[cfg(test)]
mod tests {
    use super::*;
    use hmac::{Hmac, Mac};
    use snow::params::CipherChoice;
    use snow::resolvers::{CryptoResolver, DefaultResolver};

    const SUITES: [Suite; 2] = [Suite::Aes256Gcm, Suite::ChaCha20Poly1305];

    fn keys(suite: Suite) -> Keys {
        Keys::of(&[5; 32], &[6; 32], suite)
    }

    fn opened(keys: &Keys, number: u64, sealed: &[u8]) -> Result<Vec<u8>, Broken> {
        let (text, tag) = sealed.split_last_chunk().expect("longer than a tag");
        let mut text = text.to_vec();
        keys.open(number, &mut text, *tag)?;
        Ok(text)
    }

    fn mac(key: &[u8], text: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
        mac.update(text);
        mac.finalize().into_bytes().into()
    }

    /// An independent implementation: HKDF spelled out, and RustCrypto's ciphers.
    fn sealed_elsewhere(suite: Suite, generation: u8, number: u64, plain: &[u8]) -> Vec<u8> {
        let mut secret = mac(&[6; 32], &[5; 32]);
        for _ in 0..generation {
            secret = mac(&secret, b"potluck/1/next\x01");
        }
        let (label, cipher): (&[u8], _) = match suite {
            Suite::Aes256Gcm => (b"potluck/1/records/aes-256-gcm\x01", CipherChoice::AESGCM),
            Suite::ChaCha20Poly1305 => {
                (b"potluck/1/records/chacha20-poly1305\x01", CipherChoice::ChaChaPoly)
            }
        };
        let mut cipher = DefaultResolver.resolve_cipher(&cipher).expect("RustCrypto has both");
        cipher.set(&mac(&secret, label));
        let mut out = vec![0; plain.len() + TAG_BYTES];
        assert_eq!(cipher.encrypt(number, &[], plain, &mut out), out.len());
        out
    }

    #[test]
    fn records_are_what_other_code_makes_of_the_same_handshake() {
        for suite in SUITES {
            let mut keys = keys(suite);
            for (generation, number) in [(0, 0), (1, 1), (2, 0x0123_4567_89ab_cdef)] {
                let plain: Vec<u8> = (0..1000).map(|i| (i * 7 + generation) as u8).collect();
                let mut sealed = vec![0; plain.len() + TAG_BYTES];
                assert_eq!(keys.seal(number, &plain, &mut sealed), Ok(sealed.len()));
                assert_eq!(
                    sealed,
                    sealed_elsewhere(suite, generation as u8, number, &plain),
                    "{suite}, generation {generation}"
                );
                keys.renew();
            }
        }
    }

    #[test]
    fn what_one_suite_sealed_the_other_does_not_open() {
        for (ours, theirs) in [(SUITES[0], SUITES[1]), (SUITES[1], SUITES[0])] {
            let mut sealed = [0; 20];
            keys(ours).seal(0, b"data", &mut sealed).expect("room enough");
            assert_eq!(opened(&keys(theirs), 0, &sealed), Err(Broken::Forged));
            assert_eq!(opened(&keys(ours), 0, &sealed), Ok(b"data".to_vec()));
        }
    }

    #[test]
    fn another_handshake_generation_or_number_has_other_keys() {
        for suite in SUITES {
            let mut sealed = [0; 20];
            keys(suite).seal(0, b"data", &mut sealed).expect("room enough");
            let mut renewed = keys(suite);
            renewed.renew();
            let others =
                [Keys::of(&[5; 32], &[7; 32], suite), Keys::of(&[7; 32], &[6; 32], suite), renewed];
            assert!(
                others.iter().all(|keys| opened(keys, 0, &sealed) == Err(Broken::Forged)),
                "{suite}"
            );
            assert_eq!(opened(&keys(suite), 1, &sealed), Err(Broken::Forged), "{suite}");
        }
    }
}
