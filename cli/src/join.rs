//! `potluck join`: stores the cluster key of another machine.

use crate::args::{Where, Which};
use crate::exit::{Exit, Stop};
use crate::output::Output;
use crate::prompt;
use anyhow::Result;
use clap::Args;
use potluck::Error;
use potluck::keys::{
    ClusterKey, IdentityProblem, KeyBefore, Keys, OtherKey, Paired, PairingCode, StoredKey,
    join_by_code,
};
use serde_json::json;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Take the cluster key of another machine, so that this one is admitted to its cluster
///
/// With the code that `potluck invite` shows on a machine that is in, this one finds that machine
/// and takes the key from it. Without a code, the code or the key is read from a prompt, a pipe or
/// a file; `potluck key --show` prints the key. A key is never taken from the command line, where
/// others could see it; a code is of no use any more after it. JSON: {ok, namespace, file, stored:
/// "new" | "same" | "replaced" | "next", inviter, address}, the last two null without a code.
#[derive(Args, Debug)]
pub struct Join {
    /// The code, as 42-1234-5678; blanks and dashes do not matter
    #[arg(value_name = "CODE")]
    code: Vec<String>,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Where,
    /// Read the key or the code from this file; - is the standard input
    #[arg(long, value_name = "PATH", conflicts_with = "code")]
    file: Option<PathBuf>,
    /// Put the key in place of a different one: this machine leaves that cluster for good
    #[arg(long)]
    replace: bool,
    /// The cluster changes its key: keep the present one and put this one beside it
    #[arg(long, conflicts_with = "replace")]
    next: bool,
    /// The machine that shows the code, as host or host:port, instead of looking for it
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<String>,
    /// The name of this machine [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Join {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        let text = self.text().await?;
        if text.trim().is_empty() {
            let sentence = "nothing was typed or piped: type the code that `potluck invite` shows, \
                or the key that `potluck key --show` prints";
            return Err(Stop::with(Exit::Key, "bad-key", sentence));
        }
        // A key begins with a letter.
        if text.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
            return self.by_code(&text, output).await;
        }
        if !self.code.is_empty() {
            let sentence = "only a code may stand on the command line, as 42-1234-5678: others \
                can see it. Type a key at the prompt";
            return Err(Stop::usage(sentence));
        }
        self.by_key(&text, output)
    }

    async fn text(&self) -> Result<Zeroizing<String>> {
        match &self.file {
            _ if !self.code.is_empty() => Ok(Zeroizing::new(self.code.join(" "))),
            Some(file) => prompt::secret_of(file),
            None => {
                prompt::secret(
                    "Code (shown by `potluck invite` on a machine that is in) or cluster key \
                     (`potluck key --show`): ",
                )
                .await
            }
        }
    }

    async fn by_code(&self, text: &str, output: &Output) -> Result<Exit> {
        let bad =
            |why: potluck::keys::CodeTextError| Stop::with(Exit::Key, "bad-code", why.to_string());
        let code = PairingCode::parse(text).map_err(bad)?;
        let mut config = self.place.config(&self.which);
        config.peers.extend(self.peer.clone());
        config.name.clone_from(&self.name);
        let other = match (self.replace, self.next) {
            (true, _) => OtherKey::Replace,
            (_, true) => OtherKey::Follow,
            _ => OtherKey::Keep,
        };
        output.say("Looking for the machine that shows this code ...");
        let paired = tokio::select! {
            paired = join_by_code(config.clone(), code, other) => paired.map_err(refused)?,
            _ = tokio::signal::ctrl_c() => {
                return Err(Stop::with(Exit::Interrupted, "interrupted", "interrupted"));
            }
        };
        let Paired { namespace, file, before, inviter, address, .. } = paired;
        let document = json!({
            "ok": true,
            "namespace": namespace,
            "file": file.display().to_string(),
            "stored": stored(before),
            "inviter": inviter.as_str(),
            "address": address,
        });
        output.result(&document, || {
            format!("{inviter} has let this machine in. {} {}.", what(before), file.display())
        })?;
        config.namespace = Some(namespace.clone());
        let named = if namespace == "default" { None } else { Some(namespace) };
        next(&Keys::of(&config)?, &Which { namespace: named }, output);
        Ok(Exit::Done)
    }

    fn by_key(&self, text: &str, output: &Output) -> Result<Exit> {
        let keys = Keys::of(&self.which.config())?;
        let key = ClusterKey::parse(text)
            .map_err(|why| Stop::with(Exit::Key, "bad-key", why.to_string()))?;
        let before = self.store(&keys, &key)?;
        let file = keys.cluster_key_file();
        let document = json!({
            "ok": true,
            "namespace": keys.namespace(),
            "file": file.display().to_string(),
            "stored": stored(before),
            "inviter": null,
            "address": null,
        });
        output.result(&document, || format!("{} {}.", what(before), file.display()))?;
        next(&keys, &self.which, output);
        Ok(Exit::Done)
    }

    fn store(&self, keys: &Keys, key: &ClusterKey) -> Result<KeyBefore> {
        let there = keys.cluster_key_file().symlink_metadata().is_ok();
        match keys.store_cluster_key(key) {
            Ok(()) => Ok(if there { KeyBefore::SameKey } else { KeyBefore::Nothing }),
            Err(Error::Identity(IdentityProblem::OtherKeyStored { .. })) if self.replace => {
                keys.replace_cluster_key(key)?;
                Ok(KeyBefore::AnotherKey)
            }
            Err(Error::Identity(IdentityProblem::OtherKeyStored { .. })) if self.next => {
                keys.store_next_cluster_key(key)?;
                Ok(KeyBefore::CurrentKey)
            }
            Err(other) => Err(refused(other)),
        }
    }
}

/// An error of the library, with the options of this command if a different key is stored.
fn refused(error: Error) -> anyhow::Error {
    match error {
        Error::Identity(IdentityProblem::OtherKeyStored { path }) => Stop::with(
            Exit::Key,
            "other-key-stored",
            format!(
                "{}: a different cluster key is stored here. Keep both with --namespace NAME, \
                 leave that cluster with --replace, or, if its key is being changed, take this one \
                 as the next with --next",
                path.display()
            ),
        ),
        other => other.into(),
    }
}

fn stored(before: KeyBefore) -> &'static str {
    match before {
        KeyBefore::SameKey => "same",
        KeyBefore::AnotherKey => "replaced",
        KeyBefore::CurrentKey => "next",
        _ => "new",
    }
}

fn what(before: KeyBefore) -> &'static str {
    match before {
        KeyBefore::SameKey => "This key is already in",
        KeyBefore::AnotherKey => "The key has replaced another one in",
        KeyBefore::CurrentKey => "The next key is now beside the current one in",
        _ => "The key is in",
    }
}

/// Prints the next step, and a hindrance if there is one.
fn next(keys: &Keys, which: &Which, output: &Output) {
    let stored = keys.stored_cluster_key().ok().flatten();
    let used = keys.cluster_key().ok().flatten();
    if matches!(&used, Some(StoredKey::Environment(other)) if stored.as_ref() != Some(other)) {
        output.say(
            "Another key is in POTLUCK_KEY, which comes before the file: unset it to use this one.",
        );
    }
    output.say(&format!(
        "Next: start your program here, or try the network with `potluck up{}` on both machines.",
        which.flag()
    ));
}
