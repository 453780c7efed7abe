//! The module `potluck._native`: the native part of the Python package `potluck`.
//!
//! Calls are those of `potluck-foreign`: begun in the thread of the program, polled by one thread
//! of their own. Every wait lets other Python threads run and notices signals.

#![allow(clippy::needless_pass_by_value, reason = "pyo3 gives arguments by value")]
#![allow(clippy::too_many_arguments, reason = "Python has names for them")]

mod asked;
mod buffer;
mod cluster;
mod codec;
mod command;
mod context;
mod error;
mod events;
mod gradient_sync;
mod lease;
mod pending;
mod process;
mod results;
mod settings;
mod step;
mod waiting;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<cluster::Cluster>()?;
    module.add_class::<context::Context>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<step::Step>()?;
    module.add_class::<codec::Codec>()?;
    module.add_class::<gradient_sync::GradientSync>()?;
    module.add_class::<gradient_sync::GradientStep>()?;
    module.add_class::<events::Events>()?;
    module.add_function(wrap_pyfunction!(cluster::join, module)?)?;
    module.add_function(wrap_pyfunction!(cluster::leave_all, module)?)?;
    module.add_function(wrap_pyfunction!(command::command, module)?)
}
