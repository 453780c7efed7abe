//! One check of `doctor`, and its verdict.

use serde::Serialize;

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Pass,
    Warn,
    Fail,
    Skipped,
}

impl Verdict {
    /// As the text shows it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
            Verdict::Skipped => "skipped",
        }
    }
}

/// A check, its verdict and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The name of the check.
    pub check: &'static str,
    pub verdict: Verdict,
    /// The finding, in one sentence.
    pub text: String,
    /// A command that mends it, to paste.
    pub command: Option<String>,
}

impl Check {
    pub fn pass(check: &'static str, text: impl Into<String>) -> Check {
        Check { check, verdict: Verdict::Pass, text: text.into(), command: None }
    }

    pub fn warn(check: &'static str, text: impl Into<String>) -> Check {
        Check { check, verdict: Verdict::Warn, text: text.into(), command: None }
    }

    pub fn fail(check: &'static str, text: impl Into<String>) -> Check {
        Check { check, verdict: Verdict::Fail, text: text.into(), command: None }
    }

    pub fn skipped(check: &'static str, text: impl Into<String>) -> Check {
        Check { check, verdict: Verdict::Skipped, text: text.into(), command: None }
    }

    /// The same with a command that mends it.
    pub fn with(self, command: impl Into<String>) -> Check {
        Check { command: Some(command.into()), ..self }
    }
}
