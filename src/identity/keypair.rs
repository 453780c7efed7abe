//! The key pair behind a [`NodeId`].

use super::node_id::NodeId;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use std::fmt;
use zeroize::Zeroizing;

/// An Ed25519 key pair: the identity of one node while its key file exists.
pub struct Identity {
    key: SigningKey,
}

impl Identity {
    /// The key pair of a 32-byte seed, which must come from the operating system's randomness.
    pub fn from_seed(seed: &[u8; 32]) -> Identity {
        Identity { key: SigningKey::from_bytes(seed) }
    }

    /// The seed, to be written to the key file only.
    pub fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.key.to_bytes())
    }

    /// The public key.
    pub fn id(&self) -> NodeId {
        NodeId(self.key.verifying_key().to_bytes())
    }

    /// Signs a message of the handshake.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }
}

impl NodeId {
    /// Whether the node with this id signed `message`. Strict: rejects weak keys and malleable
    /// signatures.
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        VerifyingKey::from_bytes(&self.0)
            .is_ok_and(|key| key.verify_strict(message, &Signature::from_bytes(signature)).is_ok())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({}, key hidden)", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_signer_and_only_the_message_verify() {
        let (a, b) = (Identity::from_seed(&[1; 32]), Identity::from_seed(&[2; 32]));
        let signature = a.sign(b"hello");
        assert!(a.id().verifies(b"hello", &signature));
        assert!(!a.id().verifies(b"hellp", &signature));
        assert!(!b.id().verifies(b"hello", &signature));
        assert!(!NodeId([0; 32]).verifies(b"hello", &signature));
    }
}
