//! The codecs of data on the wire.

use super::error::wrong;
use super::results;
use potluck::DType;
use potluck::calls::Coarsest;
use potluck_foreign::SharedCodec;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// How the data of a call travels.
#[pyclass(frozen, module = "potluck")]
pub struct Codec {
    codec: SharedCodec,
}

impl Codec {
    /// For a call.
    pub fn shared(&self) -> SharedCodec {
        Arc::clone(&self.codec)
    }

    /// A copy of it, with its residual.
    pub fn copy(&self) -> potluck::Codec {
        self.codec.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl From<potluck::Codec> for Codec {
    fn from(codec: potluck::Codec) -> Codec {
        Codec { codec: Arc::new(Mutex::new(codec)) }
    }
}

#[pymethods]
impl Codec {
    /// bfloat16: half the bytes.
    #[staticmethod]
    fn bf16() -> Codec {
        potluck::Codec::bf16().into()
    }

    /// Half precision: half the bytes.
    #[staticmethod]
    fn f16() -> Codec {
        potluck::Codec::f16().into()
    }

    /// Eight bits per element: a quarter of the bytes.
    #[staticmethod]
    fn int8() -> Codec {
        potluck::Codec::int8().into()
    }

    /// Four bits per element: an eighth of the bytes.
    #[staticmethod]
    fn int4() -> Codec {
        potluck::Codec::int4().into()
    }

    /// One bit per element, its sign: 0.035 of the bytes of a contribution, sums as int4; with
    /// feedback. For sums and means.
    #[staticmethod]
    fn one_bit() -> Codec {
        potluck::Codec::one_bit().into()
    }

    /// Of every 256 elements the largest ones, this share of them; with feedback.
    #[staticmethod]
    fn top_k(share: f64) -> Codec {
        potluck::Codec::top_k(share).into()
    }

    /// The codec that saves time by the measured links, none of them coarser than this one.
    #[staticmethod]
    #[pyo3(signature = (coarsest = "int8"))]
    fn auto(py: Python<'_>, coarsest: &str) -> PyResult<Codec> {
        let coarsest = match coarsest {
            "bf16" => Coarsest::Bf16,
            "int8" => Coarsest::Int8,
            "int4" => Coarsest::Int4,
            other => {
                return Err(wrong(py, format!("coarsest is {other:?}, not bf16, int8 or int4")));
            }
        };
        Ok(potluck::Codec::auto_up_to(coarsest).into())
    }

    /// The same codec, whose rounding error is added to the next call. For one buffer.
    fn with_feedback(&self) -> Codec {
        self.copy().with_feedback().into()
    }

    /// The same codec, whose rounding error is lost.
    fn without_feedback(&self) -> Codec {
        self.copy().without_feedback().into()
    }

    /// The rounding error of each element that the next call adds.
    fn residual<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let residual = self.copy().residual();
        let bytes: Vec<u8> = residual.iter().flat_map(|x| x.to_ne_bytes()).collect();
        results::filled(py, None, &bytes, DType::F32)
    }

    /// Drops that error.
    fn forget(&self) {
        self.codec.lock().unwrap_or_else(PoisonError::into_inner).forget();
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.codec.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
