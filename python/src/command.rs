//! The command line, for the script that the package installs.

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the command line; returns its exit code. `itself` are the words that start it again.
#[pyfunction(name = "_command")]
pub fn command(py: Python<'_>, arguments: Vec<OsString>, itself: Vec<OsString>) -> u8 {
    py.detach(|| potluck_cli::main(arguments, itself))
}
