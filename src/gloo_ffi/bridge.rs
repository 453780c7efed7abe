//! The bridge between Rust and C++: all functions that one calls in the other.
//!
//! Callbacks return a `Result`, whose error becomes a C++ exception. They catch their own panics,
//! because a panic must not unwind into C++.

#![allow(unsafe_code, reason = "C++ is behind it")]

use super::folding::Fold;
use super::message_layer::{Memory, MessageLayer, address_of, check_address};
use super::noticeboard::Noticeboard;

#[cxx::bridge(namespace = "potluck")]
pub mod ffi {
    /// Gloo's all-reduce algorithms.
    enum Algorithm {
        Ring,
        Bcube,
    }

    extern "Rust" {
        type MessageLayer;
        /// # Safety
        /// `len` bytes from `ptr` on are valid for reads and writes until the memory is dropped.
        unsafe fn memory(self: &MessageLayer, ptr: *mut u8, len: usize) -> Result<Box<Memory>>;
        fn address_of(rank: i32) -> [u8; 8];
        fn check_address(rank: i32, bytes: &[u8]) -> Result<()>;

        type Memory;
        fn send(self: &Memory, to: i32, slot: u64, offset: usize, len: usize) -> Result<()>;
        fn recv(self: &Memory, from: i32, slot: u64, offset: usize, len: usize) -> Result<()>;
        fn wait_send(self: &Memory, timeout_ms: i64) -> Result<i32>;
        fn wait_recv(self: &Memory, timeout_ms: i64) -> Result<i32>;
        fn abort_send(self: &Memory) -> Result<()>;
        fn abort_recv(self: &Memory) -> Result<()>;

        type Noticeboard;
        fn set(self: &Noticeboard, key: &str, value: &[u8]) -> Result<()>;
        fn wait(self: &Noticeboard, key: &str, timeout_ms: i64) -> Result<Vec<u8>>;

        type Fold;
        /// # Safety
        /// All three point to `bytes` bytes, which no other code writes. No other code reads
        /// `into`.
        unsafe fn fold(
            self: &Fold,
            into: *mut u8,
            a: *const u8,
            b: *const u8,
            bytes: usize,
        ) -> Result<()>;
    }

    unsafe extern "C++" {
        include!("shim.h");

        fn version() -> String;

        type Group;
        fn connect_group(
            wire: Box<MessageLayer>,
            board: Box<Noticeboard>,
            rank: i32,
            size: i32,
            connect_timeout_ms: i64,
            patience_ms: i64,
        ) -> Result<UniquePtr<Group>>;
        /// # Safety
        /// `data` points to `elements` elements of `element_bytes` (1, 2, 4 or 8) bytes, which
        /// no other code uses.
        unsafe fn all_reduce(
            self: &Group,
            data: *mut u8,
            elements: usize,
            element_bytes: usize,
            fold: &Fold,
            algorithm: Algorithm,
            segment_bytes: usize,
        ) -> Result<()>;
        /// # Safety
        /// `data` points to `bytes` bytes, which no other code uses.
        unsafe fn broadcast(self: &Group, data: *mut u8, bytes: usize, root: i32) -> Result<()>;
        /// # Safety
        /// `data` points to `bytes` bytes, which no other code uses.
        unsafe fn all_gather(self: &Group, data: *mut u8, bytes: usize) -> Result<()>;
        /// # Safety
        /// `input` points to `bytes` bytes, `out` to as many as `lengths`, one for each rank, add
        /// up to. No other code writes `input` or uses `out`.
        unsafe fn exchange(
            self: &Group,
            input: *const u8,
            bytes: usize,
            out: *mut u8,
            lengths: &[usize],
        ) -> Result<()>;
        /// # Safety
        /// `out` and `input` point to as many bytes as their lengths add up to, which no other code
        /// uses.
        unsafe fn exchange_parts(
            self: &Group,
            out: *mut u8,
            out_bytes: &[usize],
            input: *mut u8,
            input_bytes: &[usize],
            tag: u32,
        ) -> Result<()>;
        /// # Safety
        /// `input` points to `bytes` bytes, and on the root `out` to `bytes` for each rank. No
        /// other code writes `input` or uses `out`.
        unsafe fn gather(
            self: &Group,
            input: *const u8,
            bytes: usize,
            out: *mut u8,
            root: i32,
        ) -> Result<()>;
        /// # Safety
        /// `out` points to `bytes` bytes, and on the root `input` to `bytes` for each rank. No
        /// other code writes `input` or uses `out`.
        unsafe fn scatter(
            self: &Group,
            input: *const u8,
            out: *mut u8,
            bytes: usize,
            root: i32,
        ) -> Result<()>;
        /// # Safety
        /// Both point to `bytes` bytes. No other code writes `input` or uses `out`.
        unsafe fn all_to_all(
            self: &Group,
            input: *const u8,
            out: *mut u8,
            bytes: usize,
        ) -> Result<()>;
        /// # Safety
        /// `data` points to `bytes` bytes, which no other code writes.
        unsafe fn send(self: &Group, data: *const u8, bytes: usize, to: i32) -> Result<()>;
        /// # Safety
        /// `data` points to `bytes` bytes, which no other code uses.
        unsafe fn recv(self: &Group, data: *mut u8, bytes: usize, from: i32) -> Result<()>;
        fn barrier(self: &Group) -> Result<()>;
    }
}
