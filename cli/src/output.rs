//! Where words go: results to stdout, chatter to stderr.

use crate::exit::{self, Exit};
use anstyle::{AnsiColor, Style};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::io::{self, IsTerminal, Write};

/// What the user wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

/// The two outputs of a command.
pub struct Output {
    form: Form,
}

impl Output {
    /// With `json`, stdout carries JSON alone.
    pub fn new(json: bool) -> Output {
        Output { form: if json { Form::Json } else { Form::Text } }
    }

    /// Whether stdout carries JSON.
    pub fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    /// A result: `document` as one line of JSON, or `text`.
    pub fn result(&self, document: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let words = match self.form {
            Form::Json => serde_json::to_string(document)?,
            Form::Text => text(),
        };
        let mut out = io::stdout().lock();
        match writeln!(out, "{}", words.trim_end()).and_then(|()| out.flush()) {
            // Whoever read it has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }

    /// A word to the person, never to a program.
    pub fn say(&self, text: &str) {
        // There is nobody to complain to about a closed stderr.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// The end of a command that failed: a sentence on stderr, with `--json` also a document on stdout.
    pub fn failure(&self, error: &anyhow::Error) -> Exit {
        let (exit, code) = exit::of(error);
        let message = format!("{error:#}");
        self.say(&format!("potluck: {message}"));
        if self.is_json() {
            let document = json!({ "ok": false, "code": code, "message": message, "exit": exit as u8 });
            // The exit code says it too.
            let _ = self.result(&document, String::new);
        }
        exit
    }
}

/// Whether colours may be used where there is a terminal: `NO_COLOR` set to anything means no.
pub fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// `text` in green or red, where stdout is a terminal that wants it.
pub fn verdict(good: bool, text: &str) -> String {
    if !(io::stdout().is_terminal() && colours_wanted()) {
        return text.to_owned();
    }
    let style = Style::new().fg_color(Some(if good { AnsiColor::Green } else { AnsiColor::Red }.into()));
    format!("{style}{text}{style:#}")
}
