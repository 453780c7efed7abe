//! Layer: Shells.
//!
//! The list of denied nodes, which people edit.

use super::home::{Home, make_private_dir};
use super::{FileAction, IdentityProblem, Kept, NodeId, private_file};
use std::collections::BTreeMap;

/// The denied nodes, each with the name under which it was known.
pub type Denied = BTreeMap<NodeId, String>;

/// Reads the list of denied nodes, a line like `<node id> = "name"` for each, in TOML. A missing
/// file is an empty list. A bad one is an error, because nobody must be admitted by a typing error.
pub fn denied_nodes(home: &Home) -> Result<Denied, IdentityProblem> {
    let path = home.denied_path();
    let Some(bytes) = private_file::read(&path, Kept::Denied, FILE_BYTES_MAX)? else {
        return Ok(Denied::new());
    };
    decode_denied(&bytes).ok_or(IdentityProblem::NotAList { path })
}

/// Replaces the list.
pub fn store_denied(home: &Home, denied: &Denied) -> Result<(), IdentityProblem> {
    make_private_dir(home.config_dir())?;
    let path = home.denied_path();
    let lines: BTreeMap<String, &String> =
        denied.iter().map(|(node, name)| (full(node), name)).collect();
    toml::to_string(&lines)
        .map_err(std::io::Error::other)
        .and_then(|text| private_file::replace(&path, [HEADER, &text].concat().as_bytes()))
        .map_err(|error| private_file::refused(&path, FileAction::Write, &error))
}

/// Parses a list of denied nodes; `None` if it is invalid.
pub fn decode_denied(text: &[u8]) -> Option<Denied> {
    let lines: BTreeMap<String, String> = toml::from_str(std::str::from_utf8(text).ok()?).ok()?;
    lines.into_iter().map(|(node, name)| Some((node.parse().ok()?, name))).collect()
}

/// The first line of the list.
const HEADER: &str = "# Nodes that potluck refuses: <node id> = \"name\"\n";

/// All digits of a node id.
fn full(node: &NodeId) -> String {
    data_encoding::HEXLOWER.encode(&node.0)
}

// A thousand nodes of about a hundred bytes.
const FILE_BYTES_MAX: u64 = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;

    #[test]
    fn a_list_is_read_back_and_nothing_is_an_empty_one() {
        let scratch = Scratch::new();
        let home = Home::at(scratch.path().join("home"));
        assert_eq!(denied_nodes(&home), Ok(Denied::new()));
        let denied =
            Denied::from([(NodeId([1; 32]), "ada".to_owned()), (NodeId([2; 32]), String::new())]);
        store_denied(&home, &denied).expect("stored");
        assert_eq!(denied_nodes(&home), Ok(denied));
    }

    #[test]
    fn a_list_that_cannot_be_read_is_an_error() {
        let scratch = Scratch::new();
        let home = Home::at(scratch.path().join("home"));
        store_denied(&home, &Denied::new()).expect("stored");
        for bad in ["abc = \"a short id\"", "[", "x", &format!("{} = 7", "0".repeat(64))] {
            private_file::replace(&home.denied_path(), bad.as_bytes()).expect("written");
            let problem = IdentityProblem::NotAList { path: home.denied_path() };
            assert_eq!(denied_nodes(&home), Err(problem), "{bad}");
        }
    }
}
