//! The identity of a node: an Ed25519 key pair for its whole life, a boot number for each start,
//! and a name for people.
//!
//! The public key is the [`NodeId`]. A restarted process is a new [`MemberId`], so a promise of an
//! earlier run cannot be mistaken for one of the present run.
//!
//! A cluster is a [`Namespace`], which admits nodes by its [`ClusterKey`]. In it, the nodes with
//! the same [`JobName`] form a group. The shells in this module handle a node's files: [`home`]
//! locates them, [`keystore`] holds the key pair, [`cluster_key_file`] finds the cluster key, and
//! [`state_file`] and [`peers_file`] store the data that the next run needs.

mod cluster_key;
pub mod cluster_key_file;
mod cluster_keys;
pub mod home;
mod identity_file;
mod job_member;
mod job_name;
mod keypair;
pub mod keystore;
mod name;
mod namespace;
mod node_id;
pub mod nodes_file;
mod pairing_code;
pub(crate) mod peers_file;
mod private_file;
mod problem;
#[cfg(test)]
mod scratch;
pub(crate) mod state_file;
mod trust;

pub use cluster_key::{ClusterKey, KeyTextError};
pub use cluster_key_file::{
    KEY_VARIABLE, NAMESPACE_VARIABLE, Stored, create_cluster_key, find_cluster_keys,
    finish_cluster_key, namespace_name, random_cluster_key, rotate_cluster_key, store_cluster_key,
    store_next_key, stored_cluster_keys,
};
pub use cluster_keys::ClusterKeys;
pub use home::{Home, IdentitySlot};
#[cfg(any(fuzzing, test))]
pub use identity_file::{decode_identity, encode_identity};
pub use job_member::JobMember;
pub use job_name::JobName;
pub use keypair::Identity;
pub use keystore::{first_identity, load_or_create_identity, new_boot};
pub use name::Name;
pub use namespace::{Namespace, NamespaceName};
#[cfg(test)]
pub(crate) use node_id::assert_hides;
pub use node_id::{Boot, MemberId, NodeId, NodeIdTextError};
#[cfg(any(fuzzing, test))]
pub use nodes_file::decode_nodes;
pub use nodes_file::{NODES_MAX, Nodes, NodesFile};
pub use pairing_code::{CodeTextError, PairingCode, Selector};
pub use peers_file::PeersFile;
pub use problem::{FileAction, FileContent, IdentityProblem};
#[cfg(test)]
pub(crate) use scratch::Scratch;
#[cfg(test)]
pub use state_file::STATE_BYTES_MAX;
pub use state_file::StateFile;
pub use trust::{Newcomer, NewcomerPolicy, Trust};
