//! See `potluck::fuzzing::message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::message(bytes));
