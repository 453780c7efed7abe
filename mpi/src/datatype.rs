//! The types of elements.

use super::objects::{
    Handle, Object, ompi_mpi_c_bool, ompi_mpi_c_complex, ompi_mpi_double, ompi_mpi_float,
    ompi_mpi_int8_t, ompi_mpi_int16_t, ompi_mpi_int32_t, ompi_mpi_int64_t, ompi_mpi_uint8_t,
    ompi_mpi_uint16_t, ompi_mpi_uint32_t, ompi_mpi_uint64_t,
};
use potluck::DType;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datatype {
    /// One that potluck has.
    Of(DType),
    /// Two `f32`: the real part and the imaginary one.
    Complex,
    /// One that the program has made, of so many bytes.
    Bytes(usize),
}

impl Datatype {
    /// The type of this name.
    ///
    /// # Errors
    /// A sentence, for a name that is none.
    pub fn of(handle: Handle) -> Result<Datatype, String> {
        let known = known().into_iter().find(|(name, _)| *name == handle).map(|(_, of)| of);
        let made = || made().get(&(handle as usize)).copied().map(Datatype::Bytes);
        known.or_else(made).ok_or_else(|| "the datatype is not one that it knows".to_owned())
    }

    /// The bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Datatype::Of(dtype) => dtype.bytes(),
            Datatype::Complex => 8,
            Datatype::Bytes(bytes) => bytes,
        }
    }

    /// Makes a type of `count` elements of this one, and returns its name. It lasts as long as the
    /// process.
    ///
    /// # Errors
    /// A sentence, for more bytes than memory has.
    pub fn contiguous(self, count: usize) -> Result<Handle, String> {
        let bytes = self.bytes().checked_mul(count).ok_or("the datatype is too long")?;
        let name: &'static mut [u8; 16] = Box::leak(Box::default());
        let handle: Handle = std::ptr::from_mut(name).cast();
        made().insert(handle as usize, bytes);
        Ok(handle)
    }
}

fn known() -> [(Handle, Datatype); 12] {
    let of = |object: &'static Object, dtype| (object.handle(), Datatype::Of(dtype));
    [
        of(&ompi_mpi_c_bool, DType::Bool),
        of(&ompi_mpi_int8_t, DType::I8),
        of(&ompi_mpi_uint8_t, DType::U8),
        of(&ompi_mpi_int16_t, DType::I16),
        of(&ompi_mpi_uint16_t, DType::U16),
        of(&ompi_mpi_int32_t, DType::I32),
        of(&ompi_mpi_uint32_t, DType::U32),
        of(&ompi_mpi_int64_t, DType::I64),
        of(&ompi_mpi_uint64_t, DType::U64),
        of(&ompi_mpi_float, DType::F32),
        of(&ompi_mpi_double, DType::F64),
        (ompi_mpi_c_complex.handle(), Datatype::Complex),
    ]
}

/// The bytes of the types that the program has made, by name.
fn made() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    static MADE: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}
