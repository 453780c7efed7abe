//! The messages of the command, as text: trials that a newcomer makes, each kept in a file of
//! `cli/tests/golden`. `POTLUCK_WRITE=1 make test ARGS="cli words"` writes the files again.

use crate::keys::KEY;
use crate::run::{Network, SOON, clean, told};
use crate::trial::Trial;
use anyhow::{Result, ensure};
use potluck::keys::ClusterKey;
use potluck_harness::{Child, Scratch};
use std::fs;
use std::process::Command;

/// Keys that are mistyped, typed at the wrong place, or of another cluster.
pub fn keys() -> Result<()> {
    let scratch = Scratch::new()?;
    let potluck = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_potluck"));
        clean(&mut command, &scratch.path().join("ada"));
        command.args(arguments);
        command
    };
    let mut trial = Trial::default();
    trial.run("potluck key", &mut potluck(&["key"]), "")?;
    trial.run("potluck join < /dev/null", &mut potluck(&["join"]), "")?;
    trial.run("echo hello | potluck join", &mut potluck(&["join"]), "hello\n")?;
    let other = ClusterKey::generate()?.to_text();
    let short = &KEY[..20];
    trial.run("echo KEY-CUT-SHORT | potluck join", &mut potluck(&["join"]), short)?;
    let typo = KEY.replacen("aaaa", "aaba", 1);
    trial.run("echo KEY-WITH-A-TYPO | potluck join", &mut potluck(&["join"]), &typo)?;
    trial.run("potluck join KEY", &mut potluck(&["join", KEY]), "")?;
    trial.run("echo KEY | potluck join", &mut potluck(&["join"]), KEY)?;
    trial.run("echo KEY | potluck join", &mut potluck(&["join"]), KEY)?;
    trial.run("echo OTHER-KEY | potluck join", &mut potluck(&["join"]), &other)?;
    trial.run("potluck key", &mut potluck(&["key"]), "")?;
    trial.run("potluck up --new", &mut potluck(&["up", "--new"]), "")?;
    let mut homeless = potluck(&["key"]);
    for variable in ["POTLUCK_HOME", "HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
        homeless.env_remove(variable);
    }
    trial.run("env -u HOME potluck key", &mut homeless, "")?;
    fs::write(scratch.path().join("ada/cluster-default.key"), "")?;
    trial.run("potluck key    # its file is empty", &mut potluck(&["key"]), "")?;
    trial.end("keys", scratch.path())
}

/// The first machine, alone on the network.
pub fn alone() -> Result<()> {
    let network = Network::machines("loop", 1)?;
    let ada = |arguments: &[&str]| network.command("n1", "ada", arguments);
    let mut trial = Trial::default();
    trial.run("potluck status", &mut ada(&["status"]), "")?;
    let mut up = Child::spawn(&mut ada(&["up", "--name", "ada"]))?;
    up.wait_for_line(|line| line.contains("--peer"), SOON)?;
    trial.so_far("potluck up", &up);
    up.interrupt()?;
    up.wait(SOON)?;
    trial.end("alone", network.scratch.path())
}

/// A machine without the key of the cluster beside it, then with another key.
pub fn beside_a_cluster() -> Result<()> {
    let network = Network::machines("loop", 2)?;
    let mut ada = network.up("n1", "ada", &[])?;
    crate::run::event(&mut ada, "status")?;
    let bob = |arguments: &[&str]| network.command("n2", "bob", arguments);
    let mut trial = Trial::default();
    trial.run("potluck up", &mut bob(&["up"]), "")?;
    trial.run("potluck invite", &mut bob(&["invite"]), "")?;
    trial.run("potluck join 00-0000-0000", &mut bob(&["join", "00-0000-0000"]), "")?;
    trial.end("beside-a-cluster", network.scratch.path())
}

/// The messages of a machine about another one that leaves, is killed, or was never there.
pub fn neighbours() -> Result<()> {
    let network = Network::machines("loop", 2)?;
    let up = |machine: &str, name: &str, arguments: &[&str]| {
        told(&network.home(name), &["join"], KEY)?;
        let arguments = [&["up", "--name", name], arguments].concat();
        Child::spawn(&mut network.command(machine, name, &arguments))
    };
    let mut trial = Trial::default();
    let mut ada = up("n1", "ada", &[])?;
    let mut bob = up("n2", "bob", &[])?;
    trial.line("ada: `potluck up` runs on both machines", &mut ada, "observers")?;
    bob.interrupt()?;
    trial.line("ada: bob has typed Ctrl-C", &mut ada, "left")?;
    bob.wait(SOON)?;
    let mut bob = up("n2", "bob", &[])?;
    ada.wait_for_line(|line| line.contains("observers"), SOON)?;
    bob.kill()?;
    trial.line("ada: bob was started again, and killed", &mut ada, "was linked")?;
    let ada_again = &mut network.command("n1", "ada", &["up"]);
    trial.run("potluck up    # runs here already", ada_again, "")?;
    let mut bob = up("n2", "bob", &["--peer", "10.77.0.99", "--peer", "nosuchhost"])?;
    trial.line("bob: potluck up --peer 10.77.0.99", &mut bob, "by hand")?;
    trial.line("bob: potluck up --peer nosuchhost", &mut bob, "nosuchhost")?;
    trial.end("neighbours", network.scratch.path())
}

/// The messages of machines that do not meet.
pub fn apart() -> Result<()> {
    let network = Network::machines("loop", 2)?;
    let lab = &network.lab;
    told(&network.home("bob"), &["join"], KEY)?;
    let mut trial = Trial::default();
    lab.run("n2", "ip link set eth0 down")?;
    let mut bob = Child::spawn(&mut network.command("n2", "bob", &["up", "--name", "bob"]))?;
    trial.line("bob: the cable is not plugged in", &mut bob, "no network")?;
    for machine in ["n1", "n2"] {
        lab.deafen(machine, "inet", "input", "tcp flags & (syn | ack) == syn")?;
    }
    told(&network.home("ada"), &["join"], KEY)?;
    let mut ada = Child::spawn(&mut network.command("n1", "ada", &["up", "--name", "ada"]))?;
    lab.run("n2", "ip link set eth0 up")?;
    trial.line("bob: it is, and both firewalls drop connections", &mut bob, "firewall")?;
    trial.line("ada: the same", &mut ada, "firewall")?;
    bob.interrupt()?;
    bob.wait(SOON)?;
    for line in ["ip addr flush dev eth0", "ip addr add 192.168.50.3/24 dev eth0"] {
        lab.run("n2", line)?;
    }
    let mut bob = Child::spawn(&mut network.command("n2", "bob", &["up", "--name", "bob"]))?;
    trial.line("bob: in another subnet on the same switch", &mut bob, "subnet")?;
    trial.line("ada: the same", &mut ada, "subnet")?;
    trial.end("apart", network.scratch.path())
}

/// A machine whose network, files or ports are not as they should be.
pub fn odd_machine() -> Result<()> {
    let network = Network::machines("loop", 2)?;
    let home = network.home("ada");
    told(&home, &["join"], KEY)?;
    told(&network.home("bob"), &["join"], &ClusterKey::generate()?.to_text())?;
    let ada = |arguments: &[&str]| network.command("n1", "ada", arguments);
    let mut trial = Trial::default();
    trial.run("potluck up --interface eth7", &mut ada(&["up", "--interface", "eth7"]), "")?;
    trial.run("potluck up --peer 10.77.0.2:x", &mut ada(&["up", "--peer", "10.77.0.2:x"]), "")?;
    trial.run("potluck help --help", &mut ada(&["help", "--help"]), "")?;

    // The first port is in use: the next one is taken, and found.
    let hold = "import socket,time; s=socket.create_server(('',47474)); print(1,flush=True); \
                time.sleep(60)";
    let mut holder = Child::spawn(network.lab.command("n1", "python3").args(["-c", hold]))?;
    holder.wait_for_line(|line| line == "1", SOON)?;
    let mut up = network.up("n1", "ada", &[])?;
    let status = crate::run::event(&mut up, "status")?;
    ensure!(status["port"] == 47475, "{status}");
    let mut bob = Child::spawn(&mut network.command("n2", "bob", &["up", "--name", "bob"]))?;
    trial.line("bob: potluck up, with the key of another cluster", &mut bob, "another cluster")?;
    for node in [&mut up, &mut bob] {
        node.terminate()?;
        node.wait(SOON)?;
    }
    holder.kill()?;

    std::fs::write(home.join("identity.key"), "x")?;
    trial.run("potluck up    # its identity file is damaged", &mut ada(&["up"]), "")?;
    std::fs::remove_file(home.join("identity.key"))?;
    std::fs::remove_dir_all(network.home("bob"))?;
    let mut nowhere = ada(&["up"]);
    nowhere.env("POTLUCK_HOME", "/proc/potluck");
    trial.run("POTLUCK_HOME=/proc/potluck potluck up", &mut nowhere, "")?;

    for machine in ["n1", "n2"] {
        network.lab.deafen(machine, "inet", "input", "udp dport 5353")?;
    }
    let mut ada = Child::spawn(&mut network.command("n1", "ada", &["up", "--name", "ada"]))?;
    trial.line("ada: potluck up, multicast is dropped", &mut ada, "nobody is heard")?;
    trial.line("the same, the line after it", &mut ada, "--peer")?;
    trial.end("odd-machine", network.scratch.path())
}

/// A cable on which packets of full size are lost, as where an MTU differs.
pub fn narrow() -> Result<()> {
    let network = Network::machines("loop", 2)?;
    network.lab.tell(&["narrow", "n2", "1000"])?;
    let up = |machine: &str, name: &str| {
        told(&network.home(name), &["join"], KEY)?;
        Child::spawn(&mut network.command(machine, name, &["up", "--name", name]))
    };
    let (mut ada, mut bob) = (up("n1", "ada")?, up("n2", "bob")?);
    let mut trial = Trial::default();
    trial.line("ada: `potluck up` runs on both machines", &mut ada, "full size")?;
    trial.line("bob: the same", &mut bob, "full size")?;
    trial.end("narrow", network.scratch.path())
}

/// A folder of potluck's files that was copied to another machine.
pub fn copied() -> Result<()> {
    let network = Network::machines("loop", 2)?;
    told(&network.home("ada"), &["join"], KEY)?;
    let up = |machine: &str, home: &str| {
        Child::spawn(&mut network.command(machine, home, &["up", "--name", home]))
    };
    told(&network.home("ada"), &["identity"], "")?;
    let copy =
        Command::new("cp").arg("-a").args([network.home("ada"), network.home("bob")]).status()?;
    ensure!(copy.success(), "cp: {copy}");
    let mut trial = Trial::default();
    let mut ada = up("n1", "ada")?;
    ada.wait_for_line(|line| line.contains("alone"), SOON)?;
    let mut bob = up("n2", "bob")?;
    trial.line("bob: with a copy of ada's files", &mut bob, "two processes")?;
    trial.line("ada: the same", &mut ada, "two processes")?;
    trial.end("copied", network.scratch.path())
}
