//! The command line from outside: outputs, exit codes, files.

mod bench;
mod completions;
mod demo;
mod doctor;
mod documents;
mod exchange;
mod first_minutes;
mod group;
mod keys;
mod launch;
mod nodes;
mod pairing;
mod peers;
mod pictures;
mod rotation;
mod run;
mod shape;
mod terminal;
mod top;
mod trial;
mod unprivileged;
mod wording;

use potluck_harness::{Need, Suite};

type Body = fn() -> anyhow::Result<()>;

fn main() {
    let mut suite = Suite::new();
    for (name, body) in ALONE {
        suite.test(name, *body);
    }
    for (name, body) in IN_A_LAB {
        suite.test_needing(name, &[Need::Lab], *body);
    }
    for (name, tool, body) in IN_A_LAB_WITH {
        suite.test_needing(name, &[Need::Lab, Need::Command(tool)], *body);
    }
    for (name, body) in MEASURED {
        suite.serial(name, &[Need::Lab], *body);
    }
    let dumps = match nodes::machine_dumps_core() {
        Ok(true) => Need::Lab,
        _ => Need::Missing("this machine writes no core dumps"),
    };
    suite.test_needing("up: a crash leaves no core dump", &[Need::Lab, dumps], nodes::no_core_dump);
    let python = match unprivileged::python() {
        Some(_) => Need::Lab,
        None => Need::Missing("a user without privileges runs no python3 of this machine"),
    };
    suite.test_needing(
        "run: three machines in random orders, as a user without privileges",
        &[Need::Lab, python],
        exchange::random_orders_unprivileged,
    );
    suite.run();
}

/// Without a network.
const ALONE: &[(&str, Body)] = &[
    ("identity: made once, shown again, no key in it", keys::identity),
    ("identity: a damaged file is one sentence and stays", keys::damaged_identity),
    ("join: from a pipe and from a file", keys::join),
    ("json: a path that is no text", keys::path_that_is_no_text),
    ("join: a mistyped key is refused and nothing is stored", keys::mistyped_key),
    ("join: a second key replaces the first only on demand", keys::second_key),
    ("join: a key on the command line is refused", keys::key_in_argv),
    ("key: a file that others may read is refused", keys::loose_permissions),
    ("key: only printed on demand", keys::show_on_demand),
    ("a wrong name or number is wrong usage", keys::wrong_usage),
    ("keys: the steps of a change of the key", rotation::steps),
    ("deny: a list of nodes", rotation::denied),
    ("words: keys", wording::keys),
    ("completions: every command, for bash, zsh and fish", completions::shells),
    ("completions: bash completes with them", completions::in_bash),
    ("man: a page for every command", completions::manual),
    ("man: all pages in a document", completions::manual_as_json),
    ("help: every command, and help itself", completions::help),
    ("json: the documents of commands without a network", documents::without_a_network),
];

const IN_A_LAB: &[(&str, Body)] = &[
    ("invite: a machine on the switch joins by the code", pairing::two_machines),
    ("invite: beside a node, and found by hand", pairing::beside_a_node),
    ("invite: three wrong codes end it", pairing::wrong_codes),
    ("invite: as many machines as asked for, and no more", pairing::several_machines),
    ("invite: ends with its time", pairing::expired),
    ("invite: ends when it is interrupted", pairing::interrupted),
    ("words: the first machine, alone", wording::alone),
    ("words: beside a cluster", wording::beside_a_cluster),
    ("words: a neighbour leaves, is killed, or was never there", wording::neighbours),
    ("words: copied files", wording::copied),
    ("bench: too few machines, and a size that is none", bench::too_few),
    ("bench: one machine is killed", bench::one_is_killed),
    ("doctor: a healthy group", doctor::healthy),
    ("doctor: two doctors and nothing else", doctor::two_doctors),
    ("doctor: another subnet", doctor::other_subnet),
    ("doctor: another key", doctor::other_key),
    ("doctor: no key", doctor::no_key),
    ("doctor: a copied identity", doctor::copied_identity),
    ("doctor: a full disk", doctor::full_disk),
    ("doctor: another version of the protocol", doctor::other_version),
    ("doctor: a VPN in the way", doctor::vpn),
    ("doctor: no address yet", doctor::no_address_yet),
    ("invite: makes the first key", pairing::first_key),
    ("invite: beside another cluster no key is made", pairing::no_second_key),
    ("two machines, two commands each: by code", first_minutes::by_code),
    ("two machines, two commands each: by key", first_minutes::by_key),
    ("join: by code into the namespace of the other machine", pairing::namespaces),
    ("join: by code a second key replaces the first only on demand", pairing::another_key),
    ("join: a code from words, a pipe and a file", pairing::typed),
    ("join: without an invitation it says so", pairing::nobody_invites),
    ("up: beside an invitation no key is made", pairing::up_beside_an_invitation),
    ("keys: two of three that run change the key, and the third is out", rotation::while_nodes_run),
    ("keys: an invitation hands on the key that lasts", rotation::while_inviting),
    (
        "deny: a node that runs is out, and is back when it is allowed",
        rotation::denied_while_nodes_run,
    ),
    ("up: two that know each other admit no other holder of the key", rotation::known_and_pinned),
    ("up: the first machine makes a key and says why it is alone", nodes::first_machine),
    ("up: a bad file or number ends it at once", nodes::stopped_early),
    ("up: beside another cluster no key is made", nodes::beside_another_cluster),
    ("up: two machines meet, and one that leaves is missed", nodes::two_meet),
    ("status: asks the running node, else looks around", nodes::status),
    ("status: shows every program of this machine, by job", nodes::status_of_programs),
    ("run: three machines in any order agree, and reach each other", exchange::any_order),
    ("run: three machines in random orders", exchange::random_orders),
    ("run: three machines with a cable from each to each", exchange::without_a_switch),
    ("run: a program that fails ends all, with its code", launch::program_fails),
    ("run: a program that fails is started again as often as asked for", launch::restarted),
    ("run: a machine that is lost ends all, and no program is left", launch::machine_lost),
    ("run: elastic, the others go on, and it returns", launch::elastic),
    ("run: Ctrl-C leaves no process", launch::interrupted),
    ("run: under nohup it outlives its terminal", launch::without_a_terminal),
    ("run: a machine with another command is named", launch::other_command),
    ("run: lines behind their ranks, and in files", launch::output),
    ("run: too few machines, no program, wrong usage, no key", launch::refused),
    ("run: as a user without privileges", unprivileged::one_machine),
    ("hosts: a running group in every format", launch::hosts),
    ("status: where there is nothing to draw it says why", pictures::nothing_to_draw),
    ("peers: nobody, and a node of another cluster", peers::of_others),
    ("top: without nodes, and of a wrong width", top::without_nodes),
    (
        "json: the documents of up and invite, and of status without a node",
        documents::of_commands_that_run,
    ),
];

/// A program that a test needs besides the lab.
type Tool = &'static str;

const NFT: Tool = "nft";
const NARROW: Tool = "ethtool";
const FAKETIME: Tool = "faketime";

const IN_A_LAB_WITH: &[(&str, Tool, Body)] = &[
    ("words: machines that do not meet", NFT, wording::apart),
    ("words: odd networks, files and ports", NFT, wording::odd_machine),
    ("words: packets of full size are lost", NARROW, wording::narrow),
    ("up: a peer whose name gets its address later", NFT, nodes::named_later),
    ("up: a peer of which one port is silent", NFT, nodes::one_silent_port),
    ("doctor: a machine behind a router", NFT, doctor::behind_router),
    ("doctor: multicast is dropped by one machine", NFT, doctor::multicast_dropped),
    ("doctor: multicast is dropped everywhere", NFT, doctor::multicast_dropped_everywhere),
    ("doctor: one machine accepts no connections", NFT, doctor::inbound_closed_on_one_side),
    ("doctor: no machine accepts connections", NFT, doctor::inbound_closed_on_both),
    ("doctor: a clock that is wrong", FAKETIME, doctor::clock),
    ("doctor: packets of full size are lost", NARROW, doctor::narrow),
    ("doctor: only packets of full size are lost", NARROW, doctor::slightly_narrow),
];

/// One at a time: they measure, or need all processors.
const MEASURED: &[(&str, Body)] = &[
    (
        "status: three machines as a drawing, as SVG, for Graphviz and as JSON",
        pictures::three_machines,
    ),
    ("status: no field of its JSON goes away", pictures::schema),
    ("bench: unequal machines, all with the same figures", bench::unequal_machines),
    ("peers: of a group, seen by a member, an observer and a guest", peers::of_a_group),
    ("top: one frame shows the members, and the next one a loss", top::once),
    ("top: live in a terminal, which is restored", top::live),
    ("demo: everything is verified", demo::verified),
    ("demo: interrupted, it leaves no process and no file", demo::interrupted),
];
