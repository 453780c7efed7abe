//! The reasons for which two nodes have no link.

use super::handshake_limiter::Overload;
use crate::identity::JobMember;
use crate::wire::Malformed;
use derive_more::Display;
use std::io;

/// Why a connection did not become a link. The stream is closed in every case; the reason is not
/// sent to the peer.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum Refusal {
    /// The first bytes are not potluck's, or ask for something that this version does not offer.
    #[display("the peer does not speak potluck's protocol; check the address")]
    NotPotluck,
    /// The peer speaks another version of the protocol.
    #[display(
        "the peer speaks version {theirs} of the protocol; run the same version of potluck on \
             both"
    )]
    OtherVersion {
        /// The version it announced.
        theirs: u8,
    },
    /// The peer does not hold our cluster key, it means another View or other ranks, or its bytes
    /// were changed on the way.
    #[display("the peer has another cluster key; give both the same one")]
    WrongKey,
    /// A first message that was used before.
    #[display("somebody replayed a recorded connection")]
    Replayed,
    /// The first message proved our cluster key, but the last one is not from the same author.
    #[display("the last message of the handshake is forged")]
    Forged,
    /// The peer's X25519 key is a point of low order, so the key exchange has no secret.
    #[display("the peer's key exchange has no secret in it")]
    WeakPoint,
    /// The peer does not hold the private key of the identity that it claims.
    #[display("the peer cannot prove the identity that it shows")]
    BadSignature,
    /// The peer's introduction is authentic but malformed.
    #[display("the peer's introduction is unreadable: {_0}")]
    BadHello(Malformed),
    /// This node dialled itself.
    #[display("this is the node itself")]
    SelfDial,
    /// Another running process uses this node's identity.
    #[display("another process uses this node's identity; give each node its own identity file")]
    DuplicateIdentity,
    /// The peer is of this cluster and runs another job: it has a group of its own.
    #[display(
        "the peer runs the job `{}`; give both programs the same job to make them one group",
        _0.job
    )]
    OtherJob(Box<JobMember>),
    /// One of the two ends only observes, so it is a member of no group and has no control link.
    #[display("an observer is a member of no group")]
    Observer,
    /// The peer has another rule for a network partition: another roster, or none.
    #[display(
        "the peer has another rule for a cut network; set the same partition with the same \
             roster on all nodes"
    )]
    OtherPartition,
    /// The peer is on this node's list of denied nodes.
    #[display("this node is told to deny the peer")]
    Denied,
    /// The peer is none of the nodes to which this one is pinned.
    #[display("the peer is none of the nodes that this one is told to admit")]
    NotPinned,
    /// The peer is met for the first time, and the program does not admit it.
    #[display("this program does not admit a peer that it has not met before")]
    Unwelcome,
    /// The peer asked for a data link of a View, or of ranks, that this node has no part in.
    #[display("the peer asked for a data link of a view that this node has no part in")]
    UnknownView,
    /// The peer is not the member that the link is meant for.
    #[display("the peer is not the member that the link is for")]
    WrongRank,
    /// Too many connections at once or in a short time.
    #[display("refused before the handshake: {_0}")]
    Overloaded(Overload),
    /// The handshake took longer than two seconds.
    #[display("the handshake took longer than two seconds")]
    TooSlow,
    /// The peer closed the connection; a node with another cluster key does this.
    #[display("the peer closed the connection; its cluster key may be another one")]
    Closed,
    /// The operating system reported an error.
    #[display("the connection failed: {_0}")]
    Io(io::ErrorKind),
    /// The operating system gave no randomness.
    #[display("the operating system gave no randomness")]
    NoEntropy,
}

impl std::error::Error for Refusal {}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Refusal::Closed,
            kind => Refusal::Io(kind),
        }
    }
}

impl From<Overload> for Refusal {
    fn from(why: Overload) -> Refusal {
        Refusal::Overloaded(why)
    }
}
