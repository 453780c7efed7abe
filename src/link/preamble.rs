//! The preamble: the 16 bytes in the clear before every handshake. It states the protocol, its
//! version and the purpose of the link.
//!
//! ```text
//! magic(4) version(1) suite+purpose(1) src rank(1) dst rank(1) view hint(8)
//! ```
//!
//! The preamble is part of the handshake's prologue, so changing it on the way breaks the
//! handshake. A data link's prologue also contains the View's full digest, which is not sent: both
//! ends must know it.

use super::refusal::Refusal;
use crate::identity::Selector;
use crate::protocol::{Rank, ViewDigest};
use crate::wire::{Decode, Malformed, PROTOCOL_VERSION, Reader};

/// The purpose of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A control link: messages of the membership protocol and of the collectives.
    Control,
    /// A control link that replaces the present one of the same two members, because that one no
    /// longer works or another path is better.
    Relink,
    /// One end observes, or both do: they ask the other end for its status.
    Observe,
    /// A data link between the members at `src`, which dials, and `dst`; used in both directions.
    Data {
        /// The View that both are members of.
        view: ViewDigest,
        /// The rank of the initiator.
        src: Rank,
        /// The rank of the responder.
        dst: Rank,
    },
    /// Another path for the bulk data of two members, besides their data link.
    Path {
        /// The View that both are members of.
        view: ViewDigest,
        /// The rank of the initiator.
        src: Rank,
        /// The rank of the responder.
        dst: Rank,
    },
}

/// The part of a [`Purpose`] that a responder can read before it knows anything about the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preamble {
    /// A control link.
    Control,
    /// A control link that replaces another one.
    Relink,
    /// A question for the status.
    Observe,
    /// A data link.
    Data(DataAsk),
    /// Another path for a data link.
    Path(DataAsk),
    /// No link, but the cluster key, by the code of the invitation with this selector. Nodes do not
    /// answer it; see [`crate::pairing`].
    Pairing(Selector),
}

/// The data link that a peer asks for. Unproven until the handshake has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataAsk {
    /// The first 8 bytes of the View's digest.
    pub hint: [u8; 8],
    /// The rank that the peer claims.
    pub src: Rank,
    /// The rank that the peer assumes for this node.
    pub dst: Rank,
}

impl Preamble {
    /// Length of an encoded preamble in bytes.
    pub const BYTES: usize = 16;

    /// Decodes a preamble. The encoding is unique: unused fields must be zero.
    ///
    /// # Errors
    /// [`Refusal::OtherVersion`] if the magic number matches and the version does not; otherwise
    /// [`Refusal::NotPotluck`].
    pub fn parse(bytes: &[u8; Preamble::BYTES]) -> Result<Preamble, Refusal> {
        let mut r = Reader::new(bytes);
        if r.array::<4>() != Ok(MAGIC) {
            return Err(Refusal::NotPotluck);
        }
        match r.u8() {
            Ok(PROTOCOL_VERSION) => Preamble::parse_ask(&mut r).map_err(|_| Refusal::NotPotluck),
            Ok(theirs) => Err(Refusal::OtherVersion { theirs }),
            Err(_) => Err(Refusal::NotPotluck),
        }
    }

    fn parse_ask(r: &mut Reader<'_>) -> Result<Preamble, Malformed> {
        match r.u8()? {
            CONTROL if r.array::<10>()? == [0; 10] => Ok(Preamble::Control),
            RELINK if r.array::<10>()? == [0; 10] => Ok(Preamble::Relink),
            OBSERVE if r.array::<10>()? == [0; 10] => Ok(Preamble::Observe),
            purpose @ (DATA | PATH) => {
                let (src, dst) = (Rank::decode(r)?, Rank::decode(r)?);
                let ask = DataAsk { hint: r.array()?, src, dst };
                Ok(if purpose == DATA { Preamble::Data(ask) } else { Preamble::Path(ask) })
            }
            PAIRING => {
                let selector = Selector::of(r.u8()?).ok_or(Malformed::TooLong)?;
                let rest_is_zero = r.array::<9>()? == [0; 9];
                rest_is_zero.then_some(Preamble::Pairing(selector)).ok_or(Malformed::Inconsistent)
            }
            _ => Err(Malformed::UnknownTag),
        }
    }
}

impl Preamble {
    /// Encodes the preamble of a joiner.
    /// ```text
    /// magic(4) version(1) suite+purpose(1) selector(1) zero(9)
    /// ```
    pub fn of_pairing(selector: Selector) -> [u8; Preamble::BYTES] {
        let mut out = [0; Preamble::BYTES];
        out[..4].copy_from_slice(&MAGIC);
        (out[4], out[5], out[6]) = (PROTOCOL_VERSION, PAIRING, selector.number());
        out
    }
}

impl Purpose {
    /// Encodes the preamble for this purpose.
    pub fn preamble(&self) -> [u8; Preamble::BYTES] {
        let mut out = [0; Preamble::BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = PROTOCOL_VERSION;
        match self {
            Purpose::Control => out[5] = CONTROL,
            Purpose::Relink => out[5] = RELINK,
            Purpose::Observe => out[5] = OBSERVE,
            Purpose::Data { view, src, dst } | Purpose::Path { view, src, dst } => {
                let purpose = if matches!(self, Purpose::Data { .. }) { DATA } else { PATH };
                (out[5], out[6], out[7]) = (purpose, src.0, dst.0);
                out[8..].copy_from_slice(&view.hint());
            }
        }
        out
    }

    /// The bytes on which both ends must agree before the first message can be read.
    pub fn prologue(&self) -> Vec<u8> {
        let mut out = self.preamble().to_vec();
        out.extend_from_slice(b"potluck/1");
        if let Purpose::Data { view, src, dst } | Purpose::Path { view, src, dst } = self {
            out.extend_from_slice(&view.0);
            out.extend_from_slice(&[src.0, dst.0]);
        }
        out
    }
}

const MAGIC: [u8; 4] = *b"potl";
/// High 4 bits: the suite of the handshake, 1 for 25519, AES-256-GCM and SHA-256. Low 4 bits: the
/// purpose.
const CONTROL: u8 = 0x10;
const DATA: u8 = 0x11;
const PATH: u8 = 0x12;
const RELINK: u8 = 0x13;
/// No handshake of Noise follows.
const PAIRING: u8 = 0x14;
const OBSERVE: u8 = 0x15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::MEMBERS_MAX;

    fn data() -> Purpose {
        Purpose::Data { view: ViewDigest([0xd1; 32]), src: Rank(2), dst: Rank(5) }
    }

    #[test]
    fn every_purpose_is_read_back() {
        assert_eq!(Preamble::parse(&Purpose::Control.preamble()), Ok(Preamble::Control));
        assert_eq!(Preamble::parse(&Purpose::Relink.preamble()), Ok(Preamble::Relink));
        assert_eq!(Preamble::parse(&Purpose::Observe.preamble()), Ok(Preamble::Observe));
        let ask = DataAsk { hint: [0xd1; 8], src: Rank(2), dst: Rank(5) };
        assert_eq!(Preamble::parse(&data().preamble()), Ok(Preamble::Data(ask)));
        let path = Purpose::Path { view: ViewDigest([0xd1; 32]), src: Rank(2), dst: Rank(5) };
        assert_eq!(Preamble::parse(&path.preamble()), Ok(Preamble::Path(ask)));
        assert_ne!(path.prologue(), data().prologue());
        for selector in [0, 42, 99].map(|number| Selector::of(number).expect("below 100")) {
            let preamble = Preamble::of_pairing(selector);
            assert_eq!(Preamble::parse(&preamble), Ok(Preamble::Pairing(selector)));
            for (at, byte) in [(6, 100), (7, 1), (15, 1)] {
                let mut bytes = preamble;
                bytes[at] = byte;
                assert_eq!(Preamble::parse(&bytes), Err(Refusal::NotPotluck), "byte {at}");
            }
        }
    }

    #[test]
    fn another_version_is_named_and_anything_else_is_not_ours() {
        let mut newer = Purpose::Control.preamble();
        newer[4] = 9;
        assert_eq!(Preamble::parse(&newer), Err(Refusal::OtherVersion { theirs: 9 }));
        assert_eq!(Preamble::parse(b"GET / HTTP/1.1\r\n"), Err(Refusal::NotPotluck));
        for (at, byte) in [(0, b'P'), (5, 0x20), (5, 0x16), (6, 1), (15, 1)] {
            let mut bytes = Purpose::Control.preamble();
            bytes[at] = byte;
            assert_eq!(Preamble::parse(&bytes), Err(Refusal::NotPotluck), "byte {at}");
        }
    }

    #[test]
    fn a_rank_beyond_any_view_is_refused() {
        let mut bytes = data().preamble();
        bytes[7] = MEMBERS_MAX as u8;
        assert_eq!(Preamble::parse(&bytes), Err(Refusal::NotPotluck));
    }

    #[test]
    fn the_prologue_tells_views_apart_that_share_a_hint() {
        let mut other = [0xd1; 32];
        other[31] = 0;
        let other = Purpose::Data { view: ViewDigest(other), src: Rank(2), dst: Rank(5) };
        assert_eq!(other.preamble(), data().preamble());
        assert_ne!(other.prologue(), data().prologue());
    }
}
