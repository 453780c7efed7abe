//! Layer: Words.
//!
//! What members tell each other of what their paths carry.

use super::{CodingSpeed, InterfaceKind};
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

/// Which measuring of a path this is. Rank 0 counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Turn {
    /// How often all paths were measured anew in this View.
    pub survey: u32,
    /// How often this one was, within that, because it had changed.
    pub path: u32,
}

/// How a path is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Manner {
    /// While nothing else goes on.
    #[default]
    Alone,
    /// While as much as possible comes back.
    Together,
    /// As alone, though the path is known: it may carry more by now.
    Spare,
    /// In an earlier View: it is told to members that were not there.
    Before,
}

/// What is said of a path. Rank 0 asks; a burst goes over the data link; its receiver tells what
/// came, its sender tells everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateStep {
    /// Rank 0: send a burst to this rank.
    Measure {
        /// To which.
        to: Rank,
        /// Which measuring this is.
        turn: Turn,
        /// How.
        manner: Manner,
    },
    /// The receiver of the burst has seen enough.
    Enough,
    /// All of it has come: what the path carries, in kbit/s of payload; 0 when too little came to
    /// tell.
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
        turn: Turn,
        /// How fast the sender encodes and decodes.
        coding: CodingSpeed,
        /// As in the request. Together it is told to rank 0 alone.
        manner: Manner,
    },
    /// To whoever offers another path for the data of these two: bursts over it are received.
    Ready,
    /// To rank 0: the path from the sender to `to` is not what it was, or there are others to be
    /// tried; measure it.
    Wish {
        /// Where it leads.
        to: Rank,
    },
    /// Rank 0: this port shares a medium, which carries one frame at a time.
    Shared {
        /// Whose port.
        rank: Rank,
        /// What its system calls it.
        number: u32,
        /// Which medium.
        cell: u32,
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

impl Encode for Turn {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.survey.to_le_bytes());
        out.extend_from_slice(&self.path.to_le_bytes());
    }
}

impl Decode for Turn {
    fn decode(r: &mut Reader<'_>) -> Result<Turn, Malformed> {
        Ok(Turn { survey: r.u32()?, path: r.u32()? })
    }
}

impl Encode for Manner {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Manner::Alone => 0,
            Manner::Together => 1,
            Manner::Spare => 2,
            Manner::Before => 3,
        });
    }
}

impl Decode for Manner {
    fn decode(r: &mut Reader<'_>) -> Result<Manner, Malformed> {
        match r.u8()? {
            0 => Ok(Manner::Alone),
            1 => Ok(Manner::Together),
            2 => Ok(Manner::Spare),
            3 => Ok(Manner::Before),
            _ => Err(Malformed::UnknownTag),
        }
    }
}

impl Encode for RateMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        self.view.encode(out);
        match self.body {
            RateStep::Measure { to, turn, manner } => {
                out.push(1);
                to.encode(out);
                turn.encode(out);
                manner.encode(out);
            }
            RateStep::Enough => out.push(2),
            RateStep::Timed(kbps) => {
                out.push(3);
                out.extend_from_slice(&kbps.to_le_bytes());
            }
            RateStep::Rated { to, kind, number, kbps, turn, coding, manner } => {
                out.push(4);
                to.encode(out);
                out.push(
                    KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len() - 1) as u8
                );
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&kbps.to_le_bytes());
                turn.encode(out);
                coding.encode(out);
                manner.encode(out);
            }
            RateStep::Ready => out.push(5),
            RateStep::Wish { to } => {
                out.push(6);
                to.encode(out);
            }
            RateStep::Shared { rank, number, cell } => {
                out.push(7);
                rank.encode(out);
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&cell.to_le_bytes());
            }
        }
    }
}

impl Decode for RateMessage {
    fn decode(r: &mut Reader<'_>) -> Result<RateMessage, Malformed> {
        let view = ViewDigest::decode(r)?;
        let body = match r.u8()? {
            1 => RateStep::Measure {
                to: Rank::decode(r)?,
                turn: Turn::decode(r)?,
                manner: Manner::decode(r)?,
            },
            2 => RateStep::Enough,
            3 => RateStep::Timed(r.u32()?),
            4 => {
                let (to, kind) = (
                    Rank::decode(r)?,
                    KINDS.get(usize::from(r.u8()?)).copied().ok_or(Malformed::UnknownTag)?,
                );
                let (number, kbps, turn, coding) =
                    (r.u32()?, r.u32()?, Turn::decode(r)?, CodingSpeed::decode(r)?);
                RateStep::Rated { to, kind, number, kbps, turn, coding, manner: Manner::decode(r)? }
            }
            5 => RateStep::Ready,
            6 => RateStep::Wish { to: Rank::decode(r)? },
            7 => RateStep::Shared { rank: Rank::decode(r)?, number: r.u32()?, cell: r.u32()? },
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
        let (turn, coding, manner) =
            (Turn { survey: 3, path: 4 }, CodingSpeed::new(|_| 5000), Manner::Together);
        let rated = |kind| RateStep::Rated {
            to: Rank(3),
            kind,
            number: 7,
            kbps: u32::MAX,
            turn,
            coding,
            manner,
        };
        let plain = [
            RateStep::Measure {
                to: Rank(2),
                turn: Turn { survey: 1, path: 0 },
                manner: Manner::Alone,
            },
            RateStep::Enough,
            RateStep::Timed(0),
            RateStep::Ready,
            RateStep::Wish { to: Rank(15) },
            RateStep::Shared { rank: Rank(15), number: 2, cell: 9 },
        ];
        for body in plain.into_iter().chain(KINDS.map(rated)) {
            assert_codec(&RateMessage { view: ViewDigest([3; 32]), body });
        }
    }
}
