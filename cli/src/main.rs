//! The command line of potluck.

mod peer;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Turns the computers of a home or lab network into one all-reduce group.
#[derive(Parser)]
#[command(name = "potluck", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// A node that does what JSON lines on its input say, for tests and demonstrations.
    #[command(hide = true)]
    Peer(peer::Options),
}

fn main() -> ExitCode {
    match Arguments::parse().verb {
        Verb::Peer(options) => peer::run(options),
    }
}
