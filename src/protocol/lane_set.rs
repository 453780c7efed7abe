//! A bounded set of lanes.

use super::op_id::Lane;
use crate::wire::layout::List;
use crate::wire::{Decode, Encode, Malformed, Reader};
use std::collections::BTreeSet;

/// Lanes of callers. Of more than [`LANES_MAX`](LaneSet::LANES_MAX) it only knows that there are
/// more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LaneSet {
    lanes: BTreeSet<Lane>,
    has_more: bool,
}

impl LaneSet {
    /// Most lanes that are known by name.
    pub const LANES_MAX: usize = 32;

    /// Adds the caller's lane of `lane`.
    pub fn insert(&mut self, lane: Lane) {
        if self.lanes.len() < LaneSet::LANES_MAX {
            self.lanes.insert(lane.caller());
        } else {
            self.has_more |= !self.lanes.contains(&lane.caller());
        }
    }

    /// Adds all lanes of another set.
    pub fn extend(&mut self, other: &LaneSet) {
        other.lanes.iter().for_each(|lane| self.insert(*lane));
        self.has_more |= other.has_more;
    }

    /// The number of lanes that it knows.
    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Whether all its lanes are known, and in the other set.
    pub fn is_within(&self, other: &LaneSet) -> bool {
        !self.has_more && self.lanes.is_subset(&other.lanes)
    }
}

/// By hand: a set here, a list on the wire.
impl Encode for LaneSet {
    fn encode(&self, out: &mut Vec<u8>) {
        let lanes: Vec<Lane> = self.lanes.iter().copied().collect();
        List(LaneSet::LANES_MAX).put(&lanes, out);
        self.has_more.encode(out);
    }
}

impl Decode for LaneSet {
    fn decode(r: &mut Reader<'_>) -> Result<LaneSet, Malformed> {
        let list: Vec<Lane> = List(LaneSet::LANES_MAX).read(r)?;
        let has_more = bool::decode(r)?;
        let is_plain = |lane: &Lane| lane.caller() == *lane;
        if !list.is_sorted_by(|a, b| a < b) || !list.iter().all(is_plain) {
            return Err(Malformed::Inconsistent);
        }
        Ok(LaneSet { lanes: list.into_iter().collect(), has_more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::assert_codec;

    fn of(tags: std::ops::Range<u32>) -> LaneSet {
        let mut set = LaneSet::default();
        tags.for_each(|tag| set.insert(Lane::tagged(tag)));
        set
    }

    #[test]
    fn more_lanes_than_are_known_are_within_no_set() {
        let most = LaneSet::LANES_MAX as u32;
        assert!(of(0..most).is_within(&of(0..most)) && of(1..2).is_within(&of(0..most)));
        assert!(!of(0..2).is_within(&of(1..most)));
        assert!(!of(0..most + 1).is_within(&of(0..most + 1)));
        let mut both = of(0..2);
        both.extend(&of(1..4));
        assert_eq!(both, of(0..4));
        both.extend(&of(0..most + 1));
        assert!(!both.is_within(&both.clone()));
    }

    #[test]
    fn the_wire_has_one_form_of_it() {
        assert_codec(&of(0..0));
        assert_codec(&of(3..7));
        assert_codec(&of(0..50));
        let twice = [2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(LaneSet::from_bytes(&twice).is_err());
    }
}
