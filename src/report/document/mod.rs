//! The status of a node as JSON: nodes serve it on this machine, the command prints it, and other
//! languages and pages read it.
//!
//! The format is stable: fields are only added, never renamed or removed.

mod graph;
mod status;

use crate::identity::NodeId;

pub use graph::{GraphDocument, GraphForecast, GraphLink, GraphMember};
pub use status::{
    AloneDocument, InterfaceDocument, MemberDocument, NodeDocument, OtherJobDocument, PeerDocument,
    QuarantinedDocument, SizesDocument, StatusDocument, UnlinkedDocument, ViewDocument,
};

/// All 64 hexadecimal digits of a node's key.
fn hex(node: NodeId) -> String {
    data_encoding::HEXLOWER.encode(&node.0)
}
