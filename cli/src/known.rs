//! `potluck known`: the nodes that this machine has met.

use crate::args::Which;
use crate::exit::{Exit, Stop};
use crate::output::Output;
use anyhow::Result;
use clap::Args;
use potluck::NodeId;
use potluck::keys::Keys;
use std::str::FromStr;

/// List the nodes that this machine has met under `potluck up --trust tofu`
///
/// A `potluck up --trust pinned` admits only those that are listed when it starts. JSON: {ok, file,
/// changed, known: [{node, name}]}.
#[derive(Args, Debug)]
pub struct Known {
    #[command(flatten)]
    which: Which,
    /// Take this node off the list: its node id, or its name if that is clear
    #[arg(long, value_name = "NODE")]
    forget: Option<String>,
}

impl Known {
    /// Runs the command.
    pub fn run(self, output: &Output) -> Result<Exit> {
        let keys = Keys::of(&self.which.config())?;
        let changed = match &self.forget {
            Some(text) => keys.forget(meant(&keys, text)?)?,
            None => false,
        };
        output.nodes("known", &keys.known_file(), changed, &keys.known()?)?;
        Ok(Exit::Done)
    }
}

/// The known node that `text` names.
fn meant(keys: &Keys, text: &str) -> Result<NodeId> {
    let known = keys.known()?;
    let by_id = NodeId::from_str(text).ok().filter(|node| known.contains_key(node));
    let mut by_name = known.iter().filter(|(_, name)| *name == text).map(|(node, _)| *node);
    match (by_id.or_else(|| by_name.next()), by_name.next()) {
        (Some(node), None) => Ok(node),
        (Some(_), Some(_)) => {
            Err(Stop::usage(format!("several known nodes are called {text}; give the node id")))
        }
        (None, _) => Err(Stop::usage(format!("no known node is called {text}"))),
    }
}
