//! The responder: a thread of the library for multicast DNS, and the channels to it.

use super::scope::MdnsScope;
use mdns_sd::{DaemonEvent, IfKind, Metrics, Receiver, ServiceDaemon, ServiceEvent};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Our service type.
pub(super) const SERVICE: &str = "_potluck._tcp.local.";

/// Interval between the responder's looks for new interfaces and addresses, in seconds. Its default
/// of 5 is long after a cable is plugged in.
const INTERFACES_EVERY_S: u32 = 2;

/// Intervals between our queries, in addition to the responder's own after 1, 2, 4, 8 ... seconds.
/// Early ones get the answers that were held back because the record had been sent within the last
/// second. One per minute also reports again all nodes that are still there.
const ASK_AGAIN: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_millis(350), Duration::from_millis(350)];
const ASK_ALWAYS: Duration = Duration::from_secs(60);

/// The responder thread and its channels.
pub(super) struct Responder {
    pub(super) daemon: ServiceDaemon,
    /// Event channels, oldest first. A new query opens a new channel and closes the previous one,
    /// which may still hold events.
    events: VecDeque<Receiver<ServiceEvent>>,
    asked: usize,
    pub(super) ask_at: Instant,
    /// Whether it was told to forget its records at the last check.
    pub(super) forgot: bool,
    pub(super) monitor: Receiver<DaemonEvent>,
    pub(super) metrics: Option<Receiver<Metrics>>,
}

impl Responder {
    pub(super) fn start(scope: &MdnsScope) -> Option<Responder> {
        let daemon = ServiceDaemon::new().ok()?;
        match Responder::confine(daemon.clone(), scope) {
            Ok(responder) => Some(responder),
            Err(_) => {
                drop(daemon.shutdown());
                None
            }
        }
    }

    /// The order matters: the responder executes commands one after another, so nothing is queried
    /// before all interfaces are disabled.
    fn confine(daemon: ServiceDaemon, scope: &MdnsScope) -> mdns_sd::Result<Responder> {
        daemon.disable_interface(IfKind::All)?;
        daemon.enable_interface(scope.kinds())?;
        daemon.set_ip_check_interval(INTERFACES_EVERY_S)?;
        let monitor = daemon.monitor()?;
        let events = daemon.browse(SERVICE)?;
        let metrics = daemon.get_metrics().ok();
        let ask_at = Instant::now() + ASK_AGAIN[0];
        Ok(Responder {
            daemon,
            events: VecDeque::from([events]),
            asked: 0,
            ask_at,
            forgot: false,
            monitor,
            metrics,
        })
    }

    pub(super) fn ask_again(&mut self, now: Instant) {
        // A listener that has not emptied its older channels does not need more answers.
        if now < self.ask_at || self.events.len() > ASK_AGAIN.len() {
            return;
        }
        self.asked += 1;
        self.ask_at = now + ASK_AGAIN.get(self.asked).copied().unwrap_or(ASK_ALWAYS);
        self.events.extend(self.daemon.browse(SERVICE));
    }

    /// Drops all records of our service. Nodes that are still there answer the next query.
    pub(super) fn forget(&mut self, now: Instant) {
        if self.daemon.stop_browse(SERVICE).is_ok() {
            self.events.extend(self.daemon.browse(SERVICE));
            self.asked = 0;
            self.ask_at = now + ASK_AGAIN[0];
        }
    }

    /// The next event, or `None` if the responder has closed all channels. Cancel-safe.
    pub(super) async fn event(&mut self) -> Option<ServiceEvent> {
        while let Some(oldest) = self.events.front() {
            match oldest.recv_async().await {
                Ok(event) => return Some(event),
                Err(_) => drop(self.events.pop_front()),
            }
        }
        None
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // Ends the thread, which sends good-byes for announcements that are left.
        drop(self.daemon.shutdown());
    }
}
