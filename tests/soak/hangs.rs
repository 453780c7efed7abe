//! Hangs: calls that stay open and nodes that stay without a View although nothing is wrong.

use std::time::Duration;

use crate::file::now_us;
use crate::machine::Machine;
use crate::watch::Tail;

/// A call that all members have made ends within this time after the last fault.
pub const HANG: Duration = Duration::from_secs(30);
/// A node that no member keeps out is in a View within this time after the last fault.
pub const VIEW: Duration = Duration::from_secs(45);
/// A call that is open for so long is looked at.
const SUSPECT: Duration = Duration::from_secs(8);

/// Whether a call has been open for so long that it is looked at.
pub fn is_suspect(machines: &[Machine]) -> bool {
    let now = now_us();
    let running = machines.iter().filter(|machine| !machine.is_stopped && !machine.leaves);
    let mut watches = running.filter_map(|machine| machine.watch.as_ref());
    watches.any(|watch| watch.overdue(now).any(|(_, late)| late > micros(SUSPECT)))
}

/// A call that is open although nothing has been wrong for long, since `whole_since`; or a node
/// without a View.
pub fn found(machines: &[Machine], whole_since: u64) -> Option<String> {
    let whole = now_us().saturating_sub(whole_since);
    open_call(machines, whole).or_else(|| without_view(machines, whole))
}

fn open_call(machines: &[Machine], whole: u64) -> Option<String> {
    let now = now_us();
    let (watch, (call, late)) =
        watches(machines).filter(|_| whole > micros(HANG)).find_map(|watch| {
            let late = watch.overdue(now).find(|(_, late)| *late > micros(HANG))?;
            Some((watch, late))
        })?;
    let places: Vec<String> = watches(machines)
        .map(|w| format!("{} is at {}; {}", w.node, w.place(call.place.0), w.status))
        .collect();
    Some(format!(
        "{} waits for {:?} in lane {}, View {}, call {} for {:.1} s, nothing is wrong for {:.1} s: \
         {}",
        watch.node,
        call.what.kind,
        call.place.0,
        call.place.1,
        call.place.2,
        late as f64 / 1e6,
        whole as f64 / 1e6,
        places.join(" | ")
    ))
}

fn without_view(machines: &[Machine], whole: u64) -> Option<String> {
    let now = now_us();
    let is_kept_out = |node: &String| watches(machines).any(|w| w.kept_out.contains(node));
    let is_lost = |watch: &&Tail| {
        let since = watch.without_view_since();
        since.is_some_and(|since| now.saturating_sub(since) > micros(VIEW))
            && !is_kept_out(&watch.node)
    };
    let lost = watches(machines).filter(|_| whole > micros(VIEW)).find(is_lost)?;
    let seconds = whole as f64 / 1e6;
    Some(format!(
        "{} is in no View, nothing is wrong for {seconds:.1} s: {}",
        lost.node, lost.status
    ))
}

fn watches(machines: &[Machine]) -> impl Iterator<Item = &Tail> {
    machines.iter().filter_map(|machine| machine.watch.as_ref())
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}
