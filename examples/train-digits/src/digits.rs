//! The handwritten digits of scikit-learn: 1797 pictures of 8 by 8 pixels (Alpaydin, Kaynak 1998).

use crate::chance::Chance;
use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use std::io::Read;
use std::path::Path;

pub const PIXELS: usize = 64;
pub const CLASSES: usize = 10;

/// Pictures and their classes.
#[derive(Clone, Default)]
pub struct Samples {
    /// 64 values per picture, from 0 to 1.
    pub pixels: Vec<f32>,
    /// The digits, 0 to 9.
    pub labels: Vec<u32>,
}

/// A split of every class: 70 % for training, 30 % for the test.
pub struct Digits {
    pub train: Samples,
    pub test: Samples,
}

impl Samples {
    /// Reads `digits.csv.gz`: one line per picture, 64 pixels from 0 to 16 and the class.
    pub fn read(path: &Path) -> Result<Samples> {
        let file = std::fs::File::open(path)
            .with_context(|| format!("the digits in {}", path.display()))?;
        let mut text = String::new();
        GzDecoder::new(file).read_to_string(&mut text)?;
        let samples = Samples::parse(&text)?;
        ensure!(
            samples.len() == 1797,
            "{} pictures in {}, not 1797",
            samples.len(),
            path.display()
        );
        Ok(samples)
    }

    /// About as many synthetic pictures, for machines that cannot download the digits.
    pub fn made_up() -> Samples {
        let mut chance = Chance::of(1, 99);
        let kinds: Vec<f32> = (0..CLASSES * PIXELS).map(|_| chance.signed()).collect();
        let mut samples = Samples::default();
        for i in 0..1800 {
            let kind = &kinds[i % CLASSES * PIXELS..][..PIXELS];
            samples.pixels.extend(kind.iter().map(|x| (x + 0.7 * chance.signed() + 2.0) / 4.0));
            samples.labels.push((i % CLASSES) as u32);
        }
        samples
    }

    fn parse(text: &str) -> Result<Samples> {
        let mut samples = Samples::default();
        for line in text.lines() {
            let numbers: Vec<f32> = line
                .split(',')
                .map(str::parse)
                .collect::<Result<_, _>>()
                .with_context(|| line.to_owned())?;
            ensure!(numbers.len() == PIXELS + 1, "{} numbers in a line", numbers.len());
            ensure!(
                numbers[PIXELS] >= 0.0 && numbers[PIXELS] < CLASSES as f32,
                "no digit: {}",
                numbers[PIXELS]
            );
            samples.pixels.extend(numbers[..PIXELS].iter().map(|pixel| pixel / 16.0));
            samples.labels.push(numbers[PIXELS] as u32);
        }
        Ok(samples)
    }

    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// The samples with these indices.
    pub fn pick(&self, indices: &[usize]) -> Samples {
        let pixels = indices
            .iter()
            .flat_map(|i| &self.pixels[i * PIXELS..(i + 1) * PIXELS])
            .copied()
            .collect();
        Samples { pixels, labels: indices.iter().map(|i| self.labels[*i]).collect() }
    }

    /// Splits every class in the same proportion; the seed selects the pictures.
    pub fn split(&self, seed: u64) -> Digits {
        let mut chance = Chance::of(seed, 1);
        let (mut train, mut test) = (Vec::new(), Vec::new());
        for class in 0..CLASSES as u32 {
            let mut of_class: Vec<usize> =
                (0..self.len()).filter(|i| self.labels[*i] == class).collect();
            chance.shuffle(&mut of_class);
            let cut = (of_class.len() * 7).div_ceil(10);
            train.extend_from_slice(&of_class[..cut]);
            test.extend_from_slice(&of_class[cut..]);
        }
        Digits { train: self.pick(&train), test: self.pick(&test) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_picture_and_its_digit() {
        let line = (0..64)
            .map(|i| (i % 17).to_string())
            .chain(["7".to_owned()])
            .collect::<Vec<_>>()
            .join(",");
        let samples = Samples::parse(&format!("{line}\n{line}\n")).expect("two pictures");
        assert_eq!((samples.len(), samples.labels[1], samples.pixels[64 + 16]), (2, 7, 1.0));
        assert!(
            Samples::parse("1,2,3").is_err() && Samples::parse(&line.replace("7", "x")).is_err()
        );
    }

    #[test]
    fn a_split_shares_out_every_class() {
        let samples = Samples::made_up();
        let digits = samples.split(3);
        assert_eq!((digits.train.len(), digits.test.len()), (1260, 540));
        for class in 0..10 {
            assert_eq!(digits.test.labels.iter().filter(|label| **label == class).count(), 54);
        }
        assert_ne!(samples.split(4).test.pixels, digits.test.pixels);
    }
}
