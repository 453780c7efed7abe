//! Layer: Words.
//!
//! A member's end of a path: which of its interfaces, and what that carries.

use super::InterfaceKind;
use std::num::NonZeroU32;

/// One interface of a member, as far as anybody knows it. Paths of a member that leave by the same
/// port share what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// What it is made of.
    pub kind: InterfaceKind,
    /// What its member's operating system calls it. 0 where nobody has told: then it is the one
    /// port of its member.
    pub number: u32,
    /// Which medium it shares, which carries one frame at a time, to or from whomever; `None` for a
    /// wire. All radios are thought to be in cell 0, as at home with one access point; other ports
    /// were seen to share one.
    pub cell: Option<u32>,
    /// What it sends on its own, in kbit/s of payload; `None` where nobody has measured it.
    pub send_kbps: Option<NonZeroU32>,
    /// What it receives on its own, in kbit/s of payload; `None` where nobody has measured it.
    pub receive_kbps: Option<NonZeroU32>,
}

impl Port {
    /// A port that nobody has measured.
    pub fn unmeasured(kind: InterfaceKind, number: u32) -> Port {
        Port {
            kind,
            number,
            cell: (kind == InterfaceKind::Wifi).then_some(0),
            send_kbps: None,
            receive_kbps: None,
        }
    }
}
