//! The terms of a handshake, as one end sets them.

use super::endpoints::Endpoints;
use super::hello::DataEncryption;
use super::preamble::Purpose;
use crate::identity::MemberId;

/// The requirements of one end for a handshake.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The purpose of the link.
    pub purpose: Purpose,
    /// The only acceptable peer, if it is known.
    pub expect: Option<MemberId>,
    /// Whether this end requires that bulk data is encrypted.
    pub encryption: DataEncryption,
    /// The addresses of the connection as this end sees them.
    pub endpoints: Option<Endpoints>,
}
