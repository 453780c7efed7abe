//! The measurement of a path's rate by a burst of frames, from their arrival times at the receiver.

/// The frames of a burst that have arrived so far.
#[derive(Clone, Debug, Default)]
pub struct Burst {
    /// For each frame, its arrival time in microseconds and the bytes received since the first
    /// frame arrived.
    marks: Vec<(u64, u64)>,
    /// The first mark after the start-up phase.
    going: Option<(u64, u64)>,
}

impl Burst {
    /// Payload bytes of each frame: small against the volume of a slow path during a
    /// measurement, large against the overhead per frame.
    pub const FRAME_BYTES: usize = 32 * 1024;
    /// The maximum number of frames that count: 16 MiB, a seventh of a second at 1 Gbit/s.
    pub const FRAMES_MAX: usize = 512;

    /// Records that a whole frame has arrived at this time. Returns true once, when the rate is
    /// known well enough.
    pub fn frame(&mut self, now_us: u64, bytes: usize) -> bool {
        if self.is_full() {
            return false;
        }
        let Some((first_us, _)) = self.marks.first().copied() else {
            self.marks.push((now_us, 0));
            return false;
        };
        let was_enough = self.is_enough();
        let before = self.marks.last().copied().unwrap_or_default();
        let mark = (now_us.max(before.0), before.1 + bytes as u64);
        self.marks.push(mark);
        if self.going.is_none() && mark.0 - first_us >= GOING_US && mark.1 >= GOING_BYTES {
            self.going = Some(mark);
        }
        !was_enough && self.is_enough()
    }

    /// Whether further frames do not count.
    pub fn is_full(&self) -> bool {
        self.marks.len() >= Burst::FRAMES_MAX
    }

    fn is_enough(&self) -> bool {
        let last = self.marks.last().copied().unwrap_or_default();
        self.going
            .is_some_and(|going| last.0 - going.0 >= WINDOW_US && last.1 - going.1 >= WINDOW_BYTES)
    }

    /// The rate after the start-up phase, in kbit/s of payload; `None` if too few bytes have
    /// arrived since.
    ///
    /// A fast path delivers all frames before that phase is over: then the second half of the bytes
    /// counts. A receiver that was held up then takes the frames from its buffers faster than the
    /// path carries them. So only the moments count in which it had taken everything: the corners
    /// of the upper hull of the bytes received over time. The rate is the slope of the hull's edge
    /// in the middle of the time.
    ///
    /// ```text
    /// bytes
    ///   |                      *
    ///   |                  *            * on the hull: the receiver has taken everything
    ///   |              *                . below it: it was held up and catches up
    ///   |             .
    ///   |      *     .
    ///   |  *
    ///   +-------------------------- time
    /// ```
    pub fn kbps(&self) -> Option<u32> {
        let last = self.marks.last().copied()?;
        let half = self.marks.iter().copied().find(|(_, bytes)| *bytes * 2 >= last.1)?;
        let from = self.going.filter(|going| (last.1 - going.1) * 2 >= last.1).unwrap_or(half);
        if last.1 - from.1 < BYTES_MIN {
            return None;
        }
        let hull = upper_hull(self.marks.iter().copied().filter(|mark| *mark >= from));
        let middle_us = from.0 + (last.0 - from.0) / 2;
        let edge = hull.windows(2).find(|edge| edge[1].0 >= middle_us)?;
        let (us, bytes) = (edge[1].0 - edge[0].0, edge[1].1 - edge[0].1);
        u32::try_from((bytes * 8000).checked_div(us)?).ok()
    }
}

/// The upper hull of points by increasing time: no line between two other points passes above its
/// corners.
fn upper_hull(points: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut hull: Vec<(u64, u64)> = Vec::new();
    for point in points {
        // Exact in u128: a burst has 2^24 bytes and, as no measurement waits longer, 2^40
        // microseconds.
        let is_below = |a: (u64, u64), b: (u64, u64)| {
            let rise = |from: (u64, u64), to: (u64, u64)| {
                (u128::from(to.0 - from.0), u128::from(to.1 - from.1))
            };
            let ((ab_us, ab), (ac_us, ac)) = (rise(a, b), rise(a, point));
            ab * ac_us <= ac * ab_us
        };
        while hull.len() > 1 && is_below(hull[hull.len() - 2], hull[hull.len() - 1]) {
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// The start-up phase lasts at least this time and this many bytes: then the sender has found its
/// congestion window, and a traffic shaper on the path has spent its saved tokens.
const GOING_US: u64 = 20_000;
const GOING_BYTES: u64 = 128 * 1024;
/// The rate is known well enough after at least this time and this many bytes more.
const WINDOW_US: u64 = 80_000;
const WINDOW_BYTES: u64 = 256 * 1024;
/// Fewer bytes give no rate.
const BYTES_MIN: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a path with a token bucket of `bucket` bytes that arrive at once. Returns the time
    /// it took in microseconds, and the rate.
    fn measured(kbps: u64, bucket: u64) -> (u64, Option<u32>) {
        let mut burst = Burst::default();
        let mut us = 1_000_000;
        for frame in 1..=Burst::FRAMES_MAX as u64 {
            let sent = frame * Burst::FRAME_BYTES as u64;
            us = 1_000_000 + sent.saturating_sub(bucket) * 8000 / kbps;
            if burst.frame(us, Burst::FRAME_BYTES) {
                break;
            }
        }
        (us - 1_000_000, burst.kbps())
    }

    #[test]
    fn the_rate_is_that_of_the_path_whatever_was_saved_up() {
        for kbps in [10_000, 50_000, 94_150, 282_000, 941_500, 2_350_000, 9_400_000] {
            for bucket in [0, 17_000, 100_000] {
                let (us, found) = measured(kbps, bucket);
                let found = f64::from(found.expect("a rate"));
                assert!(
                    (0.98..=1.05).contains(&(found / kbps as f64)),
                    "{found} of {kbps}, {bucket} saved up"
                );
                assert!(us < 150_000 || kbps < 50_000, "{kbps} kbit/s take {us} us");
            }
        }
    }

    #[test]
    fn a_little_is_not_enough() {
        let mut burst = Burst::default();
        assert!(!burst.frame(5, 1000) && burst.kbps().is_none());
        assert!(!burst.frame(5, 100_000) && burst.kbps().is_none(), "in no time");
        assert!(!burst.frame(1000, 10_000) && burst.kbps().is_none(), "too few bytes since");
    }

    #[test]
    fn a_receiver_that_is_held_up_sees_no_more_than_the_path_carries() {
        for (held_from_ms, held_ms) in [(0, 30), (15, 20), (18, 30), (60, 30), (90, 5)] {
            let (mut burst, mut before_us) = (Burst::default(), 0);
            for frame in 1..=Burst::FRAMES_MAX as u64 {
                let arrives_us = frame * Burst::FRAME_BYTES as u64 * 8000 / 941_500;
                let held = held_from_ms * 1000..(held_from_ms + held_ms) * 1000;
                // Frames that have piled up are taken at ten times the rate.
                let may_us = if held.contains(&arrives_us) { held.end } else { arrives_us };
                let takes_us = Burst::FRAME_BYTES as u64 * 800 / 941_500;
                before_us = may_us.max(before_us + takes_us);
                if burst.frame(before_us, Burst::FRAME_BYTES) {
                    break;
                }
            }
            let found = f64::from(burst.kbps().expect("a rate")) / 941_500.0;
            assert!(
                (0.95..=1.05).contains(&found),
                "held up for {held_ms} ms after {held_from_ms} ms: {found}"
            );
        }
    }

    #[test]
    fn a_slow_start_does_not_count() {
        let mut burst = Burst::default();
        let mut us = 0;
        // The first frames arrive at a tenth of the rate.
        for frame in 0..Burst::FRAMES_MAX {
            us += if frame < 8 { 3000 } else { 300 };
            if burst.frame(us, Burst::FRAME_BYTES) {
                break;
            }
        }
        let expected = Burst::FRAME_BYTES as f64 * 8000.0 / 300.0;
        assert!((f64::from(burst.kbps().expect("a rate")) / expected - 1.0).abs() < 0.05);
    }
}
