//! The paths between machines that a node knows from one run to the next.

use super::segment::Segment;
use crate::identity::NodeId;
use crate::os::InterfaceKind;
use crate::protocol::{CodingSpeed, MEMBERS_MAX};
use crate::wire::layout::{List, layout};
use crate::wire::{Decode, Encode, Malformed, Reader};
use std::collections::BTreeSet;
use std::num::NonZeroU32;

/// The measured paths between machines, and the segments that they share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownPaths {
    pub(super) paths: Vec<KnownPath>,
    pub(super) segments: Vec<Segment>,
    /// The nodes between which all segments are known.
    pub(super) searched: BTreeSet<NodeId>,
    /// How fast machines encode and decode.
    pub(super) coding: Vec<KnownCoding>,
}

/// How fast a machine encodes and decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownCoding {
    pub(super) node: NodeId,
    pub(super) speed: CodingSpeed,
}

/// A measured path from one machine to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownPath {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    /// The kind of the sender's port.
    pub(super) kind: InterfaceKind,
    /// The number of the port in the sender's operating system.
    pub(super) number: u32,
    /// The number of the half-duplex medium that the port shares.
    pub(super) cell: Option<u32>,
    /// Round-trip time in microseconds.
    pub(super) rtt_us: u32,
    /// The rate in kbit/s of payload.
    pub(super) rate_kbps: NonZeroU32,
}

impl KnownPaths {
    /// Most paths: those of two Views without a common member.
    pub const PATHS_MAX: usize = 2 * MEMBERS_MAX * (MEMBERS_MAX - 1);
    /// Most segments: those of a View with two members on each switch.
    pub const SEGMENTS_MAX: usize = MEMBERS_MAX;
    /// Most machines: those of two Views without a common member.
    pub const NODES_MAX: usize = 2 * MEMBERS_MAX;
}

layout! { KnownPath { from, to, kind, number, cell: Medium, rtt_us, rate_kbps: Rate } }
layout! { KnownCoding { node, speed } }
layout! { Segment { sides: Sides, kbps: Rates, [is_half] } }
layout! {
    KnownPaths {
        paths: List(KnownPaths::PATHS_MAX),
        segments: List(KnownPaths::SEGMENTS_MAX),
        searched: Nodes,
        coding: List(KnownPaths::NODES_MAX),
    }
}

/// A medium that may be none.
struct Medium;

impl Medium {
    fn put(&self, cell: &Option<u32>, out: &mut Vec<u8>) {
        cell.is_some().encode(out);
        cell.unwrap_or(0).encode(out);
    }

    fn read(&self, r: &mut Reader<'_>) -> Result<Option<u32>, Malformed> {
        let (is_some, cell) = (bool::decode(r)?, r.u32()?);
        match (is_some, cell) {
            (false, 1..) => Err(Malformed::Inconsistent),
            _ => Ok(is_some.then_some(cell)),
        }
    }
}

/// A rate, which is never 0.
struct Rate;

impl Rate {
    fn put(&self, kbps: &NonZeroU32, out: &mut Vec<u8>) {
        kbps.get().encode(out);
    }

    fn read(&self, r: &mut Reader<'_>) -> Result<NonZeroU32, Malformed> {
        NonZeroU32::new(r.u32()?).ok_or(Malformed::Inconsistent)
    }
}

/// The rates of the two directions.
struct Rates;

impl Rates {
    fn put(&self, kbps: &[NonZeroU32; 2], out: &mut Vec<u8>) {
        kbps.iter().for_each(|kbps| Rate.put(kbps, out));
    }

    fn read(&self, r: &mut Reader<'_>) -> Result<[NonZeroU32; 2], Malformed> {
        Ok([Rate.read(r)?, Rate.read(r)?])
    }
}

/// A set of members of a View, ascending.
struct Nodes;

impl Nodes {
    fn put(&self, nodes: &BTreeSet<NodeId>, out: &mut Vec<u8>) {
        let nodes: Vec<NodeId> = nodes.iter().copied().take(MEMBERS_MAX).collect();
        List(MEMBERS_MAX).put(&nodes, out);
    }

    fn read(&self, r: &mut Reader<'_>) -> Result<BTreeSet<NodeId>, Malformed> {
        let nodes: Vec<NodeId> = List(MEMBERS_MAX).read(r)?;
        if nodes.is_sorted_by(|a, b| a < b) {
            Ok(nodes.into_iter().collect())
        } else {
            Err(Malformed::Inconsistent)
        }
    }
}

/// The two sides of a segment.
struct Sides;

impl Sides {
    fn put(&self, sides: &[BTreeSet<NodeId>; 2], out: &mut Vec<u8>) {
        sides.iter().for_each(|side| Nodes.put(side, out));
    }

    fn read(&self, r: &mut Reader<'_>) -> Result<[BTreeSet<NodeId>; 2], Malformed> {
        Ok([Nodes.read(r)?, Nodes.read(r)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::assert_codec;

    fn path(from: u8, to: u8, cell: Option<u32>) -> KnownPath {
        let rate_kbps = NonZeroU32::new(940_000).expect("not zero");
        let (from, to) = (NodeId([from; 32]), NodeId([to; 32]));
        KnownPath { from, to, kind: InterfaceKind::Wifi, number: 7, cell, rtt_us: 250, rate_kbps }
    }

    fn segment(near: &[u8], far: &[u8]) -> Segment {
        let nodes = |numbers: &[u8]| numbers.iter().map(|n| NodeId([*n; 32])).collect();
        let kbps = [19_000, 20_000].map(|kbps| NonZeroU32::new(kbps).expect("not zero"));
        Segment { sides: [nodes(near), nodes(far)], kbps, is_half: true }
    }

    #[test]
    fn what_is_known_survives_its_file() {
        let searched = [1, 2, 3].map(|n| NodeId([n; 32])).into();
        let paths = vec![path(1, 2, Some(0)), path(2, 1, None)];
        let coding = vec![KnownCoding { node: NodeId([1; 32]), speed: CodingSpeed::new(|_| 5000) }];
        let known = KnownPaths { paths, segments: vec![segment(&[1, 2], &[3])], searched, coding };
        assert_codec(&known);
        assert_codec(&KnownPaths::default());
    }

    #[test]
    fn the_most_that_is_known_fits_into_its_file() {
        let all: Vec<u8> = (0..MEMBERS_MAX as u8).collect();
        let coding = KnownCoding { node: NodeId([1; 32]), speed: CodingSpeed::default() };
        let known = KnownPaths {
            paths: vec![path(1, 2, Some(0)); KnownPaths::PATHS_MAX],
            segments: vec![segment(&all, &all); KnownPaths::SEGMENTS_MAX],
            searched: all.iter().map(|n| NodeId([*n; 32])).collect(),
            coding: vec![coding; KnownPaths::NODES_MAX],
        };
        assert!(known.to_bytes().len() <= crate::identity::STATE_BYTES_MAX);
    }
}
