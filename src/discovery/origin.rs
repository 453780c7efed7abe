//! The origin of a known address.

/// The origin of an address, apart from adverts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Configured by the user: never forgotten, and exempt from the address policy and the rate.
    Fixed,
    /// Reported by a member.
    Gossip,
    /// Verified and stored by an earlier run: exempt from the rate, because after a restart of all
    /// nodes its addresses may be out of date and would use up the burst.
    Cache,
    /// Verified by a handshake in this run.
    Remembered,
    /// Of a node that runs another job: dialled once, so that it says which.
    OtherJob,
}
