//! `potluck man`: the manual pages of the command and of each of its verbs.

use crate::exit::Exit;
use crate::output::Output;
use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_mangen::Man;
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Print the manual pages, or write them to a folder
///
/// `potluck man | man -l -` shows them all; `potluck man ~/.local/share/man/man1` lets `man
/// potluck-up` find them. JSON: {ok, pages: [{name, file, text}]}; `file` is null without a folder.
#[derive(Args, Debug)]
pub struct Manual {
    /// Write potluck.1 and a file per command to this folder, which is made if it is missing
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Page {
    /// For example `potluck-up.1`.
    name: String,
    file: Option<String>,
    /// In the language of roff.
    text: String,
}

impl Manual {
    /// Prints or writes the pages of this command line.
    pub fn run(self, whole: Command, output: &Output) -> Result<Exit> {
        let mut pages = pages(whole)?;
        if let Some(folder) = &self.folder {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
            for page in &mut pages {
                page.write_to(folder)?;
            }
        }
        output.result(&json!({ "ok": true, "pages": pages }), || {
            let line = |page: &Page| match &page.file {
                Some(file) => format!("Wrote {file}"),
                None => page.text.clone(),
            };
            pages.iter().map(line).collect::<Vec<_>>().join("\n")
        })?;
        Ok(Exit::Done)
    }
}

impl Page {
    fn of(command: Command) -> Result<Page> {
        let (man, mut text) = (Man::new(command), Vec::new());
        man.render(&mut text)?;
        let text = String::from_utf8(text).context("the page is not text")?;
        Ok(Page { name: man.get_filename(), file: None, text })
    }

    fn write_to(&mut self, folder: &Path) -> Result<()> {
        let file = folder.join(&self.name);
        std::fs::write(&file, &self.text)
            .with_context(|| format!("cannot write {}", file.display()))?;
        self.file = Some(file.display().to_string());
        Ok(())
    }
}

/// The page of the program, then one for each visible command.
fn pages(whole: Command) -> Result<Vec<Page>> {
    let mut whole = whole.disable_help_subcommand(true);
    whole.build();
    let mut commands = vec![whole.clone()];
    commands.extend(whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
    commands.extend(nested(&whole));
    commands.into_iter().map(Page::of).collect()
}

/// The commands of commands, such as `keys rotate`.
fn nested(whole: &Command) -> Vec<Command> {
    let visible = |command: &&Command| !command.is_hide_set();
    let of = |verb: &Command| verb.get_subcommands().filter(visible).cloned().collect::<Vec<_>>();
    whole.get_subcommands().filter(visible).flat_map(of).collect()
}
