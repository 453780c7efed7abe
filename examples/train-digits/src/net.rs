//! Two small models, built with candle.

use crate::chance::Chance;
use crate::digits::{CLASSES, PIXELS, Samples};
use anyhow::{Context, Result};
use candle_core::{Device, Tensor, Var};
use serde::{Deserialize, Serialize};

/// The kind of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An MLP 64-128-64-10: 17 226 parameters.
    Mlp,
    /// A CNN: two 3 by 3 convolutions with 8 and 16 channels, each followed by max-pooling that
    /// halves both sides, then a layer of 10: 1 898 parameters.
    Cnn,
}

/// A model of one kind.
pub struct Net {
    kind: Kind,
    variables: Vec<Var>,
}

impl Kind {
    /// The shape of each parameter.
    fn shapes(self) -> Vec<Vec<usize>> {
        match self {
            Kind::Mlp => vec![
                vec![128, PIXELS],
                vec![128],
                vec![64, 128],
                vec![64],
                vec![CLASSES, 64],
                vec![CLASSES],
            ],
            Kind::Cnn => vec![
                vec![8, 1, 3, 3],
                vec![8],
                vec![16, 8, 3, 3],
                vec![16],
                vec![CLASSES, 64],
                vec![CLASSES],
            ],
        }
    }

    /// The number of elements of each parameter.
    pub fn lens(self) -> Vec<usize> {
        self.shapes().iter().map(|shape| shape.iter().product()).collect()
    }

    /// The initial parameters: weights uniform (He et al. 2015), biases 0.
    pub fn parameters(self, seed: u64) -> Vec<Vec<f32>> {
        let mut chance = Chance::of(seed, 2);
        let parameter = |shape: &Vec<usize>| {
            let fan_in: usize = shape[1..].iter().product();
            let bound = if shape.len() == 1 { 0.0 } else { (6.0 / fan_in as f32).sqrt() };
            (0..shape.iter().product()).map(|_| bound * chance.signed()).collect()
        };
        self.shapes().iter().map(parameter).collect()
    }
}

impl Net {
    pub fn new(kind: Kind) -> Result<Net> {
        let zeros = |shape: Vec<usize>| Var::zeros(shape, candle_core::DType::F32, &Device::Cpu);
        Ok(Net { kind, variables: kind.shapes().into_iter().map(zeros).collect::<Result<_, _>>()? })
    }

    /// The loss of a batch with these parameters, and its gradient with respect to each.
    pub fn gradients(
        &self,
        parameters: &[Vec<f32>],
        batch: &Samples,
    ) -> Result<(f32, Vec<Vec<f32>>)> {
        self.set(parameters)?;
        let loss = self.loss_of(batch)?;
        let found = loss.backward()?;
        let one = |variable: &Var| {
            let gradient = found.get(variable).context("every parameter has a gradient")?;
            Ok(gradient.flatten_all()?.to_vec1::<f32>()?)
        };
        Ok((loss.to_scalar::<f32>()?, self.variables.iter().map(one).collect::<Result<_>>()?))
    }

    /// The mean loss over all samples.
    pub fn loss(&self, parameters: &[Vec<f32>], samples: &Samples) -> Result<f32> {
        self.set(parameters)?;
        Ok(self.loss_of(samples)?.to_scalar::<f32>()?)
    }

    /// The percentage of samples that are classified correctly.
    pub fn accuracy(&self, parameters: &[Vec<f32>], samples: &Samples) -> Result<f64> {
        self.set(parameters)?;
        let told = self.forward(samples)?.argmax(1)?.to_vec1::<u32>()?;
        let right = told.iter().zip(&samples.labels).filter(|(told, label)| told == label).count();
        Ok(100.0 * right as f64 / samples.len() as f64)
    }

    fn set(&self, parameters: &[Vec<f32>]) -> Result<()> {
        for (variable, parameter) in self.variables.iter().zip(parameters) {
            variable.set(&Tensor::from_slice(parameter, variable.shape(), &Device::Cpu)?)?;
        }
        Ok(())
    }

    fn loss_of(&self, samples: &Samples) -> Result<Tensor> {
        let labels = Tensor::from_slice(&samples.labels, samples.len(), &Device::Cpu)?;
        Ok(candle_nn::loss::cross_entropy(&self.forward(samples)?, &labels)?)
    }

    fn forward(&self, samples: &Samples) -> Result<Tensor> {
        let v = |i: usize| self.variables[i].as_tensor();
        let linear = |x: &Tensor, i: usize| x.matmul(&v(i).t()?)?.broadcast_add(v(i + 1));
        let x = Tensor::from_slice(&samples.pixels, (samples.len(), PIXELS), &Device::Cpu)?;
        Ok(match self.kind {
            Kind::Mlp => linear(&linear(&linear(&x, 0)?.relu()?, 2)?.relu()?, 4)?,
            Kind::Cnn => {
                let convolved = |x: &Tensor, i: usize| {
                    let bias = v(i + 1).reshape((1, (), 1, 1))?;
                    x.conv2d(v(i), 1, 1, 1, 1)?.broadcast_add(&bias)?.relu()?.max_pool2d(2)
                };
                let x = convolved(&x.reshape(((), 1, 8, 8))?, 0)?;
                linear(&convolved(&x, 2)?.flatten_from(1)?, 4)?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_have_as_many_parameters_as_they_say() {
        assert_eq!(
            (Kind::Mlp.lens().iter().sum(), Kind::Cnn.lens().iter().sum()),
            (17_226usize, 1_898usize)
        );
    }

    #[test]
    fn a_gradient_points_downhill() {
        let samples = Samples::made_up().pick(&[0, 1, 2, 3, 4, 5, 6, 7]);
        for kind in [Kind::Mlp, Kind::Cnn] {
            let (net, mut parameters) = (Net::new(kind).expect("a model"), kind.parameters(1));
            let (before, gradients) = net.gradients(&parameters, &samples).expect("a gradient");
            for (parameter, gradient) in parameters.iter_mut().zip(&gradients) {
                parameter.iter_mut().zip(gradient).for_each(|(w, g)| *w -= 0.01 * g);
            }
            let after = net.loss(&parameters, &samples).expect("a loss");
            assert!(after < before, "{kind:?}: {before} became {after}");
        }
    }
}
