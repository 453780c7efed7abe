//! The memory of Python objects. This file has all of the crate's `unsafe` code.
#![allow(unsafe_code, reason = "the memory is that of programs in other languages")]

use super::error::{OrRaise, wrong};
use potluck::DType;
use potluck_foreign::Memory;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule};
use std::ffi::{CStr, c_void};
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// The memory of an object, held as long as this lives.
pub struct Buffer {
    start: *mut u8,
    count: usize,
    dtype: DType,
    shape: Vec<usize>,
    is_written: bool,
    _hold: Hold,
}

/// The owner of the memory, which keeps it alive and in its place.
enum Hold {
    /// A DLPack capsule that nobody takes the tensor from: it ends the tensor when it is dropped.
    Capsule(#[allow(dead_code)] Py<PyCapsule>),
    /// The buffer protocol.
    View(#[allow(dead_code)] PyUntypedBuffer),
}

// SAFETY: the pointer is to memory that is no thread's own, and its owner is of `Py`.
unsafe impl Send for Buffer {}
// SAFETY: as above; nothing is changed through a shared reference but by `fill` and
// `elements_mut`, whose callers hold a lease of the memory.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// The memory of an object, to be read.
    ///
    /// # Errors
    /// TypeError for an object without memory that can be used, Argument for memory that is not
    /// contiguous.
    pub fn to_read(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        found(object, false)
    }

    /// The memory of an object, to be read and written.
    ///
    /// # Errors
    /// Those of [`Buffer::to_read`], and Argument for memory that is read-only.
    pub fn to_write(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        found(object, true)
    }

    /// Its elements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Their type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The lengths of its axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Its first byte, the byte after its last one, and whether it is written.
    pub fn span(&self) -> (usize, usize, bool) {
        let start = self.start as usize;
        (start, start + self.count * self.dtype.bytes(), self.is_written)
    }

    /// For a call. The caller keeps a lease of this buffer until the call has ended.
    ///
    /// # Errors
    /// Argument for memory that cannot be.
    pub fn memory(&self, py: Python<'_>) -> PyResult<Memory> {
        // SAFETY: the lease of the call holds the memory until its end, and no other call uses it.
        // That the program leaves it alone meanwhile is documented.
        unsafe { Memory::new(self.start, self.count, self.dtype) }.or_raise(py)
    }

    /// Its elements, as `f32`; `None` if they are of another type, or not aligned. The caller keeps
    /// a lease of this buffer as long as the slice is used.
    pub fn floats(&self) -> Option<&'static mut [f32]> {
        if self.count == 0 {
            return Some(&mut []);
        }
        let is_of = self.dtype == DType::F32 && self.start.cast::<f32>().is_aligned();
        // SAFETY: of this type and length, aligned, and used by nobody else under the lease.
        (is_of && self.is_written)
            .then(|| unsafe { from_raw_parts_mut(self.start.cast(), self.count) })
    }

    /// Writes all its bytes. The caller has made the object.
    ///
    /// # Errors
    /// RuntimeError if it has another length.
    pub fn fill(&self, bytes: &[u8]) -> PyResult<()> {
        if !self.is_written || bytes.len() != self.count * self.dtype.bytes() {
            return Err(PyRuntimeError::new_err("the new object has another length"));
        }
        // SAFETY: as many bytes, which may be written.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.start, bytes.len()) };
        Ok(())
    }
}

fn found(object: &Bound<'_, PyAny>, is_written: bool) -> PyResult<Buffer> {
    let by_dlpack = object.hasattr("__dlpack__")?.then(|| of_dlpack(object, is_written));
    let by_dlpack = match by_dlpack {
        Some(Ok(buffer)) => return Ok(buffer),
        Some(Err(Refused::Final(error))) => return Err(error),
        // Older versions of NumPy export no read-only array so.
        Some(Err(Refused::Export(error))) => Some(error),
        None => None,
    };
    match PyUntypedBuffer::get(object) {
        Ok(view) => of_view(object.py(), view, is_written),
        Err(_) => Err(by_dlpack.unwrap_or_else(|| no_memory(object))),
    }
}

fn no_memory(object: &Bound<'_, PyAny>) -> PyErr {
    let kind = object.get_type().name().map_or_else(|_| "object".to_owned(), |n| n.to_string());
    PyTypeError::new_err(format!(
        "a buffer must be an array with __dlpack__ in main memory (NumPy, PyTorch) or support the \
         buffer protocol (array.array, bytearray, memoryview), and {kind} is neither"
    ))
}

fn no_type(what: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "a buffer has elements of f16, bf16, f32, f64, i8, u8, i16, u16, i32, u32, i64, u64 or \
         bool in the byte order of this machine, and these are {what}"
    ))
}

fn not_contiguous(py: Python<'_>) -> PyErr {
    wrong(
        py,
        "the buffer is not C-contiguous; copy it first, for example by numpy.ascontiguousarray or \
         tensor.contiguous()",
    )
}

fn read_only(py: Python<'_>) -> PyErr {
    wrong(py, "the buffer is read-only, and the call would write it")
}

fn of_view(py: Python<'_>, view: PyUntypedBuffer, is_written: bool) -> PyResult<Buffer> {
    let dtype = of_format(view.format(), view.item_size());
    let dtype = dtype.ok_or_else(|| no_type(&format!("of format {:?}", view.format())))?;
    if !view.is_c_contiguous() || view.suboffsets().is_some() {
        return Err(not_contiguous(py));
    }
    if is_written && view.readonly() {
        return Err(read_only(py));
    }
    let (start, count) = (view.buf_ptr().cast(), view.len_bytes() / dtype.bytes());
    let shape = view.shape().to_vec();
    Ok(Buffer { start, count, dtype, shape, is_written, _hold: Hold::View(view) })
}

/// The type of a format character, of so many bytes: the sizes of `l` and `L` differ.
fn of_format(format: &CStr, bytes: usize) -> Option<DType> {
    let native: &[u8] = if cfg!(target_endian = "little") { b"@=<" } else { b"@=>!" };
    let kind = match format.to_bytes() {
        [order, kind] if native.contains(order) => *kind,
        [kind] => *kind,
        _ => return None,
    };
    let dtype = match (kind, bytes) {
        (b'f', 4) => DType::F32,
        (b'd', 8) => DType::F64,
        (b'e', 2) => DType::F16,
        (b'?', 1) => DType::Bool,
        (b'b', 1) => DType::I8,
        (b'B', 1) => DType::U8,
        (b'h', 2) => DType::I16,
        (b'H', 2) => DType::U16,
        (b'i' | b'l' | b'q', 4) => DType::I32,
        (b'I' | b'L' | b'Q', 4) => DType::U32,
        (b'i' | b'l' | b'q', 8) => DType::I64,
        (b'I' | b'L' | b'Q', 8) => DType::U64,
        _ => return None,
    };
    Some(dtype)
}

/// Why an object's DLPack was no buffer.
enum Refused {
    /// The object does not export it.
    Export(PyErr),
    /// It is none that can be used.
    Final(PyErr),
}

#[repr(C)]
struct DlType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: i32,
    device_number: i32,
    axes: i32,
    dtype: DlType,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// The beginning of a `DLManagedTensorVersioned`, which all versions have.
#[repr(C)]
struct DlVersioned {
    major: u32,
    _minor: u32,
    _context: *mut c_void,
    _deleter: *mut c_void,
    flags: u64,
    tensor: DlTensor,
}

/// Main memory: of the processor, and that pinned by CUDA and ROCm.
const DL_DEVICES: [i32; 3] = [1, 3, 11];
const DL_MAJOR: u32 = 1;
const DL_READ_ONLY: u64 = 1;
const DL_COPIED: u64 = 2;

fn of_dlpack(object: &Bound<'_, PyAny>, is_written: bool) -> Result<Buffer, Refused> {
    let py = object.py();
    let device = object.call_method0("__dlpack_device__").map_err(Refused::Export)?;
    let (device, _): (i32, i32) = device.extract().map_err(Refused::Export)?;
    if !DL_DEVICES.contains(&device) {
        return Err(Refused::Final(PyTypeError::new_err(
            "the buffer is in the memory of another device; copy it to main memory first, for \
             example by tensor.cpu()",
        )));
    }
    let capsule = exported(object).map_err(Refused::Export)?;
    let (tensor, flags) = tensor_of(&capsule).map_err(Refused::Final)?;
    if is_written && flags & DL_READ_ONLY != 0 {
        return Err(Refused::Final(read_only(py)));
    }
    if is_written && flags & DL_COPIED != 0 {
        let problem = "the array exports a copy of its memory, which the call would write";
        return Err(Refused::Final(wrong(py, problem)));
    }
    // SAFETY: the capsule lives, so its tensor does.
    let tensor = unsafe { &*tensor };
    let hold = Hold::Capsule(capsule.unbind());
    of_tensor(py, tensor, is_written, hold).map_err(Refused::Final)
}

/// The capsule, of the newer kind if the object has that.
fn exported<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
    let py = object.py();
    let options = [("max_version", (DL_MAJOR, 0))].into_py_dict(py)?;
    let capsule = match object.call_method("__dlpack__", (), Some(&options)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__"),
        other => other,
    };
    Ok(capsule?.cast_into::<PyCapsule>()?)
}

fn tensor_of(capsule: &Bound<'_, PyCapsule>) -> PyResult<(*const DlTensor, u64)> {
    if capsule.is_valid_checked(Some(c"dltensor")) {
        let tensor = capsule.pointer_checked(Some(c"dltensor"))?;
        return Ok((tensor.as_ptr().cast_const().cast(), 0));
    }
    let versioned = capsule.pointer_checked(Some(c"dltensor_versioned"))?.cast::<DlVersioned>();
    // SAFETY: the name states the type, and these fields are the same in all versions.
    let versioned = unsafe { versioned.as_ref() };
    if versioned.major != DL_MAJOR {
        let problem = format!("the array exports version {} of DLPack", versioned.major);
        return Err(PyTypeError::new_err(problem));
    }
    Ok((&raw const versioned.tensor, versioned.flags))
}

fn of_tensor(py: Python<'_>, tensor: &DlTensor, is_written: bool, hold: Hold) -> PyResult<Buffer> {
    let DlType { code, bits, lanes } = tensor.dtype;
    let dtype = of_dl_type(code, bits, lanes);
    let dtype = dtype.ok_or_else(|| no_type(&format!("DLPack's {code} of {bits} bits")))?;
    let axes = usize::try_from(tensor.axes).unwrap_or_default();
    let lengths = axes_of(tensor.shape, axes);
    let shape: Option<Vec<usize>> = lengths.iter().map(|n| usize::try_from(*n).ok()).collect();
    let count = |shape: &Vec<usize>| shape.iter().try_fold(1_usize, |all, n| all.checked_mul(*n));
    let counted = shape.and_then(|shape| Some((count(&shape)?, shape)));
    let Some((count, shape)) = counted.filter(|_| !tensor.shape.is_null() || axes == 0) else {
        return Err(wrong(py, "the array has no shape"));
    };
    if count > 0 && !tensor.strides.is_null() && !is_compact(lengths, axes_of(tensor.strides, axes))
    {
        return Err(not_contiguous(py));
    }
    let offset = usize::try_from(tensor.byte_offset).unwrap_or_default();
    let start = tensor.data.cast::<u8>().wrapping_add(offset);
    Ok(Buffer { start, count, dtype, shape, is_written, _hold: hold })
}

fn of_dl_type(code: u8, bits: u8, lanes: u16) -> Option<DType> {
    const INT: u8 = 0;
    const UINT: u8 = 1;
    const FLOAT: u8 = 2;
    const BFLOAT: u8 = 4;
    const BOOL: u8 = 6;
    let dtype = match (code, bits) {
        (INT, 8) => DType::I8,
        (INT, 16) => DType::I16,
        (INT, 32) => DType::I32,
        (INT, 64) => DType::I64,
        (UINT, 8) => DType::U8,
        (UINT, 16) => DType::U16,
        (UINT, 32) => DType::U32,
        (UINT, 64) => DType::U64,
        (FLOAT, 16) => DType::F16,
        (FLOAT, 32) => DType::F32,
        (FLOAT, 64) => DType::F64,
        (BFLOAT, 16) => DType::Bf16,
        (BOOL, 8) => DType::Bool,
        _ => return None,
    };
    (lanes == 1).then_some(dtype)
}

/// The numbers of all axes of a tensor that lives.
fn axes_of<'a>(numbers: *const i64, axes: usize) -> &'a [i64] {
    if numbers.is_null() || axes == 0 {
        return &[];
    }
    // SAFETY: a tensor has as many numbers as axes.
    unsafe { from_raw_parts(numbers, axes) }
}

/// Whether the elements follow each other, the last axis first. Axes of one element may have any
/// stride.
fn is_compact(shape: &[i64], strides: &[i64]) -> bool {
    let mut wanted = 1;
    shape.iter().zip(strides).rev().all(|(length, stride)| {
        let fits = *length == 1 || *stride == wanted;
        wanted = wanted.saturating_mul(*length);
        fits
    })
}
