//! The objects that MPI names: programs use their addresses, and never look inside.
#![allow(non_upper_case_globals)]

use std::ffi::c_void;

/// The address of an object of MPI.
pub type Handle = *const c_void;

/// An object whose address is its name.
#[repr(C, align(16))]
pub struct Object([u8; 16]);

impl Object {
    /// Its name.
    pub fn handle(&'static self) -> Handle {
        std::ptr::from_ref(self).cast()
    }
}

macro_rules! objects {
    ($($name:ident)*) => {
        $(
            /// An object of MPI.
            #[unsafe(no_mangle)]
            pub static $name: Object = Object([0; 16]);
        )*
    };
}

objects! {
    ompi_mpi_comm_world
    ompi_mpi_comm_null
    ompi_mpi_op_sum
    ompi_mpi_op_max
    ompi_mpi_op_min
    ompi_mpi_c_bool
    ompi_mpi_int8_t
    ompi_mpi_uint8_t
    ompi_mpi_int16_t
    ompi_mpi_uint16_t
    ompi_mpi_int32_t
    ompi_mpi_uint32_t
    ompi_mpi_int64_t
    ompi_mpi_uint64_t
    ompi_mpi_float
    ompi_mpi_double
    ompi_mpi_c_complex
}
