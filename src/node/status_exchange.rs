//! The conversation of an observer with a node: a question, then a status document, again and
//! again.
//!
//! Both travel as messages of a control link whose purpose is to observe. The question is an empty
//! message. The document is JSON in parts: the first byte of a part is 1 if another part follows,
//! else 0. A node answers one question per second, and an observer asks again when it has the
//! answer.

use crate::link::{CONTROL_BYTES_MAX, ControlReceiver, ControlSender};
use crate::report::document::StatusDocument;
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// Longest time for one message of the other end, except for a question.
const PATIENCE: Duration = Duration::from_secs(5);

/// A document of a View with sixteen members has less than a tenth of this.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

const LAST: u8 = 0;
const MORE: u8 = 1;

/// One end of a link between an observer and a node.
pub(super) struct StatusExchange {
    to: ControlSender,
    from: ControlReceiver,
}

impl StatusExchange {
    pub(super) fn over((to, from): (ControlSender, ControlReceiver)) -> StatusExchange {
        StatusExchange { to, from }
    }

    /// Waits for the next question, without bound.
    ///
    /// # Errors
    /// The end of the link, or a message that is no question.
    pub(super) async fn question(&mut self) -> io::Result<()> {
        let question = self.from.recv().await?;
        if question.is_empty() { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Answers a question.
    ///
    /// # Errors
    /// Those of the link, and `TimedOut` if the observer does not take the answer.
    pub(super) async fn answer(&mut self, document: &StatusDocument) -> io::Result<()> {
        let json = serde_json::to_vec(document)?;
        let mut parts = json.chunks(CONTROL_BYTES_MAX - 1).peekable();
        while let Some(part) = parts.next() {
            let more = if parts.peek().is_some() { MORE } else { LAST };
            self.send(&[&[more], part].concat()).await?;
        }
        Ok(())
    }

    /// Asks, and waits for the answer. Control characters in its texts are replaced, so a lying
    /// node does not reach the terminal of the reader.
    ///
    /// # Errors
    /// Those of the link, `TimedOut` if the node does not answer within five seconds, `InvalidData`
    /// if the answer is no status document or has more than 1 MiB.
    pub(super) async fn ask(&mut self) -> io::Result<StatusDocument> {
        self.send(&[]).await?;
        let mut json = Vec::new();
        loop {
            let part = timeout(PATIENCE, self.from.recv()).await??;
            let (more, rest) = part.split_first().ok_or(io::ErrorKind::InvalidData)?;
            if json.len() + rest.len() > DOCUMENT_BYTES_MAX || *more > MORE {
                return Err(io::ErrorKind::InvalidData.into());
            }
            json.extend_from_slice(rest);
            if *more == LAST {
                let mut document = serde_json::from_slice(&json)?;
                clean(&mut document);
                return Ok(serde_json::from_value(document)?);
            }
        }
    }

    async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.to.add(message)?;
        timeout(PATIENCE, self.to.flush()).await?
    }
}

/// Replaces the control characters in all texts.
fn clean(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) if text.contains(char::is_control) => {
            *text = text.replace(char::is_control, "\u{fffd}");
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(clean),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(clean),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::control_link;
    use serde_json::{Value, json};

    fn document(reasons: &[String]) -> Value {
        json!({
            "ok": true, "running": true, "node": "ab", "name": "n1", "process": 1,
            "namespace": "default", "job": "train", "open": false, "port": 1, "state": "in",
            "state_text": "in", "view": null, "peers": [], "interfaces": [], "reasons": reasons,
            "other_jobs": [], "gloo": null,
            "counters": {
                "views": 0, "links": 0, "strangers": 0, "other_versions": 0, "overloads": 0,
                "misbehaviours": 0, "committed": 0,
            },
        })
    }

    fn ends() -> (StatusExchange, StatusExchange) {
        let (near, far) = control_link();
        (StatusExchange::over(near), StatusExchange::over(far))
    }

    #[tokio::test]
    async fn a_document_of_several_parts_arrives_whole_again_and_again() {
        let (mut observer, mut node) = ends();
        for lines in [0, 1, 200] {
            let said = document(&vec!["x".repeat(1000); lines]);
            let said: StatusDocument = serde_json::from_value(said).expect("a document");
            let answering = async {
                node.question().await.expect("a question");
                node.answer(&said).await.expect("answered");
            };
            let (heard, ()) = tokio::join!(observer.ask(), answering);
            assert_eq!(heard.expect("an answer"), said);
        }
    }

    #[tokio::test]
    async fn a_lying_node_does_not_reach_the_terminal() {
        let (mut observer, mut node) = ends();
        let nasty = "a\u{1b}[2Jb\u{9b}c\nd";
        let said = serde_json::from_value(document(&[nasty.to_owned()])).expect("a document");
        let (heard, answered) = tokio::join!(observer.ask(), node.answer(&said));
        answered.expect("sent");
        assert_eq!(heard.expect("an answer").reasons, ["a\u{fffd}[2Jb\u{fffd}c\u{fffd}d"]);
    }

    #[tokio::test]
    async fn anything_else_ends_the_exchange() {
        let deep = [b"\0".to_vec(), vec![b'['; 50_000]].concat();
        for part in [&b""[..], b"\x02{}", b"\0", b"\0{}", b"\0\xff", b"\0[1", &deep] {
            let (mut observer, mut node) = ends();
            let (heard, sent) = tokio::join!(observer.ask(), node.send(part));
            sent.expect("sent");
            assert!(heard.is_err(), "{part:?}");
        }
        let (mut observer, mut node) = ends();
        let flood = async {
            let part = [&[MORE], &[b' '; CONTROL_BYTES_MAX - 1][..]].concat();
            while node.send(&part).await.is_ok() {}
        };
        let refused = async {
            let heard = observer.ask().await;
            drop(observer);
            heard.map(drop).map_err(|error| error.kind())
        };
        let (heard, ()) = tokio::join!(refused, flood);
        assert_eq!(heard, Err(io::ErrorKind::InvalidData));
        // A question has no content.
        let (mut observer, mut node) = ends();
        observer.send(b"what?").await.expect("sent");
        assert!(node.question().await.is_err());
    }
}
