//! How the futures of calls are polled, defined once for all kinds.
//!
//! The contribution is read in the first poll, and the result is written in the last.

use super::all_reduce::AllReduce;
use super::copies::{AllGather, AllGatherOwned, Barrier, Broadcast};
use super::message::{Receiving, Sending};
use super::parts::{AllToAll, Gather, Scatter};
use super::reduce::{Reduce, ReduceScatter};
use crate::memory::{Element, bytes_of, target_of};
use crate::report::Result;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

/// For each kind of call: its output, and a poll of it.
macro_rules! futures {
    ($($call:ident<$($lifetime:lifetime)? $(,)? $($element:ident)?> -> $output:ty:
        |$this:ident, $task:ident| $poll:block)*) => {
        $(
            impl<$($element: Element)?> Future for $call<$($lifetime,)? $($element)?> {
                type Output = Result<$output>;

                fn poll(mut self: Pin<&mut Self>, $task: &mut Task<'_>) -> Poll<Self::Output> {
                    let $this = &mut *self;
                    $poll
                }
            }
        )*
    };
}

// In place.
futures! {
    AllReduce<'_, T> -> (): |this, task| {
        let sum = this.pending.poll(task, Some(bytes_of(this.buffer)));
        sum.map_ok(|sum| sum.copy_to(target_of(this.buffer)))
    }
    Reduce<'_, T> -> (): |this, task| {
        let sum = this.pending.poll(task, Some(bytes_of(this.buffer)));
        sum.map_ok(|sum| if this.is_root { sum.copy_to(target_of(this.buffer)) })
    }
    Broadcast<'_, T> -> (): |this, task| {
        let copied = this.pending.poll(task, this.is_root.then(|| bytes_of(this.buffer)));
        copied.map_ok(|copied| copied.copy_to(target_of(this.buffer)))
    }
}

// From one buffer to another, which may be new.
futures! {
    ReduceScatter<'_, T> -> Vec<T>: |this, task| {
        this.pending.poll_into(task, Some(bytes_of(this.buffer)), &mut this.out)
    }
    AllGather<'_, T> -> Vec<T>: |this, task| {
        this.pending.poll_into(task, Some(bytes_of(this.buffer)), &mut this.out)
    }
    AllGatherOwned<T> -> Vec<T>: |this, task| {
        this.pending.poll_into(task, Some(bytes_of(&this.buffer)), &mut this.out)
    }
    AllToAll<'_, T> -> Vec<T>: |this, task| {
        this.pending.poll_into(task, Some(bytes_of(this.buffer)), &mut this.out)
    }
    Gather<'_, T> -> Option<Vec<T>>: |this, task| {
        let own = this.pending.poll_into(task, Some(bytes_of(this.buffer)), &mut this.out);
        own.map_ok(|own| this.is_root.then_some(own))
    }
    Scatter<'_, T> -> (): |this, task| {
        let part = this.pending.poll(task, this.parts.map(bytes_of));
        part.map_ok(|part| part.copy_to(target_of(this.out)))
    }
}

// Between two members, or without data.
futures! {
    Sending<'_, T> -> (): |this, task| {
        this.pending.poll(task, Some(bytes_of(this.buffer))).map_ok(drop)
    }
    Receiving<'_, T> -> (): |this, task| {
        let message = this.pending.poll(task, None);
        message.map_ok(|message| message.copy_to(target_of(this.buffer)))
    }
    Barrier<> -> (): |this, task| { this.pending.poll(task, None).map_ok(drop) }
}
