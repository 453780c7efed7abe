//! Times of calls that are made by turns, and whose the processors were meanwhile.
//!
//! A virtual machine is told for how long others had its processors while it wanted them. A time
//! taken then says more of the others than of what is measured: so each turn is made again when
//! that was long, and the turns in which it was shortest count. On a machine of one's own all do.

use crate::machine::median;

/// Up to this part of the processors' time a turn is as good as undisturbed.
const CALM: f64 = 0.02;
/// How many times as many turns as are wanted are made for want of calm ones.
const PATIENT: usize = 3;

/// From now on: see [`stolen`](Watch::stolen).
pub struct Watch(Option<[u64; 2]>);

/// What was measured by turns.
pub struct Turns {
    wanted: usize,
    made: Vec<Turn>,
}

/// Some calls behind each other.
pub struct Turn {
    /// Of each call the time of the member for which it took longest.
    pub seconds: Vec<f64>,
    /// Processor seconds of all members for all calls.
    pub cpu_s: f64,
    /// The part of the processors' time that others had, 0 to 1.
    pub stolen: f64,
}

impl Watch {
    pub fn begin() -> Watch {
        Watch(ticks())
    }

    /// The part of the processors' time since then that others had, 0 to 1; 0 where the kernel does
    /// not say.
    pub fn stolen(&self) -> f64 {
        match (self.0, ticks()) {
            (Some([stolen, all]), Some([stolen_now, all_now])) if all_now > all => {
                stolen_now.saturating_sub(stolen) as f64 / (all_now - all) as f64
            }
            _ => 0.0,
        }
    }
}

/// Stolen, and all.
fn ticks() -> Option<[u64; 2]> {
    ticks_of(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// The first line has the sums of all processors: user, nice, system, idle, iowait, irq, softirq,
/// steal, and two that are counted as user already.
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
    /// So many of which shall count.
    pub fn wanted(wanted: usize) -> Turns {
        Turns { wanted, made: Vec::new() }
    }

    pub fn add(&mut self, turn: Turn) {
        self.made.push(turn);
    }

    /// Whether another turn is due: until as many were calm as are wanted, or patience ends.
    pub fn go_on(&self) -> bool {
        self.calm() < self.wanted && self.made.len() < self.wanted * PATIENT
    }

    /// The median call of the turns that count.
    pub fn median_s(&self) -> f64 {
        median(
            &self.counting().iter().flat_map(|turn| &turn.seconds).copied().collect::<Vec<f64>>(),
        )
    }

    /// Processor seconds of one call, in the mean of the turns that count.
    pub fn cpu_s(&self) -> f64 {
        let counting = self.counting();
        counting.iter().map(|turn| turn.cpu_s).sum::<f64>()
            / counting.iter().map(|turn| turn.seconds.len()).sum::<usize>() as f64
    }

    /// The calm ones, and where there are not enough of them those that were calmest.
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
