//! The state that every engine keeps of its data links: the two threads of each, the one in use to
//! each peer, the data that arrives too early, and the traffic.
//!
//! [`attach`] gives a link to an engine, which is a [`LinkUser`]. A [`CurrentLink`] names the link
//! in use by its generation, so that a thread of an earlier link cannot end a later one.
//! [`EarlyData`] counts the data that peers send for operations that have not begun here, and
//! [`Carried`] the bytes.

mod carried;
mod current_link;
mod early_data;
mod link_user;

pub use carried::Carried;
pub use current_link::{CurrentLink, Generation};
pub use early_data::{EARLY_OPS_MAX, EarlyData};
#[cfg(any(feature = "gloo", test))]
pub use link_user::LinkThread;
pub use link_user::{LinkParty, LinkUser, attach};
