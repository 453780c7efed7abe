//! Why a running group does not take a node.

/// Why a running group does not take a node that it admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// The group has as many members as they, or this node, allow.
    NoPlace {
        /// Its members.
        members: usize,
        /// The smallest number that one of them, or this node, allows.
        most: usize,
    },
    /// This node would not go on with so few, and the group would wait for it.
    TooFew {
        /// The members that there would be, this node and others that wait included.
        present: usize,
    },
}
