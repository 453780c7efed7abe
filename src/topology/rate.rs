//! Layer: Words.
//!
//! What members tell each other of what their paths carry.

use super::InterfaceKind;
use crate::view::{Rank, ViewDigest};
use crate::wire::{Decode, Encode, Malformed, Reader};

/// A message about rates, on the control link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateMessage {
    /// The View whose ranks it speaks of; messages of another View are dropped.
    pub view: ViewDigest,
    /// What is said.
    pub body: RateStep,
}

/// What is said of a path. Rank 0 asks; a burst goes over the data link; its receiver tells what came, its sender tells everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateStep {
    /// Rank 0: send a burst to this rank.
    Measure {
        /// To which.
        to: Rank,
        /// How often all paths were measured anew in this View.
        survey: u32,
    },
    /// The receiver of the burst has seen enough.
    Enough,
    /// All of it has come: what the path carries, in kbit/s of payload; 0 when too little came to tell.
    Timed(u32),
    /// What the path from the sender to `to` carries.
    Rated {
        /// Where it leads.
        to: Rank,
        /// What the sender's port is made of.
        kind: InterfaceKind,
        /// What the sender's system calls the port.
        number: u32,
        /// In kbit/s of payload; 0 when it could not be measured.
        kbps: u32,
        /// As in the request.
        survey: u32,
    },
}

/// By the byte that stands for them.
const KINDS: [InterfaceKind; 8] = [
    InterfaceKind::Ethernet,
    InterfaceKind::Wifi,
    InterfaceKind::Thunderbolt,
    InterfaceKind::Bridge,
    InterfaceKind::Vpn,
    InterfaceKind::Container,
    InterfaceKind::Loopback,
    InterfaceKind::Other,
];

impl Encode for RateMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        self.view.encode(out);
        match self.body {
            RateStep::Measure { to, survey } => {
                out.push(1);
                to.encode(out);
                out.extend_from_slice(&survey.to_le_bytes());
            }
            RateStep::Enough => out.push(2),
            RateStep::Timed(kbps) => {
                out.push(3);
                out.extend_from_slice(&kbps.to_le_bytes());
            }
            RateStep::Rated { to, kind, number, kbps, survey } => {
                out.push(4);
                to.encode(out);
                out.push(KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len() - 1) as u8);
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&kbps.to_le_bytes());
                out.extend_from_slice(&survey.to_le_bytes());
            }
        }
    }
}

impl Decode for RateMessage {
    fn decode(r: &mut Reader<'_>) -> Result<RateMessage, Malformed> {
        let view = ViewDigest::decode(r)?;
        let body = match r.u8()? {
            1 => RateStep::Measure { to: Rank::decode(r)?, survey: r.u32()? },
            2 => RateStep::Enough,
            3 => RateStep::Timed(r.u32()?),
            4 => {
                let (to, kind) = (Rank::decode(r)?, KINDS.get(usize::from(r.u8()?)).copied().ok_or(Malformed::UnknownTag)?);
                RateStep::Rated { to, kind, number: r.u32()?, kbps: r.u32()?, survey: r.u32()? }
            }
            _ => return Err(Malformed::UnknownTag),
        };
        Ok(RateMessage { view, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::assert_codec;

    #[test]
    fn every_step_survives_the_wire() {
        let rated = |kind| RateStep::Rated { to: Rank(3), kind, number: 7, kbps: u32::MAX, survey: 3 };
        for body in [RateStep::Measure { to: Rank(2), survey: 1 }, RateStep::Enough, RateStep::Timed(0)]
            .into_iter()
            .chain(KINDS.map(rated))
        {
            assert_codec(&RateMessage { view: ViewDigest([3; 32]), body });
        }
    }
}
