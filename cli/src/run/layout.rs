//! The ranks and listen addresses of a generation. A pure function of the offers, so
//! that all machines compute the same.

use super::offer::Offer;
use crate::address::for_programs;
use anyhow::{Result, bail};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The ranks and addresses of one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The machines in the order of their ranks, each by its rank in the View.
    pub order: Vec<usize>,
    /// The lowest rank of a process on each of them, in that order.
    pub first_ranks: Vec<usize>,
    /// The number of all processes.
    pub world: usize,
    /// The address of the machine of rank 0, as each of them reaches it, in that order.
    pub masters: Vec<IpAddr>,
    /// The port on which the process of rank 0 listens.
    pub master_port: u16,
    /// The port there on which the coordinator of JAX listens.
    pub coordinator_port: u16,
    /// Where each rank listens for the one before it. None if no ring of direct paths was found.
    pub ring: Option<Vec<SocketAddr>>,
}

impl Layout {
    /// The layout of machines that offer this, in the order of the View.
    ///
    /// # Errors
    /// No machine is reached by all others directly.
    pub fn of(offers: &[&Offer]) -> Result<Layout> {
        let machines = 0..offers.len();
        let paths = paths(offers);
        let is_reached =
            |to: usize| machines.clone().all(|from| from == to || paths[from][to].is_some());
        let Some(first) = machines.clone().find(|machine| is_reached(*machine)) else {
            bail!(
                "no machine is reached by all others directly, so none can be the master: connect \
                 one of them with all others"
            );
        };
        let cycle = cycle(&paths, first);
        let ring = cycle.as_ref().and_then(|order| ring(offers, &paths, order));
        let rest = machines.filter(|machine| *machine != first);
        let order = cycle.unwrap_or_else(|| [first].into_iter().chain(rest).collect());
        let counts = order.iter().map(|machine| usize::from(offers[*machine].processes));
        let first_ranks = counts.clone().scan(0, |next, count| {
            let first = *next;
            *next += count;
            Some(first)
        });
        // The first reaches itself at the address at which the second reaches it.
        let own = order.get(1).and_then(|second| paths[*second][first]).unwrap_or(LOCALHOST);
        Ok(Layout {
            first_ranks: first_ranks.collect(),
            world: counts.sum(),
            masters: order.iter().map(|machine| paths[*machine][first].unwrap_or(own)).collect(),
            master_port: offers[first].master_port(),
            coordinator_port: offers[first].coordinator_port(),
            ring,
            order,
        })
    }

    /// The place of a machine in the order, which is its group rank.
    pub fn place(&self, machine: usize) -> Option<usize> {
        self.order.iter().position(|other| *other == machine)
    }
}

/// The address at which the programs of one machine reach those of another, by both.
type Paths = Vec<Vec<Option<IpAddr>>>;

fn paths(offers: &[&Offer]) -> Paths {
    let path = |from: &Offer, to: usize| for_programs(from.paths[to]?, &offers[to].networks);
    offers.iter().map(|from| (0..offers.len()).map(|to| path(from, to)).collect()).collect()
}

/// An order of the machines from `first` on, in which each reaches the next one directly, and the
/// last one the first. The earlier machines are tried first, so where all reach each other it is
/// the order of the View.
fn cycle(paths: &Paths, first: usize) -> Option<Vec<usize>> {
    let mut order = vec![first];
    let mut steps = STEPS_MAX;
    extend(paths, &mut order, &mut steps).then_some(order)
}

fn extend(paths: &Paths, order: &mut Vec<usize>, steps: &mut u32) -> bool {
    let (Some(first), Some(last)) = (order.first().copied(), order.last().copied()) else {
        return false;
    };
    if order.len() == paths.len() {
        return first == last || paths[last][first].is_some();
    }
    for next in 0..paths.len() {
        if order.contains(&next) || paths[last][next].is_none() {
            continue;
        }
        if *steps == 0 {
            return false;
        }
        *steps -= 1;
        order.push(next);
        if extend(paths, order, steps) {
            return true;
        }
        order.pop();
    }
    false
}

/// Where each rank listens: at the address by which the machine of the rank before it reaches it.
fn ring(offers: &[&Offer], paths: &Paths, order: &[usize]) -> Option<Vec<SocketAddr>> {
    let mut ring = Vec::new();
    for (place, machine) in order.iter().enumerate() {
        let before = order[(place + order.len() - 1) % order.len()];
        for process in 0..usize::from(offers[*machine].processes) {
            let is_local = process > 0 || before == *machine;
            let address = if is_local { LOCALHOST } else { paths[before][*machine]? };
            ring.push(SocketAddr::new(address, offers[*machine].ring_port(process)));
        }
    }
    Some(ring)
}

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Sixteen machines that all reach each other take 15; a network in which no ring is found after so
/// many has none for practical purposes.
const STEPS_MAX: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Machines of which each reaches those for which `reaches` holds. The address of machine `to`
    /// as `from` sees it is 10.0.from.to, its ports are 1000 * (to + 1) and those after it.
    fn offers(processes: &[u8], reaches: impl Fn(usize, usize) -> bool) -> Vec<Offer> {
        let size = processes.len();
        let octet = |number: usize| u8::try_from(number).expect("few");
        let path = |from: usize, to: usize| {
            (from != to && reaches(from, to)).then(|| [10, 0, octet(from), octet(to)].into())
        };
        let offer = |(machine, count): (usize, &u8)| Offer {
            processes: *count,
            ports: (0..Offer::ports_of(*count) as u16)
                .map(|port| 1000 * (machine as u16 + 1) + port)
                .collect(),
            paths: (0..size).map(|to| path(machine, to)).collect(),
            networks: Vec::new(),
            command: 0,
        };
        processes.iter().enumerate().map(offer).collect()
    }

    fn layout(offers: &[Offer]) -> Result<Layout> {
        Layout::of(&offers.iter().collect::<Vec<_>>())
    }

    fn texts(addresses: &[SocketAddr]) -> Vec<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn machines_on_one_switch_have_ranks_in_the_order_of_the_view() -> Result<()> {
        let layout = layout(&offers(&[1, 2, 1], |_, _| true))?;
        assert_eq!((&layout.order[..], &layout.first_ranks[..]), (&[0, 1, 2][..], &[0, 1, 3][..]));
        assert_eq!(layout.world, 4);
        assert_eq!((layout.master_port, layout.coordinator_port), (1000, 1001));
        // The master reaches itself at the address at which the second machine reaches it.
        let masters: Vec<IpAddr> = layout.masters.clone();
        assert_eq!(masters, [[10, 0, 1, 0], [10, 0, 1, 0], [10, 0, 2, 0]].map(IpAddr::from));
        assert_eq!(layout.place(2), Some(2));
        // Each as the machine before it sees it; the second process of a machine at home.
        assert_eq!(
            texts(&layout.ring.expect("all reach each other")),
            ["10.0.2.0:1002", "10.0.0.1:2002", "127.0.0.1:2003", "10.0.1.2:3002"]
        );
        Ok(())
    }

    #[test]
    fn one_machine_alone_talks_to_itself() -> Result<()> {
        let layout = layout(&offers(&[2], |_, _| true))?;
        assert_eq!((layout.world, layout.masters), (2, vec![LOCALHOST]));
        assert_eq!(texts(&layout.ring.expect("one")), ["127.0.0.1:1002", "127.0.0.1:1003"]);
        Ok(())
    }

    #[test]
    fn the_master_is_a_machine_that_all_others_reach() -> Result<()> {
        // Three in a row: only the one in the middle, and there is no ring.
        let row = layout(&offers(&[1, 1, 1], |from, to| from.abs_diff(to) == 1))?;
        assert_eq!(row.order, [1, 0, 2]);
        assert_eq!((row.master_port, row.ring), (2000, None));
        let apart = layout(&offers(&[1; 4], |from, to| from.abs_diff(to) == 1));
        assert!(apart.is_err_and(|error| error.to_string().contains("no machine is reached")));
        Ok(())
    }

    #[test]
    fn a_link_local_path_leads_to_another_address_of_the_same_network() -> Result<()> {
        let mut offers = offers(&[1, 1], |_, _| true);
        let link_local: IpAddr = "fe80::1".parse()?;
        offers[1].paths[0] = Some(link_local);
        assert!(layout(&offers).is_ok_and(|layout| layout.order == [1, 0]), "0 is not reached");
        offers[0].networks = vec![vec![link_local, [192, 168, 0, 1].into()]];
        let layout = layout(&offers)?;
        assert_eq!(layout.masters, [IpAddr::from([192, 168, 0, 1]); 2]);
        Ok(())
    }

    #[test]
    fn the_ring_follows_the_direct_paths() -> Result<()> {
        // 1 and 2 do not reach each other, nor do 0 and 4.
        let lacks = |a: usize, b: usize| matches!((a.min(b), a.max(b)), (1, 2) | (0, 4));
        let layout = layout(&offers(&[1; 5], |from, to| !lacks(from, to)))?;
        let order = &layout.order;
        assert!(layout.ring.is_some());
        for place in 0..5 {
            assert!(!lacks(order[place], order[(place + 1) % 5]), "{order:?}");
        }
        Ok(())
    }

    #[test]
    fn a_hopeless_search_for_a_ring_ends() -> Result<()> {
        // All reach all, but nobody is reached from machine 15, whose paths are gone.
        let layout = layout(&offers(&[1; 16], |from, to| from != 15 || to == 0))?;
        assert!(layout.ring.is_some(), "15 is the last one");
        let star = offers(&[1; 16], |from, to| from == 0 || to == 0 || from + to < 3);
        assert_eq!(self::layout(&star)?.ring, None);
        let dense = offers(&[1; 16], |from, to| to != 15 && from != 15 || from == 15 && to == 0);
        assert_eq!(self::layout(&dense)?.ring, None, "nobody reaches 15");
        Ok(())
    }
}
