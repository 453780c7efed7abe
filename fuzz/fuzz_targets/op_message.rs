//! See `potluck::fuzzing::op_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| potluck::fuzzing::op_message(bytes));
