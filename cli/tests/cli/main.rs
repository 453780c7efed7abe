//! The command line from outside: outputs, exit codes, files.

mod demo;
mod keys;
mod nodes;
mod pairing;
mod pictures;
mod rotation;
mod run;

use potluck_harness::{Need, Suite};

fn main() {
    let mut suite = Suite::new();
    suite.test("identity: made once, shown again, no key in it", keys::identity);
    suite.test("identity: a damaged file is one sentence and stays", keys::damaged_identity);
    suite.test("join: from a pipe and from a file", keys::join);
    suite.test("join: a mistyped key is refused and nothing is stored", keys::mistyped_key);
    suite.test("join: a second key replaces the first only on demand", keys::second_key);
    suite.test("join: a key on the command line is refused", keys::key_in_argv);
    suite.test("key: a file that others may read is refused", keys::loose_permissions);
    suite.test("key: only printed on demand", keys::show_on_demand);
    suite.test("a wrong name or number is wrong usage", keys::wrong_usage);
    pairing(&mut suite);
    suite.test("keys: the steps of a change of the key", rotation::steps);
    suite.test("deny: a list of nodes", rotation::denied);
    suite.test_needing(
        "keys: two of three that run change the key, never part, and the third is out",
        &[Need::Lab],
        rotation::while_nodes_run,
    );
    suite.test_needing(
        "deny: a node that runs is out, and is back when it is allowed",
        &[Need::Lab],
        rotation::denied_while_nodes_run,
    );
    suite.test_needing(
        "up: two that know each other admit no other holder of the key",
        &[Need::Lab],
        rotation::known_and_pinned,
    );
    suite.test_needing(
        "up: the first machine makes a key and says why it is alone",
        &[Need::Lab],
        nodes::first_machine,
    );
    suite.test_needing(
        "up: a bad file or number ends it at once",
        &[Need::Lab],
        nodes::stopped_early,
    );
    suite.test_needing(
        "up: beside another cluster no key is made",
        &[Need::Lab],
        nodes::beside_another_cluster,
    );
    suite.test_needing(
        "up: two machines meet, and one that leaves is missed",
        &[Need::Lab],
        nodes::two_meet,
    );
    let dumps = match nodes::machine_dumps_core() {
        Ok(true) => Need::Lab,
        _ => Need::Missing("this machine writes no core dumps"),
    };
    suite.test_needing("up: a crash leaves no core dump", &[Need::Lab, dumps], nodes::no_core_dump);
    suite.test_needing(
        "status: asks the running node, else looks around",
        &[Need::Lab],
        nodes::status,
    );
    suite.serial(
        "status: three machines as a drawing, as SVG, for Graphviz and as JSON",
        &[Need::Lab],
        pictures::three_machines,
    );
    suite.serial("status: no field of its JSON goes away", &[Need::Lab], pictures::schema);
    suite.test_needing(
        "status: where there is nothing to draw it says why",
        &[Need::Lab],
        pictures::nothing_to_draw,
    );
    suite.serial("demo: everything is verified", &[Need::Lab], demo::verified);
    suite.serial(
        "demo: interrupted, it leaves no process and no file",
        &[Need::Lab],
        demo::interrupted,
    );
    suite.run();
}

fn pairing(suite: &mut Suite) {
    type Body = fn() -> anyhow::Result<()>;
    let tests: [(&str, Body); 10] = [
        ("invite: a machine on the switch joins by the code", pairing::two_machines),
        ("invite: beside a node, and found by hand", pairing::beside_a_node),
        ("invite: three wrong codes end it", pairing::wrong_codes),
        ("invite: as many machines as asked for, and no more", pairing::several_machines),
        ("invite: ends with its time", pairing::expired),
        ("invite: ends when it is interrupted", pairing::interrupted),
        ("join: by code into the namespace of the other machine", pairing::namespaces),
        ("join: by code a second key replaces the first only on demand", pairing::another_key),
        ("join: a code from words, a pipe and a file", pairing::typed),
        ("join: without an invitation it says so", pairing::nobody_invites),
    ];
    for (name, test) in tests {
        suite.test_needing(name, &[Need::Lab], test);
    }
    suite.test_needing(
        "up: beside an invitation no key is made",
        &[Need::Lab],
        pairing::up_beside_an_invitation,
    );
}
