//! identity, join and key.

use crate::run::{Ran, potluck, run, told};
use anyhow::{Result, ensure};
use potluck_harness::Scratch;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A publicly known key.
pub const KEY: &str = "plk1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaagxdk";

/// Another key. Any new key would do; this needs no network.
fn other_key() -> Result<String> {
    Ok(potluck::keys::ClusterKey::generate()?.to_text().to_string())
}

fn mode(path: &Path) -> Result<u32> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o777)
}

pub fn identity() -> Result<()> {
    let home = Scratch::new()?;
    let first = told(home.path(), &["identity", "--json"], "")?.json(0)?;
    ensure!(
        first["ok"] == true && first["key"].is_null() && first["namespace"] == "default",
        "{first}"
    );
    let node = first["node"].as_str().unwrap_or_default();
    ensure!(
        node.len() == 64 && node.starts_with(first["short"].as_str().unwrap_or("?")),
        "{first}"
    );
    ensure!(mode(&home.path().join("identity.key"))? == 0o600);

    let again = run(potluck(home.path()).args(["identity", "--json"]).env("POTLUCK_KEY", KEY), "")?
        .json(0)?;
    ensure!(again["node"] == first["node"] && again["key"] == "environment", "{again}");
    told(home.path(), &["join"], KEY)?;
    for arguments in [&["identity"][..], &["identity", "--json", "-vvv"]] {
        let shown = told(home.path(), arguments, "")?;
        let seed = fs::read_to_string(home.path().join("identity.key"))?;
        let seed = seed.split(' ').nth(1).unwrap_or("?").to_owned();
        for secret in [KEY, &KEY[4..30], &seed] {
            ensure!(
                !shown.out.contains(secret) && !shown.err.contains(secret),
                "it shows a secret: {shown:?}"
            );
        }
    }
    Ok(())
}

pub fn damaged_identity() -> Result<()> {
    let home = Scratch::new()?;
    told(home.path(), &["identity"], "")?;
    let file = home.path().join("identity.key");
    let good = fs::read(&file)?;
    let flipped: Vec<u8> =
        good.iter().enumerate().map(|(i, byte)| if i == 40 { byte ^ 1 } else { *byte }).collect();
    let cases = [
        (good[..50].to_vec(), "ends too early"),
        (flipped, "checksum does not match"),
        (Vec::new(), "is empty"),
    ];
    for (bytes, words) in cases {
        fs::write(&file, &bytes)?;
        let ran = told(home.path(), &["identity"], "")?;
        ensure!(ran.complaint(1)?.contains(words) && ran.out.is_empty(), "{ran:?}");
        let document = told(home.path(), &["identity", "--json"], "")?.json(1)?;
        ensure!(
            document["ok"] == false && document["code"] == "identity" && document["exit"] == 1,
            "{document}"
        );
        ensure!(fs::read(&file)? == bytes, "the file was touched");
    }
    Ok(())
}

pub fn join() -> Result<()> {
    let home = Scratch::new()?;
    let stored =
        told(home.path(), &["join", "--json"], &format!(" {} \n{}\n", &KEY[..20], &KEY[20..]))?
            .json(0)?;
    ensure!(stored["stored"] == "new", "{stored}");
    let file = home.path().join("cluster-default.key");
    ensure!(stored["file"] == file.display().to_string() && mode(&file)? == 0o600, "{stored}");
    ensure!(fs::read_to_string(&file)?.trim() == KEY);
    let again = told(home.path(), &["join", "--json"], KEY)?.json(0)?;
    ensure!(again["stored"] == "same", "{again}");

    let from = home.path().join("from");
    fs::write(&from, KEY)?;
    let from = from.display().to_string();
    let lab = told(home.path(), &["join", "--json", "--namespace", "lab", "--file", &from], "")?
        .json(0)?;
    ensure!(lab["stored"] == "new" && lab["namespace"] == "lab", "{lab}");
    let missing = told(home.path(), &["join", "--file", "/nowhere/key"], "")?;
    ensure!(missing.complaint(1)?.contains("/nowhere/key"), "{missing:?}");
    Ok(())
}

/// A path that is not UTF-8 has a JSON text all the same.
pub fn path_that_is_no_text() -> Result<()> {
    if cfg!(target_os = "macos") {
        return Ok(()); // its file systems take only text
    }
    let scratch = Scratch::new()?;
    let home = scratch.path().join(OsStr::from_bytes(b"home-\xff"));
    told(&home, &["join", "--json"], KEY)?.json(0)?;
    let rotate = &["keys", "rotate"][..];
    for arguments in [rotate, &["keys", "finish"], &["identity"], &["key"], &["deny"], &["known"]] {
        let document = told(&home, &[&["--json"], arguments].concat(), "")?.json(0)?;
        let file = document["file"].as_str().unwrap_or_default();
        ensure!(file.contains("home-\u{fffd}/"), "{document}");
    }
    Ok(())
}

pub fn mistyped_key() -> Result<()> {
    let home = Scratch::new()?;
    let cases = [
        (KEY.replace("gxdk", "gxdl"), "a character of the cluster key is wrong"),
        (KEY[..59].to_owned(), "has 60 characters, this has 59"),
        (KEY.replace("plk1", "plk2"), "begins with plk1"),
        (String::new(), "nothing was typed or piped"),
        ("x".repeat(100_000), "begins with plk1"),
    ];
    for (text, words) in cases {
        let ran = told(home.path(), &["join"], &text)?;
        ensure!(ran.complaint(6)?.contains(words), "{ran:?}");
        ensure!(text.is_empty() || !ran.err.contains(&text), "it repeats what was typed");
        ensure!(told(home.path(), &["join", "--json"], &text)?.json(6)?["code"] == "bad-key");
    }
    ensure!(!home.path().join("cluster-default.key").exists());
    Ok(())
}

pub fn second_key() -> Result<()> {
    let home = Scratch::new()?;
    let other = other_key()?;
    told(home.path(), &["join"], KEY)?;
    let file = home.path().join("cluster-default.key");
    let refused = told(home.path(), &["join"], &other)?;
    ensure!(refused.complaint(6)?.contains("--replace"), "{refused:?}");
    ensure!(fs::read_to_string(&file)?.trim() == KEY, "the first key was replaced");
    let replaced = told(home.path(), &["join", "--replace", "--json"], &other)?.json(0)?;
    ensure!(replaced["stored"] == "replaced", "{replaced}");
    ensure!(fs::read_to_string(&file)?.trim() == other && mode(&file)? == 0o600);
    Ok(())
}

pub fn key_in_argv() -> Result<()> {
    let home = Scratch::new()?;
    let Ran { code, .. } = told(home.path(), &["join", KEY], "")?;
    ensure!(code == 2, "exit code {code}");
    ensure!(!home.path().join("cluster-default.key").exists());
    Ok(())
}

pub fn loose_permissions() -> Result<()> {
    let home = Scratch::new()?;
    told(home.path(), &["join"], KEY)?;
    let file = home.path().join("cluster-default.key");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    for arguments in [&["key", "--show"][..], &["identity"]] {
        let ran = told(home.path(), arguments, "")?;
        ensure!(ran.complaint(1)?.contains("chmod 600"), "{ran:?}");
        ensure!(!ran.out.contains(KEY), "{ran:?}");
    }
    Ok(())
}

pub fn show_on_demand() -> Result<()> {
    let home = Scratch::new()?;
    let none = told(home.path(), &["key", "--json"], "")?.json(6)?;
    ensure!(none["code"] == "no-cluster-key", "{none}");
    told(home.path(), &["join"], KEY)?;
    let hidden = told(home.path(), &["key"], "")?;
    ensure!(hidden.code == 0 && !hidden.out.contains(&KEY[4..20]), "{hidden:?}");
    ensure!(told(home.path(), &["key", "--json"], "")?.json(0)?["key"].is_null());
    ensure!(told(home.path(), &["key", "--show"], "")?.out == format!("{KEY}\n"));
    ensure!(told(home.path(), &["key", "--show", "--json"], "")?.json(0)?["key"] == KEY);
    Ok(())
}

pub fn wrong_usage() -> Result<()> {
    let home = Scratch::new()?;
    let name = told(home.path(), &["identity", "--namespace", "No Such"], "")?;
    ensure!(name.complaint(2)?.contains("namespace"), "{name:?}");
    for arguments in [&["demo", "--peers", "2"][..], &["no-such-verb"], &[]] {
        ensure!(told(home.path(), arguments, "")?.code == 2, "{arguments:?}");
    }
    ensure!(told(home.path(), &["--help"], "")?.out.contains("Exit codes: 0 done"));
    Ok(())
}
