//! `potluck key`: shows the cluster key of this machine.

use crate::args::Which;
use crate::document::key_source;
use crate::exit::Exit;
use crate::output::Output;
use anyhow::Result;
use clap::Args;
use potluck::Error;
use potluck::keys::{Keys, StoredKey};
use potluck::report::ConfigProblem;
use serde_json::json;

/// Say where the cluster key lies; with --show print it, for `potluck join` on another machine
///
/// The key admits to the cluster. While it is being changed, this is the next one. JSON: {ok,
/// namespace, source, file, changing, key}, where key is null without --show.
#[derive(Args, Debug)]
pub struct Show {
    #[command(flatten)]
    which: Which,
    /// Print the key itself
    #[arg(long)]
    show: bool,
}

impl Show {
    /// Runs the command.
    pub fn run(self, output: &Output) -> Result<Exit> {
        let keys = Keys::of(&self.which.config())?;
        let found = keys.cluster_key()?.ok_or(Error::Config(ConfigProblem::NoClusterKey))?;
        let source = key_source(&found);
        let file = matches!(found, StoredKey::File(_)).then(|| keys.cluster_key_file());
        let next = if file.is_some() { keys.next_cluster_key()? } else { None };
        let changing = next.is_some();
        let key = next.unwrap_or_else(|| found.into_key());
        let shown = self.show.then(|| key.to_text());
        let shown = shown.as_ref().map(|text| text.as_str());
        let document = json!({
            "ok": true,
            "namespace": keys.namespace(),
            "source": source,
            "file": file.as_ref().map(|file| file.display().to_string()),
            "changing": changing,
            "key": shown,
        });
        output.result(&document, || match (shown, &file) {
            (Some(text), _) => text.to_owned(),
            (None, Some(file)) => {
                format!("The cluster key is in {}; --show prints it.", file.display())
            }
            (None, None) => "The cluster key is in POTLUCK_KEY; --show prints it.".to_owned(),
        })?;
        Ok(Exit::Done)
    }
}
