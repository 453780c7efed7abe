//! The command line of potluck.
//!
//! Results go to stdout, everything else to stderr. With `--json` stdout is JSON: one document, or
//! for `up`, `invite` and `run` one per line.

mod address;
mod args;
mod bench;
mod completions;
mod core_dump;
mod demo;
mod deny;
mod doctor;
mod document;
mod exit;
mod first_key;
mod help;
mod hosts;
mod identity;
mod invite;
mod itself;
mod join;
mod key;
mod keys;
mod known;
mod manual;
mod output;
mod peers;
mod picture;
mod prompt;
mod run;
mod selection;
mod status;
mod table;
mod top;
mod up;

use clap::{CommandFactory, Parser, Subcommand};
use output::Output;
use std::ffi::OsString;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Turns the computers on a home or lab network into one all-reduce group.
#[derive(Parser)]
#[command(name = "potluck", version, after_help = exit::HELP, disable_help_subcommand = true)]
struct Cli {
    /// Print JSON on stdout instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Say more on stderr; twice for still more. POTLUCK_LOG is a filter that goes before it
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Up(up::Up),
    Invite(invite::Invite),
    Join(join::Join),
    Status(status::Ask),
    Doctor(doctor::Doctor),
    Bench(bench::Bench),
    Peers(peers::Peers),
    Top(top::Top),
    Run(run::Run),
    Hosts(hosts::Hosts),
    Identity(identity::Show),
    Key(key::Show),
    Keys(keys::Change),
    Deny(deny::Deny),
    Known(known::Known),
    Demo(demo::Demo),
    Completions(completions::Completions),
    #[command(name = "man")]
    Manual(manual::Manual),
    Help(help::Help),
    /// One of the processes of `demo`, which starts it.
    #[command(hide = true)]
    DemoMember(demo::Member),
    /// The parent of a program of `run`, which starts it.
    #[command(hide = true)]
    RunGuard(run::Guard),
}

/// Runs the command line with these arguments, without the name of the program; returns its exit
/// code. `itself` are the words that start it again, and its arguments follow them: the command
/// starts processes of its own. A process runs it once.
pub fn main(arguments: Vec<OsString>, itself: Vec<OsString>) -> u8 {
    let words = std::iter::once(OsString::from("potluck")).chain(arguments.iter().cloned());
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            // If nobody reads it, the exit code is left.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(1);
        }
    };
    itself::set(itself, arguments);
    log_to_stderr(cli.verbose);
    let output = Output::new(cli.json);
    core_dump::forbid();
    let ended = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(cli.verb, &output)));
    let exit = match ended {
        Ok(exit) => exit,
        Err(error) => output.failure(&error),
    };
    exit.code()
}

async fn run(verb: Verb, output: &Output) -> anyhow::Result<exit::Exit> {
    match verb {
        Verb::Up(up) => up.run(output).await,
        Verb::Invite(invite) => invite.run(output).await,
        Verb::Join(join) => join.run(output).await,
        Verb::Status(status) => status.run(output).await,
        Verb::Doctor(doctor) => doctor.run(output).await,
        Verb::Bench(bench) => bench.run(output).await,
        Verb::Peers(peers) => peers.run(output).await,
        Verb::Top(top) => top.run(output).await,
        Verb::Identity(identity) => identity.run(output),
        Verb::Key(key) => key.run(output),
        Verb::Keys(keys) => keys.run(output),
        Verb::Deny(deny) => deny.run(output).await,
        Verb::Known(known) => known.run(output),
        Verb::Demo(demo) => demo.run(output).await,
        Verb::Completions(completions) => completions.run(&Cli::command(), output),
        Verb::Help(help) => help.run(Cli::command(), output),
        Verb::Manual(manual) => manual.run(Cli::command(), output),
        Verb::DemoMember(member) => member.run().await,
        Verb::Run(launch) => launch.run(output).await,
        Verb::Hosts(hosts) => hosts.run(output).await,
        Verb::RunGuard(guard) => guard.run(output).await,
    }
}

fn log_to_stderr(verbose: u8) {
    let by_flag = match verbose {
        0 => "potluck=warn",
        1 => "potluck=info",
        2 => "potluck=debug",
        _ => "potluck=trace",
    };
    let filter = EnvFilter::try_from_env("POTLUCK_LOG").unwrap_or_else(|_| EnvFilter::new(by_flag));
    let colours = std::io::stderr().is_terminal() && output::colours_wanted();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(std::io::stderr)
        .init();
}
