//! See `potluck::fuzzing::handshake`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::handshake(bytes));
