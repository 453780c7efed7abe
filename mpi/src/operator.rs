//! The operators of reductions: MPI's, and functions of the program.

use super::datatype::Datatype;
use super::objects::{Handle, ompi_mpi_op_max, ompi_mpi_op_min, ompi_mpi_op_sum};
use potluck::{DType, ReduceOp, bf16, f16};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A function that folds `length` elements of `input` into those of `inout`.
pub type Function = unsafe extern "C" fn(
    input: *mut c_void,
    inout: *mut c_void,
    length: *mut c_int,
    datatype: *mut Handle,
);

/// An operator.
#[derive(Clone, Copy, Debug)]
pub enum Operator {
    /// One that potluck has, for all types that have it.
    Of(ReduceOp),
    /// One of the program.
    Own(Function),
}

impl Operator {
    /// The operator of this name.
    ///
    /// # Errors
    /// A sentence, for a name that is none.
    pub fn of(handle: Handle) -> Result<Operator, String> {
        let known = [
            (ompi_mpi_op_sum.handle(), ReduceOp::Sum),
            (ompi_mpi_op_max.handle(), ReduceOp::Max),
            (ompi_mpi_op_min.handle(), ReduceOp::Min),
        ];
        let known = known.into_iter().find(|(name, _)| *name == handle);
        let known = known.map(|(_, op)| Operator::Of(op));
        let own = || made().get(&(handle as usize)).copied().map(Operator::Own);
        known.or_else(own).ok_or_else(|| "the operator is not one that it knows".to_owned())
    }

    /// Makes an operator of a function, and returns its name. It lasts as long as the process.
    pub fn made_of(function: Function) -> Handle {
        let name: &'static mut [u8; 16] = Box::leak(Box::default());
        let handle: Handle = std::ptr::from_mut(name).cast();
        made().insert(handle as usize, function);
        handle
    }
}

fn made() -> MutexGuard<'static, BTreeMap<usize, Function>> {
    static MADE: Mutex<BTreeMap<usize, Function>> = Mutex::new(BTreeMap::new());
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number in the form of 16 bits.
type Bits = fn(f32) -> u16;

/// The result of an operator.
type Fold = fn(f32, f32) -> f32;

/// If a function on elements of two bytes is the sum, the maximum or the minimum of a 16-bit float:
/// that type and operator. It is called with some numbers to find out. MLX has such functions, for
/// floats that MPI lacks. Finite numbers of both types have the same order by their bits; the
/// infinities of bfloat16 are no numbers in float16, and tell the two apart. Only of a type that
/// the program has made: `int16_t` also has two bytes.
pub fn recognized(function: Function, handle: Handle, of: Datatype) -> Option<(DType, ReduceOp)> {
    const MANY: f32 = f32::INFINITY;
    const PAIRS: [(f32, f32); 11] = [
        (1.0, 1.0),
        (2.0, 3.0),
        (3.0, 2.0),
        (-4.0, 0.5),
        (0.25, -8.0),
        (-1.0, -2.0),
        (-2.0, -1.0),
        (MANY, 1.0),
        (1.0, MANY),
        (-MANY, 1.0),
        (1.0, -MANY),
    ];
    // In this order: the infinities of float16 are numbers in bfloat16.
    let forms: [(DType, Bits); 2] = [
        (DType::Bf16, |x| bf16::from_f32(x).to_bits()),
        (DType::F16, |x| f16::from_f32(x).to_bits()),
    ];
    let operators: [(ReduceOp, Fold); 3] =
        [(ReduceOp::Sum, |a, b| a + b), (ReduceOp::Max, f32::max), (ReduceOp::Min, f32::min)];
    if of != Datatype::Bytes(2) {
        return None;
    }
    let fits = |form: Bits, operator: Fold| {
        let mut input = PAIRS.map(|(a, _)| form(a));
        let mut inout = PAIRS.map(|(_, b)| form(b));
        fold(function, handle, input.as_mut_ptr().cast(), inout.as_mut_ptr().cast(), PAIRS.len());
        inout == PAIRS.map(|(a, b)| form(operator(a, b)))
    };
    let candidates = forms.into_iter().flat_map(|form| operators.map(|operator| (form, operator)));
    let mut fitting = candidates.filter(|((_, form), (_, operator))| fits(*form, *operator));
    fitting.next().map(|((dtype, _), (op, _))| (dtype, op))
}

/// Folds `count` elements of `input` into those of `inout`.
pub fn fold(
    function: Function,
    datatype: Handle,
    input: *mut c_void,
    inout: *mut c_void,
    count: usize,
) {
    let (mut length, mut datatype) = (c_int::try_from(count).unwrap_or(c_int::MAX), datatype);
    // SAFETY: both have so many elements, and the program has made the function for them.
    unsafe { function(input, inout, &raw mut length, &raw mut datatype) };
}
