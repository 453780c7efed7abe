//! The assignment of parameters to buckets.

use crate::protocol::PARTS_MAX;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

/// A program's parameters in the order of their registration, cut into buckets: neighbours that
/// travel as one buffer. The first bucket has the last parameters, since a backward pass produces
/// their gradients first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    lens: Vec<usize>,
    buckets: Vec<Range<usize>>,
}

/// Most buckets, one less than the calls of a step.
const BUCKETS_MAX: usize = PARTS_MAX - 1;

/// The location of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The index of the bucket.
    pub bucket: usize,
    /// The elements of the bucket.
    pub elements: Range<usize>,
}

impl Layout {
    /// Cuts parameters of these lengths into buckets of at most `most` elements; a longer parameter
    /// gets a bucket of its own. `most` is doubled until there are at most 63 buckets: with the sum
    /// of weights they are the calls of a step.
    pub fn new(lens: &[usize], most: usize) -> Layout {
        let mut most = most.max(1);
        loop {
            let buckets = cut(lens, most);
            if buckets.len() <= BUCKETS_MAX {
                return Layout { lens: lens.to_vec(), buckets };
            }
            most = most.saturating_mul(2);
        }
    }

    /// The number of elements of each parameter.
    pub fn lens(&self) -> &[usize] {
        &self.lens
    }

    /// The parameters of each bucket, in the order in which buckets are reduced.
    pub fn buckets(&self) -> &[Range<usize>] {
        &self.buckets
    }

    /// The number of elements of a bucket.
    pub fn bucket_len(&self, bucket: usize) -> usize {
        self.lens[self.buckets[bucket].clone()].iter().sum()
    }

    /// The location of a parameter; `None` if there is no such parameter.
    pub fn place(&self, parameter: usize) -> Option<Place> {
        let bucket = self.buckets.iter().position(|bucket| bucket.contains(&parameter))?;
        let start = self.lens[self.buckets[bucket].start..parameter].iter().sum();
        Some(Place { bucket, elements: start..start + self.lens[parameter] })
    }

    /// A hash of the lengths and buckets: equal layouts have equal digests.
    pub fn digest(&self) -> u64 {
        let ends = self.buckets.iter().map(|bucket| bucket.start);
        let numbers = [self.lens.len()].into_iter().chain(self.lens.iter().copied()).chain(ends);
        xxh3_64(&numbers.flat_map(|number| (number as u64).to_le_bytes()).collect::<Vec<u8>>())
    }
}

/// Cuts from the last parameter to the first.
fn cut(lens: &[usize], most: usize) -> Vec<Range<usize>> {
    let mut buckets: Vec<Range<usize>> = Vec::new();
    let mut filled = 0usize;
    for (parameter, len) in lens.iter().enumerate().rev() {
        match buckets.last_mut() {
            Some(bucket) if filled.saturating_add(*len) <= most => {
                bucket.start = parameter;
                filled += len;
            }
            _ => {
                buckets.push(parameter..parameter + 1);
                filled = *len;
            }
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_parameters_are_in_the_first_bucket() {
        let layout = Layout::new(&[100, 10, 20, 5, 5], 30);
        assert_eq!(layout.buckets(), [2..5, 1..2, 0..1]);
        assert_eq!(layout.place(3), Some(Place { bucket: 0, elements: 20..25 }));
        assert_eq!(layout.place(0), Some(Place { bucket: 2, elements: 0..100 }));
        assert_eq!((layout.place(5), layout.bucket_len(0)), (None, 30));
        assert!(Layout::new(&[], 30).buckets().is_empty());
    }

    proptest! {
        #[test]
        fn every_element_has_one_place(
            lens in prop::collection::vec(0..50usize, 0..300),
            most in 0..200usize,
        ) {
            let layout = Layout::new(&lens, most);
            prop_assert!(layout.buckets().len() <= BUCKETS_MAX);
            let mut seen: Vec<Vec<usize>> = (0..layout.buckets().len())
                .map(|bucket| vec![0; layout.bucket_len(bucket)])
                .collect();
            for (parameter, len) in lens.iter().enumerate() {
                let place = layout.place(parameter).expect("a parameter");
                prop_assert_eq!(place.elements.len(), *len);
                seen[place.bucket][place.elements].iter_mut().for_each(|times| *times += 1);
            }
            prop_assert!(seen.iter().flatten().all(|times| *times == 1));
        }

        #[test]
        fn what_differs_has_another_digest(
            lens in prop::collection::vec(0..50usize, 1..60),
            other: prop::sample::Index,
        ) {
            let layout = Layout::new(&lens, 100);
            let mut longer = lens.clone();
            longer[other.index(lens.len())] += 1;
            prop_assert_ne!(layout.digest(), Layout::new(&longer, 100).digest());
            longer.push(0);
            prop_assert_ne!(layout.digest(), Layout::new(&longer, 100).digest());
            let finer = Layout::new(&lens, 10);
            prop_assert_eq!(finer.buckets() == layout.buckets(), finer.digest() == layout.digest());
        }
    }
}
