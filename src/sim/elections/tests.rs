//! Tests that need more than a script can say.

use super::world::World;
use crate::election::Input;
use crate::protocol::Defect;

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
fn disk_fails_for_ever(defect: Option<Defect>) -> World {
    let mut world = World::new(1);
    world.seeded = defect.into();
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
    let world = disk_fails_for_ever(Some(Defect::WaitsForItsDisk));
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
