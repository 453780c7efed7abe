//! The JSON of every command has the shape that a file in `tests/golden/json` lists.

use crate::keys::KEY;
use crate::run::{Network, SOON, event, told};
use crate::shape::is_as_listed;
use anyhow::Result;
use potluck_harness::Scratch;
use serde_json::Value;

/// Fails unless these documents have the shape of the golden file of this name.
macro_rules! listed {
    ($name:literal, $documents:expr) => {
        is_as_listed($name, include_str!(concat!("../golden/json/", $name, ".txt")), $documents)
    };
}

/// A public key that no test uses.
const NODE: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

pub fn without_a_network() -> Result<()> {
    let home = Scratch::new()?;
    let said = |arguments: &[&str], input: &str, code: i32| -> Result<Value> {
        told(home.path(), &[&["--json"], arguments].concat(), input)?.json(code)
    };
    listed!("failure", &[said(&["key"], "", 6)?, said(&["known", "--forget", "nobody"], "", 2)?])?;
    let without_key = said(&["identity"], "", 0)?;
    listed!("join", &[said(&["join"], KEY, 0)?, said(&["join"], KEY, 0)?])?;
    listed!("identity", &[without_key, said(&["identity"], "", 0)?])?;
    listed!("key", &[said(&["key"], "", 0)?, said(&["key", "--show"], "", 0)?])?;
    listed!("keys-rotate", &[said(&["keys", "rotate"], "", 0)?])?;
    listed!("keys-finish", &[said(&["keys", "finish"], "", 0)?])?;
    listed!("known", &[said(&["known"], "", 0)?])?;
    listed!("deny", &[said(&["deny"], "", 0)?, said(&["deny", NODE], "", 0)?])?;
    listed!("completions", &[said(&["completions", "zsh"], "", 0)?])?;
    listed!("help", &[said(&["help"], "", 0)?, said(&["help", "keys", "rotate"], "", 0)?])?;
    let folder = home.path().join("man").display().to_string();
    listed!("man", &[said(&["man"], "", 0)?, said(&["man", &folder], "", 0)?])
}

pub fn of_commands_that_run() -> Result<()> {
    let network = Network::loopback()?;
    let nobody = network.run("n1", "ada", "status", &[])?.json(3)?;
    listed!("status-nobody", &[nobody])?;
    let mut up = network.up("n1", "ada", &[])?;
    let mut events = Vec::new();
    for kind in ["key-made", "status", "alone"] {
        events.push(event(&mut up, kind)?);
    }
    let mut invite = network.json("n1", "ada", "invite", &[]);
    let mut invite = potluck_harness::Child::spawn(&mut invite)?;
    let invited = event(&mut invite, "invited")?;
    invite.interrupt()?;
    listed!("invite", &[invited, event(&mut invite, "ended")?])?;
    invite.wait(SOON)?;
    up.terminate()?;
    events.push(event(&mut up, "left")?);
    up.wait(SOON)?;
    listed!("up", &events)
}
