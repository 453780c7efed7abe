//! Circuits over rows of switches, honest and dishonest.

use super::*;
use crate::protocol::member_id;
use std::collections::VecDeque;

/// Nodes in a row, and the frames in flight.
struct Row {
    switches: BTreeMap<MemberId, Switch>,
    under_way: VecDeque<(MemberId, MemberId, RelayFrame)>,
    /// The resulting actions per node, without frames.
    heard: Vec<(MemberId, Act)>,
    now: u64,
}

impl Row {
    fn of(n: u8) -> Row {
        let switches = (1..=n).map(|n| (member_id(n), Switch::new(member_id(n)))).collect();
        Row { switches, under_way: VecDeque::new(), heard: Vec::new(), now: 0 }
    }

    fn switch(&mut self, n: u8) -> &mut Switch {
        self.switches.get_mut(&member_id(n)).expect("a node of the row")
    }

    fn carry_out(&mut self, at: MemberId, acts: impl IntoIterator<Item = Act>) {
        for act in acts {
            match act {
                Act::Send(to, frame) => self.under_way.push_back((at, to, frame)),
                act => self.heard.push((at, act)),
            }
        }
    }

    /// Delivers all frames.
    fn settle(&mut self) {
        while let Some((from, to, frame)) = self.under_way.pop_front() {
            let (near, now) = (to.node.0[0], self.now);
            let is_next = move |other: MemberId| other.node.0[0].abs_diff(near) == 1;
            let Some(switch) = self.switches.get_mut(&to) else { continue };
            let acts = switch.on_frame(now, from, frame, is_next).expect("all are honest");
            self.carry_out(to, acts);
        }
    }

    fn open(&mut self, nodes: &[u8]) -> End {
        let at = member_id(nodes[0]);
        let route = nodes.iter().copied().map(member_id).collect();
        let (end, act) = self.switch(nodes[0]).open(route).expect("room");
        self.carry_out(at, [act]);
        end
    }

    fn heard(&mut self) -> Vec<(u8, Act)> {
        std::mem::take(&mut self.heard).into_iter().map(|(id, act)| (id.node.0[0], act)).collect()
    }

    fn slots(&self) -> usize {
        self.switches.values().map(|switch| switch.slots.len()).sum()
    }
}

/// A row of four with a circuit between its two ends.
fn row_of_four() -> (Row, End, End) {
    let mut row = Row::of(4);
    let near = row.open(&[1, 2, 3, 4]);
    row.settle();
    let heard = row.heard();
    let [(4, Act::Begun(far, nodes))] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(*nodes, [1, 2, 3, 4].map(member_id));
    (row, near, *far)
}

fn say(row: &mut Row, n: u8, end: End, bytes: &[u8]) {
    let act = row.switch(n).send(end, bytes.to_vec());
    row.carry_out(member_id(n), act);
}

#[test]
fn bytes_go_both_ways_and_in_order() {
    let (mut row, near, far) = row_of_four();
    say(&mut row, 1, near, b"one");
    say(&mut row, 1, near, b"two");
    say(&mut row, 4, far, b"back");
    row.settle();
    let told = |end, bytes: &[u8]| Act::Bytes(end, bytes.to_vec());
    assert_eq!(
        row.heard(),
        [(4, told(far, b"one")), (4, told(far, b"two")), (1, told(near, b"back"))]
    );
    let act = row.switch(4).took(far, 2 * cost(3));
    row.carry_out(member_id(4), act);
    row.settle();
    assert_eq!(row.heard(), [(1, Act::Room(near, 2 * cost(3)))]);
}

#[test]
fn a_circuit_ends_everywhere_when_an_end_gives_it_up_or_a_hop_is_gone() {
    let (mut row, near, far) = row_of_four();
    let act = row.switch(1).close(near);
    row.carry_out(member_id(1), act);
    row.settle();
    assert_eq!((row.heard(), row.slots()), (vec![(4, Act::Ended(far))], 0));
    assert_eq!(row.switch(1).close(near), None);

    let (mut row, near, far) = row_of_four();
    row.switches.remove(&member_id(2));
    for n in [1, 3] {
        let acts = row.switch(n).unlinked(member_id(2));
        row.carry_out(member_id(n), acts);
    }
    row.settle();
    assert_eq!((row.heard(), row.slots()), (vec![(1, Act::Ended(near)), (4, Act::Ended(far))], 0));
}

#[test]
fn a_way_that_leads_nowhere_ends_at_once() {
    let mut row = Row::of(4);
    let end = row.open(&[1, 2, 4]);
    row.settle();
    assert_eq!((row.heard(), row.slots()), (vec![(1, Act::Ended(end))], 0));
}

#[test]
fn what_comes_for_a_circuit_that_has_ended_is_answered_with_its_end_and_nothing_more() {
    let mut switch = Switch::new(member_id(2));
    let frame = |body| RelayFrame { circuit: Circuit { by_sender: true, number: 7 }, body };
    let hears = |switch: &mut Switch, body| switch.on_frame(0, member_id(1), frame(body), |_| true);
    let end =
        RelayFrame { circuit: Circuit { by_sender: false, number: 7 }, body: RelayBody::Close };
    assert_eq!(
        hears(&mut switch, RelayBody::Bytes(vec![1])),
        Ok(vec![Act::Send(member_id(1), end)])
    );
    assert_eq!(hears(&mut switch, RelayBody::Took(FRAME_COST)), Ok(Vec::new()));
    assert_eq!(hears(&mut switch, RelayBody::Close), Ok(Vec::new()));
}

#[test]
fn nobody_makes_a_node_hold_more_than_a_window() {
    let (mut row, near, _) = row_of_four();
    let most = (WINDOW / cost(RelayBody::BYTES_MAX)) as usize;
    for _ in 0..most {
        say(&mut row, 1, near, &[0; RelayBody::BYTES_MAX]);
    }
    row.settle();
    assert_eq!(row.heard().len(), most);
    // The neighbour of an end that exceeds its window detects it.
    say(&mut row, 1, near, &[0; RelayBody::BYTES_MAX]);
    let (from, to, frame) = row.under_way.pop_front().expect("sent");
    assert_eq!((from, to), (member_id(1), member_id(2)));
    assert_eq!(row.switch(2).on_frame(0, from, frame, |_| true), Err(Dishonest));
}

#[test]
fn a_thousand_frames_of_a_byte_fill_a_window_too() {
    let (mut row, near, _) = row_of_four();
    let mut taken = 0;
    loop {
        say(&mut row, 1, near, &[0]);
        let (from, to, frame) = row.under_way.pop_front().expect("sent");
        if row.switch(2).on_frame(0, from, frame, |_| true).is_err() {
            assert_eq!(to, member_id(2));
            break;
        }
        taken += 1;
    }
    assert_eq!(taken, WINDOW / cost(1));
}

#[test]
fn what_makes_no_sense_is_dishonest() {
    let (mut row, ..) = row_of_four();
    let two = row.switch(2);
    let opens = |ids: &[u8]| RelayBody::Open(ids.iter().copied().map(member_id).collect());
    let theirs = |number, body| RelayFrame { circuit: Circuit { by_sender: true, number }, body };
    for (from, frame) in [
        (1, theirs(1, opens(&[1, 2, 3]))),
        (1, theirs(9, opens(&[5, 2, 3]))),
        (1, theirs(9, opens(&[2, 1, 3]))),
        (1, theirs(9, opens(&[1, 3, 4]))),
        (3, theirs(9, opens(&[1, 2, 3]))),
        (
            1,
            RelayFrame {
                circuit: Circuit { by_sender: false, number: 9 },
                body: opens(&[1, 2, 3]),
            },
        ),
        (1, theirs(1, RelayBody::Took(FRAME_COST))),
    ] {
        assert_eq!(
            two.on_frame(0, member_id(from), frame.clone(), |_| true),
            Err(Dishonest),
            "{frame:?}"
        );
    }
    assert_eq!(two.slots.len(), 2);
}

#[test]
fn opens_have_a_rate_and_circuits_a_number() {
    let mut switch = Switch::new(member_id(2));
    let mut refused = 0;
    for number in 1..=u32::try_from(OPENS.burst).expect("small") + 10 {
        let circuit = Circuit { by_sender: true, number };
        let open = RelayFrame { circuit, body: RelayBody::Open([1, 2, 3].map(member_id).into()) };
        let acts = switch.on_frame(0, member_id(1), open, |_| true).expect("honest");
        let [Act::Send(to, frame)] = &acts[..] else { panic!("{acts:?}") };
        refused += usize::from(*to == member_id(1) && frame.body == RelayBody::Close);
        assert!(switch.slots.len() <= 2 * CIRCUITS_MAX);
        if number % 2 == 0 {
            // Every second circuit ends, so that their number is not the bound that counts.
            let close = RelayFrame { circuit, body: RelayBody::Close };
            switch.on_frame(0, member_id(1), close, |_| true).expect("honest");
        }
    }
    assert!(refused >= 10, "{refused}");
    let open = RelayBody::Open([1, 2, 3].map(member_id).into());
    let acts = switch.unlinked(member_id(1));
    assert!(
        acts.iter().all(|act| matches!(act, Act::Send(to, _) if *to == member_id(3)))
            && switch.is_empty()
    );
    // Later it may open circuits again.
    let frame = RelayFrame { circuit: Circuit { by_sender: true, number: 9999 }, body: open };
    let acts = switch.on_frame(60_000, member_id(1), frame, |_| true).expect("honest");
    assert!(matches!(&acts[..], [Act::Send(to, _)] if *to == member_id(3)), "{acts:?}");
}

/// Ten neighbours open as many circuits as they may, to this node and over it.
#[test]
fn all_circuits_together_have_a_bound_and_own_ones_have_room_left() {
    let mut switch = Switch::new(member_id(100));
    for (to_here, neighbour) in (1..=10).flat_map(|n| [(true, n), (false, n)]) {
        for number in 1..=CIRCUITS_MAX {
            let number = u32::try_from(number).expect("small") + if to_here { 0 } else { 1000 };
            let nodes = if to_here { vec![50, neighbour, 100] } else { vec![neighbour, 100, 60] };
            let open = RelayBody::Open(nodes.into_iter().map(member_id).collect());
            let frame = RelayFrame { circuit: Circuit { by_sender: true, number }, body: open };
            switch.on_frame(0, member_id(neighbour), frame, |_| true).expect("honest");
            assert!(switch.slots.len() <= SLOTS_MAX - OWN_MIN, "{}", switch.slots.len());
        }
    }
    assert!(switch.slots.len() > SLOTS_MAX - OWN_MIN - 2, "{}", switch.slots.len());
    let own = (0..2 * OWN_MIN)
        .filter(|_| switch.open([100, 1, 70].map(member_id).into()).is_some())
        .count();
    assert!((OWN_MIN..OWN_MIN + 2).contains(&own) && switch.slots.len() == SLOTS_MAX, "{own}");
}

#[test]
fn a_link_that_takes_no_more_ends_the_circuit_on_both_sides() {
    let (mut row, near, _) = row_of_four();
    say(&mut row, 1, near, b"much");
    let (from, _, frame) = row.under_way.pop_front().expect("sent");
    let acts = row.switch(2).on_frame(0, from, frame, |_| false).expect("honest");
    row.carry_out(member_id(2), acts);
    row.settle();
    assert_eq!(row.slots(), 0);
    assert!(row.heard().contains(&(1, Act::Ended(near))));
}

#[test]
fn what_is_passed_on_for_a_neighbour_has_a_rate() {
    let (mut row, near, far) = row_of_four();
    let mut sent = 0_u64;
    while row.switch(1).of(near).is_some() {
        say(&mut row, 1, near, &[0; RelayBody::BYTES_MAX]);
        let act = row.switch(4).took(far, cost(RelayBody::BYTES_MAX));
        row.settle();
        row.carry_out(member_id(4), act);
        row.settle();
        sent += u64::from(cost(RelayBody::BYTES_MAX));
        assert!(sent <= BYTES.burst + u64::from(WINDOW), "never");
    }
    assert!(sent >= BYTES.burst);
}

/// Random frames in any order: nothing panics, and memory and replies stay bounded.
#[test]
fn garbage_never_panics_and_never_grows() {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut switch = Switch::new(member_id(2));
        let mut ends = Vec::new();
        for now in 0..300 {
            let from = member_id(rng.random_range(1..=5));
            let circuit =
                Circuit { by_sender: rng.random_bool(0.6), number: rng.random_range(0..6) };
            let body = match rng.random_range(0..5) {
                0 => {
                    let first = rng.random_range(1..=5);
                    let mut nodes = vec![first, 2, rng.random_range(1..=5)];
                    nodes.dedup();
                    RelayBody::Open(nodes.into_iter().map(member_id).collect())
                }
                1 | 2 => RelayBody::Bytes(vec![0; rng.random_range(1..=RelayBody::BYTES_MAX)]),
                3 => RelayBody::Took(rng.random_range(1..100_000)),
                _ => RelayBody::Close,
            };
            let up = rng.random_bool(0.8);
            match switch.on_frame(now, from, RelayFrame { circuit, body }, |_| up) {
                Ok(acts) => {
                    assert!(acts.len() <= 2, "seed {seed}: {acts:?}");
                    let frames = acts
                        .iter()
                        .filter(|act| matches!(act, Act::Send(_, f) if f.body != RelayBody::Close));
                    assert!(frames.count() <= 1, "seed {seed}: one frame made two");
                    ends.extend(acts.iter().filter_map(|act| {
                        if let Act::Begun(end, _) = act { Some(*end) } else { None }
                    }));
                }
                Err(Dishonest) => drop(switch.unlinked(from)),
            }
            if let Some(end) = ends.last().copied().filter(|_| rng.random_bool(0.2)) {
                drop((switch.send(end, vec![1; 10]), switch.took(end, 1), switch.close(end)));
            }
            assert!(switch.slots.len() <= 2 * CIRCUITS_MAX * 5, "seed {seed}");
            for (key, slot) in &switch.slots {
                if let CircuitSlot::On { to, .. } = slot {
                    let back = switch.slots.get(to);
                    assert!(
                        matches!(back, Some(CircuitSlot::On { to, .. }) if to == key),
                        "seed {seed}: {key:?} leads to {back:?}"
                    );
                }
            }
        }
    }
}
