//! See `potluck::fuzzing::state`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::state(bytes));
