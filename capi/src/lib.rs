//! The C interface of potluck: `potluck.h`, which is made of these files.
//!
//! Handles are boxes of Rust, owned by the program from the function that makes them to the one
//! that frees them. [`border`] is where pointers become references; no panic crosses it. Calls are
//! those of `potluck-foreign`.

mod border;
mod call;
mod cluster;
mod codec;
mod collectives;
mod config;
mod context;
mod error;
mod options;
mod status;
mod step;
mod types;
mod version;
