//! Example homes for tests of the planner: their machines and cables, the link map that describes
//! them, and the resources that a transfer occupies in a fluid model.

use super::link_map::{LinkMap, Path};
use super::port::Port;
use super::segment::Segment;
use crate::identity::MemberId;
use crate::os::InterfaceKind;
use crate::protocol::member_id;
use std::num::NonZeroU32;

/// The connection of a machine to the network of the house, in Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lan {
    Wired(u32),
    Radio(u32),
    No,
}

/// Machines in rank order, and direct cables between two of them: `(a, b, Mbit/s)`.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) machines: Vec<Lan>,
    pub(super) cables: Vec<(u8, u8, u32)>,
    /// Cables of the network itself.
    pub(super) trunks: Vec<Trunk>,
}

/// A part of the network that leads to these machines and no others.
#[derive(Clone, Debug)]
pub(super) struct Trunk {
    pub(super) behind: Vec<u8>,
    pub(super) mbps: u32,
    pub(super) is_half: bool,
}

/// A direction between two machines: its latency, and the resources that it occupies with the
/// seconds that one bit takes on each.
pub(super) struct HomePath {
    pub(super) busy: Vec<(usize, f64)>,
    pub(super) latency_s: f64,
}

impl Home {
    pub(super) fn new(machines: &[Lan], cables: &[(u8, u8, u32)]) -> Home {
        Home { machines: machines.to_vec(), cables: cables.to_vec(), trunks: Vec::new() }
    }

    /// The same home with this trunk.
    pub(super) fn with_trunk(mut self, behind: &[u8], mbps: u32, is_half: bool) -> Home {
        self.trunks.push(Trunk { behind: behind.to_vec(), mbps, is_half });
        self
    }

    pub(super) fn size(&self) -> usize {
        self.machines.len()
    }

    pub(super) fn members(&self) -> Vec<MemberId> {
        (1..).take(self.size()).map(member_id).collect()
    }

    /// The link map of this home after all measurements, with the paths added in the order that
    /// `turns` draws: it gets the number of paths that are left and returns an index below it.
    pub(super) fn link_map(&self, mut turns: impl FnMut(usize) -> usize) -> LinkMap {
        let mut paths = Vec::new();
        for (from, to) in self.pairs() {
            if let Some((port, rtt_us)) = self.port(from, to) {
                paths.push((from, to, Path { port, ..Path::unmeasured(rtt_us) }));
            }
        }
        let mut links = LinkMap::new();
        while !paths.is_empty() {
            let (from, to, path) = paths.swap_remove(turns(paths.len()));
            links.observe(member_id(from + 1), member_id(to + 1), path);
        }
        self.segments().into_iter().for_each(|segment| links.cross(segment));
        links
    }

    /// The trunks as a survey finds them.
    pub(super) fn segments(&self) -> Vec<Segment> {
        let segment = |trunk: &Trunk| {
            let behind = |rank: &u8| trunk.behind.contains(rank);
            let (near, far): (Vec<u8>, Vec<u8>) = (0..self.size() as u8).partition(|r| !behind(r));
            let sides = [near, far]
                .map(|side| side.into_iter().map(|rank| member_id(rank + 1).node).collect());
            let kbps = NonZeroU32::new(trunk.mbps * 1000).expect("not zero");
            Segment { sides, kbps: [kbps; 2], is_half: trunk.is_half }
        };
        self.trunks.iter().map(segment).collect()
    }

    /// The number of resources: two for each machine's port, each cable and each trunk, one for the
    /// air, and two for the directions of the access point's cable.
    pub(super) fn resources(&self) -> usize {
        2 * (self.size() + self.cables.len() + self.trunks.len()) + 3
    }

    pub(super) fn path(&self, from: u8, to: u8) -> Option<HomePath> {
        let second = |mbps: u32| 1e-6 / f64::from(mbps);
        let cables = 2 * self.size();
        if let Some(index) = self.cable(from, to) {
            let (a, _, mbps) = self.cables[index];
            let busy = vec![(cables + 2 * index + usize::from(a == from), second(mbps))];
            return Some(HomePath { busy, latency_s: 50e-6 });
        }
        let (air, ap_up, ap_down) =
            (self.resources() - 3, self.resources() - 2, self.resources() - 1);
        let (sender, receiver) = (self.machines[usize::from(from)], self.machines[usize::from(to)]);
        let mut busy = match (sender, receiver) {
            (Lan::Wired(_), Lan::Radio(_)) => vec![(ap_down, second(AP_MBPS))],
            (Lan::Radio(_), Lan::Wired(_)) => vec![(ap_up, second(AP_MBPS))],
            _ => Vec::new(),
        };
        for (lan, port) in [(sender, 2 * usize::from(from)), (receiver, 2 * usize::from(to) + 1)] {
            busy.push(match lan {
                Lan::Wired(mbps) => (port, second(mbps)),
                Lan::Radio(mbps) => (air, second(mbps)),
                Lan::No => return None,
            });
        }
        for (index, trunk) in self.trunks.iter().enumerate() {
            let [from_behind, to_behind] = [from, to].map(|rank| trunk.behind.contains(&rank));
            if from_behind != to_behind {
                let direction = usize::from(from_behind && !trunk.is_half);
                busy.push((
                    cables + 2 * (self.cables.len() + index) + direction,
                    second(trunk.mbps),
                ));
            }
        }
        let radio = |lan: Lan| matches!(lan, Lan::Radio(_));
        Some(HomePath {
            busy,
            latency_s: if radio(sender) || radio(receiver) { 2e-3 } else { 100e-6 },
        })
    }

    /// The sender's port of a path, and the round-trip time in microseconds.
    fn port(&self, from: u8, to: u8) -> Option<(Port, u32)> {
        let path = self.path(from, to)?;
        let (kind, number, mbps) = match (self.cable(from, to), self.machines[usize::from(from)]) {
            (Some(index), _) => {
                (InterfaceKind::Thunderbolt, 10 + index as u32, self.cables[index].2)
            }
            (None, Lan::Wired(mbps)) => (InterfaceKind::Ethernet, 2, mbps),
            (None, Lan::Radio(mbps)) => (InterfaceKind::Wifi, 3, mbps),
            (None, Lan::No) => return None,
        };
        let kbps = NonZeroU32::new(mbps * 1000);
        let port = Port { send_kbps: kbps, receive_kbps: kbps, ..Port::unmeasured(kind, number) };
        Some((port, (path.latency_s * 2e6).round() as u32))
    }

    fn pairs(&self) -> impl Iterator<Item = (u8, u8)> {
        let size = self.size() as u8;
        (0..size).flat_map(move |a| (0..size).filter(move |b| a != *b).map(move |b| (a, b)))
    }

    /// The fastest cable between two machines, as an index.
    fn cable(&self, from: u8, to: u8) -> Option<usize> {
        let between = |(a, b, _): &(u8, u8, u32)| (*a, *b) == (from, to) || (*b, *a) == (from, to);
        (0..self.cables.len())
            .filter(|index| between(&self.cables[*index]))
            .max_by_key(|index| self.cables[*index].2)
    }
}

/// The rate of the access point's own cable in each direction.
const AP_MBPS: u32 = 940;
