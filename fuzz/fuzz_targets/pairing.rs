//! See `potluck::fuzzing::pairing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::pairing(bytes));
