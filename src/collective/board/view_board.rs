//! The board of one View: each member's entries go to all others over their control links.

#![cfg_attr(
    not(feature = "gloo"),
    allow(dead_code, reason = "the native engine needs no rendezvous")
)]

use super::super::outgoing::Outgoing;
use super::{Board, BoardFault};
use crate::protocol::{Post, Rank};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// The board of one View on one member. Cheap to clone; all clones are one board.
#[derive(Clone)]
pub struct ViewBoard {
    shared: Arc<Shared>,
}

struct Shared {
    me: Rank,
    state: Mutex<BoardState>,
    changed: Condvar,
    out: UnboundedSender<Outgoing>,
}

#[derive(Default)]
struct BoardState {
    entries: BTreeMap<String, (Rank, Vec<u8>)>,
    closed: bool,
}

impl ViewBoard {
    /// Most keys of one member.
    pub const KEYS_MAX: usize = 16;

    /// The board of `me`, which sends its entries through `out`.
    pub fn new(me: Rank, out: UnboundedSender<Outgoing>) -> ViewBoard {
        ViewBoard {
            shared: Arc::new(Shared { me, state: Mutex::default(), changed: Condvar::new(), out }),
        }
    }

    /// Another member has set a key. A repetition is allowed; a closed board ignores the message.
    ///
    /// # Errors
    /// [`BoardFault::Refused`]: no honest member sends that.
    pub fn hear(&self, from: Rank, key: &str, value: &[u8]) -> Result<(), BoardFault> {
        match self.put(from, key, value) {
            Err(BoardFault::Refused) => Err(BoardFault::Refused),
            _ => Ok(()),
        }
    }

    /// This member's own entries, for a peer whose link was down.
    pub fn own(&self) -> Vec<(String, Vec<u8>)> {
        let state = self.lock();
        let own = state.entries.iter().filter(|(_, (rank, _))| *rank == self.shared.me);
        own.map(|(key, (_, value))| (key.clone(), value.clone())).collect()
    }

    fn put(&self, from: Rank, key: &str, value: &[u8]) -> Result<(), BoardFault> {
        let mut state = self.lock();
        if state.closed {
            return Err(BoardFault::Closed);
        }
        if let Some((owner, known)) = state.entries.get(key) {
            return if *owner == from && known == value {
                Ok(())
            } else {
                Err(BoardFault::Refused)
            };
        }
        let keys = state.entries.values().filter(|(owner, _)| *owner == from).count();
        if key.len() > Post::KEY_BYTES_MAX
            || value.len() > Post::VALUE_BYTES_MAX
            || keys >= ViewBoard::KEYS_MAX
        {
            return Err(BoardFault::Refused);
        }
        state.entries.insert(key.to_owned(), (from, value.to_vec()));
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, BoardState> {
        // Entries are changed by single inserts; a panic elsewhere leaves them whole.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board for ViewBoard {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), BoardFault> {
        self.put(self.shared.me, key, value)?;
        // The control loop outlives its Views. Without it no peer can be reached.
        let _ = self.shared.out.send(Outgoing::Post { key: key.to_owned(), value: value.to_vec() });
        Ok(())
    }

    fn wait(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, BoardFault> {
        let until = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            if state.closed {
                return Err(BoardFault::Closed);
            }
            if let Some((_, value)) = state.entries.get(key) {
                return Ok(value.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(BoardFault::TimedOut);
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    fn board(me: u8) -> (ViewBoard, UnboundedReceiver<Outgoing>) {
        let (tx, rx) = unbounded_channel();
        (ViewBoard::new(Rank(me), tx), rx)
    }

    #[test]
    fn what_one_sets_the_other_gets() {
        let ((a, mut out), (b, _)) = (board(0), board(1));
        let waiting = {
            let b = b.clone();
            thread::spawn(move || b.wait("0", Duration::from_secs(60)))
        };
        a.set("0", b"here").expect("set");
        let Ok(Outgoing::Post { key, value }) = out.try_recv() else { panic!("nothing went out") };
        b.hear(Rank(0), &key, &value).expect("heard");
        b.hear(Rank(0), &key, &value).expect("heard again");
        assert_eq!(waiting.join().expect("no panic"), Ok(b"here".to_vec()));
        assert_eq!((a.own(), b.own()), (vec![("0".to_owned(), b"here".to_vec())], vec![]));
    }

    #[test]
    fn a_key_is_set_once_and_by_one_member() {
        let (board, _out) = board(0);
        board.set("0", b"mine").expect("set");
        assert_eq!(board.set("0", b"other"), Err(BoardFault::Refused));
        assert_eq!(board.hear(Rank(1), "0", b"mine"), Err(BoardFault::Refused));
    }

    #[test]
    fn what_one_member_may_set_is_bounded() {
        let (board, _out) = board(0);
        assert_eq!(board.hear(Rank(1), &"k".repeat(65), b""), Err(BoardFault::Refused));
        assert_eq!(board.hear(Rank(1), "k", &[0; 4097]), Err(BoardFault::Refused));
        let set = (0..100)
            .take_while(|n| board.hear(Rank(1), &n.to_string(), &[0; 4096]).is_ok())
            .count();
        assert_eq!(set, ViewBoard::KEYS_MAX);
        board.hear(Rank(2), "another", b"").expect("others have room of their own");
    }

    #[test]
    fn a_wait_ends_by_its_time_or_with_the_view() {
        let (board, _out) = board(0);
        assert_eq!(board.wait("0", Duration::from_millis(1)), Err(BoardFault::TimedOut));
        let waiting = {
            let board = board.clone();
            thread::spawn(move || board.wait("0", Duration::from_secs(600)))
        };
        board.close();
        assert_eq!(waiting.join().expect("no panic"), Err(BoardFault::Closed));
        assert_eq!(
            (board.set("0", b""), board.hear(Rank(1), "0", b"")),
            (Err(BoardFault::Closed), Ok(()))
        );
    }
}
