//! This node's part of every handshake: its identity, its introduction and its keys.

use super::hello::{DataEncryption, Hello};
use super::refusal::Refusal;
use super::terms::Terms;
use crate::identity::{Identity, NodeId};
use sha2::{Digest, Sha256};
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use zeroize::Zeroizing;

/// This node's identity, introduction and keys. One per process start.
pub struct Local {
    /// The key pair that signs.
    pub identity: Arc<Identity>,
    /// The introduction; its `encryption` and `endpoints` are replaced for each link.
    pub hello: Hello,
    trusted: RwLock<BTreeSet<IpAddr>>,
    admits: RwLock<Admits>,
    psks: RwLock<Arc<[Psk]>>,
    pub(super) static_private: Zeroizing<[u8; 32]>,
    pub(super) static_public: [u8; 32],
}

/// Which nodes are admitted, whatever else they prove.
#[derive(Default)]
struct Admits {
    /// Never these.
    denied: BTreeSet<NodeId>,
    /// If there is such a set, only these.
    pinned: Option<BTreeSet<NodeId>>,
}

/// A pre-shared key of handshakes.
pub struct Psk {
    pub(super) bytes: Zeroizing<[u8; 32]>,
    /// Tells this key from others.
    pub number: PskNumber,
}

/// A number by which this process tells a pre-shared key from others. Not secret to it, and never
/// sent.
#[cfg_attr(test, derive(Default))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PskNumber(u64);

impl Local {
    /// Makes the node of `identity` in the cluster of `psks`, which are at least one.
    /// `static_private` is 32 fresh random bytes per process start, which are never stored. The
    /// node id of `hello` is replaced with that of `identity`.
    pub fn new(
        identity: Arc<Identity>,
        mut hello: Hello,
        static_private: Zeroizing<[u8; 32]>,
        psks: Vec<Zeroizing<[u8; 32]>>,
    ) -> Local {
        hello.id.node = identity.id();
        let static_public = public_of(&static_private);
        let psks = RwLock::new(psks.into_iter().map(Psk::of).collect());
        let (trusted, admits) = (RwLock::default(), RwLock::default());
        Local { identity, hello, trusted, admits, psks, static_private, static_public }
    }

    /// Replaces the pre-shared keys. Existing links do not change.
    pub fn set_psks(&self, psks: Vec<Zeroizing<[u8; 32]>>) {
        let psks = psks.into_iter().map(Psk::of).collect();
        *self.psks.write().unwrap_or_else(PoisonError::into_inner) = psks;
    }

    /// The pre-shared keys: the first one is shown first, and all are accepted.
    pub fn psks(&self) -> Arc<[Psk]> {
        Arc::clone(&self.psks.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a link that was made with this pre-shared key could be made now.
    pub fn accepts(&self, number: PskNumber) -> bool {
        self.psks().iter().any(|psk| psk.number == number)
    }

    /// Replaces the set of nodes that are refused, whatever key they hold; initially empty.
    /// Existing links do not change.
    pub fn set_denied(&self, denied: BTreeSet<NodeId>) {
        self.admits.write().unwrap_or_else(PoisonError::into_inner).denied = denied;
    }

    /// From now on only these nodes are admitted, as far as they are not denied. Initially all are.
    pub fn pin(&self, nodes: BTreeSet<NodeId>) {
        self.admits.write().unwrap_or_else(PoisonError::into_inner).pinned = Some(nodes);
    }

    /// Whether this node is admitted.
    ///
    /// # Errors
    /// [`Refusal::Denied`] or [`Refusal::NotPinned`].
    pub fn admits(&self, node: NodeId) -> Result<(), Refusal> {
        let admits = self.admits.read().unwrap_or_else(PoisonError::into_inner);
        if admits.denied.contains(&node) {
            Err(Refusal::Denied)
        } else if admits.pinned.as_ref().is_some_and(|pinned| !pinned.contains(&node)) {
            Err(Refusal::NotPinned)
        } else {
            Ok(())
        }
    }

    /// Whether this node requires encrypted bulk data at its own address `ip`.
    pub fn encryption_at(&self, ip: IpAddr) -> DataEncryption {
        let trusted = self.trusted.read().unwrap_or_else(PoisonError::into_inner);
        if trusted.contains(&ip.to_canonical()) {
            DataEncryption::Waived
        } else {
            DataEncryption::Required
        }
    }

    /// Replaces the set of this node's addresses on wires that the user declared as trusted;
    /// initially empty. Existing links do not change.
    pub fn set_trusted(&self, trusted: BTreeSet<IpAddr>) {
        *self.trusted.write().unwrap_or_else(PoisonError::into_inner) = trusted;
    }

    /// The introduction for a link on these terms.
    pub(super) fn hello_over(&self, terms: &Terms) -> Hello {
        Hello { encryption: terms.encryption, endpoints: terms.endpoints, ..self.hello.clone() }
    }
}

impl Psk {
    fn of(bytes: Zeroizing<[u8; 32]>) -> Psk {
        let hash = Sha256::new_with_prefix(b"potluck/1/psk number").chain_update(*bytes).finalize();
        let number = hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        Psk { bytes, number: PskNumber(number) }
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk(hidden)")
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Local({:?}, keys hidden)", self.hello)
    }
}

/// Whether a peer's X25519 point contributes to the shared secret. Points of low order yield zero
/// with every key.
pub(super) fn contributes(point: &[u8]) -> bool {
    let Some(mut dh) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) else { return false };
    dh.set(&[8; 32]);
    let mut shared = [0; 32];
    point.len() == 32 && dh.dh(point, &mut shared).is_ok() && shared != [0; 32]
}

fn public_of(private: &[u8; 32]) -> [u8; 32] {
    let mut public = [0; 32];
    if let Some(mut dh) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) {
        dh.set(private);
        public.copy_from_slice(dh.pubkey());
    }
    public
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_low_order_do_not_contribute() {
        let mut one = [0; 32];
        one[0] = 1;
        let minus_one = {
            let mut point = [0xff; 32];
            (point[0], point[31]) = (0xec, 0x7f);
            point
        };
        for point in [[0; 32], one, minus_one] {
            assert!(!contributes(&point));
        }
        assert!(contributes(&public_of(&[5; 32])));
    }
}
