//! Real processes on heterogeneous cables and radios: routes, measured rates, and the plans made
//! from them. Measured values are printed as `measured …`.

mod cables;
mod codecs;
mod flows;
mod gloo;
mod limits;
mod paths;
mod unequal;
mod wires;

use potluck_harness::outcome::all_exact;
use potluck_harness::{Need, Suite};

const LO: [Need; 2] = [Need::Lab, Need::LoopbackMulticast];
const LAN: [Need; 1] = [Need::Lab];

fn main() {
    let mut suite = Suite::new();
    // Most tests wait for slow links.
    suite.at_once(3);
    let missing = potluck::gloo_version().is_none().then_some("this build has no Gloo");
    for (engine, missing) in [("native", None), ("gloo", missing)] {
        suite.on(engine, missing);
        codecs::add(&mut suite);
        paths::add(&mut suite);
        wires::add(&mut suite);
    }
    suite.on("gloo", missing);
    cables::add_gloo(&mut suite);
    gloo::add(&mut suite);
    suite.on("native", None);
    paths::add_once(&mut suite);
    unequal::add(&mut suite);
    limits::add(&mut suite);
    codecs::add_native(&mut suite);
    flows::add(&mut suite);
    cables::add(&mut suite);
    // A group that starts on Gloo and may leave it.
    suite.on("auto", missing);
    unequal::add(&mut suite);
    limits::add(&mut suite);
    suite.run()
}
