//! The exchange by which a machine that knows the code gets the cluster key, without I/O.
//!
//! ```text
//! joiner                                        inviter
//!   preamble(16) X(33)                  ->                    X, Y: SPAKE2 over the secret digits
//!                                       <-      Y(33)
//!   HMAC(joiner, T)(32)                 ->                    a wrong one counts, and ends it
//!                                       <-      HMAC(inviter, T)(32) sealed welcome(212)
//!   sealed receipt(147)                 ->
//!
//! T       = SHA-256(label, preamble, X, Y)
//! joiner, inviter, welcome, receipt = HKDF(salt T, SPAKE2's key) under a label each
//! ```
//!
//! SPAKE2 gives both ends the same key exactly if both have the same digits, and each end learns
//! only whether one guess was right: other guesses cannot be checked against a recorded exchange
//! later. So the code may be short, if guesses are counted. The joiner shows first that it knows
//! the digits. The inviter says nothing to one that does not, and gives nothing away before.
//!
//! SPAKE2 is the crate `spake2`, in the group of Ed25519. This module wipes the secrets that it
//! holds; the crate does not wipe its scalars.

#[cfg(test)]
mod tests;

use super::message::{Receipt, Welcome};
use crate::identity::PairingCode;
use crate::link::Preamble;
use crate::wire::Malformed;
use derive_more::Display;
use ed25519_dalek::VerifyingKey;
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use rand_core::{CryptoRng, RngCore};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use sha2::{Digest, Sha256};
use spake2::{Ed25519Group, Identity, Password, Spake2};
use zeroize::Zeroizing;

/// Length of the first message: preamble and element.
pub const FIRST_BYTES: usize = Preamble::BYTES + ELEMENT_BYTES;
/// Length of an element of SPAKE2: a byte for the side, and a point.
pub const ELEMENT_BYTES: usize = 33;
/// Length of a confirmation.
pub const CONFIRMATION_BYTES: usize = 32;
/// Length of the inviter's last message: its confirmation and the sealed welcome.
pub const WELCOME_BYTES: usize = CONFIRMATION_BYTES + Welcome::BYTES + TAG_BYTES;
/// Length of the joiner's last message.
pub const RECEIPT_BYTES: usize = Receipt::BYTES + TAG_BYTES;

/// Why an exchange has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Fault {
    /// The peer's element is not a point of the group, or one of low order.
    #[display("the peer's key exchange is not one")]
    NotAnElement,
    /// The peer has not shown that it knows the code.
    #[display("the peer does not know the code")]
    NotConfirmed,
    /// The sealed message was not sealed by the peer, or was changed on the way.
    #[display("a sealed message was changed on the way")]
    Forged,
    /// The peer has sealed something else than a welcome or a receipt.
    #[display("a sealed message is unreadable: {_0}")]
    Malformed(Malformed),
}

/// The joiner, which has sent its element.
pub struct Joiner {
    spake: Spake2<Ed25519Group>,
    preamble: [u8; Preamble::BYTES],
    element: [u8; ELEMENT_BYTES],
}

/// The joiner, which has sent its confirmation.
pub struct Confirmed(Keys);

/// The joiner, which has the key.
pub struct Admitted(Keys);

/// The inviter, which has sent its element.
pub struct Inviter(Keys);

/// The inviter, which has seen that the joiner knows the code.
pub struct Proven(Keys);

/// The inviter, which has sent the key.
pub struct Welcomed(Keys);

impl Joiner {
    /// Begins with `seed`, 32 fresh random bytes; returns the first message.
    pub fn start(code: &PairingCode, seed: Zeroizing<[u8; 32]>) -> (Joiner, [u8; FIRST_BYTES]) {
        let preamble = Preamble::of_pairing(code.selector());
        let (password, joiner, inviter) = names(code);
        let (spake, element) =
            Spake2::start_a_with_rng(&password, &joiner, &inviter, SeededRng::of(seed));
        let element = fixed(&element);
        let mut first = [0; FIRST_BYTES];
        first[..Preamble::BYTES].copy_from_slice(&preamble);
        first[Preamble::BYTES..].copy_from_slice(&element);
        (Joiner { spake, preamble, element }, first)
    }

    /// Takes the inviter's element; returns this end's confirmation.
    pub fn confirm(
        self,
        element: &[u8; ELEMENT_BYTES],
    ) -> Result<(Confirmed, [u8; CONFIRMATION_BYTES]), Fault> {
        let shared = finish(self.spake, element)?;
        let keys = Keys::of(&shared, &self.preamble, &self.element, element);
        let confirmation = keys.confirmation(&keys.of_joiner);
        Ok((Confirmed(keys), confirmation))
    }
}

impl Confirmed {
    /// Takes the inviter's last message.
    pub fn open(self, message: &[u8; WELCOME_BYTES]) -> Result<(Welcome, Admitted), Fault> {
        let (confirmation, sealed) = message.split_at(CONFIRMATION_BYTES);
        self.0.check(&self.0.of_inviter, confirmation)?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let plain = self.0.open(&self.0.welcome, &mut sealed)?;
        let welcome = Welcome::from_bytes(plain).map_err(Fault::Malformed)?;
        Ok((welcome, Admitted(self.0)))
    }
}

impl Admitted {
    /// Seals the last message.
    pub fn receipt(self, receipt: &Receipt) -> [u8; RECEIPT_BYTES] {
        let mut message = [0; RECEIPT_BYTES];
        self.0.seal(&self.0.receipt, &receipt.to_bytes(), &mut message);
        message
    }
}

impl Inviter {
    /// Takes the joiner's element, and answers with one from `seed`, 32 fresh random bytes. The
    /// preamble was that of the code's selector.
    pub fn answer(
        code: &PairingCode,
        seed: Zeroizing<[u8; 32]>,
        element: &[u8; ELEMENT_BYTES],
    ) -> Result<(Inviter, [u8; ELEMENT_BYTES]), Fault> {
        let (password, joiner, inviter) = names(code);
        let (spake, own) =
            Spake2::start_b_with_rng(&password, &joiner, &inviter, SeededRng::of(seed));
        let own = fixed(&own);
        let shared = finish(spake, element)?;
        let preamble = Preamble::of_pairing(code.selector());
        Ok((Inviter(Keys::of(&shared, &preamble, element, &own)), own))
    }

    /// Takes the joiner's confirmation. This is the one guess that the exchange allows.
    pub fn verify(self, confirmation: &[u8; CONFIRMATION_BYTES]) -> Result<Proven, Fault> {
        self.0.check(&self.0.of_joiner, confirmation)?;
        Ok(Proven(self.0))
    }
}

impl Proven {
    /// Seals the cluster key for the joiner.
    pub fn welcome(self, welcome: &Welcome) -> (Welcomed, [u8; WELCOME_BYTES]) {
        let mut message = [0; WELCOME_BYTES];
        let (confirmation, sealed) = message.split_at_mut(CONFIRMATION_BYTES);
        confirmation.copy_from_slice(&self.0.confirmation(&self.0.of_inviter));
        self.0.seal(&self.0.welcome, &*welcome.to_bytes(), sealed);
        (Welcomed(self.0), message)
    }
}

impl Welcomed {
    /// Takes the joiner's last message.
    pub fn receipt(self, message: &[u8; RECEIPT_BYTES]) -> Result<Receipt, Fault> {
        let mut sealed = message.to_vec();
        let plain = self.0.open(&self.0.receipt, &mut sealed)?;
        Receipt::from_bytes(plain).map_err(Fault::Malformed)
    }
}

type Secret = Zeroizing<[u8; 32]>;

/// The keys that both ends derive from SPAKE2's key. Each is used once.
struct Keys {
    transcript: [u8; 32],
    of_joiner: Secret,
    of_inviter: Secret,
    welcome: Secret,
    receipt: Secret,
}

impl Keys {
    fn of(
        shared: &[u8],
        preamble: &[u8; Preamble::BYTES],
        x: &[u8; ELEMENT_BYTES],
        y: &[u8; ELEMENT_BYTES],
    ) -> Keys {
        let digest = Sha256::new_with_prefix(b"potluck/1/pairing")
            .chain_update(preamble)
            .chain_update(x)
            .chain_update(y);
        let transcript: [u8; 32] = digest.finalize().into();
        let hkdf = Hkdf::<Sha256>::new(Some(&transcript), shared);
        let derived = |label: &[u8]| {
            let mut key = Zeroizing::new([0; 32]);
            // HKDF-SHA256 gives up to 8160 bytes, so 32 cannot fail.
            hkdf.expand(label, &mut *key).expect("32 bytes are within HKDF's limit");
            key
        };
        Keys {
            of_joiner: derived(b"potluck/1/pairing/joiner"),
            of_inviter: derived(b"potluck/1/pairing/inviter"),
            welcome: derived(b"potluck/1/pairing/welcome"),
            receipt: derived(b"potluck/1/pairing/receipt"),
            transcript,
        }
    }

    fn mac(&self, key: &Secret) -> Hmac<Sha256> {
        // HMAC takes keys of any length, so this cannot fail.
        let mac = Hmac::<Sha256>::new_from_slice(&**key).expect("HMAC takes keys of any length");
        mac.chain_update(self.transcript)
    }

    fn confirmation(&self, key: &Secret) -> [u8; CONFIRMATION_BYTES] {
        self.mac(key).finalize().into_bytes().into()
    }

    /// Compares in constant time.
    fn check(&self, key: &Secret, confirmation: &[u8]) -> Result<(), Fault> {
        self.mac(key).verify_slice(confirmation).map_err(|_| Fault::NotConfirmed)
    }

    /// Seals `plain` into `out`, which is as long and has room for the tag.
    fn seal(&self, key: &Secret, plain: &[u8], out: &mut [u8]) {
        let (text, place) = out.split_at_mut(plain.len());
        text.copy_from_slice(plain);
        // An error is only possible for more than 256 GiB.
        let tag = aead(key)
            .seal_in_place_separate_tag(only_nonce(), Aad::from(&self.transcript), text)
            .expect("a message of some hundred bytes can be sealed");
        place.copy_from_slice(tag.as_ref());
    }

    fn open<'a>(&self, key: &Secret, sealed: &'a mut [u8]) -> Result<&'a [u8], Fault> {
        let opened = aead(key).open_in_place(only_nonce(), Aad::from(&self.transcript), sealed);
        opened.map(|plain| &*plain).map_err(|_| Fault::Forged)
    }
}

fn aead(key: &Secret) -> LessSafeKey {
    // The cipher's keys have 32 bytes.
    let key = UnboundKey::new(&CHACHA20_POLY1305, key.as_slice()).expect("32 bytes are a key");
    LessSafeKey::new(key)
}

/// Each key seals one message.
fn only_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn names(code: &PairingCode) -> (Password, Identity, Identity) {
    let (joiner, inviter) = (b"potluck/1/pairing/joiner", b"potluck/1/pairing/inviter");
    (Password::new(code.secret()), Identity::new(joiner), Identity::new(inviter))
}

/// SPAKE2's own element, which has this length.
fn fixed(element: &[u8]) -> [u8; ELEMENT_BYTES] {
    let mut out = [0; ELEMENT_BYTES];
    out.copy_from_slice(element);
    out
}

/// SPAKE2's key. Points of low order are refused here, because the crate lets them pass.
fn finish(
    spake: Spake2<Ed25519Group>,
    element: &[u8; ELEMENT_BYTES],
) -> Result<Zeroizing<Vec<u8>>, Fault> {
    let point = element.last_chunk().and_then(|point| VerifyingKey::from_bytes(point).ok());
    if point.is_none_or(|point| point.is_weak()) {
        return Err(Fault::NotAnElement);
    }
    spake.finish(element).map(Zeroizing::new).map_err(|_| Fault::NotAnElement)
}

/// The random numbers of one exchange, from a seed: HMAC-SHA256 of a counter.
struct SeededRng {
    seed: Secret,
    next: u64,
}

impl SeededRng {
    fn of(seed: Secret) -> SeededRng {
        SeededRng { seed, next: 0 }
    }
}

impl RngCore for SeededRng {
    fn next_u32(&mut self) -> u32 {
        rand_core::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rand_core::impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(32) {
            let mac = Hmac::<Sha256>::new_from_slice(&*self.seed)
                .expect("HMAC takes keys of any length")
                .chain_update(self.next.to_le_bytes());
            self.next += 1;
            let block: Secret = Zeroizing::new(mac.finalize().into_bytes().into());
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(out);
        Ok(())
    }
}

impl CryptoRng for SeededRng {}

const TAG_BYTES: usize = 16;
