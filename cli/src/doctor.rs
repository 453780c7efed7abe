//! `potluck doctor`: why machines do not find each other, from both sides.

mod check;
mod checks;
mod facts;
mod firewall;

use crate::args::{Where, Which};
use crate::exit::Exit;
use crate::output::Output;
use crate::picture::{Paper, plain, wrapped};
use anyhow::Result;
use check::{Check, Verdict};
use clap::Args;
use facts::Facts;
use serde_json::json;

/// Say why machines do not find or reach each other, with the command that mends it
///
/// Looks at this machine, joins nobody's group, and asks every machine that it meets to look back.
/// So it needs the cluster key, and something of potluck on the others: a program, `potluck up`, or
/// this command at the same time. It changes nothing. Takes about ten seconds. JSON: {ok: whether
/// no check failed, checks: [{check, verdict: "pass" | "warn" | "fail" | "skipped", text,
/// command}]}. Exit code 7: a check failed.
#[derive(Args, Debug)]
pub struct Doctor {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Where,
    /// A machine to dial besides those that are found, as host or host:port; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    peer: Vec<String>,
}

impl Doctor {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        let mut config = self.place.config(&self.which);
        config.peers.clone_from(&self.peer);
        let facts = Facts::collect(config, self.which.flag(), output).await?;
        let checks = checks::all(&facts);
        let has_fault = checks.iter().any(|check| check.verdict == Verdict::Fail);
        output.result(&json!({ "ok": !has_fault, "checks": checks }), || {
            text(&checks, output.paper())
        })?;
        Ok(if has_fault { Exit::Fault } else { Exit::Done })
    }
}

/// Each check on its lines, and below it the command that mends it, which is not broken.
fn text(checks: &[Check], paper: Paper) -> String {
    let indent = " ".repeat(INDENT);
    let lines = checks.iter().map(|check| {
        let told = wrapped(&plain(&check.text), paper.columns.saturating_sub(INDENT).max(20));
        let head = format!("{:<8} {:<14} ", check.verdict.word(), check.check);
        let command = check.command.iter().map(|command| format!("{indent}$ {}", plain(command)));
        let told = told.join(&format!("\n{indent}"));
        [format!("{head}{told}")].into_iter().chain(command).collect::<Vec<_>>().join("\n")
    });
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let counted = format!(
        "{} passed, {} warned, {} failed, {} skipped",
        count(Verdict::Pass),
        count(Verdict::Warn),
        count(Verdict::Fail),
        count(Verdict::Skipped)
    );
    lines.chain([counted]).collect::<Vec<_>>().join("\n")
}

/// The width of verdict and check.
const INDENT: usize = 24;
