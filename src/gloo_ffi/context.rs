//! A safe wrapper of a Gloo context: each collective borrows its memory, and holds no reference to
//! it after it returns.

#![allow(unsafe_code, reason = "Gloo takes pointers")]

use super::exception::Exception;
use super::folding::{Fold, Last};
use super::message_layer::{MessageLayer, Output, PATIENCE, during};
use super::noticeboard::Noticeboard;
use super::overlay::Overlay;
use super::p2p::{Endpoint, Landed};
use super::task::{GlooAlgorithm, Reduction};
use crate::collective::Board;
use crate::gloo_ffi::bridge::ffi;
use crate::protocol::{EngineFault, OpId, Rank};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The Gloo version of this build, for display: "Gloo 0.5.0 (2022 interface)".
pub fn version() -> String {
    ffi::version()
}

/// Timeout of the wait for the other ranks' addresses. They arrive over control links that already
/// exist.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A connected context. Any number of threads may use it at once, each for another operation.
pub struct Context {
    group: cxx::UniquePtr<ffi::Group>,
    endpoint: Endpoint,
    size: usize,
}

// SAFETY: a connected context is only read: collectives keep their state on the stack, its pairs do
// not change, and the transport leads to an `Endpoint`, which is thread-safe. Nothing in it belongs
// to the thread that made it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Why a collective failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A fault of the message layer.
    Links(EngineFault),
    /// An exception of Gloo without a fault of the message layer.
    Gloo(Exception),
}

impl Context {
    /// Connects `me` with the other ranks of a View of `size` through its board. Blocks until all
    /// have connected, the board is closed, or [`CONNECT_TIMEOUT`] is over.
    pub fn connect(
        endpoint: &Endpoint,
        board: &Arc<dyn Board>,
        me: Rank,
        size: usize,
    ) -> Result<Context, Exception> {
        let (wire, notices) =
            (Box::new(MessageLayer(endpoint.clone())), Box::new(Noticeboard(Arc::clone(board))));
        // No cast truncates: a View has at most 32 members, and the times are minutes.
        let rank = i32::from(me.0);
        let (connect_timeout_ms, patience_ms) =
            (CONNECT_TIMEOUT.as_millis() as i64, PATIENCE.as_millis() as i64);
        match ffi::connect_group(wire, notices, rank, size as i32, connect_timeout_ms, patience_ms)
        {
            Ok(group) => Ok(Context { group, endpoint: endpoint.clone(), size }),
            Err(error) => Err(Exception::parse(error.what())),
        }
    }

    /// Reduces the `data` of all ranks.
    ///
    /// With `own` (the byte range whose last fold happens on this rank), these bytes are finished
    /// as they are folded, received bytes are finished already, and `landed` is called for all of
    /// them. Without it, the caller must finish the whole buffer. With an overlay, `data` starts as
    /// the overlay's original, whatever it holds.
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
            GlooAlgorithm::Ring { segment_bytes } => (ffi::Algorithm::Ring, segment_bytes),
            // Bcube has no segments. An exchange does not come here, see `Participant::exchange`.
            GlooAlgorithm::Bcube | GlooAlgorithm::Exchange => (ffi::Algorithm::Bcube, data.len()),
        };
        let (count, element_bytes) =
            (data.len() / reduction.dtype.bytes(), reduction.dtype.bytes());
        // SAFETY: `data` is borrowed for the call and has `count` elements. Its parts are used by
        // the fold on this thread, and by messages in ranges that Gloo keeps disjoint; the regions
        // that messages use end with the call.
        self.run(op, Some(output), || unsafe {
            self.group.all_reduce(start, count, element_bytes, &fold, algorithm, segment_bytes)
        })?;
        if fold.is_complete() && overlay.is_none_or(|overlay| overlay.is_covered()) {
            return Ok(());
        }
        Err(Failure::Gloo(Exception::of_gloo(
            "its all-reduce does not follow the known algorithm: this Gloo cannot be used",
        )))
    }

    /// Overwrites `data` with that of the root.
    pub fn broadcast(
        &self,
        op: OpId,
        data: &mut [u8],
        root: Rank,
        landed: &Landed,
    ) -> Result<(), Failure> {
        let (start, len) = (data.as_mut_ptr(), data.len());
        let output = Output { start, landed: Arc::clone(landed), overlay: None };
        // SAFETY: `data` is borrowed for the call and has `len` bytes; the regions that messages
        // use end with the call.
        self.run(op, Some(output), || unsafe {
            self.group.broadcast(start, len, i32::from(root.0))
        })
    }

    /// All-gather in `data`, in which every rank has put its own part at its place.
    pub fn all_gather(&self, op: OpId, data: &mut [u8], landed: &Landed) -> Result<(), Failure> {
        let (start, len) = (data.as_mut_ptr(), data.len());
        let output = Output { start, landed: Arc::clone(landed), overlay: None };
        // SAFETY: as above.
        self.run(op, Some(output), || unsafe { self.group.all_gather(start, len) })
    }

    /// Sends `input` to all ranks and receives theirs into `out`, in rank order. The own place in
    /// `out` is not written.
    pub fn exchange(&self, op: OpId, input: &[u8], out: &mut [u8]) -> Result<(), Failure> {
        self.exchange_uneven(op, input, out, &vec![input.len(); self.size])
    }

    /// Like [`exchange`](Context::exchange), for inputs of these lengths, by rank.
    pub fn exchange_uneven(
        &self,
        op: OpId,
        input: &[u8],
        out: &mut [u8],
        lengths: &[usize],
    ) -> Result<(), Failure> {
        assert_eq!(lengths.len(), self.size, "one for each rank");
        assert_eq!(lengths.iter().sum::<usize>(), out.len(), "there is room for all");
        let (start, bytes, out) = (input.as_ptr(), input.len(), out.as_mut_ptr());
        // SAFETY: both are borrowed for the call and have these lengths; the regions that messages
        // use end with the call.
        self.run(op, None, || unsafe { self.group.exchange(start, bytes, out, lengths) })
    }

    /// Sends each rank its part of `input` and receives one part from each into `out`, in rank
    /// order. Concurrent calls of one operation must have different tags.
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
        // SAFETY: as above; the two buffers are different.
        self.run(op, None, || unsafe {
            self.group.exchange_parts(out, out_bytes, input, input_bytes, tag)
        })
    }

    /// Sends the `input` of every rank to the root, whose `out` has room for all of them in rank
    /// order.
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
        // SAFETY: both are borrowed for the call, and `out` has the required length; the regions
        // that messages use end with the call.
        self.run(op, None, || unsafe { self.group.gather(start, bytes, out, i32::from(root.0)) })
    }

    /// Receives this member's part of the root's `input` into `out`.
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

    /// Sends each rank its equal part of `input` and receives one from each into `out`, in rank
    /// order.
    pub fn all_to_all(&self, op: OpId, input: &[u8], out: &mut [u8]) -> Result<(), Failure> {
        assert!(input.len() == out.len() && input.len().is_multiple_of(self.size), "equal parts");
        let (input, start, bytes) = (input.as_ptr(), out.as_mut_ptr(), out.len());
        // SAFETY: as above.
        self.run(op, None, || unsafe { self.group.all_to_all(input, start, bytes) })
    }

    /// Sends all of `data` to one rank; returns when the links have taken it.
    pub fn send(&self, op: OpId, data: &[u8], to: Rank) -> Result<(), Failure> {
        let (start, bytes) = (data.as_ptr(), data.len());
        // SAFETY: `data` is borrowed for the call and only read; the region that messages use ends
        // with the call.
        self.run(op, None, || unsafe { self.group.send(start, bytes, i32::from(to.0)) })
    }

    /// Receives a message from one rank into `data`.
    pub fn recv(&self, op: OpId, data: &mut [u8], from: Rank) -> Result<(), Failure> {
        let (start, bytes) = (data.as_mut_ptr(), data.len());
        // SAFETY: as above, but `data` is written.
        self.run(op, None, || unsafe { self.group.recv(start, bytes, i32::from(from.0)) })
    }

    /// Waits for all ranks.
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

/// Lengths that contradict each other although they were checked: a bug.
pub(super) const UNFIT: Failure = Failure::Links(EngineFault::Unfit);
