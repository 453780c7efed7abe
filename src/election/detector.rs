//! Failure detector: adaptive silence limits after Chen, Toueg and Aguilera (2002), with
//! Lifeguard's rule (Dadgar, Phillips and Currey 2018) that a node which is itself late waits
//! longer for others.

/// Silence limits of one kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Silence before a peer is suspected, at least.
    pub suspect_floor_ms: u64,
    /// Silence after which a peer is dead, however irregular its heartbeats were.
    pub dead_cap_ms: u64,
}

impl Limits {
    /// Cables and loopback.
    pub const WIRED: Limits = Limits { suspect_floor_ms: 750, dead_cap_ms: 2000 };

    /// Wi-Fi, which may be silent for seconds while it saves power, scans or roams.
    pub const RADIO: Limits = Limits { suspect_floor_ms: 2000, dead_cap_ms: 5000 };

    /// The limits of a path over two links in sequence: the sum, because each may be silent in
    /// turn.
    pub(super) fn then(self, other: Limits) -> Limits {
        Limits {
            suspect_floor_ms: self.suspect_floor_ms.saturating_add(other.suspect_floor_ms),
            dead_cap_ms: self.dead_cap_ms.saturating_add(other.dead_cap_ms),
        }
    }

    /// The larger limits of the two.
    pub(super) fn or(self, other: Limits) -> Limits {
        Limits {
            suspect_floor_ms: self.suspect_floor_ms.max(other.suspect_floor_ms),
            dead_cap_ms: self.dead_cap_ms.max(other.dead_cap_ms),
        }
    }
}

/// The meaning of a peer's silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    Alive,
    Suspect,
    Dead,
}

/// Estimator of one peer's heartbeat interval: smoothed mean and deviation.
#[derive(Clone, Debug)]
pub(super) struct Detector {
    limits: Limits,
    last_ms: u64,
    last_beat_ms: u64,
    mean_ms: f64,
    deviation_ms: f64,
}

impl Detector {
    pub(super) fn new(limits: Limits, interval_ms: u64, now: u64) -> Detector {
        Detector {
            limits,
            last_ms: now,
            last_beat_ms: now,
            mean_ms: interval_ms as f64,
            deviation_ms: 0.0,
        }
    }

    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Any authenticated byte is a sign of life; only heartbeats update the estimate.
    pub(super) fn heard(&mut self, now: u64) {
        self.last_ms = self.last_ms.max(now);
    }

    /// Records a heartbeat.
    pub(super) fn heartbeat(&mut self, now: u64) {
        let gap = now.saturating_sub(std::mem::replace(&mut self.last_beat_ms, now)) as f64;
        // The gains of TCP's round-trip estimator (RFC 6298).
        self.deviation_ms += ((gap - self.mean_ms).abs() - self.deviation_ms) / 4.0;
        self.mean_ms += (gap - self.mean_ms) / 8.0;
        self.heard(now);
    }

    /// Judges the silence so far. `late_ms` is the delay of this node's own ticks; it extends every
    /// limit.
    pub(super) fn liveness(&self, now: u64, late_ms: u64) -> Liveness {
        let silence = now.saturating_sub(self.last_ms);
        let suspect = self.suspect_ms();
        let dead = (2 * suspect).min(self.limits.dead_cap_ms);
        match silence {
            s if s > dead + late_ms => Liveness::Dead,
            s if s > suspect + late_ms => Liveness::Suspect,
            _ => Liveness::Alive,
        }
    }

    /// Whether a heartbeat at this time comes without a gap after the last one.
    pub(super) fn is_regular(&self, now: u64) -> bool {
        now.saturating_sub(self.last_beat_ms) <= self.suspect_ms()
    }

    /// Whether it has been silent for more than half the time that makes it suspect.
    pub(super) fn is_quiet(&self, now: u64) -> bool {
        now.saturating_sub(self.last_ms) > self.suspect_ms() / 2
    }

    fn suspect_ms(&self) -> u64 {
        ((self.mean_ms + 6.0 * self.deviation_ms) as u64).max(self.limits.suspect_floor_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regular(gap: u64, beats: u64) -> Detector {
        let mut detector = Detector::new(Limits::WIRED, 250, 0);
        (1..=beats).for_each(|i| detector.heartbeat(i * gap));
        detector
    }

    #[test]
    fn silence_limits_as_a_table() {
        for (gap, silence, late, liveness) in [
            (250, 700, 0, Liveness::Alive),
            (250, 800, 0, Liveness::Suspect),
            (250, 1501, 0, Liveness::Dead),
            (250, 1501, 100, Liveness::Suspect),
            (250, 800, 100, Liveness::Alive),
            (1200, 1990, 0, Liveness::Suspect),
            (1200, 2001, 0, Liveness::Dead),
        ] {
            let now = 100 * gap + silence;
            assert_eq!(
                regular(gap, 100).liveness(now, late),
                liveness,
                "gap {gap}, silence {silence}, late {late}"
            );
        }
    }

    #[test]
    fn a_radio_may_be_silent_for_longer() {
        let mut detector = regular(250, 100);
        detector.set_limits(Limits::WIRED.or(Limits::RADIO));
        for (silence, liveness) in [
            (1900, Liveness::Alive),
            (2100, Liveness::Suspect),
            (3900, Liveness::Suspect),
            (4100, Liveness::Dead),
        ] {
            assert_eq!(detector.liveness(25_000 + silence, 0), liveness, "{silence}");
        }
    }

    #[test]
    fn other_signs_of_life_do_not_change_the_rhythm() {
        let mut detector = Detector::new(Limits::WIRED, 250, 0);
        for beat in 1..=100 {
            detector.heard(beat * 900);
            detector.heartbeat(beat * 900);
        }
        assert_eq!(detector.liveness(90_000 + 850, 0), Liveness::Alive);
    }

    #[test]
    fn irregular_peers_get_more_time_up_to_the_cap() {
        let mut detector = Detector::new(Limits::WIRED, 250, 0);
        let mut now = 0;
        for i in 0..100 {
            now += if i % 2 == 0 { 50 } else { 450 };
            detector.heartbeat(now);
        }
        assert_eq!(detector.liveness(now + 1000, 0), Liveness::Alive);
        assert_eq!(detector.liveness(now + 2001, 0), Liveness::Dead);
    }
}
