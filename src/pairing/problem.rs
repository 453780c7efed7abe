//! Why a code did not lead to a cluster key.

use crate::wire::PROTOCOL_VERSION;
use derive_more::Display;
use std::net::SocketAddr;

/// Why a code did not lead to a cluster key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum PairingProblem {
    /// No machine with this invitation was found.
    #[display(
        "no invitation with this code was found: run `potluck invite` on a machine that is in, \
             or name that machine with --peer HOST if multicast does not reach it"
    )]
    NotFound,
    /// A machine announces the invitation, and cannot be reached.
    #[display(
        "the machine that invites cannot be reached at {at}: open TCP ports 47474 to 47489 in \
             its firewall"
    )]
    Unreachable {
        /// One of its addresses.
        at: SocketAddr,
    },
    /// The machine with this invitation has ended the exchange: the code is wrong, or the
    /// invitation has just ended.
    #[display(
        "the code was not accepted: it is wrong, or the invitation has ended. Three wrong \
             codes end it; `potluck invite` makes a new one"
    )]
    Refused,
    /// The machine that answered does not know the code, or its message was changed on the way.
    #[display(
        "the machine that answered does not know the code, or somebody changed what it sent; \
             no key was taken"
    )]
    Forged,
    /// The machine with this invitation speaks another version of the protocol.
    #[display(
        "the machine that invites speaks protocol {theirs}, this one {PROTOCOL_VERSION}: run \
             the same version on both"
    )]
    OtherVersion {
        /// The version that it announces.
        theirs: u8,
    },
}

impl std::error::Error for PairingProblem {}
