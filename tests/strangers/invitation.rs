//! Connections to the port of an invitation without its code.

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::program::command_line;
use potluck_harness::{Child, Lab, Scratch, Suite};
use serde_json::Value;

use crate::LAN;
use crate::intruder::{Intruder, hex, junk, turned_away};

pub fn add(suite: &mut Suite) {
    suite.test_needing("an invitation: garbage gets no byte and counts for nothing", &LAN, garbage);
    suite.serial("an invitation: a machine comes in past a flood", &LAN, flood);
    suite.test_needing(
        "an invitation: the key, the code and the names are not on the wire",
        &LAN,
        sniffed,
    );
}

/// The cluster key. Its bytes would be noticed.
const KEY: &[u8; 32] = b"potluck:marked! potluck:marked!!";

fn key_text() -> String {
    potluck::keys::ClusterKey::from_bytes(KEY).to_text().to_string()
}

/// An invitation on n1 of a switch with three machines.
struct Invited {
    lab: Lab,
    scratch: Scratch,
    inviter: Child,
    code: String,
    address: String,
    port: String,
}

impl Invited {
    fn open() -> Result<Invited> {
        let (lab, scratch) = (Lab::up_with("gbe4", 4)?, Scratch::new()?);
        let mut command = lab.command("n1", command_line()?);
        command.args(["invite", "--json", "--name", "adas-machine"]).env("POTLUCK_KEY", key_text());
        command.env("POTLUCK_HOME", scratch.path().join("ada"));
        let mut inviter = Child::spawn(&mut command)?;
        let invited = inviter.wait_for_event("invited", |_| true, PATIENCE)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
        let at = text(&invited["addresses"][0])?;
        let (address, port) = at.rsplit_once(':').context("a port")?;
        let (address, port) = (address.to_owned(), port.to_owned());
        let code = text(&invited["code"])?;
        Ok(Invited { lab, scratch, inviter, code, address, port })
    }

    /// The preamble of a joiner that has read the selector.
    fn preamble(&self) -> Result<Vec<u8>> {
        let selector: u8 = self.code[..2].parse()?;
        Ok([&b"potl\x01\x14"[..], &[selector], &[0; 9]].concat())
    }

    /// Joins from n2 with the code: by name, because a flood may delay discovery.
    fn joins(&mut self) -> Result<()> {
        let mut command = self.lab.command("n2", command_line()?);
        command.args(["join", &self.code, "--json", "--name", "bobs-machine"]);
        command.args(["--peer", &format!("{}:{}", self.address, self.port)]);
        command.env("POTLUCK_HOME", self.scratch.path().join("bob")).env_remove("POTLUCK_KEY");
        let mut joiner = Child::spawn(&mut command)?;
        let status = joiner.wait(PATIENCE)?;
        ensure!(status.success(), "{status}: {:?} {:?}", joiner.stdout(), joiner.stderr());
        let key = std::fs::read_to_string(self.scratch.path().join("bob/cluster-default.key"))?;
        ensure!(key.trim() == key_text(), "another key");
        let joined = self.inviter.wait_for_event("joined", |_| true, PATIENCE)?;
        ensure!(joined["name"] == "bobs-machine", "{joined}");
        let status = self.inviter.wait(PATIENCE)?;
        let said = [self.inviter.stdout(), self.inviter.stderr()].concat().join("\n");
        ensure!(status.success() && !said.contains("wrong-code"), "{status}: {said}");
        ensure!(!said.contains("panicked") && !said.contains(&key_text()[4..30]), "{said}");
        Ok(())
    }
}

fn garbage() -> Result<()> {
    let mut invited = Invited::open()?;
    let preamble = invited.preamble()?;
    let junk = junk();
    let openings = [
        junk.clone(),
        b"GET / HTTP/1.1\r\nHost: there\r\n\r\n".to_vec(),
        b"potl\x01\x10\0\0\0\0\0\0\0\0\0\0".repeat(6),
        [&b"potl\x01\x14\x64"[..], &[0; 200]].concat(),
        [&preamble, &junk[..]].concat(),
        [&preamble, &[0; 33 + 32][..]].concat(),
        [&preamble[..], b"A", &[0; 32 + 32]].concat(),
        preamble.clone(),
        preamble[..7].to_vec(),
    ];
    for bytes in &openings {
        let send = ["send", &invited.address, &invited.port, &hex(bytes)];
        let mut intruder = Intruder::on(&invited.lab, "n4", &send)?;
        turned_away(&intruder.event("sent")?).with_context(|| format!("{bytes:?}"))?;
    }
    let bytes = [&preamble, &junk[..60]].concat();
    let drip = ["drip", &invited.address, &invited.port, &hex(&bytes)];
    let event = Intruder::on(&invited.lab, "n4", &drip)?.event("dripped")?;
    ensure!(event["received"] == 0 && event["closed"] == true, "{event}");
    invited.joins()
}

fn flood() -> Result<()> {
    let mut invited = Invited::open()?;
    let (memory, files) = (invited.inviter.memory_kib("VmRSS")?, invited.inviter.descriptors()?);
    let flood = ["flood", &invited.address, &invited.port, "500", "1"];
    let mut flood = Intruder::on(&invited.lab, "n4", &flood)?;
    let silent = ["silent", &invited.address, &invited.port, "100"];
    let mut silent = Intruder::on(&invited.lab, "n3", &silent)?;
    silent.event("connected")?;
    let grown = invited.inviter.memory_kib("VmRSS")?.saturating_sub(memory);
    let opened = invited.inviter.descriptors()?.saturating_sub(files);
    println!("measured: an invitation in a flood: {grown} KiB more memory, {opened} more files");
    ensure!(grown < 16 * 1024 && opened <= 70, "{grown} KiB, {opened} files");
    invited.joins()?;
    for (intruder, kind) in [(&mut flood, "flooded"), (&mut silent, "waited")] {
        let event = intruder.event(kind)?;
        ensure!(event["received"] == 0, "a stranger was answered: {event}");
    }
    Ok(())
}

fn sniffed() -> Result<()> {
    for secret in ["key", "code", "adas-machine", "bobs-machine"] {
        let mut invited = Invited::open()?;
        let bytes = match secret {
            "key" => KEY[..16].to_vec(),
            "code" => invited.code[3..].replace('-', "").into_bytes(),
            name => name.as_bytes().to_vec(),
        };
        let mut capture = Intruder::on_the_switch(&invited.lab, &["capture", &hex(&bytes)])?;
        capture.event("capturing")?;
        invited.joins()?;
        let seen = capture.captured()?;
        let payload = seen["payload_from"].to_string();
        ensure!(payload.contains(&format!(":{}", invited.port)), "nothing was seen: {seen}");
        ensure!(seen["hits"] == 0, "the {secret} is on the wire: {seen}");
    }
    Ok(())
}
