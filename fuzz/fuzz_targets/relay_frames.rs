//! See `potluck::fuzzing::relay_frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::relay_frames(bytes));
