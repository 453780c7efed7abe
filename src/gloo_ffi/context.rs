//! Layer: Shells.
//!
//! A Gloo context, safe to use: each collective borrows the memory it works on, and nothing refers
//! to it afterwards.

#![allow(unsafe_code, reason = "Gloo takes pointers")]

use super::bridge::ffi;
use super::exception::Exception;
use super::folding::{Fold, Last};
use super::noticeboard::Noticeboard;
use super::overlay::Overlay;
use super::task::{Algorithm, Reduction};
use super::wire::{Output, PATIENCE, Wire, during};
use crate::collective::p2p::{Endpoint, Landed};
use crate::collective::{Board, EngineFault};
use crate::view::{OpId, Rank};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Which Gloo this was built against, for people: "Gloo 0.5.0 (2022 interface)".
pub fn version() -> String {
    ffi::version()
}

/// Longest wait for the others' addresses. They come over control links that are up.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A connected context. Any number of threads may use it at once, each for another operation.
pub struct Context {
    group: cxx::UniquePtr<ffi::Group>,
    endpoint: Endpoint,
    size: usize,
}

// SAFETY: a connected context is only read: collectives keep their state on the stack, its pairs
// stay as they are, and the transport leads to an `Endpoint`, which is for many threads. Nothing of
// it belongs to the thread that made it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Why a collective has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The message layer says so.
    Links(EngineFault),
    /// Only Gloo says so.
    Gloo(Exception),
}

impl Context {
    /// Connects `me` with the others of a View of `size`, through its board; blocks until all have
    /// come, or the board closes, or [`CONNECT_TIMEOUT`] is over.
    pub fn connect(
        endpoint: &Endpoint,
        board: &Arc<dyn Board>,
        me: Rank,
        size: usize,
    ) -> Result<Context, Exception> {
        let (wire, notices) =
            (Box::new(Wire(endpoint.clone())), Box::new(Noticeboard(Arc::clone(board))));
        // No cast loses anything: a View has 16 members at most, and the times are of minutes.
        let rank = i32::from(me.0);
        let (connect_timeout_ms, patience_ms) =
            (CONNECT_TIMEOUT.as_millis() as i64, PATIENCE.as_millis() as i64);
        match ffi::connect_group(wire, notices, rank, size as i32, connect_timeout_ms, patience_ms)
        {
            Ok(group) => Ok(Context { group, endpoint: endpoint.clone(), size }),
            Err(error) => Err(Exception::parse(error.what())),
        }
    }

    /// Adds everybody's `data`. With `own`, the bytes whose last contribution is folded here, those
    /// are finished at once, what arrives is finished too, and `landed` hears of all of it.
    /// Without, the whole buffer must still be finished on every rank. With an overlay `data`
    /// begins as what that says, whatever it holds.
    pub fn all_reduce(
        &self,
        op: OpId,
        data: &mut [u8],
        reduction: Reduction,
        own: Option<Range<usize>>,
        overlay: Option<&Arc<Overlay>>,
        landed: &Landed,
    ) -> Result<(), Failure> {
        let start = data.as_mut_ptr();
        let output = Output { start, landed: Arc::clone(landed), overlay: overlay.cloned() };
        let last = own.map(|bytes| Last { bytes, members: self.size, landed: Arc::clone(landed) });
        let fold = Fold::new(reduction, start, last, overlay.cloned());
        let (algorithm, segment_bytes) = match reduction.algorithm {
            Algorithm::Ring { segment_bytes } => (ffi::Algorithm::Ring, segment_bytes),
            // It cuts into no segments. An exchange is none of Gloo's, see `Part::exchange`.
            Algorithm::Bcube | Algorithm::Exchange => (ffi::Algorithm::Bcube, data.len()),
        };
        let (count, element_bytes) =
            (data.len() / reduction.dtype.bytes(), reduction.dtype.bytes());
        // SAFETY: `data` is borrowed for the call and has so many elements. Its parts are used by
        // the fold on this thread, and by messages in ranges that Gloo keeps apart; the regions
        // that messages use end with the call.
        self.run(op, Some(output), || unsafe {
            self.group.all_reduce(start, count, element_bytes, &fold, algorithm, segment_bytes)
        })?;
        if fold.is_complete() && overlay.is_none_or(|overlay| overlay.is_covered()) {
            return Ok(());
        }
        Err(Failure::Gloo(Exception::of_gloo(
            "its all-reduce does not go the way it is known for: this Gloo cannot be used",
        )))
    }

    /// Overwrites `data` with the root's.
    pub fn broadcast(
        &self,
        op: OpId,
        data: &mut [u8],
        root: Rank,
        landed: &Landed,
    ) -> Result<(), Failure> {
        let (start, len) = (data.as_mut_ptr(), data.len());
        let output = Output { start, landed: Arc::clone(landed), overlay: None };
        // SAFETY: `data` is borrowed for the call and so long; the regions that messages use end
        // with the call.
        self.run(op, Some(output), || unsafe {
            self.group.broadcast(start, len, i32::from(root.0))
        })
    }

    /// Fills `data`, in which everybody has put its part at its place.
    pub fn all_gather(&self, op: OpId, data: &mut [u8], landed: &Landed) -> Result<(), Failure> {
        let (start, len) = (data.as_mut_ptr(), data.len());
        let output = Output { start, landed: Arc::clone(landed), overlay: None };
        // SAFETY: as above.
        self.run(op, Some(output), || unsafe { self.group.all_gather(start, len) })
    }

    /// Brings everybody's `input` to its place in `out`, in rank order; the own place stays as it
    /// is.
    pub fn exchange(&self, op: OpId, input: &[u8], out: &mut [u8]) -> Result<(), Failure> {
        assert_eq!(out.len(), input.len() * self.size, "there is room for all");
        let (start, bytes, out) = (input.as_ptr(), input.len(), out.as_mut_ptr());
        // SAFETY: both are borrowed for the call and so long; the regions that messages use end
        // with the call.
        self.run(op, None, || unsafe { self.group.exchange(start, bytes, out) })
    }

    /// Sends each rank its part of `input` and gets one from each in `out`, in rank order. Calls of
    /// one operation at the same time have different tags.
    pub fn exchange_parts(
        &self,
        op: OpId,
        tag: u32,
        out: &mut [u8],
        out_bytes: &[usize],
        input: &mut [u8],
        input_bytes: &[usize],
    ) -> Result<(), Failure> {
        assert_eq!(out_bytes.iter().sum::<usize>(), out.len(), "the parts are the whole");
        assert_eq!(input_bytes.iter().sum::<usize>(), input.len(), "the parts are the whole");
        let (out, input) = (out.as_mut_ptr(), input.as_mut_ptr());
        // SAFETY: as above, and the two are not one buffer.
        self.run(op, None, || unsafe {
            self.group.exchange_parts(out, out_bytes, input, input_bytes, tag)
        })
    }

    /// Brings everybody's `input` to the root, whose `out` has room for all of them in rank order.
    pub fn gather(
        &self,
        op: OpId,
        input: &[u8],
        out: Option<&mut [u8]>,
        root: Rank,
    ) -> Result<(), Failure> {
        let fits = out.as_ref().is_none_or(|out| out.len() == input.len() * self.size);
        assert!(fits, "the root has room for all");
        let (start, bytes, out) =
            (input.as_ptr(), input.len(), out.map_or(std::ptr::null_mut(), <[u8]>::as_mut_ptr));
        // SAFETY: both are borrowed for the call, `out` is as long as it must be; the regions that
        // messages use end with the call.
        self.run(op, None, || unsafe { self.group.gather(start, bytes, out, i32::from(root.0)) })
    }

    /// Fills `out` with this member's part of the root's `input`.
    pub fn scatter(
        &self,
        op: OpId,
        input: Option<&[u8]>,
        out: &mut [u8],
        root: Rank,
    ) -> Result<(), Failure> {
        let fits = input.is_none_or(|input| input.len() == out.len() * self.size);
        assert!(fits, "the root has a part for each");
        let (input, start, bytes) =
            (input.map_or(std::ptr::null(), <[u8]>::as_ptr), out.as_mut_ptr(), out.len());
        // SAFETY: as above.
        self.run(op, None, || unsafe { self.group.scatter(input, start, bytes, i32::from(root.0)) })
    }

    /// Sends each rank its equal part of `input` and gets one from each in `out`, in rank order.
    pub fn all_to_all(&self, op: OpId, input: &[u8], out: &mut [u8]) -> Result<(), Failure> {
        assert!(input.len() == out.len() && input.len().is_multiple_of(self.size), "equal parts");
        let (input, start, bytes) = (input.as_ptr(), out.as_mut_ptr(), out.len());
        // SAFETY: as above.
        self.run(op, None, || unsafe { self.group.all_to_all(input, start, bytes) })
    }

    /// Sends all of `data` to one rank; done when the links have taken it over.
    pub fn send(&self, op: OpId, data: &[u8], to: Rank) -> Result<(), Failure> {
        let (start, bytes) = (data.as_ptr(), data.len());
        // SAFETY: `data` is borrowed for the call and only read; the region that messages use ends
        // with the call.
        self.run(op, None, || unsafe { self.group.send(start, bytes, i32::from(to.0)) })
    }

    /// Fills `data` with what one rank sends.
    pub fn recv(&self, op: OpId, data: &mut [u8], from: Rank) -> Result<(), Failure> {
        let (start, bytes) = (data.as_mut_ptr(), data.len());
        // SAFETY: as above, but written.
        self.run(op, None, || unsafe { self.group.recv(start, bytes, i32::from(from.0)) })
    }

    /// Waits for everybody.
    pub fn barrier(&self, op: OpId) -> Result<(), Failure> {
        self.run(op, None, || self.group.barrier())
    }

    fn run(
        &self,
        op: OpId,
        output: Option<Output>,
        collective: impl FnOnce() -> Result<(), cxx::Exception>,
    ) -> Result<(), Failure> {
        let (result, fault) = during(op, output, collective);
        result.map_err(|error| match self.endpoint.fault(op).or(fault) {
            Some(fault) => Failure::Links(fault),
            None => Failure::Gloo(Exception::parse(error.what())),
        })
    }
}
