//! See `potluck::fuzzing::sealed_frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::sealed_frames(bytes));
