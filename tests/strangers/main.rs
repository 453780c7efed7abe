//! Attacks without a key: on the wire, at the ports, and through files.

mod files;
mod intruder;
mod invitation;
mod jobs;
mod multicast;
mod port;
mod proxy;
mod storm;
mod wire;

use potluck_harness::{Need, Suite};

const LO: [Need; 3] = [Need::Lab, Need::LoopbackMulticast, Need::Command("python3")];
const LAN: [Need; 2] = [Need::Lab, Need::Command("python3")];

fn main() {
    let mut suite = Suite::new();
    files::add(&mut suite);
    port::add(&mut suite);
    proxy::add(&mut suite);
    multicast::add(&mut suite);
    storm::add(&mut suite);
    invitation::add(&mut suite);
    jobs::add(&mut suite);
    let missing = potluck::gloo_version().is_none().then_some("this build has no Gloo");
    for (engine, missing) in [("native", None), ("gloo", missing)] {
        suite.on(engine, missing);
        wire::add(&mut suite);
    }
    suite.run()
}
