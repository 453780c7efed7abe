//! Detects how long this machine was suspended. The clock used for all timing stops meanwhile, so
//! without this a node would not notice that the other members continued without it.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The source of suspend times.
pub trait Sleep: Send {
    /// How long the machine was suspended since the last call.
    fn slept(&mut self) -> Duration;
}

/// Compares two clocks of the operating system, one of which stops during suspend. Only the time
/// since the last call counts, because the clocks may drift apart over days.
pub struct MachineSleep {
    asked: Instant,
    through_sleep: Duration,
}

/// The clock that runs during suspend. The clock of [`Instant`] does not: it is `CLOCK_MONOTONIC`
/// on Linux and `CLOCK_UPTIME_RAW` on macOS.
#[cfg(any(target_os = "linux", target_os = "android"))]
const THROUGH_SLEEP: ClockId = ClockId::Boottime;
/// Untested. If this clock also stops during suspend, the difference is always zero, and a suspend
/// is noticed only through silent peers.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const THROUGH_SLEEP: ClockId = ClockId::Monotonic;

impl MachineSleep {
    /// Counts from now on.
    pub fn start() -> MachineSleep {
        MachineSleep { asked: Instant::now(), through_sleep: through_sleep() }
    }
}

impl Sleep for MachineSleep {
    fn slept(&mut self) -> Duration {
        // A suspend between the two reads counts in the next call.
        let (through_sleep, now) = (through_sleep(), Instant::now());
        let in_all =
            through_sleep.saturating_sub(std::mem::replace(&mut self.through_sleep, through_sleep));
        in_all.saturating_sub(now.duration_since(std::mem::replace(&mut self.asked, now)))
    }
}

fn through_sleep() -> Duration {
    let time = clock_gettime(THROUGH_SLEEP);
    let (seconds, nanoseconds) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
    Duration::new(seconds, nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Builder, Config};
    use crate::report::Event;
    use crate::session::ViewSession;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::sync::watch;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A suspend time that a test sets.
    struct Told(Arc<AtomicU64>);

    impl Sleep for Told {
        fn slept(&mut self) -> Duration {
            Duration::from_millis(self.0.swap(0, Ordering::Relaxed))
        }
    }

    async fn view_of_two(
        views: &mut watch::Receiver<Option<Arc<ViewSession>>>,
        not: Option<String>,
    ) -> String {
        let fits = |e: &ViewSession| {
            e.view().size() == 2 && !e.is_frozen() && Some(e.view().id().to_string()) != not
        };
        let found =
            tokio::time::timeout(PATIENCE, views.wait_for(|e| e.as_ref().is_some_and(|e| fits(e))))
                .await;
        let session = found.expect("in time").expect("the node runs").clone();
        session.map(|e| e.view().id().to_string()).expect("it was there")
    }

    #[tokio::test]
    async fn a_node_that_has_slept_leaves_its_view_and_comes_back_to_the_others() {
        let config =
            |name: &str| Config::from(Builder::new(Config::local()).open_lan("asleep").name(name));
        let slept = Arc::new(AtomicU64::new(0));
        let (clock, own) = (Arc::clone(&slept), config("a"));
        let open = move || async move {
            let (node, mut doors) = crate::api::open(own, crate::api::NodeRole::Member).await?;
            doors.tools.sleep = Box::new(Told(clock));
            Ok((node, doors))
        };
        let a = crate::node::spawn(open).await.expect("a runs");
        let b = crate::api::Cluster::join_with(config("b")).await.expect("b runs");
        let (mut views, mut happened) = (a.views.clone(), a.happened.resubscribe());
        let before = view_of_two(&mut views, None).await;

        // Clocks of one machine may differ by this much.
        slept.store(900, Ordering::Relaxed);
        let call = tokio::time::timeout(Duration::from_millis(300), views.changed()).await;
        assert!(call.is_err(), "a View was given up for nothing");

        slept.store(60_000, Ordering::Relaxed);
        let after = view_of_two(&mut views, Some(before.clone())).await;
        let mut told = Vec::new();
        while let Ok(event) = happened.try_recv() {
            told.push(event);
        }
        assert!(told.contains(&Event::Woke), "{told:?}");
        let of_b = tokio::time::timeout(PATIENCE, b.context())
            .await
            .expect("in time")
            .expect("b runs")
            .view();
        assert_eq!(of_b, after, "they came together, not a alone");
        assert_ne!(before, after);
    }

    #[test]
    fn whoever_is_awake_has_not_slept() {
        let mut sleep = MachineSleep::start();
        std::thread::sleep(Duration::from_millis(20));
        let slept = sleep.slept();
        assert!(slept < Duration::from_millis(10), "{slept:?}");
    }
}
