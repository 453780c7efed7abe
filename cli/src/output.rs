//! The output of commands: results on stdout, messages on stderr.

use crate::document::hex;
use crate::exit::{self, Exit};
use crate::picture::Paper;
use anstyle::{AnsiColor, Style};
use anyhow::Result;
use potluck::NodeId;
use rustix::termios::{Winsize, tcgetwinsize};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// The format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

/// The two outputs of a command.
#[derive(Clone, Debug)]
pub struct Output {
    form: Form,
    says: Says,
}

/// Whether messages for people are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    All,
    Nothing,
}

impl Output {
    /// With `json`, stdout carries only JSON.
    pub fn new(json: bool) -> Output {
        Output { form: if json { Form::Json } else { Form::Text }, says: Says::All }
    }

    /// An output without messages for people, for a command whose frames they would disturb.
    pub fn silent() -> Output {
        Output { form: Form::Text, says: Says::Nothing }
    }

    /// Whether stdout carries JSON.
    pub fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    /// Prints a result: `document` as one line of JSON, or `text`.
    pub fn result(&self, document: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let words = match self.form {
            Form::Json => serde_json::to_string(document)?,
            Form::Text => text(),
        };
        let mut out = io::stdout().lock();
        match writeln!(out, "{}", words.trim_end()).and_then(|()| out.flush()) {
            // The reader has closed the pipe, as `head` does: no error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }

    /// Prints the file with a list of nodes, and whether the command has changed it. `list` is the
    /// name of the list in the document.
    pub fn nodes(
        &self,
        list: &str,
        file: &Path,
        changed: bool,
        nodes: &BTreeMap<NodeId, String>,
    ) -> Result<()> {
        let listed: Vec<_> =
            nodes.iter().map(|(node, name)| json!({"node": hex(*node), "name": name})).collect();
        // A path that is not text has no JSON.
        let file = file.display().to_string();
        let document = json!({"ok": true, "file": file, "changed": changed, list: listed});
        self.result(&document, || {
            let lines: Vec<String> =
                nodes.iter().map(|(node, name)| format!("{} {name}", hex(*node))).collect();
            if lines.is_empty() { format!("No node is {list} here.") } else { lines.join("\n") }
        })
    }

    /// The capabilities of stdout for pictures.
    pub fn paper(&self) -> Paper {
        let columns = terminal_size().map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { COLUMNS } else { columns };
        let colours = io::stdout().is_terminal() && colours_wanted();
        Paper { columns, colours, unicode: unicode_wanted() }
    }

    /// The height of the terminal of stdout in lines, if it is one that knows it.
    pub fn rows(&self) -> Option<usize> {
        terminal_size().map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0)
    }

    /// Prints a message for people on stderr.
    pub fn say(&self, text: &str) {
        if self.says == Says::Nothing {
            return;
        }
        // If stderr is closed, the error cannot be reported.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Reports a failed command: a sentence on stderr, and with `--json` also a document on stdout.
    pub fn failure(&self, error: &anyhow::Error) -> Exit {
        let (exit, code) = exit::of(error);
        let message = format!("{error:#}");
        self.say(&format!("potluck: {message}"));
        if self.is_json() {
            let document =
                json!({ "ok": false, "code": code, "message": message, "exit": exit.code() });
            // An error is ignored: the exit code reports the failure too.
            let _ = self.result(&document, String::new);
        }
        exit
    }
}

/// The size of the terminal of stdout; 0 lines or columns if it does not know it.
fn terminal_size() -> Option<Winsize> {
    tcgetwinsize(io::stdout()).ok().filter(|_| io::stdout().is_terminal())
}

/// Whether a terminal may show colours: not if `NO_COLOR` is set to anything but the empty string.
pub fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether the locale's encoding is UTF-8. If no locale is set, as on macOS and in most containers,
/// it is assumed.
fn unicode_wanted() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// The width if there is no terminal, or it does not report one.
const COLUMNS: usize = 100;

/// `text` in green or red if stdout is a terminal that may show colours.
pub fn verdict(good: bool, text: &str) -> String {
    if !(io::stdout().is_terminal() && colours_wanted()) {
        return text.to_owned();
    }
    let style =
        Style::new().fg_color(Some(if good { AnsiColor::Green } else { AnsiColor::Red }.into()));
    format!("{style}{text}{style:#}")
}
