//! The numbers of an operation's chunks, across all flows, and of those that this rank keeps.

use super::super::schedule::{FlowRole, Schedule};
use crate::link::DataHeader;

/// Chunks are numbered across flows. Example: flow 0 has 3 chunks, flow 1 has 2, and this rank
/// keeps only flow 1:
///
/// ```text
/// flow, chunk          0,0  0,1  0,2  1,0  1,1
/// number of the chunk    0    1    2    3    4     firsts = [0, 3, 5]
/// part of the result     -    -    -    0    1     first_parts = [0, 0, 2]
/// ```
pub struct ChunkNumbers {
    /// The number of each flow's first chunk, plus the total at the end.
    firsts: Vec<usize>,
    /// The first part of each flow in the result, plus the total at the end.
    first_parts: Vec<usize>,
}

/// The position of a chunk.
#[derive(Clone, Copy)]
pub struct ChunkAt {
    pub flow: usize,
    pub chunk: usize,
    pub number: usize,
}

impl ChunkNumbers {
    /// The numbers of the chunks of a schedule, in which this rank has these roles.
    pub fn new(schedule: &Schedule, roles: &[FlowRole]) -> ChunkNumbers {
        let (mut firsts, mut first_parts) = (vec![0], vec![0]);
        for (flow, role) in roles.iter().enumerate() {
            let chunks = schedule.chunks(flow);
            firsts.push(firsts[flow] + chunks);
            first_parts.push(first_parts[flow] + if role.keeps { chunks } else { 0 });
        }
        ChunkNumbers { firsts, first_parts }
    }

    /// The number of all chunks.
    pub fn count(&self) -> usize {
        self.firsts.last().copied().unwrap_or(0)
    }

    /// A chunk of the schedule.
    pub fn at(&self, flow: usize, chunk: usize) -> ChunkAt {
        ChunkAt { flow, chunk, number: self.firsts[flow] + chunk }
    }

    /// The chunk that a header names; `None` if the schedule has no such chunk.
    pub fn find(&self, header: &DataHeader) -> Option<ChunkAt> {
        let (flow, chunk) = (header.flow as usize, header.chunk as usize);
        let (first, end) = (*self.firsts.get(flow)?, *self.firsts.get(flow + 1)?);
        (chunk < end - first).then(|| self.at(flow, chunk))
    }

    /// The part of the result that a chunk of a kept flow is.
    pub fn part_of(&self, at: ChunkAt) -> usize {
        self.first_parts[at.flow] + at.chunk
    }
}
