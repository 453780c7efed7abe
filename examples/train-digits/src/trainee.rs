//! The state that all members share: parameters, velocities, number of steps.

use crate::chance::Chance;
use crate::net::Kind;
use anyhow::{Result, ensure};

const RATE: f32 = 0.1;
const MOMENTUM: f32 = 0.9;

/// Samples per worker and step.
pub const BATCH: usize = 32;

/// Parameters trained by stochastic gradient descent with momentum.
#[derive(Clone)]
pub struct Trainee {
    pub step: u64,
    pub parameters: Vec<Vec<f32>>,
    velocities: Vec<Vec<f32>>,
    /// A hash over all bits of the parameters after every step.
    pub chain: u64,
}

impl Trainee {
    pub fn new(kind: Kind, seed: u64) -> Trainee {
        let velocities = kind.lens().into_iter().map(|len| vec![0.0; len]).collect();
        Trainee { step: 0, parameters: kind.parameters(seed), velocities, chain: 0 }
    }

    pub fn apply(&mut self, gradients: &[Vec<f32>]) {
        for ((w, v), g) in self.parameters.iter_mut().zip(&mut self.velocities).zip(gradients) {
            for ((w, v), g) in w.iter_mut().zip(v).zip(g) {
                *v = MOMENTUM * *v + g;
                *w -= RATE * *v;
            }
        }
        self.step += 1;
        self.chain = self.parameters.iter().flatten().fold(self.chain, |chain, w| {
            (chain.rotate_left(5) ^ u64::from(w.to_bits())).wrapping_mul(0x517c_c1b7_2722_0a95)
        });
    }

    /// The state that a late member must get.
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers =
            self.parameters.iter().chain(&self.velocities).flatten().flat_map(|x| x.to_le_bytes());
        [self.step.to_le_bytes(), self.chain.to_le_bytes()]
            .concat()
            .into_iter()
            .chain(numbers)
            .collect()
    }

    pub fn load(&mut self, bytes: &[u8]) -> Result<()> {
        ensure!(bytes.len() == self.to_bytes().len(), "the state of another model");
        let (heads, numbers) = bytes.split_at(16);
        let head = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| heads[i * 8 + k]));
        (self.step, self.chain) = (head(0), head(1));
        let mut numbers = numbers.as_chunks::<4>().0.iter();
        for x in self.parameters.iter_mut().chain(&mut self.velocities).flatten() {
            *x = numbers.next().map_or(0.0, |bytes| f32::from_le_bytes(*bytes));
        }
        Ok(())
    }
}

/// The assignment of samples to steps and workers: every sample at most once per epoch.
pub struct Course {
    seed: u64,
    samples: usize,
    workers: usize,
}

impl Course {
    pub fn new(seed: u64, samples: usize, workers: usize) -> Course {
        Course { seed, samples, workers }
    }

    /// Steps per epoch.
    pub fn steps(&self) -> u64 {
        (self.samples / (BATCH * self.workers)).max(1) as u64
    }

    /// The sample indices of a worker, `0..workers`.
    pub fn batch(&self, step: u64, worker: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.samples).collect();
        Chance::of(self.seed, 1000 + step / self.steps()).shuffle(&mut order);
        let start = ((step % self.steps()) as usize * self.workers + worker % self.workers) * BATCH;
        order.into_iter().skip(start).take(BATCH).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_goes_from_one_to_another() {
        let mut one = Trainee::new(Kind::Cnn, 1);
        for _ in 0..3 {
            one.apply(&Kind::Cnn.parameters(5));
        }
        let mut other = Trainee::new(Kind::Cnn, 2);
        other.load(&one.to_bytes()).expect("the same model");
        assert!(other.to_bytes() == one.to_bytes() && other.step == 3);
        one.apply(&Kind::Cnn.parameters(6));
        other.apply(&Kind::Cnn.parameters(6));
        assert!(other.chain == one.chain && other.parameters == one.parameters);
        assert!(other.load(&[0; 99]).is_err());
    }

    #[test]
    fn an_epoch_takes_no_sample_twice() {
        let course = Course::new(7, 1258, 4);
        assert_eq!(course.steps(), 9);
        let mut seen = vec![0; 1258];
        for step in 9..18 {
            for worker in 0..4 {
                course.batch(step, worker).into_iter().for_each(|i| seen[i] += 1);
            }
        }
        assert_eq!((seen.iter().sum::<i32>(), seen.iter().max()), (9 * 128, Some(&1)));
        assert_ne!(course.batch(0, 0), course.batch(9, 0));
    }
}
