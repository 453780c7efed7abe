//! Endpoints of all ranks in one process, and regions with memory for their messages.

use super::super::endpoint::Endpoint;
use super::super::region::Region;
use crate::collective::Threads;
use crate::gloo_ffi::p2p::register::Owned;
use crate::gloo_ffi::p2p::registered::Landed;
use crate::link::{Ends, memory, sealed_tcp, tcp};
use crate::memory::Pool;
use crate::protocol::{EngineFault, Lane, OpId, Rank};
use std::sync::Arc;
use std::time::Duration;

/// The longest wait for anything; only a failing test reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const A: Rank = Rank(0);
pub const B: Rank = Rank(1);
pub const C: Rank = Rank(2);

/// Creates a link.
pub type Link = fn() -> Ends;

/// The kinds of links, with their names.
pub const LINKS: [(&str, Link); 3] = [("memory", memory), ("tcp", tcp), ("sealed tcp", sealed_tcp)];

/// The ranks of a View, all pairs connected.
pub struct Group {
    pub ends: Vec<Endpoint>,
    pub pools: Vec<Pool>,
    pub threads: Arc<Threads>,
}

impl Group {
    pub fn new(size: usize, link: Link) -> Group {
        let group = Group::apart(size);
        for a in 0..size {
            for b in a + 1..size {
                group.connect(a, b, link());
            }
        }
        group
    }

    /// A group without links.
    pub fn apart(size: usize) -> Group {
        let threads = Arc::new(Threads::default());
        let pools: Vec<Pool> = std::iter::repeat_with(Pool::new).take(size).collect();
        let end = |(rank, pool): (usize, &Pool)| {
            Endpoint::new(Rank(rank as u8), size, pool.clone(), Arc::clone(&threads))
        };
        Group { ends: pools.iter().enumerate().map(end).collect(), pools, threads }
    }

    pub fn connect(&self, a: usize, b: usize, (left, right): Ends) {
        self.ends[a].attach(Rank(b as u8), left);
        self.ends[b].attach(Rank(a as u8), right);
    }

    pub fn begin(&self, op: OpId) {
        self.ends.iter().for_each(|end| end.begin(op));
    }

    /// Closes all endpoints; checks that all threads end and that none panicked.
    pub fn end(self) {
        self.ends.iter().for_each(Endpoint::close);
        assert_eq!(self.threads.wait(PATIENCE), 0, "threads that do not end");
        assert_eq!(self.threads.panics(), 0, "threads that panicked");
    }
}

/// A region with its memory, whose waits use `PATIENCE`.
pub struct Buffer {
    owned: Owned,
}

impl Buffer {
    pub fn new(end: &Endpoint, op: OpId, bytes: Vec<u8>) -> Buffer {
        Buffer { owned: Owned::new(end, op, bytes, None) }
    }

    pub fn hearing(end: &Endpoint, op: OpId, bytes: Vec<u8>, landed: Landed) -> Buffer {
        Buffer { owned: Owned::new(end, op, bytes, Some(landed)) }
    }

    pub fn region(&self) -> &Region {
        self.owned.region()
    }

    pub fn take(self) -> Vec<u8> {
        self.owned.take()
    }

    pub fn sent(&self) -> Result<Option<Rank>, EngineFault> {
        self.region().wait_send(PATIENCE)
    }

    pub fn received(&self) -> Result<Option<Rank>, EngineFault> {
        self.region().wait_recv(PATIENCE)
    }
}

pub fn op(number: u64) -> OpId {
    OpId { lane: Lane::MAIN, number }
}

/// Bytes that differ by position and by `salt`, cheap to make.
pub fn marked(len: usize, salt: u64) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64)
        .map(|i| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(salt << 7));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}
