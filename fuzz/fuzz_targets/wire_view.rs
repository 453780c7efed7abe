//! See `potluck::fuzzing::view`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::view(bytes));
