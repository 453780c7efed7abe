//! Tests of the message layer: endpoints over pairs of data links in memory.

mod failure;
mod group;
mod honest;
mod messages;
mod peer;
