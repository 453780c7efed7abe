//! See `potluck::fuzzing::status_link`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::status_link(bytes));
