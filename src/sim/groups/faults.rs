//! The faults: of hosts, of disks, of paths between hosts, and of single connections.

use super::host::name_of;
use super::{LOSS_TO_MEET, Run};
use serde_json::json;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The end of a fault.
#[derive(Clone, Copy, Debug)]
pub enum FaultEnd {
    Start(usize),
    Release(usize, usize),
    /// Segments from the first host to the second one pass again.
    OneWay(usize, usize),
    Wake(usize, Duration),
    Resume(usize),
    Mend(usize),
    Loss(u32),
    Queues,
}

/// The queue of a control link is full for one new message in so many, which ends the link: one of
/// these for each of four seeds, 0 for never. With relays links then end several times per second.
const FULL_ONE_IN: [u64; 4] = [0, 0, 5000, 500];

impl Run<'_> {
    /// Causes a random fault between random hosts.
    pub(super) fn inject_fault(&mut self, now: Duration) {
        let (a, b) = self.two();
        let lasts = Duration::from_millis(match self.conditions.below(3) {
            0 => 100 + self.conditions.below(900),
            1 => 1000 + self.conditions.below(4000),
            _ => 5000 + self.conditions.below(25_000),
        });
        match self.conditions.below(15) {
            0 => self.crash(now, a, lasts),
            1 => self.crash_at_write.push((a, lasts)),
            2 => {
                self.log_fault(now, "leave", format_args!("{a} leaves"));
                self.hosts[a].is_away.store(true, Ordering::Relaxed);
                self.hosts[a].leave.store(true, Ordering::Relaxed);
            }
            3 => {
                let text = format_args!("{a} and {b} are held for {lasts:?}");
                self.log_fault(now, "cut-between", text);
                self.hold(a, b, now + lasts);
            }
            4 => {
                self.log_fault(now, "cut", format_args!("{a} is held from all for {lasts:?}"));
                self.hold_from_all(a, now + lasts);
            }
            5 => self.part(now, lasts),
            6 => {
                let text = format_args!("no segment passes from {a} to {b} for {lasts:?}");
                self.log_fault(now, "one-way", text);
                self.conditions.stop(self.ip(a), self.ip(b));
                self.pending.push((now + lasts, FaultEnd::OneWay(a, b)));
            }
            7 => {
                self.log_fault(now, "sleep", format_args!("{a} sleeps for {lasts:?}"));
                self.hold_from_all(a, now + lasts);
                self.pending.push((now + lasts, FaultEnd::Wake(a, lasts)));
            }
            8 | 9 => self.reset(now, a, b),
            10 => {
                let text = format_args!("the disk of {a} stalls for {lasts:?}");
                self.log_fault(now, "disk-stuck", text);
                self.hosts[a].drive.stall();
                self.pending.push((now + lasts, FaultEnd::Resume(a)));
            }
            11 => {
                self.log_fault(now, "disk-error", format_args!("the next write of {a} fails"));
                self.hosts[a].drive.fail_once();
            }
            12 if self.may_break(a) => {
                self.log_fault(now, "disk-broken", format_args!("the disk of {a} fails for ever"));
                self.hosts[a].drive.break_permanently();
            }
            12 | 13 => {
                let text = format_args!("the disk of {a} fails for {lasts:?}");
                self.log_fault(now, "disk-full", text);
                self.hosts[a].drive.fail();
                self.pending.push((now + lasts, FaultEnd::Mend(a)));
            }
            _ => {
                let loss = self.conditions.below(300) as u32;
                let text = format_args!("{loss} of a thousand segments are lost for {lasts:?}");
                self.log_fault(now, "loss", text);
                self.has_lost |= loss > LOSS_TO_MEET;
                self.conditions.lose(loss);
                self.pending.push((now + lasts, FaultEnd::Loss(loss)));
            }
        }
    }

    /// Queues are full by chance until all faults end.
    pub(super) fn fill_queues(&mut self) {
        let (now, one_in) = (self.sim.elapsed(), FULL_ONE_IN[self.seed as usize % 4]);
        if one_in > 0 {
            let text = format_args!("one message in {one_in} finds a full queue");
            self.log_fault(now, "queues", text);
            crate::node::full_by_chance(self.seed ^ now.as_millis() as u64, one_in);
            self.pending.push((Duration::MAX, FaultEnd::Queues));
        }
    }

    fn crash(&mut self, now: Duration, a: usize, lasts: Duration) {
        if self.sim.is_host_running(name_of(a)) {
            self.log_fault(now, "kill", format_args!("{a} crashes for {lasts:?}"));
            self.observer.killed(a, now);
            self.sim.crash(name_of(a));
            self.pending.push((now + lasts, FaultEnd::Start(a)));
        }
    }

    /// Crashes the hosts that are to crash during a write, and write now.
    pub(super) fn crash_writers(&mut self, now: Duration) {
        let armed = std::mem::take(&mut self.crash_at_write);
        let (due, later): (Vec<_>, Vec<_>) =
            armed.into_iter().partition(|(host, _)| self.hosts[*host].drive.is_writing());
        self.crash_at_write = later;
        due.into_iter().for_each(|(host, lasts)| self.crash(now, host, lasts));
    }

    /// Splits the group in two.
    fn part(&mut self, now: Duration, lasts: Duration) {
        let side = self.conditions.below(1 << self.hosts.len());
        self.log_fault(now, "parted", format_args!("parted along {side:b} for {lasts:?}"));
        for (x, y) in self.pairs() {
            if (side >> x ^ side >> y) & 1 == 1 {
                self.hold(x, y, now + lasts);
            }
        }
    }

    fn reset(&mut self, now: Duration, a: usize, b: usize) {
        self.log_fault(now, "reset", format_args!("a connection of {a} and {b} is reset"));
        self.conditions.reset_one(self.ip(a), self.ip(b));
    }

    /// In every third run with three hosts or more the disk of one may break.
    fn may_break(&self, a: usize) -> bool {
        let is_broken = self.hosts.iter().any(|host| host.drive.is_broken());
        self.seed % 3 == 1 && self.hosts.len() > 2 && !is_broken && !self.hosts[a].drive.is_broken()
    }

    fn hold_from_all(&mut self, a: usize, until: Duration) {
        (0..self.hosts.len())
            .filter(|other| *other != a)
            .for_each(|other| self.hold(a, other, until));
    }

    fn hold(&mut self, a: usize, b: usize, until: Duration) {
        if self.walls.contains(&(a.min(b), a.max(b))) {
            return;
        }
        if self.conditions.hold(self.ip(a), self.ip(b)) {
            self.sim.hold(name_of(a), name_of(b));
        }
        self.pending.push((until, FaultEnd::Release(a, b)));
    }

    /// Ends the faults that are due.
    pub(super) fn end_faults(&mut self, now: Duration, is_due: impl Fn(Duration) -> bool) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|(at, _)| is_due(*at));
        self.pending = later;
        for (_, end) in due {
            match end {
                FaultEnd::Start(host) => self.sim.bounce(name_of(host)),
                FaultEnd::Release(a, b) => {
                    if self.conditions.release(self.ip(a), self.ip(b)) {
                        self.sim.release(name_of(a), name_of(b));
                    }
                }
                FaultEnd::OneWay(a, b) => self.conditions.go_on(self.ip(a), self.ip(b)),
                FaultEnd::Resume(a) => self.hosts[a].drive.resume(),
                FaultEnd::Mend(a) => self.hosts[a].drive.mend(),
                FaultEnd::Loss(loss) => self.conditions.lose_no_more(loss),
                FaultEnd::Queues => crate::node::full_by_chance(0, 0),
                FaultEnd::Wake(host, slept) => {
                    let ms = slept.as_millis() as u64;
                    self.hosts[host].suspended_ms.fetch_add(ms, Ordering::Relaxed);
                }
            }
        }
        if self.pending.is_empty() {
            self.note_healed(now);
        }
    }

    fn two(&self) -> (usize, usize) {
        let size = self.hosts.len() as u64;
        let a = self.conditions.below(size);
        let b = (a + 1 + self.conditions.below(size - 1)) % size;
        (a as usize, b as usize)
    }

    fn pairs(&self) -> Vec<(usize, usize)> {
        (0..self.hosts.len()).flat_map(|a| (0..a).map(move |b| (a, b))).collect()
    }

    pub(super) fn ip(&self, host: usize) -> IpAddr {
        self.sim.lookup(name_of(host))
    }

    /// Records a fault. In the log it ends with the last one of those that overlap.
    fn log_fault(&mut self, now: Duration, kind: &'static str, what: fmt::Arguments<'_>) {
        self.fault_log.push(format!("  {:>7.2} s: {what}", now.as_secs_f64()));
        let n = self.faults;
        self.faults += 1;
        self.observer.fault(now, json!({"e": "struck", "n": n, "kind": kind}));
        self.open_faults.push(n);
    }

    /// A full queue ends its link, so it counts as a fault, which ends at once. In this build
    /// queues are so short that a new link can fill them.
    pub(super) fn note_overruns(&mut self, now: Duration) {
        let (before, last) = self.overruns;
        let overruns = crate::node::overruns();
        if overruns == before {
            return;
        }
        self.overruns = (overruns, now);
        self.quiet_since = now;
        if now > last + Duration::from_secs(1) {
            self.fault_log.push(format!("  {:>7.2} s: a queue is full", now.as_secs_f64()));
        }
        let n = self.faults;
        self.faults += 1;
        self.observer.fault(now, json!({"e": "struck", "n": n, "kind": "queues"}));
        self.observer.fault(now, json!({"e": "healed", "n": n}));
    }

    fn note_healed(&mut self, now: Duration) {
        for n in std::mem::take(&mut self.open_faults) {
            self.observer.fault(now, json!({"e": "healed", "n": n}));
        }
    }
}
