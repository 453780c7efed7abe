//! The first cluster key of a machine: made only where no cluster is on the network.

use crate::args::Which;
use crate::exit::{Exit, Stop};
use crate::output::Output;
use crate::selection::LOOK;
use anyhow::Result;
use potluck::keys::Keys;
use potluck::report::{Membership, Scan};
use potluck::{Config, scan};
use serde_json::json;

/// The action where the network has a cluster already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Make no key, and say how to enter that cluster.
    Refuse,
    /// Make a key for another cluster.
    Make,
}

/// Makes the cluster key if this machine has none. Returns whether it has made one. JSON: {event:
/// "key-made", file}.
pub async fn make_if_missing(
    config: Config,
    which: &Which,
    beside: Beside,
    output: &Output,
) -> Result<bool> {
    let keys = Keys::of(&config)?;
    if keys.cluster_key()?.is_some() {
        return Ok(false);
    }
    if beside == Beside::Refuse {
        output.say("No cluster key yet; looking for a cluster on this network for 2 s ...");
        nobody_else_here(&scan(config, LOOK).await?, &which.flag())?;
    }
    drop(keys.create_cluster_key()?);
    let file = keys.cluster_key_file();
    let made = json!({ "event": "key-made", "file": file.display().to_string() });
    output.result(&made, || format!("Made a new cluster key: {}", file.display()))?;
    Ok(true)
}

/// An error that says how to enter the cluster that is on the network, if there is one.
fn nobody_else_here(seen: &Scan, flag: &str) -> Result<()> {
    let at = |membership| {
        let found = seen.neighbours.iter().find(|n| n.membership == membership)?;
        let address = found.addresses.first().map(|a| format!(" (at {a})"));
        Some((found.version, address.unwrap_or_default()))
    };
    let beside = format!("To make another cluster beside it: potluck up --new{flag}");
    if let Some((_, at)) = at(Membership::Other) {
        let sentence = format!(
            "a cluster is on this network{at}, so no key was made. To enter it type: potluck join \
             CODE{flag} (there, `potluck invite` shows a code). {beside}"
        );
        return Err(Stop::with(Exit::Key, "cluster-here", sentence));
    }
    if let Some((_, at)) = at(Membership::Invitation) {
        let sentence = format!(
            "a cluster on this network invites{at}, so no key was made. To enter it type: potluck \
             join CODE, with the code that is shown there. {beside}"
        );
        return Err(Stop::with(Exit::Key, "cluster-here", sentence));
    }
    if let Some((version, at)) = at(Membership::OtherVersion) {
        let sentence = format!(
            "a node of another version (protocol {version}) is on this network{at}, so no key was \
             made. Run the same version on all machines, or make a cluster of your own: potluck \
             up --new{flag}"
        );
        return Err(Stop::with(Exit::OtherVersion, "other-version", sentence));
    }
    Ok(())
}
