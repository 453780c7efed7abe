//! The outside interfaces of a node.

use super::admission::Admissions;
use super::event::{Event, LinkEnd};
use crate::collective::Engine;
use crate::discovery::Discovery;
use crate::link::{Listener, Net};
use crate::os::{InterfaceSource, Sleep, Store};
use crate::relay::Tunnels;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The outside interfaces of a node.
pub struct Doors {
    /// Opens connections.
    pub net: Arc<dyn Net>,
    /// Accepts connections on the node's port.
    pub listener: Box<dyn Listener>,
    /// Finds other nodes.
    pub discovery: Box<dyn Discovery>,
    /// Network interfaces of this machine.
    pub interface_source: Box<dyn InterfaceSource>,
    /// The source of the admitted keys and nodes.
    pub admissions: Box<dyn Admissions>,
    /// Durable state.
    pub store: Box<dyn Store>,
    /// Detects that this machine was suspended.
    pub sleep: Box<dyn Sleep>,
    /// Engines that can run the collectives: at most one of each kind, and always the native one.
    pub engines: Vec<Arc<dyn Engine>>,
}

/// The parts from which a node is made: the doors, and the queues over which tasks and the disk
/// report.
pub(super) struct Means {
    pub(super) net: Arc<dyn Net>,
    pub(super) interface_source: Box<dyn InterfaceSource>,
    pub(super) admissions: Box<dyn Admissions>,
    pub(super) store: Box<dyn Store>,
    pub(super) engines: Vec<Arc<dyn Engine>>,
    pub(super) sleep: Box<dyn Sleep>,
    pub(super) tunnels: Tunnels,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) ends: mpsc::UnboundedSender<LinkEnd>,
    pub(super) durable: mpsc::UnboundedSender<u64>,
}
