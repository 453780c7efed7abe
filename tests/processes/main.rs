//! Real processes that find each other on real sockets, and what becomes of them when some are killed, stopped, late or
//! wrong. Run with `--nocapture` or not: figures are printed as `measured …`.

mod builds;
mod cables;
mod calls;
mod codecs;
mod faults;
mod gloo;
mod halves;
mod meeting;
mod memory;
mod paths;
mod patience;
mod training;
mod unequal;
mod wires;

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
        codecs::add(&mut suite);
        builds::add(&mut suite);
        memory::add(&mut suite);
        paths::add(&mut suite);
        faults::add(&mut suite);
        halves::add(&mut suite);
        patience::add(&mut suite);
        training::add(&mut suite);
        wires::add(&mut suite);
    }
    suite.on("gloo", missing);
    cables::add_gloo(&mut suite);
    suite.on("native", None);
    paths::add_once(&mut suite);
    unequal::add(&mut suite);
    codecs::add_native(&mut suite);
    cables::add(&mut suite);
    gloo::add(&mut suite);
    // A group that begins on Gloo, and may leave it.
    suite.on("auto", missing);
    unequal::add(&mut suite);
    suite.run()
}
