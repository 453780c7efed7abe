//! Explores the schedules of a test with shuttle (`make threads`).
//!
//! A seed stands for [`RANDOM`] schedules in which each step is of a thread drawn at random, and
//! for [`PRIORITY`] ones of probabilistic concurrency testing (PCT), in which the thread of the
//! highest priority runs and priorities change at a few steps. A test fails if one of its
//! assertions does, if all threads that are left wait for each other (deadlock), or after
//! [`STEPS_MAX`] steps (livelock).

use crate::os::Race;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::any::Any;
use std::panic::resume_unwind;
use std::thread;

/// Random schedules of a seed.
const RANDOM: usize = 12;
/// Schedules of a seed by priorities. The first one only counts the steps.
const PRIORITY: usize = 1 + 12;
/// How often priorities change, at most; a seed decides.
const CHANGES_MAX: u64 = 4;
/// Far more than any of the tests needs.
const STEPS_MAX: usize = 100_000;
/// Seeds in which a seeded race must be found.
const SEEDS_FOR_RACE: u64 = 200;
/// Enough for a handshake.
const STACK_BYTES: usize = 512 * 1024;

/// Runs a test in the schedules of `POTLUCK_SEEDS` seeds, or of the one of `POTLUCK_SEED`.
pub(crate) fn explore(run: fn()) {
    let name = name();
    let seeds = number("POTLUCK_SEEDS").unwrap_or(10);
    let seeds = number("POTLUCK_SEED").map_or(0..seeds, |seed| seed..seed + 1);
    let mut algorithms = 0;
    for seed in seeds {
        match schedules_of(seed, None, run) {
            Ok(more) => algorithms += more,
            Err(panic) => {
                println!("threads: {name} fails, again with: make threads SEED={seed} ARGS={name}");
                resume_unwind(panic);
            }
        }
    }
    println!("threads: {name}: {algorithms} schedules hold");
}

/// Requires that the test finds a seeded race, and that the race alone makes it fail.
pub(crate) fn finds(race: Race, run: fn()) {
    for seed in 0..SEEDS_FOR_RACE {
        let Err(panic) = schedules_of(seed, Some(race), run) else { continue };
        println!("threads: found {race:?} at seed {seed}: {}", text_of(panic.as_ref()));
        assert!(schedules_of(seed, None, run).is_ok(), "it fails without the seeded race too");
        return;
    }
    panic!("{race:?} is not found in {SEEDS_FOR_RACE} seeds");
}

/// The number of schedules that hold, or the panic of the first one that fails.
fn schedules_of(seed: u64, race: Option<Race>, run: fn()) -> thread::Result<usize> {
    let explore = move || {
        let depth = 2 + (seed % CHANGES_MAX) as usize;
        let random = runner(RandomScheduler::new_from_seed(seed, RANDOM)).run(run);
        random + runner(PctScheduler::new_from_seed(seed, depth, PRIORITY)).run(run)
    };
    // A thread of its own, because the stacks of a failed schedule are not unwound.
    let explored = thread::spawn(move || match race {
        Some(race) => race.seeded(explore),
        None => explore(),
    });
    explored.join()
}

fn runner<S: Scheduler + 'static>(scheduler: S) -> Runner<S> {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    Runner::new(scheduler, config)
}

/// The name of the running test.
pub(crate) fn name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text:?}")))
}

/// The first line of a panic.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.and_then(|text| text.lines().next()).unwrap_or("a panic")
}
