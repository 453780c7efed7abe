//! The types of elements, and the operators of reductions.
#![allow(non_camel_case_types)]

use potluck_foreign::Failure;
use potluck_library::{DType, ReduceOp};

/// The type of the elements of a buffer: a number of `enum potluck_dtypes`.
pub type potluck_dtype = u32;

/// The operator of a reduction: a number of `enum potluck_ops`.
pub type potluck_op = u32;

/// The types of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum potluck_dtypes {
    /// IEEE 754 binary32: `float`.
    POTLUCK_F32 = 0,
    /// IEEE 754 binary64: `double`.
    POTLUCK_F64 = 1,
    /// IEEE 754 binary16.
    POTLUCK_F16 = 2,
    /// The upper half of a binary32.
    POTLUCK_BF16 = 3,
    /// `int8_t`.
    POTLUCK_I8 = 4,
    /// `uint8_t`.
    POTLUCK_U8 = 5,
    /// `int16_t`.
    POTLUCK_I16 = 6,
    /// `uint16_t`.
    POTLUCK_U16 = 7,
    /// `int32_t`.
    POTLUCK_I32 = 8,
    /// `uint32_t`.
    POTLUCK_U32 = 9,
    /// `int64_t`.
    POTLUCK_I64 = 10,
    /// `uint64_t`.
    POTLUCK_U64 = 11,
    /// One byte: 0 is false, all else is true. Results are 0 and 1.
    POTLUCK_BOOL = 12,
}

/// The operators of reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum potluck_ops {
    /// The sum. Integers wrap around.
    POTLUCK_SUM = 0,
    /// The sum divided by the number of ranks; floats only.
    POTLUCK_MEAN = 1,
    /// The product. Integers wrap around.
    POTLUCK_PRODUCT = 2,
    /// The minimum.
    POTLUCK_MIN = 3,
    /// The maximum.
    POTLUCK_MAX = 4,
    /// The bits that all ranks have; integers and bool.
    POTLUCK_BIT_AND = 5,
    /// The bits that any rank has; integers and bool.
    POTLUCK_BIT_OR = 6,
    /// The bits that an odd number of ranks has; integers and bool.
    POTLUCK_BIT_XOR = 7,
}

/// The type of a number.
///
/// # Errors
/// `Argument` for a number that names none.
pub fn dtype(number: potluck_dtype) -> Result<DType, Failure> {
    use potluck_dtypes as C;
    const TYPES: [(C, DType); 13] = [
        (C::POTLUCK_F32, DType::F32),
        (C::POTLUCK_F64, DType::F64),
        (C::POTLUCK_F16, DType::F16),
        (C::POTLUCK_BF16, DType::Bf16),
        (C::POTLUCK_I8, DType::I8),
        (C::POTLUCK_U8, DType::U8),
        (C::POTLUCK_I16, DType::I16),
        (C::POTLUCK_U16, DType::U16),
        (C::POTLUCK_I32, DType::I32),
        (C::POTLUCK_U32, DType::U32),
        (C::POTLUCK_I64, DType::I64),
        (C::POTLUCK_U64, DType::U64),
        (C::POTLUCK_BOOL, DType::Bool),
    ];
    let named = TYPES.iter().find(|(c, _)| *c as u32 == number).map(|(_, dtype)| *dtype);
    named.ok_or_else(|| Failure::Argument(format!("{number} is no potluck_dtype")))
}

/// The operator of a number.
///
/// # Errors
/// `Argument` for a number that names none.
pub fn op(number: potluck_op) -> Result<ReduceOp, Failure> {
    use potluck_ops as C;
    const OPS: [(C, ReduceOp); 8] = [
        (C::POTLUCK_SUM, ReduceOp::Sum),
        (C::POTLUCK_MEAN, ReduceOp::Mean),
        (C::POTLUCK_PRODUCT, ReduceOp::Prod),
        (C::POTLUCK_MIN, ReduceOp::Min),
        (C::POTLUCK_MAX, ReduceOp::Max),
        (C::POTLUCK_BIT_AND, ReduceOp::BitAnd),
        (C::POTLUCK_BIT_OR, ReduceOp::BitOr),
        (C::POTLUCK_BIT_XOR, ReduceOp::BitXor),
    ];
    let named = OPS.iter().find(|(c, _)| *c as u32 == number).map(|(_, op)| *op);
    named.ok_or_else(|| Failure::Argument(format!("{number} is no potluck_op")))
}
