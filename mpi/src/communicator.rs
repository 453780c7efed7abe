//! The processes among which a call is made.

use super::datatype::Datatype;
use super::interrupts;
use super::objects::Handle;
use super::operator::{Function, Operator, fold, recognized};
use potluck::{DType, ReduceOp};
use potluck_foreign::{Call, Failure, Memory, Options, Reply, SharedContext};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A communicator: some processes in an order of their own.
#[derive(Clone, Debug)]
pub struct Communicator {
    calls: SharedContext,
    /// The rank in the Context of each rank of MPI.
    order: Vec<usize>,
    /// This process, as MPI counts.
    rank: usize,
    /// The largest tag of a group that this process has made so far.
    groups: Arc<AtomicU32>,
}

/// Memory of the program, and its contents.
#[derive(Clone, Copy, Debug)]
pub struct Elements {
    /// The first byte.
    pub start: *mut c_void,
    /// How many.
    pub count: usize,
    /// Of which type.
    pub of: Datatype,
}

impl Elements {
    fn bytes(self) -> usize {
        self.count.saturating_mul(self.of.bytes())
    }

    fn memory(self, count: usize, dtype: DType) -> Result<Memory, String> {
        // SAFETY: the program waits in the call, and does not use its memory meanwhile.
        unsafe { Memory::new(self.start.cast(), count, dtype) }.map_err(text)
    }

    fn as_bytes(self) -> Result<Memory, String> {
        self.memory(self.bytes(), DType::U8)
    }
}

impl Communicator {
    /// All processes.
    ///
    /// # Errors
    /// A sentence, in a fork of the process that called MPI_Init.
    pub fn world(calls: SharedContext) -> Result<Communicator, String> {
        let (rank, size) = {
            let context = calls.context().map_err(text)?;
            (context.rank().index(), context.size())
        };
        Ok(Communicator { calls, order: (0..size).collect(), rank, groups: Arc::default() })
    }

    /// This process.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many processes.
    pub fn size(&self) -> usize {
        self.order.len()
    }

    /// Combines the elements of all processes, in place.
    ///
    /// # Errors
    /// A sentence.
    pub fn all_reduce(&self, data: Elements, name: Handle, by: Operator) -> Result<(), String> {
        let (dtype, count, op) = match (data.of, by) {
            (Datatype::Of(DType::Bool), Operator::Of(ReduceOp::Sum | ReduceOp::Max)) => {
                (DType::Bool, data.count, ReduceOp::BitOr)
            }
            (Datatype::Of(DType::Bool), Operator::Of(_)) => {
                (DType::Bool, data.count, ReduceOp::BitAnd)
            }
            (Datatype::Of(dtype), Operator::Of(op)) => (dtype, data.count, op),
            (Datatype::Complex, Operator::Of(ReduceOp::Sum)) => {
                (DType::F32, 2 * data.count, ReduceOp::Sum)
            }
            (of, Operator::Own(function)) => match recognized(function, name, of) {
                Some((dtype, op)) => (dtype, data.count, op),
                None => return self.fold_all(data, name, function),
            },
            (of, Operator::Of(op)) => return Err(format!("there is no {op} of {of:?}")),
        };
        let memory = data.memory(count, dtype)?;
        ended(self.calls.all_reduce(memory, op, &Options::default())).map(drop)
    }

    /// Combines the elements by a function of the program: every process folds those of all, in
    /// the order of their ranks. A function of MPI sets `inout` to `in` combined with `inout`, so
    /// the fold begins with the last rank.
    fn fold_all(&self, data: Elements, name: Handle, function: Function) -> Result<(), String> {
        let bytes = data.bytes();
        let mut all = self.gathered(data)?;
        if bytes == 0 {
            return Ok(());
        }
        let mut parts = all.chunks_exact_mut(bytes).rev();
        let Some(sum) = parts.next() else { return Ok(()) };
        for part in parts {
            let (input, inout) = (part.as_mut_ptr().cast(), sum.as_mut_ptr().cast());
            fold(function, name, input, inout, data.count);
        }
        // SAFETY: both have so many bytes, apart from each other.
        unsafe { data.start.cast::<u8>().copy_from_nonoverlapping(sum.as_ptr(), bytes) };
        Ok(())
    }

    /// Collects the elements of all processes at `out`, in the order of their ranks.
    ///
    /// # Errors
    /// A sentence.
    pub fn all_gather(&self, data: Elements, out: *mut c_void) -> Result<(), String> {
        let all = self.gathered(data)?;
        // SAFETY: MPI's standard says that there is room for the elements of all processes.
        unsafe { out.cast::<u8>().copy_from(all.as_ptr(), all.len()) };
        Ok(())
    }

    fn gathered(&self, data: Elements) -> Result<Vec<u8>, String> {
        let bytes = data.bytes();
        let mut all = vec![0_u8; bytes.saturating_mul(self.size())];
        let place = Elements { start: all.as_mut_ptr().cast(), count: all.len(), of: BYTE };
        let call = self.calls.all_gather(data.as_bytes()?, place.as_bytes()?, &Options::default());
        ended(call)?;
        if self.order.is_sorted() {
            return Ok(all);
        }
        let part = |rank: &usize| &all[rank * bytes..(rank + 1) * bytes];
        Ok(self.order.iter().map(part).collect::<Vec<_>>().concat())
    }

    /// Sends a message.
    ///
    /// # Errors
    /// A sentence.
    pub fn send(&self, data: Elements, to: i32, tag: u32) -> Result<(), String> {
        let to = self.in_context(to)?;
        ended(self.calls.send(data.as_bytes()?, to, tag, &Options::default())).map(drop)
    }

    /// Receives a message of one process, or of any. Returns the rank that has sent it.
    ///
    /// # Errors
    /// A sentence.
    pub fn receive(&self, data: Elements, from: Option<i32>, tag: u32) -> Result<usize, String> {
        let from = from.map(|from| self.in_context(from)).transpose()?;
        let reply = ended(self.calls.recv(data.as_bytes()?, from, tag, &Options::default()))?;
        let Reply::From(sender) = reply else { return Err("it has no sender".to_owned()) };
        let rank = self.order.iter().position(|rank| *rank == sender);
        rank.ok_or_else(|| format!("rank {sender} is not in this communicator"))
    }

    fn in_context(&self, rank: i32) -> Result<usize, String> {
        let known = usize::try_from(rank).ok().and_then(|rank| self.order.get(rank).copied());
        known.ok_or_else(|| format!("there is no rank {rank} of {}", self.size()))
    }

    /// The processes that give the same colour, ordered by their keys and then by their ranks.
    /// `None` for a process that gives a negative colour.
    ///
    /// # Errors
    /// A sentence.
    pub fn split(&self, colour: i32, key: i32) -> Result<Option<Communicator>, String> {
        // All members of a group take the same tag: one more than each of them has used.
        let used = self.groups.load(Ordering::SeqCst);
        let mut own = [i64::from(colour), i64::from(key), i64::from(used)];
        let start = own.as_mut_ptr().cast();
        let all = self.gathered(Elements { start, count: 3, of: Datatype::Of(DType::I64) })?;
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, i64::from_le_bytes);
        let numbers: Vec<i64> = all.chunks_exact(8).map(number).collect();
        let rows = numbers.chunks_exact(3).enumerate();
        let mut here: Vec<(i64, usize, i64)> = rows
            .filter(|(_, row)| row[0] == i64::from(colour))
            .map(|(rank, row)| (row[1], rank, row[2]))
            .collect();
        if colour < 0 {
            return Ok(None);
        }
        here.sort_unstable();
        let tag = here.iter().map(|(_, _, used)| used + 1).max().unwrap_or(1);
        let tag = u32::try_from(tag).map_err(|_| "there were too many splits".to_owned())?;
        self.groups.store(tag, Ordering::SeqCst);
        let ranks: Vec<usize> = here.iter().map(|(_, rank, _)| self.order[*rank]).collect();
        let calls = self.calls.group(&ranks, tag).map_err(text)?;
        // The Context of a group counts its ranks in ascending order.
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        let place = |rank: &usize| sorted.iter().position(|other| other == rank).unwrap_or(0);
        let order: Vec<usize> = ranks.iter().map(place).collect();
        let rank = here.iter().position(|(_, rank, _)| *rank == self.rank).unwrap_or(0);
        Ok(Some(Communicator { calls, order, rank, groups: Arc::clone(&self.groups) }))
    }
}

const BYTE: Datatype = Datatype::Of(DType::U8);

fn text(failure: impl ToString) -> String {
    failure.to_string()
}

/// Waits for the end of a call.
fn ended(call: Result<Call<Reply>, Failure>) -> Result<Reply, String> {
    let before = interrupts::so_far();
    let call = call.map_err(text)?;
    let outcome = interrupts::outcome(&call, before).map_err(text)?;
    outcome.as_ref().cloned().map_err(text)
}
