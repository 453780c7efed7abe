//! See `potluck::fuzzing::identity`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::identity(bytes));
