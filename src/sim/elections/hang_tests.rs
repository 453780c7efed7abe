//! Calls that hang are found, and faults of disks and queues make none.

use super::super::claims::Claim;
use super::disturb::{clean, history, number};
use super::hangs::HANG_MS;
use super::world::World;
use crate::protocol::Defect;

/// Broken rules, each with the seed of a schedule that shows it. After a change of the rules, a
/// schedule of the next 100 seeds should.
const BROKEN: [(Defect, u64); 2] = [(Defect::WithholdsVotes, 0), (Defect::SaysNothingAgain, 59)];

#[test]
fn schedules_find_broken_rules() {
    let hunt = number("POTLUCK_HUNT");
    for (defect, first) in BROKEN {
        let found = (first..first + hunt.unwrap_or(100)).find_map(|seed| {
            let why = history(seed, Some(defect), false).err()?;
            Some(format!("{defect:?} at seed {seed}: {why}"))
        });
        println!("{}", found.as_deref().unwrap_or("not found"));
        assert!(found.is_some() || hunt.is_some(), "{defect:?} is not found");
    }
}

/// Two of three have called, the second one's disk fails for ever, and the third dies.
fn disk_fails_for_ever(defect: Option<Defect>) -> World {
    let mut world = World::new(1);
    world.seeded = defect.into();
    world.network.resends = true;
    (1..=3).for_each(|n| world.start(n));
    world.run(1000);
    world.fail_disk(2, u64::MAX);
    world.call(1);
    world.call(2);
    world.kill(3);
    world.run(HANG_MS + 4000);
    world
}

#[test]
fn who_can_write_nothing_gives_its_calls_up() {
    let world = disk_fails_for_ever(None);
    assert_eq!(world.unanswered(), 0, "{:#?}", world.trace);
    assert!(clean(&world).is_ok(), "{:#?}", world.trace);
    let world = disk_fails_for_ever(Some(Defect::WaitsForItsDisk));
    assert!(world.history.is_broken(Claim::Answered), "{:#?}", world.trace);
}

/// Each of its writes takes longer than a phase of a proposal, and less than others wait for.
#[test]
fn who_is_left_alone_with_a_slow_disk_gets_its_view() {
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

#[test]
fn a_message_that_is_lost_on_a_link_that_stays_up_is_a_call_that_hangs() {
    let mut world = World::new(1);
    world.network.resends = true;
    world.start(1);
    world.start(2);
    world.run(500);
    world.network.weather.lost = 1000;
    world.call(1);
    world.call(2);
    world.network.weather.lost = 0;
    world.run(HANG_MS);
    assert!(clean(&world).is_ok(), "{:#?}", world.trace);
    world.run(1000);
    assert!(world.history.is_broken(Claim::Answered), "{:#?}", world.trace);
}

#[test]
fn a_message_that_a_full_queue_refuses_is_said_again_over_the_next_link() {
    let mut world = World::new(1);
    world.start(1);
    world.start(2);
    world.run(500);
    let before = world.state(1);
    world.network.weather.refused = 1000;
    world.call(1);
    world.network.weather.refused = 0;
    world.call(2);
    assert_eq!(world.network.overrun_links(), [(1, 2)]);
    world.run(500);
    assert_eq!((world.unanswered(), world.committed), (0, 2), "{:#?}", world.trace);
    assert_eq!(world.state(1), before, "the View stays");
}
