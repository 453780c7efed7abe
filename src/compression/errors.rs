//! The errors of codecs on random numbers, for tests.

use super::codec::Codec;
use crate::collective::random_bits;

/// Numbers of the standard normal distribution (Box and Muller 1958).
pub fn normal(count: usize) -> Vec<f32> {
    normals(21).take(count).map(|x| x as f32).collect()
}

/// Numbers of Student's t with three degrees of freedom. Its tails are as heavy as those of
/// gradients.
pub fn student(count: usize) -> Vec<f32> {
    let (mut above, mut below) = (normals(22), normals(23));
    let mut one = || {
        let squares: f64 = below.by_ref().take(3).map(|x| x * x).sum();
        (above.next().unwrap_or(0.0) / (squares / 3.0).sqrt()) as f32
    };
    (0..count).map(|_| one()).collect()
}

/// The sum of the squared errors of these elements, relative to the sum of their squares; 0 if all
/// are 0.
pub fn relative_error(codec: &dyn Codec, elements: &[f32]) -> f64 {
    let (mut bytes, mut back) =
        (vec![0; codec.encoded_len(elements.len())], vec![0.0; elements.len()]);
    codec.encode(elements, &mut bytes);
    codec.decode(&bytes, &mut back).expect("what it has written");
    let squares = elements.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
    let pairs = elements.iter().zip(&back);
    let errors = pairs.map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum::<f64>();
    if squares == 0.0 { errors } else { errors / squares }
}

fn normals(seed: u64) -> impl Iterator<Item = f64> {
    let mut units = random_bits(seed).map(|bits| ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64);
    std::iter::from_fn(move || {
        let (a, b) = (units.next()?, units.next()?);
        Some((-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos())
    })
}
