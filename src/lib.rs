//! Layer: Face.
#![allow(missing_docs, dead_code, unused_imports)] // until the public face stands

mod collective;
mod compression;
mod discovery;
mod driver;
mod election;
mod error;
mod identity;
mod link;
mod status;
mod topology;
mod view;
mod wire;
