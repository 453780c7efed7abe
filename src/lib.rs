//! Layer: Face.
