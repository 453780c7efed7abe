//! From a type that is known when the program runs to one of Rust.

/// Evaluates `$body` with `$element` as the type that `$dtype` names. `$other` is the value for a
/// type that this version of potluck does not have.
macro_rules! of_type {
    ($dtype:expr, $element:ident => $body:expr, _ => $other:expr) => {
        $crate::typed::of_type!(@ $dtype, $element, $body, $other;
            F32 f32, F64 f64, F16 ::potluck::f16, Bf16 ::potluck::bf16, U8 u8, I8 i8, I16 i16,
            U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, Bool bool)
    };
    (@ $dtype:expr, $element:ident, $body:expr, $other:expr; $($name:ident $type:ty),*) => {
        match $dtype {
            $(::potluck::DType::$name => { type $element = $type; $body })*
            #[allow(unreachable_patterns)]
            _ => $other,
        }
    };
}

/// The same for floats. `$other` is the value for all other types.
macro_rules! of_float {
    ($dtype:expr, $element:ident => $body:expr, _ => $other:expr) => {
        $crate::typed::of_type!(@ $dtype, $element, $body, $other;
            F32 f32, F64 f64, F16 ::potluck::f16, Bf16 ::potluck::bf16)
    };
}

pub(crate) use {of_float, of_type};
