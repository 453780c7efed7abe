//! Lists of nodes, which people may edit: those that this machine denies, and those that it knows.

use super::home::{Home, make_private_dir};
use super::namespace::NamespaceName;
use super::node_id::NodeId;
use super::private_file;
use super::problem::{FileAction, FileContent, IdentityProblem};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Nodes, each with the name under which it was known.
pub type Nodes = BTreeMap<NodeId, String>;

/// Most nodes that a list is meant for.
pub const NODES_MAX: usize = 1000;

/// A list of nodes: a line like `<node id> = "name"` for each, in TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesFile {
    path: PathBuf,
    content: FileContent,
}

impl NodesFile {
    /// The nodes that are refused in all namespaces.
    pub fn denied(home: &Home) -> NodesFile {
        NodesFile { path: home.denied_path(), content: FileContent::Denied }
    }

    /// The nodes that were met in a namespace.
    pub fn known(home: &Home, namespace: &NamespaceName) -> NodesFile {
        NodesFile { path: home.known_path(namespace), content: FileContent::Known }
    }

    /// Its path, whether or not it exists.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the list. A missing file is an empty one. A bad one is an error, because a typing
    /// error must not admit a node.
    pub fn load(&self) -> Result<Nodes, IdentityProblem> {
        let Some(bytes) = private_file::read(&self.path, self.content, FILE_BYTES_MAX)? else {
            return Ok(Nodes::new());
        };
        let bad = || IdentityProblem::NotAList { path: self.path.clone(), content: self.content };
        decode_nodes(&bytes).ok_or_else(bad)
    }

    /// Changes the list, while no other process does. Returns the result of `change`. Blocks on the
    /// disk.
    pub fn change<T>(&self, change: impl FnOnce(&mut Nodes) -> T) -> Result<T, IdentityProblem> {
        if let Some(directory) = self.path.parent() {
            make_private_dir(directory)?;
        }
        let _lock = private_file::lock(&self.path)?;
        let mut nodes = self.load()?;
        let before = nodes.clone();
        let told = change(&mut nodes);
        if nodes != before {
            self.store(&nodes)?;
        }
        Ok(told)
    }

    fn store(&self, nodes: &Nodes) -> Result<(), IdentityProblem> {
        if nodes.len() > NODES_MAX {
            return Err(IdentityProblem::TooLong {
                path: self.path.clone(),
                content: self.content,
            });
        }
        let lines: BTreeMap<String, &String> =
            nodes.iter().map(|(node, name)| (full(node), name)).collect();
        let header = if self.content == FileContent::Denied { DENIED } else { KNOWN };
        toml::to_string(&lines)
            .map_err(std::io::Error::other)
            .and_then(|text| private_file::replace(&self.path, [header, &text].concat().as_bytes()))
            .map_err(|error| private_file::refused(&self.path, FileAction::Write, &error))
    }
}

/// Parses a list of nodes; `None` if it is invalid.
pub fn decode_nodes(text: &[u8]) -> Option<Nodes> {
    let lines: BTreeMap<String, String> = toml::from_str(std::str::from_utf8(text).ok()?).ok()?;
    lines.into_iter().map(|(node, name)| Some((node.parse().ok()?, name))).collect()
}

/// The first line of each list.
const DENIED: &str = "# Nodes that potluck refuses: <node id> = \"name\"\n";
const KNOWN: &str = "# Nodes that potluck has met: <node id> = \"name\"\n";

/// All digits of a node id.
fn full(node: &NodeId) -> String {
    data_encoding::HEXLOWER.encode(&node.0)
}

// A thousand nodes of about a hundred bytes, and names of four bytes per character.
const FILE_BYTES_MAX: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;

    #[test]
    fn a_list_is_read_back_and_nothing_is_an_empty_one() {
        let scratch = Scratch::new();
        let home = Home::at(scratch.path().join("home"));
        for file in [NodesFile::denied(&home), NodesFile::known(&home, &NamespaceName::default())] {
            assert_eq!(file.load(), Ok(Nodes::new()));
            let nodes = Nodes::from([
                (NodeId([1; 32]), "ada".to_owned()),
                (NodeId([2; 32]), String::new()),
            ]);
            file.change(|list| *list = nodes.clone()).expect("stored");
            assert_eq!(file.load(), Ok(nodes));
        }
    }

    #[test]
    fn the_longest_list_can_be_read() {
        let scratch = Scratch::new();
        let file = NodesFile::denied(&Home::at(scratch.path().join("home")));
        let name = "\u{1f980}".repeat(super::super::name::Name::CHARS_MAX);
        let node = |n: usize| {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&n.to_le_bytes());
            NodeId(id)
        };
        let nodes: Nodes = (0..NODES_MAX).map(|n| (node(n), name.clone())).collect();
        file.change(|list| *list = nodes.clone()).expect("stored");
        assert_eq!(file.load().as_ref(), Ok(&nodes));
        let one_more = file.change(|list| list.insert(node(NODES_MAX), String::new()));
        assert!(matches!(one_more, Err(IdentityProblem::TooLong { .. })), "{one_more:?}");
        assert_eq!(file.load(), Ok(nodes));
    }

    #[test]
    fn changes_at_the_same_time_are_all_there() {
        let scratch = Scratch::new();
        let file = NodesFile::denied(&Home::at(scratch.path().join("home")));
        std::thread::scope(|scope| {
            for n in 0..8 {
                let file = &file;
                scope.spawn(move || {
                    file.change(|list| list.insert(NodeId([n; 32]), String::new())).expect("stored")
                });
            }
        });
        assert_eq!(file.load().expect("a list").len(), 8);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_an_error() {
        let scratch = Scratch::new();
        let home = Home::at(scratch.path().join("home"));
        let file = NodesFile::denied(&home);
        file.change(|list| list.insert(NodeId([1; 32]), String::new())).expect("stored");
        for bad in ["abc = \"a short id\"", "[", "x", &format!("{} = 7", "0".repeat(64))] {
            super::super::private_file::replace(file.path(), bad.as_bytes()).expect("written");
            let path = home.denied_path();
            let problem = IdentityProblem::NotAList { path, content: FileContent::Denied };
            assert_eq!(file.load(), Err(problem), "{bad}");
        }
    }
}
