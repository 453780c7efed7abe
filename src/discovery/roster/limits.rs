//! Bounds of the roster.

/// How much the roster keeps, and how much it dials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Addresses in the table, and also adverts. 64 fixed peers without ports fit, with an IPv4 and
    /// an IPv6 address of 16 ports each, beside a thousand other addresses.
    pub entries: usize,
    /// Unverified addresses with the same IP address, so that one host cannot fill the table.
    pub per_ip: usize,
    /// The same on loopback, where every node of a test has one IP address.
    pub per_loopback_ip: usize,
    /// Adverts of one boot at a time. A correct node makes one.
    pub per_boot: usize,
    /// Adverts of other clusters and versions, which are kept only for reports.
    pub others: usize,
    /// Dials per second to unverified addresses.
    pub dials_per_second: u32,
    /// Most of these dials in a burst after a pause: as many as a View has members, so that a group
    /// that starts at once gets its direct links at once.
    pub dial_burst: u32,
    /// Most dials in flight to unverified addresses; as many as in a burst.
    pub dialing: usize,
    /// Most dials in flight to verified, stored and fixed addresses: a fixed peer without a port is
    /// 16 addresses.
    pub dialing_trusted: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            entries: 3072,
            per_ip: 8,
            per_loopback_ip: 64,
            per_boot: 4,
            others: 64,
            dials_per_second: 4,
            dial_burst: 32,
            dialing: 32,
            dialing_trusted: 32,
        }
    }
}
