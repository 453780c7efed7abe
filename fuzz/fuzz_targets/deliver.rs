//! See `potluck::fuzzing::deliver`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::deliver(bytes));
