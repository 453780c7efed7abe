//! The thread that writes the messages of the command, so that they stop no supervisor where the
//! terminal is blocked.

use crate::output::Output;
use anyhow::Result;
use serde_json::Value;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Has messages and documents written in their order. The thread ends when all clones are gone.
#[derive(Clone, Debug)]
pub struct Writer {
    orders: Sender<Order>,
}

#[derive(Debug)]
enum Order {
    Say(String),
    Document(Value),
    /// Dropped when it is reached.
    Mark(Sender<()>),
}

impl Writer {
    /// Starts the thread.
    pub fn start(output: &Output) -> Result<Writer> {
        let (orders, queue) = channel();
        let output = output.clone();
        let write = move || {
            for order in queue {
                follow(&output, order);
            }
        };
        std::thread::Builder::new().name("messages".to_owned()).spawn(write)?;
        Ok(Writer { orders })
    }

    /// Has a message for people written.
    pub fn say(&self, text: String) {
        self.order(Order::Say(text));
    }

    /// Has a document written, if the output is JSON.
    pub fn document(&self, document: Value) {
        self.order(Order::Document(document));
    }

    /// A channel that ends when all is written that was ordered before.
    pub fn mark(&self) -> Receiver<()> {
        let (mark, reached) = channel();
        self.order(Order::Mark(mark));
        reached
    }

    /// Waits until all is written, for at most two seconds: a terminal may be blocked.
    pub fn finish(&self) {
        // Ends early at the mark.
        let _ = self.mark().recv_timeout(FLUSH_TIMEOUT);
    }

    fn order(&self, order: Order) {
        // An error means that the thread has panicked: there is nobody to tell.
        let _ = self.orders.send(order);
    }
}

fn follow(output: &Output, order: Order) {
    match order {
        Order::Say(text) => output.say(&text),
        Order::Document(document) if output.is_json() => {
            // Nobody reads it any more: the run goes on.
            let _ = output.result(&document, String::new);
        }
        Order::Document(_) => {}
        Order::Mark(mark) => drop(mark),
    }
}

/// How long the last output is waited for.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::RecvTimeoutError;

    #[test]
    fn a_mark_ends_behind_the_messages() {
        let writer = Writer::start(&Output::silent()).expect("a thread");
        writer.say("one".to_owned());
        writer.document(Value::Null);
        let reached = writer.mark().recv_timeout(Duration::from_secs(60));
        assert_eq!(reached, Err(RecvTimeoutError::Disconnected));
        writer.finish();
    }
}
