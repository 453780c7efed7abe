//! `potluck identity`: shows the identity of this machine.

use crate::args::Which;
use crate::document::{hex, key_source};
use crate::exit::Exit;
use crate::output::Output;
use anyhow::Result;
use clap::Args;
use potluck::keys::Keys;
use serde_json::json;

/// Show this machine's identity: its node id, its files, and whether it has a cluster key
///
/// The identity is made when there is none yet. Key material is never printed. JSON: {ok, node,
/// short, name, file, slot, namespace, key: "file" | "environment" | null, key_file}.
#[derive(Args, Debug)]
pub struct Show {
    #[command(flatten)]
    which: Which,
    /// The name of the node [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Show {
    /// Runs the command.
    pub fn run(self, output: &Output) -> Result<Exit> {
        let mut config = self.which.config();
        config.name = self.name;
        let keys = Keys::of(&config)?;
        let me = keys.machine_identity()?;
        let key = keys.cluster_key()?.as_ref().map(key_source);
        let key_file = keys.cluster_key_file();
        let document = json!({
            "ok": true,
            "node": hex(me.node),
            "short": me.node.to_string(),
            "name": me.name.as_str(),
            "file": me.file.display().to_string(),
            "slot": me.slot,
            "namespace": keys.namespace(),
            "key": key,
            "key_file": key_file.display().to_string(),
        });
        output.result(&document, || {
            let key = match key {
                Some("environment") => "in POTLUCK_KEY".to_owned(),
                Some(_) => format!("in {}", key_file.display()),
                None => "none; `potluck up` makes one, `potluck join` enters one".to_owned(),
            };
            [
                format!("node         {} {}", me.name, me.node),
                format!("public key   {}", hex(me.node)),
                format!("file         {}", me.file.display()),
                format!("namespace    {}", keys.namespace()),
                format!("cluster key  {key}"),
            ]
            .join("\n")
        })?;
        Ok(Exit::Done)
    }
}
