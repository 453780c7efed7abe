//! One data link for two engines. Each engine has its sender thread; one thread receives for both,
//! and the header of each frame selects the engine that handles it.

use crate::collective::{LinkParty, LinkThread, LinkUser};
use crate::link::{DataHeader, DataLink, DataSender};
use crate::protocol::Rank;
use parking_lot::FairMutex;
use std::io;
use std::sync::Arc;

/// Gives a link to two engines as [`attach`](crate::collective::attach) does to one. The first one
/// gets the frames for which `is_for_first` holds. The frames of one engine keep their order.
///
/// The link ends for both when it ends for one.
pub fn attach_both<A: LinkUser, B: LinkUser>(
    (first, threads): LinkParty<'_, A>,
    (second, seconds_threads): LinkParty<'_, B>,
    is_for_first: fn(&DataHeader) -> bool,
    peer: Rank,
    link: Box<dyn DataLink>,
) {
    let (sender, mut receiver, end) = link.split();
    let sender = SharedSender(Arc::new(FairMutex::new(sender)));
    let Some([tx, first]) = LinkThread::connect(first, peer, &end) else { return };
    let Some([seconds_tx, second]) = LinkThread::connect(second, peer, &end) else { return };
    tx.spawn_sender(threads, Box::new(sender.clone()));
    seconds_tx.spawn_sender(seconds_threads, Box::new(sender));
    threads.spawn(format!("potluck-rx-{peer}"), move || {
        let (mut firsts, mut seconds) = (A::Scratch::default(), B::Scratch::default());
        while let Ok(header) = receiver.header() {
            let handled = match is_for_first(&header) {
                true => first.receive(&header, receiver.as_mut(), &mut firsts),
                false => second.receive(&header, receiver.as_mut(), &mut seconds),
            };
            if handled.is_err() {
                return;
            }
        }
    });
}

/// The sending half of the link. Its lock is fair: each engine waits for at most one frame of the
/// other. With an unfair lock, a thread with a backlog would retake it right after the release and
/// starve the other one on a slow link.
#[derive(Clone)]
struct SharedSender(Arc<FairMutex<Box<dyn DataSender>>>);

impl DataSender for SharedSender {
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        self.0.lock().send(header, payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Phase;
    use crate::protocol::{Lane, OpId};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    /// A sender that takes 1 ms per frame and reports each flow.
    struct Slow(mpsc::Sender<u32>);

    impl DataSender for Slow {
        fn send(&mut self, header: &DataHeader, _: &[u8]) -> io::Result<()> {
            thread::sleep(Duration::from_millis(1));
            self.0.send(header.flow).map_err(|_| io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn both_send_in_turns_however_much_each_has() {
        let (tell, sent) = mpsc::channel();
        let slow: Box<dyn DataSender> = Box::new(Slow(tell));
        let slow = SharedSender(Arc::new(FairMutex::new(slow)));
        for flow in [0, 1] {
            let op = OpId { lane: Lane::MAIN, number: 1 };
            let header = DataHeader { op, flow, chunk: 0, phase: Phase::Reduce, len: 0 };
            let mut sender = slow.clone();
            thread::spawn(move || while sender.send(&header, &[]).is_ok() {});
        }
        drop(slow);
        let mut flows = sent.iter();
        // Count only after both have begun.
        let first = flows.next();
        assert!(flows.by_ref().any(|flow| Some(flow) != first));
        let firsts = flows.take(200).filter(|flow| *flow == 0).count();
        // Without turns one of them sends nearly all. A thread that the system does not run misses
        // some of its turns.
        assert!((50..=150).contains(&firsts), "{firsts} of 200 frames");
    }
}
