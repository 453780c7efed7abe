//! The failures of an engine.

use super::rank::Rank;
use crate::memory::OutOfMemory;
use std::fmt;

/// Why an engine could not finish a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineFault {
    /// The backend was closed: its View ended.
    Closed,
    /// The job was cancelled.
    Cancelled,
    /// The data link to this rank broke.
    LinkLost(Rank),
    /// This rank sent data that the schedule does not expect.
    Protocol(Rank),
    /// The ranks hold different bits: a bug or a memory fault. All members that go on together
    /// report it; no buffer was written. Trying again does not help.
    DigestMismatch {
        /// The lowest rank whose result is not that of the majority; `None` if no result has a
        /// majority, as among two ranks.
        odd: Option<Rank>,
    },
    /// No data of the operation has moved for too long, although all peers are alive.
    Stalled,
    /// Gloo reported an error; the log has its message.
    Gloo,
    /// There is no memory for the operation on this member. The buffer is untouched, and the View
    /// goes on. The same call would fail again: free memory, raise the limit of the process, or
    /// use smaller buffers on all ranks.
    Memory {
        /// The bytes that could not be allocated; for memory of Gloo's own, the length of the
        /// operation.
        bytes: u64,
    },
    /// The call, the plan and the input do not fit each other: a bug in the engine's caller.
    Unfit,
}

impl EngineFault {
    /// Whether the engine on this member is to blame, and not a peer, a link or the caller.
    pub(crate) fn is_the_engines(self) -> bool {
        matches!(self, EngineFault::Stalled | EngineFault::Gloo)
    }
}

impl From<OutOfMemory> for EngineFault {
    fn from(lack: OutOfMemory) -> EngineFault {
        // The cast loses nothing on machines of up to 64 bits.
        EngineFault::Memory { bytes: lack.bytes as u64 }
    }
}

impl fmt::Display for EngineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineFault::Closed => f.write_str("the engine was closed because its view ended"),
            EngineFault::Cancelled => f.write_str("the operation was cancelled"),
            EngineFault::LinkLost(rank) => write!(f, "the data link to rank {rank} broke"),
            EngineFault::Protocol(rank) => {
                write!(f, "rank {rank} sent data that the schedule does not foresee")
            }
            EngineFault::Stalled => f.write_str("no data of the operation has moved for too long"),
            EngineFault::Gloo => f.write_str("Gloo reported an error, which the log tells"),
            EngineFault::Memory { bytes } => write!(
                f,
                "{bytes} bytes of memory could not be allocated: free memory, raise the limit of \
                 the process, or use smaller buffers"
            ),
            EngineFault::Unfit => f.write_str(
                "the operation does not fit its plan or its input: report this as a bug",
            ),
            EngineFault::DigestMismatch { odd } => {
                f.write_str("the ranks hold different results: suspect memory or a bug")?;
                odd.map_or(Ok(()), |rank| write!(f, " on rank {rank}, whose result is the odd one"))
            }
        }
    }
}
