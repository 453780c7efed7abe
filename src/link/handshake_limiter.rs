//! Admission control before the handshake: bounds on the resources that strangers can make this
//! node spend.
//!
//! The limiter decides nothing about trust; the handshake does. A source that authenticated within
//! the last hour has reserved slots, a higher rate of its own, and skips the common rate, so a
//! flood of strangers does not keep members out. Loopback sources skip the common rate, too.

use super::token_bucket::{Rate, TokenBucket};
use derive_more::Display;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

/// Counts the connections between accept and the end of their handshakes.
#[derive(Debug)]
pub struct HandshakeLimiter {
    sources: BTreeMap<Source, Record>,
    everybody: TokenBucket,
    pub(crate) open: [usize; 2],
}

/// One admitted handshake. Give it back with [`HandshakeLimiter::release`] when the handshake has
/// ended, successful or not.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    source: Source,
    slot: HandshakeSlot,
}

/// The reason to close a connection without reading from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Overload {
    /// This source connects too often.
    #[display("this address connects too often")]
    SourceRate,
    /// All sources together connect too often.
    #[display("too many connections in a short time")]
    Rate,
    /// This source has too many unfinished handshakes.
    #[display("this address has too many unfinished handshakes")]
    SourceHalfOpen,
    /// There are too many unfinished handshakes.
    #[display("too many unfinished handshakes")]
    HalfOpen,
}

/// Detects replayed first messages of the handshake.
#[derive(Debug, Default)]
pub struct Replays {
    known: BTreeSet<[u8; 32]>,
    order: VecDeque<[u8; 32]>,
}

impl HandshakeLimiter {
    /// Unfinished handshakes of all sources together; each costs a task and about 4 KiB.
    pub const HALF_OPEN_MAX: usize = 64;
    /// Additional unfinished handshakes, reserved for sources that authenticated within
    /// [`HandshakeLimiter::AUTHENTICATED_MS`].
    pub const RESERVED_MAX: usize = 32;
    /// Unfinished handshakes per source: a home host runs one node, perhaps two.
    pub const SOURCE_HALF_OPEN_MAX: usize = 4;
    /// The same for privileged sources, which may hold many data links to make at once, and for the
    /// loopback addresses, which many nodes share in demos and tests.
    pub const TRUSTED_HALF_OPEN_MAX: usize = 32;
    /// Remembered sources, about 100 bytes each.
    pub const SOURCES_MAX: usize = 1024;
    /// How long an authenticated source stays privileged, in milliseconds.
    pub const AUTHENTICATED_MS: u64 = 3_600_000;

    /// A limiter without any connections.
    pub fn new() -> HandshakeLimiter {
        HandshakeLimiter {
            sources: BTreeMap::new(),
            everybody: TokenBucket::full(EVERYBODY, 0),
            open: [0; 2],
        }
    }

    /// Decides whether a connection from `ip` may start its handshake. On an error, close it
    /// without reading.
    pub fn admit(&mut self, now_ms: u64, ip: IpAddr) -> Result<Ticket, Overload> {
        let source = Source::of(ip);
        let known = match self.sources.get_mut(&source) {
            Some(record) => record.may_come_again(now_ms, source)?,
            None => false,
        };
        // The common rate comes after the source's own rate, so that one source cannot use up the
        // common one; and before the source gets a record, so that strangers above the common rate
        // do not push other sources out of the table.
        if !known && !source.is_loopback() && !self.everybody.take(now_ms, 1) {
            return Err(Overload::Rate);
        }
        let slot = self.free_slot(known).ok_or(Overload::HalfOpen)?;
        self.open[slot as usize] += 1;
        self.record(now_ms, source).half_open += 1;
        Ok(Ticket { source, slot })
    }

    /// Ends a handshake that was admitted.
    #[allow(clippy::needless_pass_by_value)] // a ticket is good for one release
    pub fn release(&mut self, ticket: Ticket) {
        let Ticket { source, slot } = ticket;
        self.open[slot as usize] = self.open[slot as usize].saturating_sub(1);
        if let Some(record) = self.sources.get_mut(&source) {
            record.half_open = record.half_open.saturating_sub(1);
        }
    }

    /// Records that a peer from `ip` has authenticated.
    pub fn authenticated(&mut self, now_ms: u64, ip: IpAddr) {
        let record = self.record(now_ms, Source::of(ip));
        record.seen_ms = now_ms;
        record.authenticated_ms = Some(now_ms);
        record.bucket.set_rate(TRUSTED);
    }

    fn free_slot(&self, known: bool) -> Option<HandshakeSlot> {
        if self.open[HandshakeSlot::General as usize] < HandshakeLimiter::HALF_OPEN_MAX {
            Some(HandshakeSlot::General)
        } else if known
            && self.open[HandshakeSlot::Reserved as usize] < HandshakeLimiter::RESERVED_MAX
        {
            Some(HandshakeSlot::Reserved)
        } else {
            None
        }
    }

    fn record(&mut self, now_ms: u64, source: Source) -> &mut Record {
        if !self.sources.contains_key(&source)
            && self.sources.len() >= HandshakeLimiter::SOURCES_MAX
        {
            self.forget_one(now_ms);
        }
        self.sources.entry(source).or_insert_with(|| Record::new(now_ms, source))
    }

    /// Forgets the source seen longest ago without open handshakes, unprivileged ones first. At
    /// most 96 sources have open handshakes, so there is always one.
    fn forget_one(&mut self, now_ms: u64) {
        let idle = self.sources.iter().filter(|(_, record)| record.half_open == 0);
        let oldest = idle.min_by_key(|(_, record)| (record.is_privileged(now_ms), record.seen_ms));
        if let Some(source) = oldest.map(|(source, _)| *source) {
            self.sources.remove(&source);
        }
    }
}

impl Default for HandshakeLimiter {
    fn default() -> HandshakeLimiter {
        HandshakeLimiter::new()
    }
}

impl Replays {
    /// Remembered first messages: more than a minute's worth at the limiter's common rate.
    pub const KNOWN_MAX: usize = 4096;

    /// Remembers the initiator's ephemeral key of a first message; returns `false` if it was known
    /// already.
    ///
    /// Call it only for messages that prove the cluster key, so that strangers cannot flush the
    /// memory.
    pub fn is_first(&mut self, ephemeral: [u8; 32]) -> bool {
        if !self.known.insert(ephemeral) {
            return false;
        }
        self.order.push_back(ephemeral);
        if self.order.len() > Replays::KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

/// An address. All loopback addresses are one source.
///
/// A host can choose many IPv6 addresses within its prefix, and as many IPv4 addresses of its
/// network. The common bounds hold for all of them together. A bound for a prefix would let one
/// host keep out all its neighbours, because a home network is one prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    V4([u8; 4]),
    V6([u8; 16]),
    Loopback,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeSlot {
    General = 0,
    Reserved = 1,
}

#[derive(Debug)]
struct Record {
    bucket: TokenBucket,
    half_open: usize,
    seen_ms: u64,
    authenticated_ms: Option<u64>,
}

const SOURCE: Rate = Rate { per_second: 5, burst: 10 };
/// Of privileged sources and loopback.
const TRUSTED: Rate = Rate { per_second: 50, burst: 100 };
const EVERYBODY: Rate = Rate { per_second: 50, burst: 50 };

impl Source {
    fn of(ip: IpAddr) -> Source {
        match ip.to_canonical() {
            ip if ip.is_loopback() => Source::Loopback,
            IpAddr::V4(v4) => Source::V4(v4.octets()),
            IpAddr::V6(v6) => Source::V6(v6.octets()),
        }
    }

    fn is_loopback(self) -> bool {
        self == Source::Loopback
    }
}

impl Record {
    fn new(now_ms: u64, source: Source) -> Record {
        let rate = if source.is_loopback() { TRUSTED } else { SOURCE };
        let mut bucket = TokenBucket::full(rate, now_ms);
        bucket.take(now_ms, 1);
        Record { bucket, half_open: 0, seen_ms: now_ms, authenticated_ms: None }
    }

    /// Checks the source's own bounds; returns whether the source is privileged.
    fn may_come_again(&mut self, now_ms: u64, source: Source) -> Result<bool, Overload> {
        self.seen_ms = now_ms;
        let is_privileged = self.is_privileged(now_ms);
        let is_trusted = is_privileged || source.is_loopback();
        if !is_trusted {
            self.bucket.set_rate(SOURCE);
        }
        if !self.bucket.take(now_ms, 1) {
            return Err(Overload::SourceRate);
        }
        let half_open_max = if is_trusted {
            HandshakeLimiter::TRUSTED_HALF_OPEN_MAX
        } else {
            HandshakeLimiter::SOURCE_HALF_OPEN_MAX
        };
        if self.half_open >= half_open_max {
            return Err(Overload::SourceHalfOpen);
        }
        Ok(is_privileged)
    }

    fn is_privileged(&self, now_ms: u64) -> bool {
        self.authenticated_ms
            .is_some_and(|at| now_ms.saturating_sub(at) < HandshakeLimiter::AUTHENTICATED_MS)
    }
}

#[cfg(test)]
mod tests;
