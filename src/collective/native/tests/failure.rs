//! Layer: Shells.
