//! The identity of a node, and of one run of its program.

#[cfg(test)]
pub(crate) use secrecy::assert_hides;

use crate::wire::layout::layout;
use std::fmt;

/// A node's public Ed25519 key. Displayed as its first eight hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u8; 32]);

layout!(NodeId(key));

/// Random number of one process start. It distinguishes the runs (boots) of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot(pub u64);

layout!(Boot(number));

/// One run of one node. Views list these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId {
    /// The public key, by which the node authenticates itself.
    pub node: NodeId,
    /// The start of the node.
    pub boot: Boot,
}

layout!(MemberId { node, boot });

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The text is not a public key, which has 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeIdTextError;

impl fmt::Display for NodeIdTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a node is named by the 64 hexadecimal digits of its public key, as `potluck identity` \
             prints it",
        )
    }
}

impl std::error::Error for NodeIdTextError {}

/// Parses all 64 digits of the public key.
impl std::str::FromStr for NodeId {
    type Err = NodeIdTextError;

    fn from_str(text: &str) -> Result<NodeId, NodeIdTextError> {
        let bytes = data_encoding::HEXLOWER_PERMISSIVE
            .decode(text.as_bytes())
            .map_err(|_| NodeIdTextError)?;
        bytes.try_into().map(NodeId).map_err(|_| NodeIdTextError)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.node)
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:04x}", self.node, self.boot.0 & 0xffff)
    }
}

#[cfg(test)]
pub(crate) mod secrecy {
    /// Fails if `shown` contains eight consecutive bytes of `secret`: raw, in hexadecimal, or as a
    /// list of numbers.
    pub(crate) fn assert_hides(shown: &str, secret: &[u8]) {
        for window in secret.windows(8) {
            let hex: String = window.iter().map(|byte| format!("{byte:02x}")).collect();
            let list = format!("{window:?}");
            let list = &list[1..list.len() - 1];
            assert!(!shown.as_bytes().windows(8).any(|w| w == window), "shows the secret");
            assert!(!shown.to_lowercase().contains(&hex), "shows the secret in hexadecimal");
            assert!(!shown.contains(list), "shows the secret as numbers");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::assert_codec;

    #[test]
    fn a_member_id_survives_the_wire() {
        assert_codec(&MemberId { node: NodeId([7; 32]), boot: Boot(0x0102_0304_0506_0708) });
    }

    #[test]
    fn a_node_is_shown_short() {
        let node = NodeId([0xab; 32]);
        assert_eq!(node.to_string(), "abababab");
    }
}
