//! See `potluck::fuzzing::nodes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::nodes(bytes));
