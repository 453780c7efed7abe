//! The messages that members exchange about the rates of their paths.

use super::coding_speed::CodingSpeed;
use super::rank::Rank;
use super::rank_set::RankSet;
use super::view_id::ViewDigest;
use crate::os::InterfaceKind;
use crate::wire::layout::layout;

/// A message about rates on a control link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateMessage {
    /// The View that the ranks refer to; messages of another View are dropped.
    pub view: ViewDigest,
    /// The content.
    pub body: RateStep,
}

layout!(RateMessage { view, body });

/// The number of a measurement of a path. Rank 0 does the counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Turn {
    /// How many times all paths of this View were measured again.
    pub survey: u32,
    /// How many times this path was measured again within that survey because it had changed.
    pub path: u32,
}

layout!(Turn { survey, path });

/// The kind of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Manner {
    /// A burst in one direction while nothing else is under way.
    #[default]
    Alone,
    /// At the same time as others: in the other direction, or over other paths.
    Together,
    /// As `Alone`, over a path that is known: it may have become faster.
    Spare,
    /// Measured in an earlier View, and reported to members that were not in it.
    Before,
}

layout!(tags Manner { 0 => Alone, 1 => Together, 2 => Spare, 3 => Before });

/// The steps of measuring a path. Rank 0 sends `Measure` to the sender of the path. The sender
/// sends a burst over the data link. The receiver answers `Enough` during the burst and `Timed`
/// after it. The sender reports `Rated` to all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateStep {
    /// From rank 0: send a burst to rank `to`.
    Measure {
        /// The receiver of the burst.
        to: Rank,
        /// The number of this measurement.
        turn: Turn,
        /// The kind of this measurement.
        manner: Manner,
    },
    /// From the receiver of a burst to its sender: the rate is known, stop.
    Enough,
    /// From the receiver of a burst to its sender: the burst has ended. The rate of the path in
    /// kbit/s of payload; 0 if too little has arrived to tell.
    Timed(u32),
    /// From the sender of a burst to all members: the rate of the path from it to rank `to`.
    Rated {
        /// The receiver of the path.
        to: Rank,
        /// The kind of the sender's port.
        kind: InterfaceKind,
        /// The number of the port in the sender's operating system.
        number: u32,
        /// The rate in kbit/s of payload; 0 if it could not be measured.
        kbps: u32,
        /// Copied from the request.
        turn: Turn,
        /// The coding speed of the sender.
        coding: CodingSpeed,
        /// Copied from the request. A `Together` rate is sent to rank 0 only.
        manner: Manner,
    },
    /// To the peer that offers another path for the data link of the two: this end is ready to
    /// receive bursts over it.
    Ready,
    /// To rank 0: measure the path from the sender of this message to rank `to`. It has changed, or
    /// there are other paths to try.
    Wish {
        /// The receiver of the path.
        to: Rank,
    },
    /// From rank 0: this port shares a half-duplex medium.
    Shared {
        /// The member of the port.
        rank: Rank,
        /// The number of the port in its operating system.
        number: u32,
        /// The number of the medium.
        cell: u32,
    },
    /// From rank 0: the segments between the members are known. Those that follow replace earlier
    /// ones.
    Searched,
    /// From rank 0: the paths between two sides share a part of the network.
    Segment {
        /// The members at one end.
        near: RankSet,
        /// The members at the other end.
        far: RankSet,
        /// Its rate from the first side to the second, in kbit/s of payload.
        there_kbps: u32,
        /// Its rate from the second side to the first.
        back_kbps: u32,
        /// It is half duplex.
        is_half: bool,
    },
}

layout! {
    enum RateStep {
        1 => Measure { to, turn, manner },
        2 => Enough,
        3 => Timed(kbps),
        4 => Rated { to, kind, number, kbps, turn, coding, manner },
        5 => Ready,
        6 => Wish { to },
        7 => Shared { rank, number, cell },
        8 => Searched,
        9 => Segment { near, far, there_kbps, back_kbps, is_half },
    }
}

layout! {
    tags InterfaceKind {
        0 => Ethernet, 1 => Wifi, 2 => Thunderbolt, 3 => Bridge,
        4 => Vpn, 5 => Container, 6 => Loopback, 7 => Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::assert_codec;

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
            RateStep::Searched,
            RateStep::Segment {
                near: RankSet::of_bits(0x8001),
                far: RankSet::of_bits(6),
                there_kbps: 1,
                back_kbps: u32::MAX,
                is_half: true,
            },
        ];
        for body in plain.into_iter().chain(KINDS.map(rated)) {
            assert_codec(&RateMessage { view: ViewDigest([3; 32]), body });
        }
    }
}
