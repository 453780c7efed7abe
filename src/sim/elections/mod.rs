//! Simulation of elections in virtual time, driven by the scripts in `tests/scripts`. Elections and
//! ledgers are real. The network delays messages and loses them with their links, disks are slow or
//! fail, nodes die, stop and sleep. The claims of the protocol are checked throughout.
//!
//! Time advances from one event to the next. The same script gives the same run.

mod calls;
mod disks;
mod network;
mod processes;
mod scripts;
mod session;
mod tests;
mod world;
