//! Tests that need more than a script can say.

use super::world::World;
use crate::election::Input;
use crate::protocol::Mutant;

#[test]
fn two_nodes_form_and_reduce() {
    let mut world = World::new(1);
    world.start(1);
    world.start(2);
    world.run(500);
    assert!(world.is_whole(), "{:#?}", world.trace);
    world.call(1);
    world.call(2);
    world.run(50);
    assert_eq!(world.unanswered(), 0, "{:#?}", world.trace);
}

/// The data in flight on its old data links is lost, so operations of the old View would wait
/// forever.
#[test]
fn a_member_that_was_given_up_and_is_back_at_once_gets_a_new_view() {
    let mut world = World::new(1);
    (1..=3).for_each(|n| world.start(n));
    world.run(500);
    let (before, lost) = (world.state(2), world.nodes[&3].id());
    world.feed(2, Input::Unreachable(lost));
    world.feed(2, Input::LinkUp(lost));
    world.run(1000);
    assert!(world.is_whole(), "{:#?}", world.trace);
    assert_ne!(world.state(2), before, "{:#?}", world.trace);
}

/// Two of three have called, the disk of the second one fails for ever, and the third one dies.
fn disk_fails_for_ever(mutant: Option<Mutant>) -> World {
    let mut world = World::new(1);
    world.mutation = mutant.into();
    (1..=3).for_each(|n| world.start(n));
    world.run(1000);
    world.fail_disk(2, u64::MAX);
    world.call(1);
    world.call(2);
    world.kill(3);
    world.run(34_000);
    world
}

#[test]
fn a_node_that_cannot_write_gives_its_calls_up() {
    let world = disk_fails_for_ever(None);
    assert_eq!(world.unanswered(), 0, "{:#?}", world.trace);
    assert!(world.broken().is_empty(), "{:#?}", world.trace);
    let world = disk_fails_for_ever(Some(Mutant::WaitsForItsDisk));
    assert_ne!(world.unanswered(), 0, "{:#?}", world.trace);
}

/// Each of its writes takes longer than a phase of a proposal, and less than others wait for.
#[test]
fn a_node_that_is_left_alone_with_a_slow_disk_gets_its_view() {
    let mut world = World::new(1);
    (1..=2).for_each(|n| world.start(n));
    world.run(1000);
    world.disk(1, 3000);
    world.call(1);
    world.kill(2);
    world.run(10_000);
    assert_eq!(world.unanswered(), 0, "{:#?}", world.trace);
    assert!(world.is_whole(), "{:#?}", world.trace);
}

#[test]
fn a_write_that_fails_is_tried_again_until_it_succeeds() {
    let mut world = World::new(1);
    (1..=3).for_each(|n| world.start(n));
    world.run(1000);
    world.fail_disk(2, 700);
    world.kill(3);
    world.run(400);
    assert!(!world.is_whole(), "{:#?}", world.trace);
    world.run(2000);
    assert!(world.is_whole(), "{:#?}", world.trace);
}

/// A proposal that is made in the moment before the disk counts as stuck includes its member, and
/// must not wait for the disk again.
#[test]
fn a_disk_that_is_stuck_is_waited_for_once() {
    const LONGEST_MS: u64 = 7000;
    for seed in 1..=40 {
        let mut world = World::new(seed);
        world.network.rates.late = 300;
        (1..=4).for_each(|n| world.start(n));
        world.run(3000);
        world.fail_disk(2, u64::MAX);
        world.kill(4);
        let began = world.now;
        let are_without_it = |world: &World| {
            let stuck = world.nodes[&2].id();
            let view = |n: u8| {
                world.nodes[&n].session.view.as_ref().map(|v| (v.size(), v.contains(stuck)))
            };
            view(1) == Some((2, false)) && view(3) == view(1)
        };
        while !are_without_it(&world) && world.now < began + 20_000 {
            world.run(20);
        }
        let took = world.now - began;
        assert!(took <= LONGEST_MS, "seed {seed}: {took} ms, {:#?}", world.trace);
    }
}
