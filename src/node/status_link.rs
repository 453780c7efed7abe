//! A link on which two nodes tell each other their status, because at least one of them observes.
//!
//! Each end that observes asks: for the status again and again, and, when its program wants it,
//! that the other node looks back. The other end answers: the status at most once a second, a look
//! back when its dials have ended. There is at most one open question of each kind in each
//! direction.
//!
//! All travels as messages of a control link. The first byte of a message is its kind, doubled,
//! plus one if another part follows. A question for the status is empty; all else is JSON.

use super::look_back::{LookBack, LookBackAnswer};
use crate::link::{CONTROL_BYTES_MAX, ControlReceiver, ControlSender};
use crate::report::document::StatusDocument;
use serde::de::DeserializeOwned;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longest time for one message to be taken by the connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// A document of a View with sixteen members has less than a tenth of this.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// Longest part of a message, its kind apart.
const PART_BYTES_MAX: usize = CONTROL_BYTES_MAX - 1;

/// Longest look back and longest answer to one, padding included.
const LOOK_BACK_BYTES_MAX: usize = 128 << 10;

/// A message from one end to the other.
#[derive(Debug, PartialEq)]
pub enum Said {
    /// A question for the status.
    Ask,
    /// The status.
    Status(Box<StatusDocument>),
    /// A question for a look back.
    LookBack(LookBack),
    /// The answer to a look back.
    LookedBack(Box<LookBackAnswer>),
    /// Another link between the two nodes stays, and this one ends.
    Spare,
}

/// The number of each kind.
const ASK: u8 = 0;
const STATUS: u8 = 1;
const LOOK_BACK: u8 = 2;
const LOOKED_BACK: u8 = 3;
const SPARE: u8 = 4;

impl Said {
    /// Its kind, and its bytes without that.
    fn encoded(&self) -> serde_json::Result<(u8, Vec<u8>)> {
        Ok(match self {
            Said::Ask => (ASK, Vec::new()),
            Said::Status(document) => (STATUS, serde_json::to_vec(document)?),
            Said::LookBack(question) => (LOOK_BACK, serde_json::to_vec(question)?),
            Said::LookedBack(answer) => (LOOKED_BACK, serde_json::to_vec(answer)?),
            Said::Spare => (SPARE, Vec::new()),
        })
    }

    /// The messages of a control link that carry it, in order.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn parts(&self) -> serde_json::Result<Vec<Vec<u8>>> {
        let (kind, bytes) = self.encoded()?;
        let last = bytes.len().saturating_sub(1) / PART_BYTES_MAX;
        let part = |number| {
            let from = number * PART_BYTES_MAX;
            let to = bytes.len().min(from + PART_BYTES_MAX);
            [&[2 * kind + u8::from(number < last)], &bytes[from..to]].concat()
        };
        Ok((0..=last).map(part).collect())
    }
}

/// The sending half of a link.
pub(super) struct StatusSender(ControlSender);

impl StatusSender {
    pub(super) fn new(to: ControlSender) -> StatusSender {
        StatusSender(to)
    }

    /// Sends it, in parts.
    ///
    /// # Errors
    /// Those of the link, and `TimedOut` if the connection does not take a part in five seconds.
    pub(super) async fn send(&mut self, said: &Said) -> io::Result<()> {
        for part in said.parts()? {
            self.0.add(&part)?;
            timeout(PATIENCE, self.0.flush()).await??;
        }
        Ok(())
    }
}

/// Reads the messages of the other end into a queue, until the link ends. Control characters in its
/// texts are replaced, so a lying node does not reach the terminal of the reader.
///
/// # Errors
/// Those of the link, and `InvalidData` for a message that is none of the above, too long, or more
/// than one question of a kind at a time, for which the queue has no room.
pub(super) async fn read_all(mut from: ControlReceiver, queue: mpsc::Sender<Said>) -> io::Error {
    let mut reader = StatusReader::default();
    loop {
        let said = match from.recv().await {
            Ok(part) => reader.take(&part),
            Err(error) => return error,
        };
        match said {
            Ok(None) => {}
            Ok(Some(said)) => {
                if queue.try_send(said).is_err() {
                    return io::ErrorKind::InvalidData.into();
                }
            }
            Err(error) => return error,
        }
    }
}

/// Joins the parts of each kind. Keeps at most a mebibyte of a status, and an eighth of that of a
/// look back and of its answer.
#[derive(Default)]
pub struct StatusReader {
    parts: [Vec<u8>; SPARE as usize + 1],
}

impl StatusReader {
    /// Takes a part. Returns the message that this part completes, if it completes one.
    ///
    /// # Errors
    /// `InvalidData` for a part of no known kind, parts that are too long together, and JSON of
    /// another form.
    pub fn take(&mut self, part: &[u8]) -> io::Result<Option<Said>> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let (head, rest) = part.split_first().ok_or_else(invalid)?;
        let (kind, more) = (head / 2, head % 2 == 1);
        let bytes = self.parts.get_mut(usize::from(kind)).ok_or_else(invalid)?;
        if bytes.len() + rest.len() > bytes_max(kind) {
            return Err(invalid());
        }
        bytes.extend_from_slice(rest);
        if more {
            return Ok(None);
        }
        let bytes = std::mem::take(bytes);
        Ok(Some(match kind {
            ASK => Said::Ask,
            STATUS => Said::Status(Box::new(parsed(&bytes)?)),
            LOOK_BACK => Said::LookBack(parsed(&bytes)?),
            LOOKED_BACK => Said::LookedBack(Box::new(parsed(&bytes)?)),
            _ => Said::Spare,
        }))
    }
}

fn bytes_max(kind: u8) -> usize {
    match kind {
        STATUS => DOCUMENT_BYTES_MAX,
        LOOK_BACK | LOOKED_BACK => LOOK_BACK_BYTES_MAX,
        _ => 0,
    }
}

fn parsed<T: DeserializeOwned>(json: &[u8]) -> io::Result<T> {
    let mut document = serde_json::from_slice(json)?;
    clean(&mut document);
    Ok(serde_json::from_value(document)?)
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
    use serde_json::json;

    fn document(reasons: &[String]) -> Box<StatusDocument> {
        let document = json!({
            "ok": true, "running": true, "node": "ab", "name": "n1", "process": 1,
            "namespace": "default", "job": "train", "open": false, "port": 1, "state": "in",
            "state_text": "in", "view": null, "peers": [], "interfaces": [], "reasons": reasons,
            "other_jobs": [], "gloo": null,
            "counters": {
                "views": 0, "links": 0, "strangers": 0, "other_versions": 0, "overloads": 0,
                "misbehaviours": 0, "committed": 0,
            },
        });
        Box::new(serde_json::from_value(document).expect("a document"))
    }

    /// A sender, and the messages at its other end until the link ends.
    fn ends() -> (StatusSender, mpsc::Receiver<Said>, tokio::task::JoinHandle<io::Error>) {
        let ((near, _), (_, far)) = control_link();
        let (queue, said) = mpsc::channel(8);
        (StatusSender::new(near), said, tokio::spawn(read_all(far, queue)))
    }

    #[tokio::test]
    async fn all_that_is_said_arrives_whole_again_and_again() {
        let (mut to, mut said, _reading) = ends();
        for lines in [0, 1, 200] {
            let status = document(&vec!["x".repeat(1000); lines]);
            to.send(&Said::Ask).await.expect("sent");
            to.send(&Said::Status(status.clone())).await.expect("sent");
            assert!(matches!(said.recv().await, Some(Said::Ask)));
            let Some(Said::Status(heard)) = said.recv().await else { panic!("a status") };
            assert_eq!(heard, status);
        }
        let question = LookBack::of(vec!["10.0.0.1:1".to_owned()]);
        to.send(&Said::LookBack(question.clone())).await.expect("sent");
        let Some(Said::LookBack(heard)) = said.recv().await else { panic!("a question") };
        assert_eq!(heard, question);
        to.send(&Said::Spare).await.expect("sent");
        assert!(matches!(said.recv().await, Some(Said::Spare)));
    }

    #[tokio::test]
    async fn a_lying_node_does_not_reach_the_terminal() {
        let (mut to, mut said, _reading) = ends();
        let nasty = "a\u{1b}[2Jb\u{9b}c\nd".to_owned();
        to.send(&Said::Status(document(&[nasty]))).await.expect("sent");
        let Some(Said::Status(heard)) = said.recv().await else { panic!("a status") };
        assert_eq!(heard.reasons, ["a\u{fffd}[2Jb\u{fffd}c\u{fffd}d"]);
    }

    #[tokio::test]
    async fn anything_else_ends_the_link() {
        let deep = [&[2 * STATUS][..], &[b'['; 50_000]].concat();
        let parts: [&[u8]; 8] =
            [b"", b"\x0a", b"\xff", b"\x00x", b"\x02", b"\x02{}", b"\x02\xff", b"\x04[1"];
        for part in parts.into_iter().chain([&deep[..]]) {
            let (mut to, mut said, reading) = ends();
            for part in part.chunks(CONTROL_BYTES_MAX).chain(part.is_empty().then_some(part)) {
                to.0.add(part).expect("it fits");
            }
            to.0.flush().await.expect("sent");
            assert!(said.recv().await.is_none(), "{part:?}");
            drop(to);
            reading.await.expect("no panic");
        }
        for (kind, most) in [(STATUS, DOCUMENT_BYTES_MAX), (LOOK_BACK, LOOK_BACK_BYTES_MAX)] {
            let (mut to, _said, reading) = ends();
            let part = [&[2 * kind + 1], &[b' '; CONTROL_BYTES_MAX - 1][..]].concat();
            let mut sent = 0;
            while to.0.add(&part).is_ok() && to.0.flush().await.is_ok() {
                sent += part.len();
                assert!(sent < 2 * most, "a flood is read");
            }
            assert_eq!(reading.await.expect("no panic").kind(), io::ErrorKind::InvalidData);
        }
    }

    #[tokio::test]
    async fn more_than_one_question_at_a_time_ends_the_link() {
        let (mut to, said, reading) = ends();
        while to.send(&Said::Ask).await.is_ok() && !reading.is_finished() {}
        assert_eq!(reading.await.expect("no panic").kind(), io::ErrorKind::InvalidData);
        drop(said);
    }

    #[test]
    fn no_bytes_make_the_reader_panic() {
        let mut reader = StatusReader::default();
        for seed in 0..2000_u32 {
            let bytes: Vec<u8> =
                (0..seed % 40).map(|i| (seed.wrapping_mul(i + 7) >> 3) as u8).collect();
            let _: io::Result<Option<Said>> = reader.take(&bytes);
        }
    }
}
