//! `potluck-peer`: a node that a test controls by JSON commands, one object per line. It answers
//! with JSON events, one per line.
//!
//! Commands run one after the other on the program's own thread, as in a training program. Only
//! `status` is answered at once, even while a call waits or the program is blocked. At the end of
//! the input, or on SIGTERM, the node leaves. Every failure is reported as an event; only a node
//! that cannot join ends with exit code 1.

mod answer;
mod arguments;
mod call;
mod coded;
mod flights;
mod gradients;
mod message;
#[path = "../../../cli/src/demo/milestone.rs"]
mod milestone;
mod numbers;
mod order;
#[path = "../../../cli/src/demo/orders.rs"]
mod orders;
mod peer;
mod report;
mod scarce;
mod step;
mod train;

use clap::Parser;
use order::Order;
use peer::{Options, Peer, Shared, tell_status};
use report::refuse;
use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing_subscriber::EnvFilter;

/// Reads and executes commands until the end of the input.
fn main() -> ExitCode {
    let options = Options::parse();
    log_to_stderr();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed("runtime", &error.to_string()),
    };
    let shared = Shared::default();
    let (orders, todo) = mpsc::unbounded_channel();
    let reader = Arc::clone(&shared);
    let spawned =
        std::thread::Builder::new().name("orders".to_owned()).spawn(move || read(&reader, &orders));
    if let Err(error) = spawned {
        return failed("thread", &error.to_string());
    }
    runtime.block_on(Peer::new(options, shared).live(todo))
}

/// Warnings, or the events that the filter `POTLUCK_LOG` selects.
fn log_to_stderr() {
    let filter =
        EnvFilter::try_from_env("POTLUCK_LOG").unwrap_or_else(|_| EnvFilter::new("potluck=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

fn failed(code: &str, message: &str) -> ExitCode {
    refuse(code, message);
    ExitCode::FAILURE
}

/// The reading thread. The end of the input closes the channel.
fn read(shared: &Shared, orders: &mpsc::UnboundedSender<Order>) {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(&line) {
            Ok(Order::Status) => tell_status(shared),
            Ok(order) => {
                if orders.send(order).is_err() {
                    return;
                }
            }
            Err(error) => refuse("order", &error.to_string()),
        }
    }
}
