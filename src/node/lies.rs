//! A member that lies, for tests: by chance it drops, repeats, holds back, mixes and bends its
//! messages. Its own state stays correct, so the others see any deviation that a hostile member
//! could show them, in a random order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Changes the messages of one link of a lying member.
pub(crate) struct Liar {
    chance: u64,
    habits: Habits,
    /// Messages that are held back, with the number of messages after which each leaves.
    held: Vec<(u64, Vec<u8>)>,
    /// The last messages.
    said: VecDeque<Vec<u8>>,
}

/// The preferences of a liar. All its links have the same habits.
#[derive(Clone, Copy)]
struct Habits {
    /// It lies once in so many messages.
    one_in: u64,
    /// If there is one, it lies in messages that begin with this byte alone.
    tag: Option<u8>,
    /// The lies that it tells, a bit for each.
    lies: u64,
}

/// The kinds of lies.
const KINDS: u64 = 10;
/// How many messages are remembered, and up to which length.
const SAID: usize = 64;
const SAID_BYTES: usize = 8192;
/// The tags of messages that matter, with those of operations more than once.
const TAGS: [u8; 12] = [12, 12, 12, 12, 2, 5, 6, 7, 8, 9, 10, 18];

/// The seed of the liars of this process, and their number so far.
static SEED: AtomicU64 = AtomicU64::new(0);
static LIARS: AtomicU64 = AtomicU64::new(0);

/// From now on liars lie by this seed.
pub(crate) fn lie_by_seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
    LIARS.store(0, Ordering::Relaxed);
}

impl Liar {
    /// The next liar of this process.
    pub(crate) fn new() -> Liar {
        let seed = SEED.load(Ordering::Relaxed);
        let habits = Habits::of(&mut mixed(seed));
        let chance = mixed(seed ^ LIARS.fetch_add(1, Ordering::Relaxed) << 32);
        Liar { chance, habits, held: Vec::new(), said: VecDeque::new() }
    }

    /// Returns the messages that it sends in place of `honest`.
    pub(crate) fn say(&mut self, honest: Vec<u8>) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = Vec::new();
        let habits = self.habits;
        let may_lie = habits.tag.is_none_or(|tag| honest.first() == Some(&tag));
        if !honest.is_empty() && may_lie && self.below(habits.one_in) == 0 {
            self.lie(honest.clone(), &mut all);
        } else {
            all.push(honest.clone());
        }
        if honest.len() <= SAID_BYTES {
            self.said.push_back(honest);
            while self.said.len() > SAID {
                self.said.pop_front();
            }
        }
        self.held.iter_mut().for_each(|(turns, _)| *turns = turns.saturating_sub(1));
        all.extend(self.held.extract_if(.., |(turns, _)| *turns == 0).map(|(_, message)| message));
        all
    }

    fn lie(&mut self, mut message: Vec<u8>, all: &mut Vec<Vec<u8>>) {
        let at = self.below(message.len() as u64) as usize;
        match self.kind() {
            0 => {}
            1 => all.extend([message.clone(), message]),
            2 => {
                let turns = 1 + self.below(12);
                self.held.push((turns, message));
            }
            3 => all.extend(self.earlier()),
            4 => {
                all.push(message);
                all.extend(self.earlier());
            }
            5 => {
                message[at] ^= 1 << self.below(8);
                all.push(message);
            }
            6 => {
                message[at] = self.below(256) as u8;
                all.push(message);
            }
            7 => {
                let Some(place) = message[at..].first_chunk_mut::<8>() else {
                    return all.push(message);
                };
                let number = u64::from_le_bytes(*place);
                let other = match self.below(4) {
                    0 => number.wrapping_add(1),
                    1 => number.wrapping_sub(1),
                    2 => 0,
                    _ => u64::MAX,
                };
                *place = other.to_le_bytes();
                all.push(message);
            }
            8 => {
                // A part of an earlier message in the same place.
                let until = (at + 1 + self.below(40) as usize).min(message.len());
                if let Some(part) = self.earlier().as_ref().and_then(|other| other.get(at..until)) {
                    message[at..until].copy_from_slice(part);
                }
                all.push(message);
            }
            _ => {
                message.truncate(at);
                all.push(message);
            }
        }
    }

    fn kind(&mut self) -> u64 {
        loop {
            let kind = self.below(KINDS);
            if self.habits.lies >> kind & 1 == 1 {
                return kind;
            }
        }
    }

    fn earlier(&mut self) -> Option<Vec<u8>> {
        let said = self.said.len() as u64;
        (said > 0).then(|| self.below(said) as usize).and_then(|at| self.said.get(at).cloned())
    }

    fn below(&mut self, end: u64) -> u64 {
        below(&mut self.chance, end)
    }
}

impl Habits {
    fn of(chance: &mut u64) -> Habits {
        let one_in = [2, 8, 30, 200][below(chance, 4) as usize];
        let tag = TAGS.get(below(chance, 2 * TAGS.len() as u64) as usize).copied();
        // In every other run some kinds only.
        let some = below(chance, 1 << KINDS) | 1 << below(chance, KINDS);
        let lies = if below(chance, 2) == 0 { (1 << KINDS) - 1 } else { some };
        Habits { one_in, tag, lies }
    }
}

/// SplitMix64, by Steele, Lea and Flood (2014).
fn mixed(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn below(chance: &mut u64, end: u64) -> u64 {
    *chance = chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed(*chance) % end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_lie_is_told_and_a_seed_gives_the_same_ones() {
        let mut told = [0; 4];
        for seed in 0..50 {
            let habits = Habits { one_in: 2, tag: None, lies: (1 << KINDS) - 1 };
            let mut liars = [(); 2].map(|()| Liar {
                chance: seed,
                habits,
                held: Vec::new(),
                said: VecDeque::new(),
            });
            for n in 0..200_u8 {
                let honest = vec![12, n, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7];
                let [one, other] = liars.each_mut().map(|liar| liar.say(honest.clone()));
                assert_eq!(one, other);
                told[0] += usize::from(one.is_empty());
                told[1] += usize::from(one.len() > 1);
                told[2] += usize::from(one.iter().any(|said| said.len() < honest.len()));
                told[3] += usize::from(one == [honest]);
            }
        }
        assert!(told.iter().all(|count| *count > 0), "{told:?}");
    }
}
