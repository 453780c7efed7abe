//! `potluck join`: stores the cluster key of another machine.

use crate::args::Which;
use crate::exit::{Exit, Stop};
use crate::output::Output;
use crate::prompt;
use anyhow::Result;
use clap::Args;
use potluck::{ClusterKey, Error, IdentityProblem, Keys, StoredKey};
use serde_json::json;
use std::path::PathBuf;

/// Take the cluster key of another machine, so that this one is admitted to its cluster
///
/// The key is read from a prompt, a pipe or a file, never from the command line, where others could
/// see it. On a machine that is in already, `potluck key --show` prints it. JSON: {ok, namespace,
/// file, stored: "new" | "same" | "replaced"}.
#[derive(Args, Debug)]
pub struct Join {
    #[command(flatten)]
    which: Which,
    /// Read the key from this file; - is the standard input
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Put the key in place of a different one: this machine leaves that cluster for good
    #[arg(long)]
    replace: bool,
}

impl Join {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        let keys = Keys::of(&self.which.config())?;
        let text = match &self.file {
            Some(file) => prompt::secret_of(file)?,
            None => {
                prompt::secret(
                    "Cluster key (shown by `potluck key --show` on a machine that is in): ",
                )
                .await?
            }
        };
        let key = ClusterKey::parse(&text)
            .map_err(|why| Stop::with(Exit::Key, "bad-key", why.to_string()))?;
        let stored = self.store(&keys, &key)?;
        let file = keys.cluster_key_file();
        let document =
            json!({ "ok": true, "namespace": keys.namespace(), "file": file, "stored": stored });
        output.result(&document, || {
            let what = match stored {
                "same" => "This key is already in",
                "replaced" => "The key has replaced another one in",
                _ => "The key is in",
            };
            format!("{what} {}.", file.display())
        })?;
        if matches!(keys.cluster_key(), Ok(Some(StoredKey::Environment(other))) if other != key) {
            output.say("Another key is in POTLUCK_KEY, which comes before the file: unset it to use this one.");
        }
        output.say(&format!(
            "Next: start your program here, or try the network with `potluck up{}` on both machines.",
            self.which.flag()
        ));
        Ok(Exit::Done)
    }

    fn store(&self, keys: &Keys, key: &ClusterKey) -> Result<&'static str> {
        let there = keys.cluster_key_file().symlink_metadata().is_ok();
        match keys.store_cluster_key(key) {
            Ok(()) => Ok(if there { "same" } else { "new" }),
            Err(Error::Identity(IdentityProblem::OtherKeyStored { .. })) if self.replace => {
                keys.replace_cluster_key(key)?;
                Ok("replaced")
            }
            Err(Error::Identity(IdentityProblem::OtherKeyStored { path })) => Err(Stop::with(
                Exit::Key,
                "other-key-stored",
                format!(
                    "{}: a different cluster key is stored here. Keep both with --namespace NAME, or leave that cluster with --replace",
                    path.display()
                ),
            )),
            Err(other) => Err(other.into()),
        }
    }
}
