//! A member's end of a path: one of its interfaces, with its capacity.

use crate::os::InterfaceKind;
use std::num::NonZeroU32;

/// One interface of a member, as far as it is known. Paths of a member that leave through the same
/// port share its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The kind of the interface.
    pub kind: InterfaceKind,
    /// The interface number in the member's operating system. 0 if unknown; a member with an
    /// unknown number counts as having a single port.
    pub number: u32,
    /// The number of the half-duplex medium that the port shares: only one frame at a time travels
    /// on it, in any direction. `None` for a wire. All Wi-Fi ports are assumed to be in cell 0, as
    /// in a home with one access point; other ports get a cell if measurements show that they share
    /// one.
    pub cell: Option<u32>,
    /// The sending rate of the port in kbit/s of payload; `None` if not known. The planner derives
    /// it from the rates of the port's paths.
    pub send_kbps: Option<NonZeroU32>,
    /// The receiving rate of the port in kbit/s of payload; `None` if not known. The planner
    /// derives it in the same way.
    pub receive_kbps: Option<NonZeroU32>,
}

impl Port {
    /// A port without measured rates.
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
