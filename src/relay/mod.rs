//! Layer: Doors.
//!
//! Control links between nodes that have no direct way to each other, carried by those in between.
//!
//! A **circuit** leads over nodes that have direct links one to the next. Its two ends run the
//! ordinary handshake over it, so what the nodes between see is ciphertext: they can drop and delay
//! it, and nothing else. Whoever opens a circuit names all its **stations**; a station knows
//! nothing of the network but its own links, and for each frame that comes in at most one goes out,
//! so no circuit can run in a circle or grow on its way. The [`Seeker`] says when a circuit is
//! worth a try, [`route`] over whom it goes, the [`Switch`] has a node's part in all circuits that
//! touch it, and [`Tunnels`] are the ends of its own.

mod answering;
mod frame;
mod route;
mod seeker;
mod switch;
#[cfg(test)]
mod tests;
mod tunnel;

pub use answering::Answering;
#[cfg(test)]
pub use frame::Circuit;
#[cfg(any(test, fuzzing))]
pub use frame::RelayBody;
pub use frame::RelayFrame;
pub use route::{route, within_reach};
pub use seeker::{Seeker, Want};
pub use switch::{Act, End, Switch};
pub use tunnel::{Said, Tunnels};
