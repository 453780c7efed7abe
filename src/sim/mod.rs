//! Test tools: a model of the election, scripted elections and whole groups in virtual time, an
//! explorer of thread schedules, and the entries of the fuzz targets.

#[cfg(test)]
mod claims;
#[cfg(test)]
mod elections;
#[cfg(all(test, potluck_threads))]
mod exploring;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod groups;
#[cfg(test)]
mod model;

#[cfg(all(test, potluck_threads))]
pub(crate) use exploring::{explore, finds, name, text_of};
