//! Times of calls made in turns, filtered by steal time.
//!
//! A virtual machine reports for how long others used its processors while it wanted them. A time
//! measured then depends on the others. So a turn with much steal time is repeated, and the turns
//! with the least steal time count. On a dedicated machine all turns count.

use crate::machine::median;

/// A turn with at most this share of steal time counts as undisturbed.
const CALM: f64 = 0.02;
/// At most this many times the wanted number of turns is made.
const PATIENT: usize = 3;

/// The start of a measurement, see [`stolen`](Watch::stolen).
pub struct Watch(Option<[u64; 2]>);

/// The turns of one series.
pub struct Turns {
    wanted: usize,
    made: Vec<Turn>,
}

/// Some calls in sequence.
pub struct Turn {
    /// The time of each call on its slowest member.
    pub seconds: Vec<f64>,
    /// Processor seconds of all members for all calls.
    pub cpu_s: f64,
    /// The share of steal time, 0 to 1.
    pub stolen: f64,
}

impl Watch {
    pub fn begin() -> Watch {
        Watch(ticks())
    }

    /// The share of steal time since the start, 0 to 1; 0 if the kernel does not report it.
    pub fn stolen(&self) -> f64 {
        match (self.0, ticks()) {
            (Some([stolen, all]), Some([stolen_now, all_now])) if all_now > all => {
                stolen_now.saturating_sub(stolen) as f64 / (all_now - all) as f64
            }
            _ => 0.0,
        }
    }
}

/// The steal time, and the total of all processor time.
fn ticks() -> Option<[u64; 2]> {
    ticks_of(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// The first line contains the sums over all processors: user, nice, system, idle, iowait, irq,
/// softirq, steal, and two that are contained in user.
fn ticks_of(stat: &str) -> Option<[u64; 2]> {
    let ticks: Option<Vec<u64>> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    let ticks = ticks?;
    Some([*ticks.get(7)?, ticks[..8].iter().sum()])
}

impl Turns {
    /// A series of which `wanted` turns count.
    pub fn wanted(wanted: usize) -> Turns {
        Turns { wanted, made: Vec::new() }
    }

    pub fn add(&mut self, turn: Turn) {
        self.made.push(turn);
    }

    /// Whether another turn is needed: until enough turns were undisturbed, or the limit is
    /// reached.
    pub fn go_on(&self) -> bool {
        self.calm() < self.wanted && self.made.len() < self.wanted * PATIENT
    }

    /// The median time of a call in the turns that count.
    pub fn median_s(&self) -> f64 {
        median(
            &self.counting().iter().flat_map(|turn| &turn.seconds).copied().collect::<Vec<f64>>(),
        )
    }

    /// The mean processor seconds of a call in the turns that count.
    pub fn cpu_s(&self) -> f64 {
        let counting = self.counting();
        counting.iter().map(|turn| turn.cpu_s).sum::<f64>()
            / counting.iter().map(|turn| turn.seconds.len()).sum::<usize>() as f64
    }

    /// The undisturbed turns; if there are too few, the turns with the least steal time.
    fn counting(&self) -> Vec<&Turn> {
        let mut turns: Vec<&Turn> = self.made.iter().collect();
        turns.sort_by(|a, b| a.stolen.total_cmp(&b.stolen));
        turns.truncate(self.wanted.max(self.calm()));
        turns
    }

    fn calm(&self) -> usize {
        self.made.iter().filter(|turn| turn.stolen <= CALM).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(seconds: &[f64], stolen: f64) -> Turn {
        Turn { seconds: seconds.to_vec(), cpu_s: 2.0 * seconds.iter().sum::<f64>(), stolen }
    }

    #[test]
    fn calm_turns_count_and_others_are_made_again() {
        let mut turns = Turns::wanted(2);
        turns.add(turn(&[9.0, 9.0], 0.3));
        turns.add(turn(&[1.0, 2.0], 0.0));
        assert!(turns.go_on());
        turns.add(turn(&[3.0, 4.0], 0.02));
        assert!(!turns.go_on());
        assert_eq!((turns.median_s(), turns.cpu_s()), (2.5, 5.0));
    }

    #[test]
    fn without_calm_the_calmest_count_and_patience_ends() {
        let mut turns = Turns::wanted(2);
        for (made, stolen) in [0.5, 0.4, 0.1, 0.3, 0.2, 0.6].into_iter().enumerate() {
            assert!(turns.go_on(), "after {made}");
            turns.add(turn(&[stolen], stolen));
        }
        assert!(!turns.go_on());
        assert!((turns.median_s() - 0.15).abs() < 1e-9);
    }

    #[test]
    fn where_all_are_calm_all_count() {
        let mut turns = Turns::wanted(1);
        [3.0, 1.0, 2.0].into_iter().for_each(|seconds| turns.add(turn(&[seconds], 0.0)));
        assert_eq!(turns.median_s(), 2.0);
    }

    #[test]
    fn the_kernels_line_is_read() {
        assert_eq!(ticks_of("cpu  10 20 30 400 5 6 7 22 3 4\ncpu0 1\n"), Some([22, 500]));
        assert_eq!(ticks_of("cpu  10 20 30\n"), None);
        assert_eq!(ticks_of("intr 5\n"), None);
        assert!((0.0..=1.0).contains(&Watch::begin().stolen()));
    }
}
