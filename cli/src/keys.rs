//! `potluck keys`: changes the cluster key of a cluster that runs.

use crate::args::Which;
use crate::exit::Exit;
use crate::output::Output;
use anyhow::Result;
use clap::{Args, Subcommand};
use potluck::keys::Keys;
use serde_json::json;

/// Change the cluster key while the cluster runs: `rotate`, then `finish`
///
/// First every machine gets the next key beside the current one: `potluck keys rotate` on one of
/// them makes it, and `potluck join --next` on each other one takes it, by a code of `potluck
/// invite` or from `potluck key --show`. When all have it, `potluck keys finish` on each drops the
/// old key. Programs that run follow within a second, and no call notices.
#[derive(Args, Debug)]
pub struct Change {
    #[command(subcommand)]
    step: Step,
}

#[derive(Subcommand, Debug)]
enum Step {
    Rotate(Rotate),
    Finish(Finish),
}

/// Make the next cluster key on this machine, or say that there is one
///
/// This machine then accepts both and still shows the current one. JSON: {ok, namespace, file,
/// next: "new" | "there"}.
#[derive(Args, Debug)]
struct Rotate {
    #[command(flatten)]
    which: Which,
}

/// Drop the old cluster key on this machine: from now on the next one is the only one
///
/// Machines that do not have it are parted from within ten seconds. JSON: {ok, namespace, file,
/// finished}, where finished is false if no key was being changed.
#[derive(Args, Debug)]
struct Finish {
    #[command(flatten)]
    which: Which,
}

impl Change {
    /// Runs the command.
    pub fn run(self, output: &Output) -> Result<Exit> {
        match self.step {
            Step::Rotate(rotate) => rotate.run(output),
            Step::Finish(finish) => finish.run(output),
        }
    }
}

impl Rotate {
    fn run(self, output: &Output) -> Result<Exit> {
        let keys = Keys::of(&self.which.config())?;
        let was_there = keys.next_cluster_key()?.is_some();
        keys.rotate_cluster_key()?;
        let (file, flag) = (keys.cluster_key_file(), self.which.flag());
        let document = json!({
            "ok": true,
            "namespace": keys.namespace(),
            "file": file.display().to_string(),
            "next": if was_there { "there" } else { "new" },
        });
        output.result(&document, || {
            format!("The next key is in {}, beside the current one.", file.display())
        })?;
        output.say(&format!(
            "Next: `potluck invite{flag}` here and `potluck join CODE --next{flag}` on each other \
             machine; when all have it, `potluck keys finish{flag}` on each."
        ));
        Ok(Exit::Done)
    }
}

impl Finish {
    fn run(self, output: &Output) -> Result<Exit> {
        let keys = Keys::of(&self.which.config())?;
        let finished = keys.finish_rotation()?;
        let file = keys.cluster_key_file();
        let document = json!({
            "ok": true,
            "namespace": keys.namespace(),
            "file": file.display().to_string(),
            "finished": finished,
        });
        output.result(&document, || {
            if finished {
                format!("The old key is gone from {}.", file.display())
            } else {
                "No key is being changed here; `potluck keys rotate` begins it.".to_owned()
            }
        })?;
        Ok(Exit::Done)
    }
}
