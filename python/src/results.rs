//! New objects for results, and the return values of calls. The objects are made by
//! `potluck/_new.py`.

use super::buffer::Buffer;
use potluck::DType;
use potluck_foreign::Reply;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

/// A new object for elements of this type, in the shape `shape`, of the kind of `like`.
///
/// # Errors
/// TypeError if there is no kind for it.
pub fn new<'py>(
    py: Python<'py>,
    like: Option<&Bound<'py, PyAny>>,
    shape: &[usize],
    dtype: DType,
) -> PyResult<Bound<'py, PyAny>> {
    let make = py.import("potluck._new")?.getattr("new")?;
    make.call1((like, PyTuple::new(py, shape)?, dtype.to_string()))
}

/// The object for a result: the one that the program gives, or a new one of the kind of `like`.
///
/// # Errors
/// Those of [`new`].
pub fn out_or_new<'py>(
    py: Python<'py>,
    out: Option<Bound<'py, PyAny>>,
    like: &Bound<'py, PyAny>,
    shape: &[usize],
    dtype: DType,
) -> PyResult<Bound<'py, PyAny>> {
    match out {
        Some(out) => Ok(out),
        None => new(py, Some(like), shape, dtype),
    }
}

/// The shape of the buffers of all ranks together.
pub fn gathered(size: usize, buffer: &Buffer) -> Vec<usize> {
    [&[size], buffer.shape()].concat()
}

/// A new object with these bytes, in one axis.
///
/// # Errors
/// Those of [`new`].
pub fn filled<'py>(
    py: Python<'py>,
    like: Option<&Bound<'py, PyAny>>,
    bytes: &[u8],
    dtype: DType,
) -> PyResult<Bound<'py, PyAny>> {
    let object = new(py, like, &[bytes.len() / dtype.bytes()], dtype)?;
    Buffer::to_write(&object)?.fill(bytes)?;
    Ok(object)
}

/// The return value of a call in Python.
pub enum Gives {
    /// This object, or None.
    Object(Option<Py<PyAny>>),
    /// The rank whose message has come.
    From,
    /// The bytes of the state.
    State,
    /// The parts of all ranks, in objects of this kind.
    Parts(Py<PyAny>),
}

impl Gives {
    /// The return value of the call, when it has ended with this reply.
    ///
    /// # Errors
    /// Those of [`new`].
    pub fn of(&self, py: Python<'_>, reply: &Reply) -> PyResult<Py<PyAny>> {
        match (self, reply) {
            (Gives::Object(Some(object)), _) => Ok(object.clone_ref(py)),
            (Gives::From, Reply::From(rank)) => Ok(rank.into_pyobject(py)?.into_any().unbind()),
            (Gives::State, Reply::State(state)) => Ok(PyBytes::new(py, state).into_any().unbind()),
            (Gives::Parts(like), Reply::Parts { elements, dtype, lengths }) => {
                parts(py, like.bind(py), elements.bytes(), *dtype, lengths)
            }
            _ => Ok(py.None()),
        }
    }
}

/// A list with one object for each rank.
fn parts(
    py: Python<'_>,
    like: &Bound<'_, PyAny>,
    bytes: &[u8],
    dtype: DType,
    lengths: &[usize],
) -> PyResult<Py<PyAny>> {
    let (list, mut rest) = (PyList::empty(py), bytes);
    for length in lengths {
        let (part, others) = rest.split_at((length * dtype.bytes()).min(rest.len()));
        list.append(filled(py, Some(like), part, dtype)?)?;
        rest = others;
    }
    Ok(list.into_any().unbind())
}

/// The type of this name, as potluck or NumPy says it.
pub fn dtype(name: &str) -> Option<DType> {
    let dtype = match name {
        "f16" | "float16" => DType::F16,
        "bf16" | "bfloat16" => DType::Bf16,
        "f32" | "float32" => DType::F32,
        "f64" | "float64" => DType::F64,
        "i8" | "int8" => DType::I8,
        "u8" | "uint8" => DType::U8,
        "i16" | "int16" => DType::I16,
        "u16" | "uint16" => DType::U16,
        "i32" | "int32" => DType::I32,
        "u32" | "uint32" => DType::U32,
        "i64" | "int64" => DType::I64,
        "u64" | "uint64" => DType::U64,
        "bool" => DType::Bool,
        _ => return None,
    };
    Some(dtype)
}
