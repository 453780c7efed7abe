//! `potluck run`: starts a program on every machine of a group, and supervises it.

mod command;
mod guard;
mod layout;
mod lines;
mod machine;
mod notice;
mod offer;
mod ports;
mod programs;
mod report;
mod signals;
mod subnet;
mod supervisor;
mod variables;
mod verdict;
mod writer;

use crate::args::{Where, Which};
use crate::exit::{Exit, Stop};
use crate::output::Output;
use anyhow::Result;
use clap::Args;
use command::Command;
pub use guard::Guard;
use potluck::{Config, Partition};
use report::Rules;
use std::path::PathBuf;
use std::time::Duration;
use supervisor::Supervisor;

/// Run a program on N machines that find each other: type the same on each, in any order
///
/// The machines form a group of their own, agree on ranks, a master and ports, and each starts the
/// command that was typed there, with the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK,
/// MASTER_ADDR, MASTER_PORT, ...), of MLX's ring (MLX_RANK, MLX_HOSTFILE) and of JAX
/// (JAX_COORDINATOR_ADDRESS, JAX_PROCESS_ID, JAX_NUM_PROCESSES). No machine tells another what to
/// run. If a program fails or a machine is lost, the programs of all machines end: SIGTERM, then
/// SIGKILL. With --restarts or --elastic they start again, with new ranks. Ctrl-C ends the
/// programs, a second one kills them. With --elastic the other machines go on after Ctrl-C,
/// otherwise the run ends on all of them.
///
/// Each line that a program prints is shown behind its rank: "[0] ...". The exit code is that of
/// the program that failed first; else 0, 3 after --wait, 4 when a machine was lost, or 130. JSON,
/// one document per line: {event: "started", generation, machines, world, ranks, master, port},
/// {event: "output", rank, stream, line}, {event: "stopped", generation, why}, {event: "ended",
/// why, exit}.
#[derive(Args, Debug)]
pub struct Run {
    /// How many machines begin, 1 to 32
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=32))]
    members: u8,
    /// Go on with at least MIN machines when some are lost, and take them back when they return
    #[arg(long, value_name = "MIN", value_parser = clap::value_parser!(u8).range(1..=32))]
    elastic: Option<u8>,
    /// How often all programs are started again after one has failed, or, without --elastic, after
    /// a machine was lost
    #[arg(long, value_name = "N", default_value_t = 0)]
    restarts: u32,
    /// How many processes to start on this machine, 1 to 64
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=64)
    )]
    procs_per_machine: u8,
    /// The name of this run, 1 to 28 of a-z, 0-9, - and _: two runs at the same time need two
    #[arg(long, value_name = "RUN")]
    run_name: Option<String>,
    /// Also write the output of each rank to DIR/rank-RANK.log
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
    /// Give up when too few machines are there for so long [default: never]
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u32>,
    /// The time between SIGTERM and SIGKILL
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u32,
    /// Let programs use this port and those after it, for a firewall [default: any free ones]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65_400))]
    port: Option<u16>,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Where,
    /// A peer to dial besides those that are found, as host or host:port; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    peer: Vec<String>,
    /// The name of this node [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<std::ffi::OsString>,
}

impl Run {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        let rules = self.rules()?;
        if let Some(folder) = &self.logs {
            lines::make_folder(folder)?;
        }
        let (config, command) = (self.config(), self.command());
        let mut supervisor =
            Supervisor::start(config, rules, command, self.wait.map(seconds), output).await?;
        let ended = supervisor.supervise().await;
        supervisor.leave().await;
        ended
    }

    fn rules(&self) -> Result<Rules> {
        let min = self.elastic.unwrap_or(self.members);
        if min > self.members {
            return Err(Stop::usage(format!(
                "--elastic {min} is more than --members {}: the run begins with the members, and \
                 goes on with the smaller number",
                self.members
            )));
        }
        let is_elastic = self.elastic.is_some();
        Ok(Rules { members: self.members, min, is_elastic, restarts: self.restarts })
    }

    /// The group of the supervisors: it goes on with one, so that the last one is told of the end
    /// of the others.
    fn config(&self) -> Config {
        let mut config = self.place.config(&self.which);
        let name = self.run_name.as_ref().map(|name| format!("-{name}")).unwrap_or_default();
        config.job = Some(format!("run{name}"));
        config.members = Some(self.members.into());
        config.min_members = Some(1);
        config.max_members = Some(self.members.into());
        // POTLUCK_PARTITION is for the programs.
        config.partition = Some(Partition::Continue);
        config.stateless = true;
        config.peers.clone_from(&self.peer);
        config.name.clone_from(&self.name);
        config
    }

    fn command(&self) -> Command {
        Command {
            words: self.command.clone(),
            processes: self.procs_per_machine,
            run_name: self.run_name.clone(),
            namespace: self.which.namespace.clone(),
            logs: self.logs.clone(),
            grace: seconds(self.grace),
            port: self.port,
        }
    }
}

fn seconds(number: u32) -> Duration {
    Duration::from_secs(number.into())
}
