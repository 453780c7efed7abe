//! How a function has ended.
#![allow(non_camel_case_types)]

/// How a function has ended. The names are those of potluck's error codes, see docs/errors.md and
/// docs/c.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum potluck_status {
    /// It has succeeded.
    POTLUCK_OK = 0,
    /// The operation took effect on no member.
    POTLUCK_ABORTED = 1,
    /// The View was replaced before this call began.
    POTLUCK_VIEW_CHANGED = 2,
    /// This member cannot know the outcome; a sync brings it.
    POTLUCK_INDETERMINATE = 3,
    /// The members do not hold the same state; call potluck_sync first.
    POTLUCK_NEEDS_SYNC = 4,
    /// An earlier call of this lane was freed after this member's vote.
    POTLUCK_LOST_RESULT = 5,
    /// Two ranks made different calls.
    POTLUCK_MISMATCH = 6,
    /// The call cannot be carried out.
    POTLUCK_REJECTED = 7,
    /// Too many operations are in flight.
    POTLUCK_TOO_MANY_IN_FLIGHT = 8,
    /// Too few members came in time.
    POTLUCK_NOT_ENOUGH_PEERS = 9,
    /// There is no cluster key on this machine.
    POTLUCK_NO_CLUSTER_KEY = 10,
    /// The configuration is invalid.
    POTLUCK_CONFIG = 11,
    /// The identity or a key file cannot be used.
    POTLUCK_IDENTITY = 12,
    /// The engine failed.
    POTLUCK_ENGINE = 13,
    /// The node has left the group.
    POTLUCK_CLOSED = 14,
    /// There is too little memory.
    POTLUCK_MEMORY = 15,
    /// An argument is wrong; nothing was done.
    POTLUCK_ARGUMENT = 16,
    /// The call was freed before it ended.
    POTLUCK_GIVEN_UP = 17,
    /// A wait inside of a function that potluck calls.
    POTLUCK_IN_CALLBACK = 18,
    /// This process is a fork of the one that joined.
    POTLUCK_FORKED = 19,
    /// The time of a wait has passed; the call goes on.
    POTLUCK_TIMED_OUT = 20,
    /// An error that this list does not have; see its code.
    POTLUCK_OTHER = 254,
    /// potluck has a fault.
    POTLUCK_PANIC = 255,
}

impl potluck_status {
    /// That of an error code.
    pub fn of(code: &str) -> potluck_status {
        match code {
            "aborted" => potluck_status::POTLUCK_ABORTED,
            "view-changed" => potluck_status::POTLUCK_VIEW_CHANGED,
            "indeterminate" => potluck_status::POTLUCK_INDETERMINATE,
            "needs-sync" => potluck_status::POTLUCK_NEEDS_SYNC,
            "lost-result" => potluck_status::POTLUCK_LOST_RESULT,
            "mismatch" => potluck_status::POTLUCK_MISMATCH,
            "rejected" => potluck_status::POTLUCK_REJECTED,
            "too-many-in-flight" => potluck_status::POTLUCK_TOO_MANY_IN_FLIGHT,
            "not-enough-peers" => potluck_status::POTLUCK_NOT_ENOUGH_PEERS,
            "no-cluster-key" => potluck_status::POTLUCK_NO_CLUSTER_KEY,
            "config" => potluck_status::POTLUCK_CONFIG,
            "identity" => potluck_status::POTLUCK_IDENTITY,
            "engine" => potluck_status::POTLUCK_ENGINE,
            "closed" => potluck_status::POTLUCK_CLOSED,
            "memory" => potluck_status::POTLUCK_MEMORY,
            "argument" => potluck_status::POTLUCK_ARGUMENT,
            "given-up" => potluck_status::POTLUCK_GIVEN_UP,
            "in-callback" => potluck_status::POTLUCK_IN_CALLBACK,
            "forked" => potluck_status::POTLUCK_FORKED,
            "timed-out" => potluck_status::POTLUCK_TIMED_OUT,
            "panic" => potluck_status::POTLUCK_PANIC,
            _ => potluck_status::POTLUCK_OTHER,
        }
    }
}
