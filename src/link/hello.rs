//! The introduction: a node's claims about itself inside the handshake, and their proof.
//!
//! The proof is an Ed25519 signature over the role, the handshake hash so far, the signer's X25519
//! key, its boot number and a hash of the introduction. So it is valid for this handshake only: it
//! cannot be replayed in another one, reflected to its signer, or combined with other claims.

use super::endpoints::Endpoints;
use super::refusal::Refusal;
use super::suite::Suite;
use crate::identity::{Identity, JobName, MemberId, Name};
use crate::os::HostId;
use crate::protocol::Engines;
use crate::wire::layout::Flags;
use crate::wire::{Decode, Encode, Malformed, Reader};
use sha2::{Digest, Sha256};

/// A node's introduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The member: a node and its boot.
    pub id: MemberId,
    /// The name that the node chose.
    pub name: Name,
    /// The program that it runs. Members of one group have the same one.
    pub job: JobName,
    /// The node's listening port; 0 if it does not listen.
    pub port: u16,
    /// Whether the member has no state to synchronize.
    pub stateless: bool,
    /// Whether the node only observes the others: it is a member of no group.
    pub observer: bool,
    /// The engines it can run.
    pub engines: Engines,
    /// The member's rule for a network partition, as `Partition::digest`.
    pub partition: [u8; 8],
    /// Whether it requires that bulk data is encrypted on this link.
    pub encryption: DataEncryption,
    /// The cipher suite that is fast on its processor.
    pub suite: Suite,
    /// The addresses of this connection as it sees them.
    pub endpoints: Option<Endpoints>,
    /// The host with whose processes it can share memory.
    pub host: Option<HostId>,
}

/// Whether one end requires encrypted bulk data on a link, see `Builder::trusted_link`.
///
/// A data link is unencrypted only if both ends say [`DataEncryption::Waived`] inside the
/// handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DataEncryption {
    /// Everything is encrypted.
    #[default]
    Required,
    /// Bulk data may travel in the clear.
    Waived,
}

/// The two ends of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that dialled.
    Initiator,
    /// The end that accepted.
    Responder,
}

/// The context of a proof besides the claims themselves.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// The signer's end.
    pub role: Role,
    /// The handshake hash after the previous message.
    pub hash: &'a [u8],
    /// The signer's static X25519 public key, new at each process start.
    pub static_public: &'a [u8],
}

/// Length of a proven introduction in bytes. All are equally long, so the length reveals nothing.
pub const PROVEN_BYTES: usize = 340;

impl Hello {
    /// Signs the introduction: the signature, the introduction, then zeros.
    pub fn proven_by(&self, identity: &Identity, binding: &Binding<'_>) -> [u8; PROVEN_BYTES] {
        let hello = self.to_bytes();
        let mut out = [0; PROVEN_BYTES];
        out[..SIGNATURE_BYTES].copy_from_slice(&identity.sign(&self.testimony(binding, &hello)));
        out[SIGNATURE_BYTES..SIGNATURE_BYTES + hello.len()].copy_from_slice(&hello);
        out
    }

    /// Checks a proven introduction and returns it.
    ///
    /// # Errors
    /// [`Refusal::BadHello`] or [`Refusal::BadSignature`].
    pub fn verified(proven: &[u8; PROVEN_BYTES], binding: &Binding<'_>) -> Result<Hello, Refusal> {
        let mut r = Reader::new(proven);
        let signature = r.array::<SIGNATURE_BYTES>().map_err(Refusal::BadHello)?;
        let before = r.remaining();
        let hello = Hello::decode(&mut r).map_err(Refusal::BadHello)?;
        let spoken = &proven[SIGNATURE_BYTES..SIGNATURE_BYTES + before - r.remaining()];
        if r.take(r.remaining()).is_ok_and(|rest| rest.iter().any(|byte| *byte != 0)) {
            return Err(Refusal::BadHello(Malformed::Trailing));
        }
        if hello.id.node.verifies(&hello.testimony(binding, spoken), &signature) {
            Ok(hello)
        } else {
            Err(Refusal::BadSignature)
        }
    }

    fn testimony(&self, binding: &Binding<'_>, spoken: &[u8]) -> Vec<u8> {
        let mut out = b"potluck/1/id".to_vec();
        out.extend_from_slice(match binding.role {
            Role::Initiator => b"init",
            Role::Responder => b"resp",
        });
        out.extend_from_slice(binding.hash);
        out.extend_from_slice(binding.static_public);
        out.extend_from_slice(&self.id.boot.0.to_le_bytes());
        out.extend_from_slice(&Sha256::digest(spoken));
        out
    }
}

/// By hand: flags stand for the wire and the suite.
impl Encode for Hello {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        self.name.encode(out);
        self.job.encode(out);
        self.port.encode(out);
        let trusted = self.encryption == DataEncryption::Waived;
        let aes = self.suite == Suite::Aes256Gcm;
        Flags.put([self.stateless, trusted, aes, self.observer], out);
        self.engines.encode(out);
        self.partition.encode(out);
        self.endpoints.encode(out);
        self.host.encode(out);
    }
}

impl Decode for Hello {
    fn decode(r: &mut Reader<'_>) -> Result<Hello, Malformed> {
        let (id, name, job) = (MemberId::decode(r)?, Name::decode(r)?, JobName::decode(r)?);
        let port = r.u16()?;
        let [stateless, trusted, aes, observer] = Flags.read(r)?;
        let encryption = if trusted { DataEncryption::Waived } else { DataEncryption::Required };
        let suite = if aes { Suite::Aes256Gcm } else { Suite::ChaCha20Poly1305 };
        let (engines, partition, endpoints) = (Engines::decode(r)?, r.array()?, Option::decode(r)?);
        let host = Option::decode(r)?;
        Ok(Hello {
            id,
            name,
            job,
            port,
            stateless,
            observer,
            engines,
            partition,
            encryption,
            suite,
            endpoints,
            host,
        })
    }
}

const SIGNATURE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Boot, NodeId};
    use crate::wire::assert_codec;
    use std::net::SocketAddr;
    use std::path::Path;

    fn hello_of(identity: &Identity, name: &str) -> Hello {
        Hello {
            id: MemberId { node: identity.id(), boot: Boot(77) },
            name: Name::from_lossy(name),
            job: JobName::of_program(Path::new("train")),
            port: 47_474,
            stateless: true,
            observer: false,
            engines: Engines::NATIVE,
            partition: [7; 8],
            encryption: DataEncryption::Waived,
            suite: Suite::Aes256Gcm,
            endpoints: Endpoints::new(
                SocketAddr::from(([10, 0, 0, 1], 47_474)),
                SocketAddr::from(([10, 0, 0, 2], 50_000)),
            ),
            host: Some(HostId([8; 16])),
        }
    }

    fn binding(role: Role) -> Binding<'static> {
        Binding { role, hash: &[3; 32], static_public: &[4; 32] }
    }

    #[test]
    fn an_introduction_survives_the_wire() {
        let identity = Identity::from_seed(&[1; 32]);
        assert_codec(&hello_of(&identity, "mini-2"));
        assert_codec(&Hello {
            stateless: false,
            encryption: DataEncryption::Required,
            engines: Engines(0xff),
            ..hello_of(&identity, "x")
        });
        assert_codec(&Hello { suite: Suite::ChaCha20Poly1305, ..hello_of(&identity, "y") });
        assert_codec(&Hello { endpoints: None, ..hello_of(&identity, "z") });
        assert_codec(&Hello { observer: true, ..hello_of(&identity, "o") });
        assert_codec(&Hello { host: None, ..hello_of(&identity, "h") });
    }

    #[test]
    fn the_longest_names_fit() {
        let identity = Identity::from_seed(&[1; 32]);
        let job = JobName::parse(&"j".repeat(JobName::CHARS_MAX)).expect("a name");
        let hello = Hello { job, ..hello_of(&identity, &"\u{20000}".repeat(32)) };
        assert_eq!(hello.name.as_str().len(), 128);
        let proven = hello.proven_by(&identity, &binding(Role::Initiator));
        assert_eq!(Hello::verified(&proven, &binding(Role::Initiator)), Ok(hello));
    }

    #[test]
    fn a_proof_is_good_for_one_role_one_handshake_and_one_key() {
        let identity = Identity::from_seed(&[1; 32]);
        let proven = hello_of(&identity, "a").proven_by(&identity, &binding(Role::Initiator));
        for other in [
            binding(Role::Responder),
            Binding { hash: &[9; 32], ..binding(Role::Initiator) },
            Binding { static_public: &[9; 32], ..binding(Role::Initiator) },
        ] {
            assert_eq!(Hello::verified(&proven, &other), Err(Refusal::BadSignature));
        }
    }

    #[test]
    fn no_claim_can_be_changed_and_no_identity_borrowed() {
        let (a, b) = (Identity::from_seed(&[1; 32]), Identity::from_seed(&[2; 32]));
        let bind = binding(Role::Responder);
        let proven = hello_of(&a, "a").proven_by(&a, &bind);
        for at in 0..PROVEN_BYTES {
            let mut bent = proven;
            bent[at] ^= 1;
            assert!(Hello::verified(&bent, &bind).is_err(), "byte {at}");
        }
        assert_eq!(
            Hello::verified(&hello_of(&a, "a").proven_by(&b, &bind), &bind),
            Err(Refusal::BadSignature)
        );
        let nobody =
            Hello { id: MemberId { node: NodeId([0; 32]), boot: Boot(1) }, ..hello_of(&a, "a") };
        assert_eq!(
            Hello::verified(&nobody.proven_by(&a, &bind), &bind),
            Err(Refusal::BadSignature)
        );
    }
}
