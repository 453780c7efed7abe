//! Layer: Core.
//!
//! A burst of frames over one path, as its receiver sees it: what the path carries is how fast they
//! come.

/// The frames of a burst that have come so far.
#[derive(Clone, Debug, Default)]
pub struct Burst {
    /// When how many bytes had come in all, since the first frame was here.
    marks: Vec<(u64, u64)>,
    /// Where the path had got going.
    going: Option<(u64, u64)>,
}

impl Burst {
    /// Payload bytes of each frame. Small against what a slow path carries while it is measured,
    /// large against what a frame costs.
    pub const FRAME_BYTES: usize = 32 * 1024;
    /// Most frames of a burst: 16 MiB, a seventh of a second at a gigabit.
    pub const FRAMES_MAX: usize = 512;

    /// A frame has come, whole, at this time. Says whether the rate is known well enough; once.
    pub fn frame(&mut self, now_us: u64, bytes: usize) -> bool {
        if self.marks.len() >= Burst::FRAMES_MAX {
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

    fn is_enough(&self) -> bool {
        let last = self.marks.last().copied().unwrap_or_default();
        self.going
            .is_some_and(|going| last.0 - going.0 >= WINDOW_US && last.1 - going.1 >= WINDOW_BYTES)
    }

    /// What came, in kbit/s of payload, from when the path had got going; `None` when too little
    /// came since.
    ///
    /// A fast path is through with all frames sooner: there the second half counts. A receiver that
    /// is held up finds more than the path carries when it goes on, so only those moments count in
    /// which it had taken all there was: the corners of the upper hull of what it had at which
    /// time, of which the edge in the middle is taken.
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

/// Of points by growing time, those that no line between two others passes above.
fn upper_hull(points: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut hull: Vec<(u64, u64)> = Vec::new();
    for point in points {
        // Exact: a burst has 2^24 bytes and, within the patience of anybody, 2^40 microseconds.
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

/// A path has got going after this long and so many bytes: its sender has found how much it may
/// have under way, and a shaper on the way has spent what it had saved up.
const GOING_US: u64 = 20_000;
const GOING_BYTES: u64 = 128 * 1024;
/// After this long and so many bytes more the rate is known.
const WINDOW_US: u64 = 80_000;
const WINDOW_BYTES: u64 = 256 * 1024;
/// Fewer tell nothing.
const BYTES_MIN: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A path of so many kbit/s, after a bucket of so many bytes that come at once. Gives the time
    /// it took, and the rate.
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
                // What has piled up is taken at ten times the rate.
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
        // A tenth of the rate at first.
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
