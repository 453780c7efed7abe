//! See `potluck::fuzzing::frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::frames(bytes));
