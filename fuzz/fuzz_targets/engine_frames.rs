//! See `potluck::fuzzing::engine`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::engine(bytes));
