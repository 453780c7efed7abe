//! `potluck deny`: refuses a node, whatever key it holds.

use crate::args::Which;
use crate::exit::{Exit, Stop};
use crate::output::Output;
use anyhow::Result;
use clap::Args;
use potluck::keys::Keys;
use potluck::{NodeId, local_nodes};
use std::str::FromStr;

/// Refuse a node on this machine, whatever key it holds; without a node, list those refused
///
/// Programs that run part from it within a second. It stays out of a group only if all machines
/// deny it. A machine that holds the cluster key can come back with another identity: change the
/// key as well, with `potluck keys rotate`. JSON: {ok, file, changed, denied: [{node, name}]}.
#[derive(Args, Debug)]
pub struct Deny {
    /// The node id, 64 hexadecimal digits as `potluck identity` shows it, or the name of a peer of
    /// a node that runs on this machine
    #[arg(value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    which: Which,
    /// Take the node off the list
    #[arg(long, requires = "node")]
    undo: bool,
}

impl Deny {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        let keys = Keys::of(&self.which.config())?;
        let changed = match &self.node {
            None => false,
            Some(text) => {
                let (node, name) = self.meant(&keys, text).await?;
                if self.undo {
                    keys.allow(node)?
                } else {
                    let is_new = !keys.denied()?.contains_key(&node);
                    keys.deny(node, &name)?;
                    is_new
                }
            }
        };
        output.nodes("denied", &keys.denied_file(), changed, &keys.denied()?)?;
        if changed && !self.undo {
            output.say(
                "Next: the same on each other machine, and `potluck keys rotate`, because it holds \
                 the key.",
            );
        }
        Ok(Exit::Done)
    }

    /// The node that `text` names, and its name.
    async fn meant(&self, keys: &Keys, text: &str) -> Result<(NodeId, String)> {
        if let Ok(node) = NodeId::from_str(text) {
            return Ok((node, self.name_of(node).await?));
        }
        let by_list: Vec<(NodeId, String)> =
            keys.denied()?.into_iter().filter(|(_, name)| name == text).collect();
        let peers = self.peers().await?;
        let by_name = peers.into_iter().filter(|(_, name)| name == text);
        let mut meant: Vec<(NodeId, String)> = by_list.into_iter().chain(by_name).collect();
        meant.sort();
        meant.dedup();
        match meant.pop() {
            Some(only) if meant.is_empty() => Ok(only),
            Some(_) => {
                Err(Stop::usage(format!("several nodes are called {text}; give the node id")))
            }
            None => Err(Stop::usage(format!(
                "no node called {text} is known here; give its node id, which `potluck identity` \
                 shows there and `potluck status --json` here"
            ))),
        }
    }

    async fn name_of(&self, node: NodeId) -> Result<String> {
        let known = self.peers().await?.into_iter().find(|(id, _)| *id == node);
        Ok(known.map(|(_, name)| name).unwrap_or_default())
    }

    /// The nodes that those on this machine know: their peers, nodes of other jobs, and nodes
    /// that an observer among them observes.
    async fn peers(&self) -> Result<Vec<(NodeId, String)>> {
        let nodes = local_nodes(self.which.config()).await?.nodes;
        let peers = nodes.iter().flat_map(|status| &status.peers).map(|p| (&p.node, &p.name));
        let others = nodes.iter().flat_map(|status| &status.other_jobs).flat_map(|job| &job.nodes);
        let observed = nodes.iter().flat_map(|status| &status.observed);
        let others = others.filter_map(|node| Some((&node.node, node.name.as_ref()?)));
        let observed = observed.map(|node| (&node.node, &node.name));
        let known = peers.chain(others).chain(observed);
        Ok(known.filter_map(|(node, name)| Some((node.parse().ok()?, name.clone()))).collect())
    }
}
