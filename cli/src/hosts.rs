//! `potluck hosts`: the members of a group as a host file.

mod format;
mod host;

use crate::exit::{Exit, Stop};
use crate::output::Output;
use crate::selection::{LOOK_JOB, Selection};
use crate::status::jobs_of;
use anyhow::Result;
use clap::Args;
use format::Format;
use host::Host;
use potluck::report::document::StatusDocument;
use potluck::{Config, Observer};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Print the members of a running group with their addresses, as a host file for other launchers
///
/// The addresses are those by which one member reaches the others directly, over the network that
/// the group uses, which is the fastest one that was found: a member on this machine if there is
/// one. JSON: {ok, job, view, hosts: [{rank, name, node, address, slots}]}. Without a group the
/// exit code is 3.
#[derive(Args, Debug)]
pub struct Hosts {
    #[command(flatten)]
    selection: Selection,
    /// The format
    #[arg(long, value_enum, default_value_t = Format::Plain)]
    format: Format,
    /// How many processes each machine takes, for --format mpi [default: its members]
    #[arg(long, value_name = "N")]
    slots: Option<u16>,
}

impl Hosts {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        let mut nodes = self.selection.local(&Output::silent()).await?.nodes;
        self.retain(&mut nodes);
        if nodes.is_empty() {
            // Nodes of this machine may be in no group, and others are.
            nodes = self.selection.around(output).await?.nodes;
            self.retain(&mut nodes);
        }
        if host::of(&self.group(&nodes)?).is_err() {
            // The members elsewhere know their addresses.
            nodes.extend(members(self.selection.config(), &self.group(&nodes)?).await?);
            self.retain(&mut nodes);
        }
        let group = self.group(&nodes)?;
        let Some(view) = group.first().and_then(|node| node.view.as_ref()) else {
            return Err(self.no_group());
        };
        if let Some(sentence) = host::warning(&group) {
            output.say(&format!("potluck: warning: {sentence}"));
        }
        let mut hosts = host::of(&group)?;
        if let Some(slots) = self.slots {
            hosts.iter_mut().for_each(|host| host.slots = slots.into());
        }
        let job = group.first().map(|node| &node.job);
        let document = json!({ "ok": true, "job": job, "view": view.id, "hosts": hosts });
        output.result(&document, || self.format.text(&hosts, &document))?;
        Ok(Exit::Done)
    }

    fn retain(&self, nodes: &mut Vec<StatusDocument>) {
        // A group that waits for members is none yet.
        let is_in_group = |node: &StatusDocument| node.view.as_ref().is_some_and(|view| view.begun);
        nodes.retain(|node| is_in_group(node) && self.selection.admits(&node.job));
    }

    /// The nodes of the only group.
    fn group<'n>(&self, nodes: &'n [StatusDocument]) -> Result<Vec<&'n StatusDocument>> {
        let view = |node: &StatusDocument| node.view.as_ref().map(|view| view.id.clone());
        let first = nodes.first().ok_or_else(|| self.no_group())?;
        let group = nodes.iter().filter(|node| view(node) == view(first)).collect::<Vec<_>>();
        if nodes.iter().any(|node| node.job != first.job) {
            return Err(Stop::usage(format!(
                "there are several groups; choose a job by --job: {}",
                jobs_of(nodes)
            )));
        }
        Ok(group)
    }

    fn no_group(&self) -> anyhow::Error {
        let described = match self.selection.described() {
            Ok(described) => described,
            Err(error) => return error,
        };
        let sentence = format!(
            "no {described} is in a group: start your program on all machines, or `potluck run{}`",
            self.selection.flag()
        );
        Stop::with(Exit::NoPeers, "no-group", sentence)
    }
}

/// The status of each member of a group that answers in time.
async fn members(mut config: Config, group: &[&StatusDocument]) -> Result<Vec<StatusDocument>> {
    config.job = Some(LOOK_JOB.to_owned());
    let views = group.iter().filter_map(|node| node.view.as_ref());
    let wanted: BTreeSet<&String> =
        views.flat_map(|view| &view.members).map(|member| &member.node).collect();
    let mut observer = Observer::start(config).await?;
    let answered = |nodes: &[StatusDocument]| {
        wanted.iter().all(|member| nodes.iter().any(|node| node.node == **member))
    };
    let all_answer = async { while !answered(&observer.nodes()) && observer.changed().await {} };
    // Those that have not answered in time are missed where their address is needed.
    let _ = tokio::time::timeout(PATIENCE, all_answer).await;
    let nodes = observer.nodes();
    observer.leave().await;
    Ok(nodes)
}

/// Members on busy machines may take a second or two until they are found.
const PATIENCE: Duration = Duration::from_secs(5);
