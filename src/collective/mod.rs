//! Collectives: the calls, their schedules, the reduction arithmetic, the votes and the engines.
//!
//! An [`Engine`] opens one [`Backend`] per View. A backend runs calls until it is closed. It reads
//! a borrowed buffer only inside [`Backend::feed`], on the caller's own thread (see [`Input`]).
//! Votes outside of the engine decide whether a result counts.

mod arithmetic;
mod backend;
mod board;
mod digest;
mod finite;
mod fold;
#[cfg(test)]
pub(crate) mod golden;
mod input;
mod ledger;
mod links;
mod native;
mod outgoing;
mod reference;
mod retired;
mod revising;
mod runs;
mod schedule;
#[cfg(test)]
pub(crate) mod suite;
mod threads;
mod weights;

pub use arithmetic::Arithmetic;
#[cfg(feature = "gloo")]
pub use backend::Done;
pub use backend::{Backend, Engine, EngineCall, Finished};
#[cfg(feature = "gloo")]
pub use board::BoardFault;
pub use board::{Board, ViewBoard};
#[cfg(feature = "gloo")]
pub use digest::DIGEST_BLOCK_BYTES;
pub use digest::{Digest, digest_of, digest_of_parts};
pub use finite::all_finite;
#[cfg(feature = "gloo")]
pub use fold::fold_pair;
#[cfg(feature = "gloo")]
pub use fold::{Misfit, finish, fold};
#[cfg(test)]
pub(crate) use golden::{compare, random_bits};
pub use input::Input;
#[cfg(test)]
pub(crate) use ledger::LedgerBounds;
pub use ledger::{CallRefusal, Ledger, LedgerEffect, Misbehaviour, SyncSource};
#[cfg(test)]
pub use links::EARLY_OPS_MAX;
#[cfg(any(feature = "gloo", test, fuzzing))]
pub use links::{Carried, CurrentLink, EarlyData, Generation, LinkUser, attach};
#[cfg(feature = "gloo")]
pub use links::{LinkParty, LinkThread};
#[cfg(any(feature = "gloo", test))]
pub use native::NativeBackend;
pub use native::NativeEngine;
pub use outgoing::Outgoing;
pub use reference::reference;
#[cfg(any(feature = "gloo", test, fuzzing))]
pub use retired::Retired;
pub use revising::Revising;
pub use runs::Lanes;
#[cfg(any(fuzzing, test))]
pub use schedule::Schedule;
#[cfg(test)]
pub use schedule::Then;
#[cfg(any(feature = "gloo", test))]
pub use schedule::Unfit;
#[cfg(any(feature = "gloo", test, fuzzing))]
pub use threads::Threads;
pub use weights::{divide, is_weight, is_weight_sum, weigh};
