//! Chooses the cipher of a link's records: one that is fast on both processors.
//!
//! AES-256-GCM is faster on a processor with instructions for it, and slow on any other;
//! ChaCha20-Poly1305 needs none. Each end states its preference in its introduction, so the choice
//! is as authentic as the rest of the handshake: no host on the path can change it, and the keys
//! depend on it (see [`super::keys`]). Both ciphers are secure; the choice affects only speed.
//! Control links follow the same rule.

use crate::os::has_aes;
use derive_more::Display;
use ring::aead::{AES_256_GCM, Algorithm, CHACHA20_POLY1305, Nonce};

/// An authenticated cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Suite {
    /// AES-256-GCM, for processors with AES instructions.
    #[display("AES-256-GCM")]
    Aes256Gcm,
    /// ChaCha20-Poly1305, for all other processors.
    #[display("ChaCha20-Poly1305")]
    ChaCha20Poly1305,
}

impl Suite {
    /// The suite that is fast on this machine's processor.
    pub fn of_this_processor() -> Suite {
        if has_aes() { Suite::Aes256Gcm } else { Suite::ChaCha20Poly1305 }
    }

    /// The suite of a link between nodes that prefer this one and `other`.
    pub fn shared_with(self, other: Suite) -> Suite {
        match (self, other) {
            (Suite::Aes256Gcm, Suite::Aes256Gcm) => Suite::Aes256Gcm,
            _ => Suite::ChaCha20Poly1305,
        }
    }

    pub(super) fn algorithm(self) -> &'static Algorithm {
        match self {
            Suite::Aes256Gcm => &AES_256_GCM,
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }

    /// The label under which keys of this suite are derived; each suite has its own.
    pub(super) fn key_label(self) -> &'static [u8] {
        match self {
            Suite::Aes256Gcm => b"potluck/1/records/aes-256-gcm",
            Suite::ChaCha20Poly1305 => b"potluck/1/records/chacha20-poly1305",
        }
    }

    /// The nonce of record `number`, as Noise defines it for each cipher.
    pub(super) fn nonce(self, number: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&match self {
            Suite::Aes256Gcm => number.to_be_bytes(),
            Suite::ChaCha20Poly1305 => number.to_le_bytes(),
        });
        Nonce::assume_unique_for_key(nonce)
    }
}

#[cfg(test)]
mod tests;
