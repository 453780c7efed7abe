//! A network of simulated machines on this one, removed when the guard is dropped. See
//! `lab/README.md`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::process::Child;

/// A running lab. Dropping it removes its network namespaces and ends all processes in them.
///
/// Several labs may run at once, in one process or in many: each has a unique name.
#[derive(Debug)]
pub struct Lab {
    name: String,
    state: Value,
}

impl Lab {
    /// Brings up a profile with its default number of machines; `lab/lab profiles` lists the
    /// profiles.
    ///
    /// Fails with the script's message if this machine does not support labs.
    pub fn up(profile: &str) -> Result<Lab> {
        Lab::start(&["up", profile])
    }

    /// Brings up a profile with the machines `n1` to `n{nodes}`, 1 to 32.
    pub fn up_with(profile: &str, nodes: usize) -> Result<Lab> {
        Lab::start(&["up", profile, "--nodes", &nodes.to_string()])
    }

    /// Like [`up_with`](Lab::up_with), with this line rate in Mbit/s on every cable.
    pub fn up_at(profile: &str, nodes: usize, mbit: u32) -> Result<Lab> {
        Lab::start(&["up", profile, "--nodes", &nodes.to_string(), "--rate", &mbit.to_string()])
    }

    fn start(arguments: &[&str]) -> Result<Lab> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        static REAP: Once = Once::new();
        let pid = std::process::id();
        let name = format!("t{pid}_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        // Removes leftovers of killed test runs; an error is harmless.
        REAP.call_once(|| drop(ask(&name, &["reap"])));
        let mut lab = Lab { name, state: Value::Null };
        let owner = pid.to_string();
        lab.tell(&[arguments, &["--owner", &owner]].concat())?;
        lab.state = serde_json::from_str(&lab.tell(&["json"])?).context("state of the lab")?;
        Ok(lab)
    }

    /// The lab's name, for `LAB=name lab/lab status`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the machines in order: `n1`, `n2`, ...
    pub fn nodes(&self) -> Vec<String> {
        (1..=self.state["nodes"].as_object().map_or(0, serde_json::Map::len))
            .map(|i| format!("n{i}"))
            .collect()
    }

    /// The first address of a machine.
    ///
    /// # Panics
    /// If there is no such machine.
    pub fn addr(&self, node: &str) -> IpAddr {
        self.read_addr(node, &self.state["nodes"][node]["addr"])
    }

    /// The address at which `from` reaches `node`; with direct cables it differs by neighbour.
    ///
    /// # Panics
    /// If there is no such machine.
    pub fn addr_from(&self, node: &str, from: &str) -> IpAddr {
        match &self.state["nodes"][node]["addr_at"][from] {
            Value::Null => self.addr(node),
            there => self.read_addr(node, there),
        }
    }

    fn read_addr(&self, node: &str, value: &Value) -> IpAddr {
        let address = value.as_str().and_then(|text| text.parse().ok());
        address.unwrap_or_else(|| panic!("no machine {node} in lab {}", self.name))
    }

    /// The network namespace of the switch, for `ip netns exec`. All traffic between machines
    /// passes there.
    ///
    /// Fails for profiles without a switch.
    pub fn switch(&self) -> Result<String> {
        let far = &self.state["nodes"]["n1"]["links"][0]["far_ns"];
        let is_switch = self.state["kind"] == "switch";
        far.as_str().filter(|_| is_switch).map(str::to_owned).context("this lab has no switch")
    }

    /// Lets these paths, each from one machine to another, carry only so much together, in Mbit/s:
    /// the switch drops the rest.
    pub fn squeeze(&self, paths: &[(String, String)], mbit: u32) -> Result<()> {
        let port = |node: &str| self.state["nodes"][node]["links"][0]["far_dev"].to_string();
        let rules: Vec<String> = paths
            .iter()
            .map(|(from, to)| format!("iifname {} oifname {} jump many", port(from), port(to)))
            .collect();
        let kbytes = mbit * 125;
        let table = format!(
            "table bridge squeezed {{\n\
             chain many {{\nlimit rate over {kbytes} kbytes/second burst 256 kbytes drop\n}}\n\
             chain pairs {{\ntype filter hook forward priority 0; policy accept;\n{}\n}}\n}}\n",
            rules.join("\n")
        );
        ran(Command::new("ip").args(["netns", "exec", &self.switch()?, "nft", &table]))
    }

    /// A command that runs as machine `node`, with its network, host name and hosts file.
    ///
    /// The wrapper scripts replace themselves by the program (`exec`), so signals to the spawned
    /// process reach it.
    pub fn command(&self, node: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = script(&self.name);
        command.args(["exec", node]).arg(program);
        command
    }

    /// Runs a command line, split at blanks, as machine `node`. It must succeed.
    pub fn run(&self, node: &str, line: &str) -> Result<()> {
        let mut words = line.split(' ');
        let program = words.next().context("a program")?;
        ran(self.command(node, program).args(words))
    }

    /// Drops packets of a machine: those for which `rule` of `nft` holds, of this family, at this
    /// hook. `delete table FAMILY deaf` ends it.
    pub fn deafen(&self, node: &str, family: &str, hook: &str, rule: &str) -> Result<()> {
        let chain = format!("{family} deaf {hook}");
        self.run(node, &format!("nft add table {family} deaf"))?;
        self.run(
            node,
            &format!("nft add chain {chain} {{ type filter hook {hook} priority 0 ; }}"),
        )?;
        self.run(node, &format!("nft add rule {chain} {rule} drop"))
    }

    /// Unplugs all cables of a machine.
    pub fn cut(&self, node: &str) -> Result<()> {
        self.tell(&["cut", node]).map(drop)
    }

    /// Plugs in all cables of a machine.
    pub fn join(&self, node: &str) -> Result<()> {
        self.tell(&["join", node]).map(drop)
    }

    /// Drops all traffic between two machines; both still reach all others. Each argument may name
    /// several machines, as `n1,n2`: on a switch all cuts take effect at one moment. Needs `nft`
    /// there.
    pub fn cut_between(&self, node: &str, other: &str) -> Result<()> {
        self.tell(&["cut", node, other]).map(drop)
    }

    /// Undoes [`cut_between`](Lab::cut_between).
    pub fn join_between(&self, node: &str, other: &str) -> Result<()> {
        self.tell(&["join", node, other]).map(drop)
    }

    /// The bytes that a machine has sent over an interface so far.
    pub fn bytes_out(&self, node: &str, interface: &str) -> Result<u64> {
        let told = self
            .command(node, "cat")
            .arg(format!("/sys/class/net/{interface}/statistics/tx_bytes"))
            .output()?;
        Ok(String::from_utf8(told.stdout)?.trim().parse()?)
    }

    /// The bytes that the cable between two switches has carried so far, in the direction in which
    /// it has carried more.
    pub fn bytes_between_switches(&self) -> Result<u64> {
        let told = self.tell(&["crossed"])?;
        let bytes: Vec<u64> = told.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        bytes.into_iter().max().context("no number of bytes")
    }

    /// Delays the machine's outgoing traffic on control links by this many milliseconds; 0 ends it.
    /// Needs `nft` and `iptables`.
    pub fn lag(&self, node: &str, ms: u32) -> Result<()> {
        self.tell(&["lag", node, &ms.to_string()]).map(drop)
    }

    /// Sets the line rates of a machine's cables in Mbit/s, 0 for no limit.
    pub fn rate(&self, node: &str, up_mbit: u32, down_mbit: u32) -> Result<()> {
        self.tell(&["rate", node, &up_mbit.to_string(), &down_mbit.to_string()]).map(drop)
    }

    /// Prepares a command of the script, for example `["cut", "n1"]`: it takes effect some
    /// milliseconds after [`Armed::fire`], without the start time of an interpreter.
    pub fn armed(&self, change: &[&str]) -> Result<Armed> {
        let mut child = Child::spawn_told(script(&self.name).arg("armed").args(change))?;
        child.wait_for_line(|line| line == "armed", Duration::from_secs(30))?;
        Ok(Armed(child))
    }

    /// Runs a command of the script on this lab and returns its output; its error message is the
    /// error.
    pub fn tell(&self, arguments: &[&str]) -> Result<String> {
        ask(&self.name, arguments)
    }
}

/// A prepared change of a lab. If dropped before [`fire`](Armed::fire), it never happens.
#[derive(Debug)]
pub struct Armed(Child);

impl Armed {
    /// Starts the change.
    pub fn fire(&mut self) -> Result<()> {
        self.0.tell("now")
    }

    /// Waits until the change has been made.
    pub fn made(mut self) -> Result<()> {
        let ended = self.0.wait(Duration::from_secs(30))?;
        ensure!(ended.success(), "the lab's change ended with {ended}: {:?}", self.0.stderr());
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = self.tell(&["down"]) {
            eprintln!("lab {} may still be up: {error}", self.name);
        }
    }
}

/// The path of the lab script in this checkout.
pub fn script_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/lab")
}

/// Runs a command to its end; its words are the error.
pub fn ran(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(())
}

fn script(name: &str) -> Command {
    let mut command = Command::new(script_path());
    command.env("LAB", name);
    command
}

fn ask(name: &str, arguments: &[&str]) -> Result<String> {
    let output = script(name).args(arguments).output().context("lab/lab needs python3")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{}", format!("{said}{complaint}").trim());
    }
    Ok(said)
}
