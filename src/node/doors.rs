//! The outside interfaces of a node.

use super::admission::Admissions;
use super::event::{Event, LinkEnd};
use super::looking_back::FaultsOf;
use super::status_socket::StatusSocket;
use crate::collective::Engine;
use crate::discovery::Discovery;
use crate::link::{Listener, Net};
use crate::os::{InterfaceSource, Sleep, Store};
use crate::relay::Tunnels;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The outside interfaces of a node.
pub struct Doors {
    /// Accepts connections on the node's port.
    pub listener: Box<dyn Listener>,
    /// Finds other nodes.
    pub discovery: Box<dyn Discovery>,
    /// Tells the status to other programs of this user; `None` if nobody is told.
    pub status_socket: Option<StatusSocket>,
    /// The interfaces that the control plane uses itself.
    pub tools: Tools,
}

/// The outside interfaces that the control plane uses itself.
pub struct Tools {
    /// Opens connections.
    pub net: Arc<dyn Net>,
    /// Network interfaces of this machine.
    pub interface_source: Box<dyn InterfaceSource>,
    /// The source of the admitted keys and nodes.
    pub admissions: Box<dyn Admissions>,
    /// Durable state.
    pub store: Box<dyn Store>,
    /// Detects that this machine was suspended.
    pub sleep: Box<dyn Sleep>,
    /// Finds the faults of this machine, for nodes that ask.
    pub faults: FaultsOf,
    /// Engines that can run the collectives: at most one of each kind, and always the native one.
    pub engines: Vec<Arc<dyn Engine>>,
}

/// The queues over which tasks and the disk report to the control loop.
pub(super) struct Queues {
    pub(super) tunnels: Tunnels,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) ends: mpsc::UnboundedSender<LinkEnd>,
    pub(super) durable: mpsc::UnboundedSender<u64>,
}
