//! The description of one call, as the logs have it.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A reduction to all ranks.
    AllReduce,
    /// A reduction to the root.
    Reduce,
    /// A reduction of which each rank gets its shard.
    ReduceScatter,
    /// A copy of the root's buffer to all ranks.
    Broadcast,
    /// The buffers of all ranks, to all ranks.
    AllGather,
    /// The buffers of all ranks, to the root.
    Gather,
    /// A part for each rank, from the root.
    Scatter,
    /// A part from each rank to each rank.
    AllToAll,
    /// A wait for all ranks.
    Barrier,
    /// Several calls under one vote.
    Step,
    /// A message from the rank `root` to the rank `to`.
    Message,
    /// The transfer of a state.
    Sync,
    /// A minimum of flags, by which the program agrees that a lane ends.
    Control,
}

const KINDS: [(Kind, &str); 13] = [
    (Kind::AllReduce, "all-reduce"),
    (Kind::Reduce, "reduce"),
    (Kind::ReduceScatter, "reduce-scatter"),
    (Kind::Broadcast, "broadcast"),
    (Kind::AllGather, "all-gather"),
    (Kind::Gather, "gather"),
    (Kind::Scatter, "scatter"),
    (Kind::AllToAll, "all-to-all"),
    (Kind::Barrier, "barrier"),
    (Kind::Step, "step"),
    (Kind::Message, "message"),
    (Kind::Sync, "sync"),
    (Kind::Control, "control"),
];

/// The operator of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The sum.
    Sum,
    /// The sum divided by the number of members.
    Mean,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The product.
    Prod,
}

const OPS: [(Op, &str); 5] =
    [(Op::Sum, "sum"), (Op::Mean, "mean"), (Op::Min, "min"), (Op::Max, "max"), (Op::Prod, "prod")];

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Signed 8 bits.
    I8,
    /// Signed 32 bits.
    I32,
    /// Signed 64 bits.
    I64,
    /// Unsigned 8 bits.
    U8,
    /// Unsigned 32 bits.
    U32,
    /// Unsigned 64 bits.
    U64,
}

/// All element types with their names.
pub const DTYPES: [(DType, &str); 10] = [
    (DType::F32, "f32"),
    (DType::F64, "f64"),
    (DType::F16, "f16"),
    (DType::Bf16, "bf16"),
    (DType::I8, "i8"),
    (DType::I32, "i32"),
    (DType::I64, "i64"),
    (DType::U8, "u8"),
    (DType::U32, "u32"),
    (DType::U64, "u64"),
];

/// The encoding of the data on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coded {
    /// None.
    Plain,
    /// bfloat16, which has all contributions and sums exactly.
    Bf16,
    /// Half precision, which has them exactly too.
    F16,
    /// Eight bits per element.
    Int8,
    /// Four bits per element.
    Int4,
    /// The choice of the plan, at most as coarse as eight bits.
    Auto,
}

const CODED: [(Coded, &str); 6] = [
    (Coded::Plain, "plain"),
    (Coded::Bf16, "bf16"),
    (Coded::F16, "f16"),
    (Coded::Int8, "int8"),
    (Coded::Int4, "int4"),
    (Coded::Auto, "auto"),
];

/// One call with its arguments, which are the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct What {
    /// Which call.
    pub kind: Kind,
    /// The type of the elements.
    pub dtype: DType,
    /// The operator, of a reduction.
    pub op: Op,
    /// Elements of each rank's buffer; of `all_to_all` of each part.
    pub len: usize,
    /// The root; of a message its sender.
    pub root: usize,
    /// Of a message its receiver.
    pub to: usize,
    /// The encoding on the wire.
    pub coded: Coded,
    /// Whether it goes without the vote.
    pub best_effort: bool,
    /// The lengths of the calls of a step, each of which is a reduction by `op`.
    pub parts: Vec<usize>,
}

impl What {
    /// A call of this kind without arguments.
    pub fn of(kind: Kind) -> What {
        What {
            kind,
            dtype: DType::U8,
            op: Op::Sum,
            len: 0,
            root: 0,
            to: 0,
            coded: Coded::Plain,
            best_effort: false,
            parts: Vec::new(),
        }
    }

    /// Whether a committed call of this kind counts in the history that a sync compares. Messages
    /// and calls by best effort do not.
    pub fn is_voted_by_all(&self) -> bool {
        !self.best_effort && self.kind != Kind::Message
    }

    /// Whether a result may differ from the exact one.
    pub fn is_rounded(&self) -> bool {
        matches!(self.coded, Coded::Int8 | Coded::Int4 | Coded::Auto)
    }

    /// The description for the log.
    pub fn to_json(&self) -> Value {
        json!({
            "kind": name(&KINDS, &self.kind),
            "dtype": name(&DTYPES, &self.dtype),
            "op": name(&OPS, &self.op),
            "len": self.len,
            "root": self.root,
            "to": self.to,
            "coded": name(&CODED, &self.coded),
            "best_effort": self.best_effort,
            "parts": self.parts,
        })
    }

    /// Reads the description of a log.
    pub fn from_json(value: &Value) -> Result<What> {
        let number = |field: &str| {
            let number = value[field].as_u64().with_context(|| format!("no {field} in {value}"));
            Ok::<usize, anyhow::Error>(usize::try_from(number?)?)
        };
        let parts = value["parts"].as_array().context("no parts")?;
        Ok(What {
            kind: named(&KINDS, &value["kind"])?,
            dtype: named(&DTYPES, &value["dtype"])?,
            op: named(&OPS, &value["op"])?,
            len: number("len")?,
            root: number("root")?,
            to: number("to")?,
            coded: named(&CODED, &value["coded"])?,
            best_effort: value["best_effort"].as_bool().context("no best_effort")?,
            parts: parts.iter().filter_map(Value::as_u64).map(|len| len as usize).collect(),
        })
    }
}

fn name<T: PartialEq>(table: &[(T, &'static str)], wanted: &T) -> &'static str {
    table.iter().find(|(one, _)| one == wanted).map_or("?", |(_, name)| name)
}

fn named<T: Copy>(table: &[(T, &'static str)], wanted: &Value) -> Result<T> {
    match table.iter().find(|(_, name)| wanted == *name) {
        Some((one, _)) => Ok(*one),
        None => bail!("no such word: {wanted}"),
    }
}
