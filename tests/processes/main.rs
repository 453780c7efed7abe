//! Real processes that find each other over real sockets, and that are killed, stopped, delayed or
//! misused. Measured values are printed as `measured …`.

mod builds;
mod calls;
mod faults;
mod gloo;
mod halves;
mod jobs;
mod meeting;
mod memory;
mod patience;
mod rotation;
mod silent;
mod sizes;
mod training;

use potluck_harness::chance::seed;
use potluck_harness::outcome::{all_exact, all_failed};
use potluck_harness::{Need, Suite};

const LO: [Need; 2] = [Need::Lab, Need::LoopbackMulticast];
const LAN: [Need; 1] = [Need::Lab];

fn main() {
    let mut suite = Suite::new();
    let missing = potluck::gloo_version().is_none().then_some("this build has no Gloo");
    for (engine, missing) in [("native", None), ("gloo", missing)] {
        suite.on(engine, missing);
        meeting::add(&mut suite);
        calls::add(&mut suite);
        builds::add(&mut suite);
        memory::add(&mut suite);
        faults::add(&mut suite);
        halves::add(&mut suite);
        patience::add(&mut suite);
        silent::add(&mut suite);
        sizes::add(&mut suite);
        training::add(&mut suite);
    }
    suite.on("gloo", missing);
    gloo::add(&mut suite);
    suite.on("native", None);
    jobs::add(&mut suite);
    rotation::add(&mut suite);
    suite.run()
}
