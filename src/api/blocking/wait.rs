//! Blocks the calling thread until a future completes.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Task, Poll, Wake, Waker};
use std::thread::Thread;

/// Blocks in place of `.await`.
///
/// It is implemented for every future. potluck's futures need nothing from the waiting thread;
/// other futures may, for example a tokio runtime for tokio's sockets and timers.
pub trait Wait: Future + Sized {
    /// Parks the thread until the future completes.
    fn wait(self) -> Self::Output {
        // On a tokio thread, tokio's channels would yield to other tasks after a while (cooperative
        // budget). Those cannot run while this thread waits, so the wait would never end.
        let mut future = pin!(tokio::task::unconstrained(self));
        let alarm =
            Arc::new(Alarm { sleeper: std::thread::current(), rang: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&alarm));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Task::from_waker(&waker)) {
                return output;
            }
            alarm.sleep();
        }
    }
}

impl<F: Future> Wait for F {}

struct Alarm {
    sleeper: Thread,
    /// Set by `wake`. `unpark` alone does not suffice: the thread may be unparked for other
    /// reasons, and the future may consume the token itself.
    rang: AtomicBool,
}

impl Alarm {
    fn sleep(&self) {
        while !self.rang.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::Release);
        self.sleeper.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[test]
    fn a_wake_that_comes_before_the_sleep_is_not_lost() {
        let (mut polls, parked) = (0, std::thread::current());
        let output = std::future::poll_fn(|task| {
            polls += 1;
            task.waker().wake_by_ref();
            // Consumes the thread's only park token.
            std::thread::park();
            parked.unpark();
            if polls < 100 { Poll::Pending } else { Poll::Ready(polls) }
        });
        assert_eq!(output.wait(), 100);
    }

    #[test]
    fn it_waits_for_another_thread() {
        let (tell, told) = oneshot::channel();
        let (asked, ask) = oneshot::channel();
        let other = std::thread::spawn(move || {
            ask.wait().expect("the test asks");
            tell.send(7)
        });
        asked.send(()).expect("the other thread waits");
        assert_eq!(told.wait(), Ok(7));
        assert_eq!(other.join().expect("it does not panic"), Ok(()));
    }

    #[test]
    fn a_task_of_tokio_may_wait_as_often_as_it_likes() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        // tokio's budget is 128 of these per poll of a task.
        let sum: u32 = runtime.block_on(async {
            let one = || {
                let (tell, told) = oneshot::channel();
                tell.send(1).expect("it is heard below");
                told.wait().expect("it was said above")
            };
            (0..1000).map(|_| one()).sum()
        });
        assert_eq!(sum, 1000);
    }
}
