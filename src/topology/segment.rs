//! A part of the network that many paths have in common.

use crate::identity::NodeId;
use std::collections::BTreeSet;
use std::num::NonZeroU32;

/// A cable between two switches, a power line, the uplink of an access point, the network card of
/// a host with several members: all paths between its two sides share its capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The nodes at its two ends. A node of neither side does not use the segment.
    pub sides: [BTreeSet<NodeId>; 2],
    /// Its rate from the first side to the second, and back, in kbit/s of payload.
    pub kbps: [NonZeroU32; 2],
    /// It is half duplex: the two directions take turns.
    pub is_half: bool,
}

impl Segment {
    /// The direction in which a path crosses the segment, as an index of [`Segment::kbps`]; `None`
    /// if both ends are on one side, or if the path carries more than the segment: then it has a
    /// cable of its own.
    pub(super) fn crossed_by(
        &self,
        from: NodeId,
        to: NodeId,
        rate_kbps: Option<NonZeroU32>,
    ) -> Option<usize> {
        let [first, second] = &self.sides;
        let direction = match () {
            () if first.contains(&from) && second.contains(&to) => 0,
            () if second.contains(&from) && first.contains(&to) => 1,
            () => return None,
        };
        let fits = |kbps: NonZeroU32| {
            u64::from(kbps.get()) * 4 <= u64::from(self.kbps[direction].get()) * 5
        };
        rate_kbps.is_none_or(fits).then_some(direction)
    }
}
