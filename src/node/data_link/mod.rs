//! The data links of the installed View.
//!
//! [`DataLinks`] dials them, until each is [`EstablishedLink`]. [`data_link`] makes of that the
//! link that an engine gets, with two handles: [`Bursts`] measure the rate of its path, [`Moves`]
//! lead it over another one. It uses one `Connection` at a time. Here a frame takes the lock of its
//! connection and no other; the writer of the socket below has one of its own:
//!
//! ```text
//! engine ---> Sender --.
//! a burst's thread -----+--> Connection (lock) --> DataSender of link/
//! a move's thread -----'         `--> after a move: the next Connection
//!
//! engine <--- Receiver (takes moves) <--- Incoming (takes bursts) <--- DataReceiver of link/
//! ```

mod connection;
mod dials;
mod established_link;
mod moves;
mod reports;
mod traffic;

pub use connection::Bursts;
pub use dials::{DataDial, DataLinks, Dialler};
pub use established_link::{Addresses, EstablishedLink, established};
pub use moves::{Moves, data_link};
pub use reports::Reports;
pub use traffic::Traffic;
