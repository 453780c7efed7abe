//! The reasons for which two nodes have no link.

use super::handshake_limiter::Overload;
use crate::sentences::sentences;
use crate::wire::Malformed;
use std::io;

/// Why a connection did not become a link. The stream is closed in every case; the reason is not
/// sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The first bytes are not potluck's, or ask for something that this version does not offer.
    NotPotluck,
    /// The peer speaks another version of the protocol.
    OtherVersion {
        /// The version it announced.
        theirs: u8,
    },
    /// The peer does not hold our cluster key, it means another View or other ranks, or its bytes
    /// were changed on the way.
    WrongKey,
    /// A first message that was used before.
    Replayed,
    /// The first message proved our cluster key, but the last one is not from the same author.
    Forged,
    /// The peer's X25519 key is a point of low order, so the key exchange has no secret.
    WeakPoint,
    /// The peer does not hold the private key of the identity that it claims.
    BadSignature,
    /// The peer's introduction is authentic but malformed.
    BadHello(Malformed),
    /// This node dialled itself.
    SelfDial,
    /// Another running process uses this node's identity.
    DuplicateIdentity,
    /// The peer has another rule for a network partition: another roster, or none.
    OtherPartition,
    /// The peer is on this node's list of denied nodes.
    Denied,
    /// The peer is none of the nodes to which this one is pinned.
    NotPinned,
    /// The peer is met for the first time, and the program does not admit it.
    Unwelcome,
    /// The peer asked for a data link of a View, or of ranks, that this node has no part in.
    UnknownView,
    /// The peer is not the member that the link is meant for.
    WrongRank,
    /// Too many connections at once or in a short time.
    Overloaded(Overload),
    /// The handshake took longer than two seconds.
    TooSlow,
    /// The peer closed the connection; a node with another cluster key does this.
    Closed,
    /// The operating system reported an error.
    Io(io::ErrorKind),
    /// The operating system gave no randomness.
    NoEntropy,
}

sentences! {
    Refusal {
        NotPotluck => "the peer does not speak potluck's protocol; check the address",
        OtherVersion { theirs } =>
            "the peer speaks version {theirs} of the protocol; run the same version of potluck on \
             both",
        WrongKey => "the peer has another cluster key; give both the same one",
        Replayed => "somebody replayed a recorded connection",
        Forged => "the last message of the handshake is forged",
        WeakPoint => "the peer's key exchange has no secret in it",
        BadSignature => "the peer cannot prove the identity that it shows",
        BadHello(why) => "the peer's introduction is unreadable: {why}",
        SelfDial => "this is the node itself",
        DuplicateIdentity =>
            "another process uses this node's identity; give each node its own identity file",
        OtherPartition =>
            "the peer has another rule for a cut network; set the same partition with the same \
             roster on all nodes",
        Denied => "this node is told to deny the peer",
        NotPinned => "the peer is none of the nodes that this one is told to admit",
        Unwelcome => "this program does not admit a peer that it has not met before",
        UnknownView => "the peer asked for a data link of a view that this node has no part in",
        WrongRank => "the peer is not the member that the link is for",
        Overloaded(why) => "refused at the door: {why}",
        TooSlow => "the handshake took longer than two seconds",
        Closed => "the peer closed the connection; its cluster key may be another one",
        Io(kind) => "the connection failed: {kind}",
        NoEntropy => "the operating system gave no randomness",
    }
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
