//! `run` on machines of a lab: how a run ends, and `hosts`.

use crate::keys::KEY;
use crate::run::{Network, SOON, clean, event, run, told};
use anyhow::{Context, Result, ensure};
use potluck_harness::Child;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// Prints the numbers of a shell and of a child of it, and goes on.
const STAYS: &str = "sleep 600 & echo pids $$ $!; wait";

/// The machines of a lab, which all hold the key.
pub fn network(machines: usize) -> Result<Network> {
    network_of("loop", machines)
}

pub fn network_of(profile: &str, machines: usize) -> Result<Network> {
    let network = Network::machines(profile, machines)?;
    for machine in network.lab.nodes() {
        told(&network.home(&machine), &["join"], KEY)?;
    }
    Ok(network)
}

/// `run --json` on a machine under its name.
pub fn start(
    network: &Network,
    machine: &str,
    options: &[&str],
    command: &[&str],
) -> Result<Child> {
    let arguments = [&["--name", machine], options, &["--"], command].concat();
    Child::spawn(&mut network.json(machine, machine, "run", &arguments))
}

fn start_all(network: &Network, options: &[&str], command: &[&str]) -> Result<Vec<Child>> {
    let machines = network.lab.nodes();
    machines.iter().map(|machine| start(network, machine, options, command)).collect()
}

/// The line that a program has printed, of those that begin like this.
fn line(child: &mut Child, beginning: &str) -> Result<String> {
    let begins = |event: &Value| event["line"].as_str().is_some_and(|l| l.starts_with(beginning));
    let event = child.wait_for_event("output", begins, SOON)?;
    Ok(event["line"].as_str().unwrap_or_default().to_owned())
}

pub fn ends(child: &mut Child, code: i32) -> Result<()> {
    let status = child.wait(SOON)?;
    let said = (child.stdout(), child.stderr());
    ensure!(status.code() == Some(code), "it ended with {status}, not {code}: {said:#?}");
    Ok(())
}

/// The processes of which `STAYS` has printed the numbers.
fn pids(child: &mut Child) -> Result<Vec<String>> {
    Ok(line(child, "pids ")?.split(' ').skip(1).map(str::to_owned).collect())
}

/// Waits until none of these processes runs.
fn are_gone(pids: &[String]) -> Result<()> {
    let until = Instant::now() + SOON;
    let runs = |pid: &&String| {
        // The state comes after the name, which is in brackets.
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
    };
    while let Some(pid) = pids.iter().find(runs) {
        ensure!(Instant::now() < until, "process {pid} of {pids:?} is left");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The message of the error that is the last document.
fn message(child: &Child) -> Result<String> {
    let out = child.stdout();
    let last: Value = serde_json::from_str(out.last().context("a document")?)?;
    ensure!(last["ok"] == false, "{last}");
    Ok(last["message"].as_str().unwrap_or_default().to_owned())
}

pub fn program_fails() -> Result<()> {
    let network = network(3)?;
    // Later than the others would wait for machines.
    let fails = "if test $RANK = 1; then sleep 8; exit 7; fi; sleep 600 & echo pids $$ $!; wait";
    let options = ["--members", "3", "--wait", "7"];
    let mut children = start_all(&network, &options, &["sh", "-c", fails])?;
    for child in &mut children {
        let first = event(child, "started")?["ranks"][0] == 1;
        let left = if first { Vec::new() } else { pids(child)? };
        ends(child, 7)?;
        let message = message(child)?;
        ensure!(message.contains("rank 1 on \"n") && message.contains("code 7"), "{message}");
        are_gone(&left)?;
    }
    Ok(())
}

pub fn restarted() -> Result<()> {
    let network = network(2)?;
    let once = "if test $RANK = 1 && test $TORCHELASTIC_RESTART_COUNT = 0; then exit 9; fi; \
                test $RANK = 0 && test $POTLUCK_GENERATION = 1 && exec sleep 600; echo restarted";
    let options = ["--members", "2", "--restarts", "1", "--port", "5600"];
    let mut children = start_all(&network, &options, &["sh", "-c", once])?;
    for child in &mut children {
        child.wait_for_event("started", |e| e["generation"] == 1 && e["port"] == 5600, SOON)?;
        let stopped = event(child, "stopped")?;
        ensure!(stopped["why"].to_string().contains("code 9"), "{stopped}");
        child.wait_for_event("started", |e| e["generation"] == 2 && e["world"] == 2, SOON)?;
        line(child, "restarted")?;
        ends(child, 0)?;
    }
    // It fails again, and there is no restart left.
    let always = "if test $RANK = 1; then exit 9; fi; sleep 600";
    let mut children = start_all(&network, &options, &["sh", "-c", always])?;
    for child in &mut children {
        child.wait_for_event("started", |e| e["generation"] == 2, SOON)?;
        ends(child, 9)?;
    }
    Ok(())
}

pub fn machine_lost() -> Result<()> {
    let network = network(3)?;
    let mut children = start_all(&network, &["--members", "3"], &["sh", "-c", STAYS])?;
    let mut left = Vec::new();
    for child in &mut children {
        left.extend(pids(child)?);
    }
    children[1].kill()?;
    for place in [0, 2] {
        ends(&mut children[place], 4)?;
        let message = message(&children[place])?;
        ensure!(message.contains("\"n2\" was lost"), "{message}");
    }
    // Those of the killed supervisor, too.
    ensure!(left.len() == 6, "{left:?}");
    are_gone(&left)
}

pub fn elastic() -> Result<()> {
    let network = network(3)?;
    let options = ["--members", "3", "--elastic", "2"];
    let script = "echo world $WORLD_SIZE; \
                  if test $POTLUCK_GENERATION = 4; then exit 0; fi; sleep 600 & wait";
    let command = ["sh", "-c", script];
    let mut children = start_all(&network, &options, &command)?;
    for child in &mut children {
        line(child, "world 3")?;
    }
    children[1].kill()?;
    for place in [0, 2] {
        let stopped = event(&mut children[place], "stopped")?;
        ensure!(stopped["why"] == "\"n2\" was lost", "{stopped}");
        let started = event(&mut children[place], "started")?;
        ensure!(started["generation"] == 2 && started["world"] == 2, "{started}");
        line(&mut children[place], "world 2")?;
    }
    children[1] = start(&network, "n2", &options, &command)?;
    for child in &mut children {
        let started = child.wait_for_event("started", |e| e["generation"] == 3, SOON)?;
        ensure!(started["world"] == 3, "{started}");
        line(child, "world 3")?;
    }
    children[2].interrupt()?;
    ends(&mut children[2], 130)?;
    for child in &mut children[..2] {
        let stopped = child.wait_for_event("stopped", |e| e["generation"] == 3, SOON)?;
        ensure!(stopped["why"] == "the run was interrupted on \"n3\"", "{stopped}");
        line(child, "world 2")?;
        ends(child, 0)?;
    }
    Ok(())
}

pub fn interrupted() -> Result<()> {
    let network = network(2)?;
    let asked = "trap 'echo asked; exit 0' INT; sleep 600 & echo pids $$ $!; wait";
    let mut children = start_all(&network, &["--members", "2"], &["sh", "-c", asked])?;
    let mut left = Vec::new();
    for child in &mut children {
        left.extend(pids(child)?);
    }
    children[0].interrupt()?;
    line(&mut children[0], "asked")?;
    ends(&mut children[0], 130)?;
    ends(&mut children[1], 4)?;
    ensure!(message(&children[1])?.contains("interrupted on \"n1\""));
    are_gone(&left)?;

    // One that does not listen is killed by the second.
    let deaf = "trap '' INT TERM; sleep 600 & echo pids $$ $!; wait; sleep 600";
    let options = ["--members", "1", "--grace", "600"];
    let mut child = start(&network, "n1", &options, &["sh", "-c", deaf])?;
    let left = pids(&mut child)?;
    child.interrupt()?;
    ensure!(child.wait(Duration::from_millis(500)).is_err(), "it was killed by the first");
    child.interrupt()?;
    ends(&mut child, 130)?;
    are_gone(&left)?;
    // Or by the end of the grace.
    let options = ["--members", "1", "--grace", "1"];
    let mut child = start(&network, "n1", &options, &["sh", "-c", deaf])?;
    let left = pids(&mut child)?;
    child.terminate()?;
    ends(&mut child, 130)?;
    are_gone(&left)
}

/// SIGHUP is ignored from the start, as under `nohup`.
pub fn without_a_terminal() -> Result<()> {
    let network = network(1)?;
    let mut command = network.lab.command("n1", "sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_potluck")]);
    command.args(["run", "--json", "--name", "n1", "--members", "1", "--", "sh", "-c", STAYS]);
    clean(&mut command, &network.home("n1"));
    let mut child = Child::spawn(&mut command)?;
    let left = pids(&mut child)?;
    let id = Pid::from_raw(i32::try_from(child.id())?).context("a process")?;
    kill_process(id, Signal::HUP)?;
    ensure!(child.wait(Duration::from_millis(500)).is_err(), "the hangup has ended it");
    child.terminate()?;
    ends(&mut child, 130)?;
    are_gone(&left)
}

pub fn other_command() -> Result<()> {
    let network = network(2)?;
    let mut one = start(&network, "n1", &["--members", "2"], &["echo", "one"])?;
    let mut two = start(&network, "n2", &["--members", "2"], &["echo", "two"])?;
    line(&mut one, "one")?;
    line(&mut two, "two")?;
    for (child, other) in [(&mut one, "n2"), (&mut two, "n1")] {
        ends(child, 0)?;
        let warning = format!("warning: the commands differ: \"{other}\" run another one");
        ensure!(child.stderr().concat().contains(&warning), "{:?}", child.stderr());
    }
    Ok(())
}

pub fn output() -> Result<()> {
    let network = network(1)?;
    let logs = network.scratch.path().join("logs/of/it");
    let logs = logs.to_str().context("a path")?;
    let script = "printf 'out %s\\n' $RANK; printf 'err %s' $LOCAL_RANK >&2";
    let arguments = [
        &["run", "--members", "1", "--procs-per-machine", "2", "--logs", logs][..],
        &["--", "sh", "-c", script],
    ]
    .concat();
    for runs in 1..=2 {
        let ran = run(&mut network.command("n1", "n1", &arguments), "")?;
        let out: BTreeSet<&str> = ran.out.lines().collect();
        ensure!(ran.code == 0 && out == BTreeSet::from(["[0] out 0", "[1] out 1"]), "{ran:?}");
        for line in ["[0] err 0", "[1] err 1"] {
            ensure!(ran.err.lines().any(|said| said == line), "{ran:?}");
        }
        for rank in 0..2 {
            let log = fs::read_to_string(format!("{logs}/rank-{rank}.log"))?;
            let lines = |wanted: String| log.lines().filter(|line| *line == wanted).count();
            for wanted in [format!("out {rank}"), format!("err {rank}")] {
                ensure!(lines(wanted) == runs, "{log}");
            }
        }
    }
    Ok(())
}

pub fn refused() -> Result<()> {
    let network = network(1)?;
    let ran = |arguments: &[&str]| network.run("n1", "n1", "run", arguments);
    let too_few = ran(&["--members", "2", "--wait", "1", "--", "true"])?.json(3)?;
    ensure!(too_few["code"] == "not-enough-peers", "{too_few}");
    let missing = ran(&["--members", "1", "--", "/no/such/program"])?;
    ensure!(missing.code == 127 && missing.out.contains("program-failed"), "{missing:?}");
    ensure!(missing.out.contains("cannot start /no/such/program"), "{missing:?}");
    ensure!(ran(&["--members", "2", "--elastic", "3", "--", "true"])?.json(2)?["code"] == "usage");
    ensure!(ran(&["--members", "33", "--", "true"])?.code == 2);
    ensure!(ran(&["--members", "2"])?.code == 2, "without a command");
    let killed = ran(&["--members", "1", "--", "sh", "-c", "kill -SEGV $$"])?;
    ensure!(killed.code == 128 + 11, "{killed:?}");
    // The rule of partitions is for the programs.
    let rule = format!("majority:{},{}", "ab".repeat(32), "cd".repeat(32));
    let shows = ["--members", "1", "--", "sh", "-c", "echo $POTLUCK_PARTITION"];
    let ruled = run(network.json("n1", "n1", "run", &shows).env("POTLUCK_PARTITION", &rule), "")?;
    ensure!(ruled.code == 0 && ruled.out.contains(&rule), "{ruled:?}");
    // A machine without the key.
    fs::remove_file(network.home("n1").join("cluster-default.key"))?;
    ensure!(ran(&["--members", "1", "--", "true"])?.json(6)?["code"] == "no-cluster-key");
    Ok(())
}

pub fn hosts() -> Result<()> {
    let network = network(3)?;
    let hosts = |options: &[&str]| {
        run(&mut network.command("n2", "n2", &[&["hosts"], options].concat()), "")
    };
    let nobody = hosts(&[])?;
    ensure!(nobody.complaint(3).is_ok_and(|said| said.contains("is in a group")), "{nobody:?}");
    // Two of three are no group yet.
    let begin = |machine| start(&network, machine, &["--members", "3"], &["sh", "-c", STAYS]);
    let mut children = vec![begin("n1")?, begin("n2")?];
    let began = Instant::now();
    while !run(&mut network.command("n2", "n2", &["status"]), "")?.out.contains("2 of 3 here") {
        ensure!(began.elapsed() < SOON, "the two do not meet");
    }
    let unfinished = hosts(&[])?;
    ensure!(unfinished.code == 3 && unfinished.out.is_empty(), "{unfinished:?}");
    children.push(begin("n3")?);
    let mut machines = Vec::new();
    for child in &mut children {
        machines = event(child, "started")?["machines"].as_array().context("a list")?.clone();
    }
    let machines: Vec<&str> = machines.iter().filter_map(Value::as_str).collect();
    let addresses: Vec<String> =
        machines.iter().map(|machine| network.lab.addr(machine).to_string()).collect();
    let text =
        |line: &dyn Fn(usize) -> String| (0..3).map(|place| line(place) + "\n").collect::<String>();
    let of = |format: &str, more: &[&str]| -> Result<String> {
        let ran = hosts(&[&["--job", "run", "--format", format], more].concat())?;
        ensure!(ran.code == 0 && ran.err.is_empty(), "{ran:?}");
        Ok(ran.out)
    };
    ensure!(hosts(&[])?.out == text(&|place| addresses[place].clone()));
    ensure!(of("plain", &[])? == hosts(&[])?.out);
    ensure!(of("mpi", &[])? == text(&|place| format!("{} slots=1", addresses[place])));
    let slots = of("mpi", &["--slots", "4"])?;
    ensure!(slots == text(&|place| format!("{} slots=4", addresses[place])), "{slots}");
    let ssh =
        text(&|place| format!("Host potluck-{}\n  HostName {}", machines[place], addresses[place]));
    ensure!(of("ssh", &[])? == ssh);
    let mlx: Value = serde_json::from_str(&of("mlx", &[])?)?;
    let entries = addresses.iter().map(|address| json!({ "ssh": address, "ips": [address] }));
    ensure!(mlx == entries.collect::<Value>(), "{mlx}");
    let document: Value = serde_json::from_str(&of("json", &[])?)?;
    ensure!(document["ok"] == true && document["job"] == "run", "{document}");
    for place in 0..3 {
        let host = &document["hosts"][place];
        ensure!(host["rank"] == place && host["name"] == machines[place], "{document}");
        ensure!(host["address"] == addresses[place].as_str() && host["slots"] == 1, "{document}");
    }
    ensure!(of("json", &["--json"])?.trim() == document.to_string());
    ensure!(hosts(&["--job", "other"])?.complaint(3)?.contains("of job other"));
    Ok(())
}
