//! The failures of an engine.

use super::group_ranks::GroupRanks;
use super::rank::Rank;
use crate::memory::{DType, OutOfMemory};
use derive_more::Display;

/// Why an engine could not finish a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum EngineFault {
    /// The backend was closed: its View ended.
    #[display("the engine was closed because its view ended")]
    Closed,
    /// The job was cancelled.
    #[display("the operation was cancelled")]
    Cancelled,
    /// The data link to this rank broke.
    #[display("the data link to rank {_0} broke")]
    LinkLost(Rank),
    /// This rank sent data that the schedule does not expect.
    #[display("rank {_0} sent data that the schedule does not foresee")]
    Protocol(Rank),
    /// Bytes came that are no elements of this type: a peer that breaks the protocol, or a memory
    /// fault. No buffer was written.
    #[display("bytes came that are no {_0}: suspect memory or a bug")]
    Bits(DType),
    /// The ranks hold different bits: a bug or a memory fault. All members that go on together
    /// report it; no buffer was written. Trying again does not help.
    #[display("the ranks hold different results: suspect memory or a bug{}", of_odd_one(*odd))]
    DigestMismatch {
        /// The lowest rank whose result is not that of the majority; `None` if no result has a
        /// majority, as among two ranks.
        odd: Option<Rank>,
    },
    /// No data of the operation has moved for too long, although all peers are alive.
    #[display("no data of the operation has moved for too long")]
    Stalled,
    /// Gloo reported an error; the log has its message.
    #[display("Gloo reported an error, which the log tells")]
    Gloo,
    /// There is no memory for the operation on this member. The buffer is unchanged, and the View
    /// goes on. The same call would fail again: free memory, raise the limit of the process, or
    /// use smaller buffers on all ranks.
    #[display(
        "{bytes} bytes of memory could not be allocated: free memory, raise the limit of the \
             process, or use smaller buffers"
    )]
    Memory {
        /// The bytes that could not be allocated; for memory of Gloo's own, the length of the
        /// operation.
        bytes: u64,
    },
    /// The call, the plan and the input do not fit each other: a bug in the engine's caller.
    #[display("the operation does not fit its plan or its input: report this as a bug")]
    Unfit,
}

impl EngineFault {
    /// The same fault with the ranks of a group in place of those of its View.
    pub(crate) fn in_group(self, group: GroupRanks) -> EngineFault {
        let inside = |rank| group.in_group(rank).unwrap_or(rank);
        match self {
            EngineFault::LinkLost(rank) => EngineFault::LinkLost(inside(rank)),
            EngineFault::Protocol(rank) => EngineFault::Protocol(inside(rank)),
            EngineFault::DigestMismatch { odd } => {
                EngineFault::DigestMismatch { odd: odd.map(inside) }
            }
            other => other,
        }
    }

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

fn of_odd_one(odd: Option<Rank>) -> String {
    let of = |rank| format!(" on rank {rank}, whose result is the odd one");
    odd.map(of).unwrap_or_default()
}
