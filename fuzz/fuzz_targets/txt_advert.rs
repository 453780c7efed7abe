//! See `potluck::fuzzing::txt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::txt(bytes));
