//! Missing, insecure and damaged key and identity files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::peer::{KEY, Start};
use potluck_harness::{Group, Peer, Suite};
use serde_json::{Value, json};

use crate::LO;

pub fn add(suite: &mut Suite) {
    suite.test_needing("no key: told what to type, and ends", &LO, no_key);
    suite.test_needing("a key file that others may read is refused", &LO, loose_key_file);
    suite.test_needing("a home directory that others may change is refused", &LO, loose_home);
    suite.test_needing("damaged files are refused and kept", &LO, damaged);
}

/// The error of a node that cannot join; the process must exit with code 1.
fn refused(group: &Group, start: &Start) -> Result<Value> {
    let mut peer = Peer::start(&group.lab, "n1", start)?;
    peer.order(&json!({"do": "join"}))?;
    let error = peer.event("error", PATIENCE)?;
    let status = peer.process().wait(PATIENCE)?;
    ensure!(status.code() == Some(1), "{status} after {error}");
    let said = peer.process().stderr().join("\n");
    ensure!(!said.contains("panicked"), "{said}");
    ensure!(!format!("{error}{said}").contains(&KEY[4..]), "the key is told to the world");
    Ok(error)
}

fn no_key() -> Result<()> {
    let group = Group::empty("lo", 1)?;
    let error = refused(&group, &Start { key: None, ..group.start(0) })?;
    ensure!(error["code"] == "no-cluster-key", "{error}");
    let message = error["message"].to_string();
    ensure!(message.contains("potluck up") && message.contains("potluck join"), "{error}");

    let error =
        refused(&group, &Start { key: Some(KEY.replace("gxdk", "gxdj")), ..group.start(0) })?;
    ensure!(error["code"] == "config" || error["code"] == "identity", "{error}");
    Ok(())
}

fn loose_key_file() -> Result<()> {
    let mut group = Group::empty("lo", 1)?;
    let start = Start { key: None, ..group.start(0) };
    fs::DirBuilder::new().mode(0o700).create(&start.home)?;
    let file = start.home.join("cluster-default.key");
    fs::write(&file, format!("{KEY}\n"))?;
    for mode in [0o644, 0o640, 0o604, 0o620, 0o666] {
        fs::set_permissions(&file, Permissions::from_mode(mode))?;
        let error = refused(&group, &start)?;
        ensure!(error["code"] == "identity", "mode {mode:o}: {error}");
        let message = error["message"].to_string();
        ensure!(
            message.contains("cluster-default.key") && message.contains("chmod"),
            "mode {mode:o}: {error}"
        );
    }
    fs::set_permissions(&file, Permissions::from_mode(0o600))?;
    let peer = group.add(0, &start)?;
    peer.ask(&json!({"do": "join"}), "joined", PATIENCE)?;
    Ok(())
}

/// A user that may write to the directory could remove or replace the files in it.
fn loose_home() -> Result<()> {
    let mut group = Group::empty("lo", 1)?;
    let start = group.start(0);
    fs::DirBuilder::new().mode(0o700).create(&start.home)?;
    for mode in [0o777, 0o770, 0o1777] {
        fs::set_permissions(&start.home, Permissions::from_mode(mode))?;
        let error = refused(&group, &start)?;
        ensure!(error["code"] == "identity", "mode {mode:o}: {error}");
        let message = error["message"].to_string();
        ensure!(
            message.contains(&*start.home.to_string_lossy()) && message.contains("chmod"),
            "mode {mode:o}: {error}"
        );
        ensure!(fs::read_dir(&start.home)?.next().is_none(), "mode {mode:o}: something is in it");
    }
    fs::set_permissions(&start.home, Permissions::from_mode(0o755))?;
    group.add(0, &start)?.ask(&json!({"do": "join"}), "joined", PATIENCE)?;
    Ok(())
}

fn damaged() -> Result<()> {
    let mut group = Group::empty("lo", 1)?;
    let start = group.start(0);
    // Each of the two members leaves an identity and a state file.
    group.add(0, &start)?;
    group.add(0, &start)?;
    group.all(&json!({"do": "join", "min": 2}), "joined")?;
    group.meet()?;
    group.all(&json!({"do": "leave"}), "left")?;
    group.peers.clear();

    let files = private_files(&start.home)?;
    let names: Vec<&str> = files.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    for kind in ["identity", "state"] {
        let file = files
            .iter()
            .find(|path| named(path, kind))
            .with_context(|| format!("no {kind} file in {names:?}"))?;
        let whole = fs::read(file)?;
        let end = whole.len() - 1;
        for length in [0, 1, end / 2, end] {
            still_refused(&group, &start, file, &whole[..length])?;
        }
        for place in [0, 4, end / 2, end] {
            let mut flipped = whole.clone();
            flipped[place] ^= 0x10;
            still_refused(&group, &start, file, &flipped)?;
        }
        fs::write(file, &whole)?;
    }
    let peer = group.add(0, &start)?;
    peer.ask(&json!({"do": "join"}), "joined", PATIENCE)?;
    Ok(())
}

fn still_refused(group: &Group, start: &Start, file: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(file, bytes)?;
    let error = refused(group, start)
        .with_context(|| format!("{} of {} bytes", file.display(), bytes.len()))?;
    ensure!(error["code"] == "identity", "{}: {error}", file.display());
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ensure!(error["message"].to_string().contains(name), "{name} is not named: {error}");
    ensure!(fs::read(file)? == bytes, "{} was changed", file.display());
    Ok(())
}

fn named(path: &Path, kind: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(kind))
}

/// The files in a home directory, those of the first slot first.
fn private_files(home: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(home)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|p| p.is_file())
        .collect();
    // `identity.key` before `identity.1.key`.
    files.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    for file in &files {
        let mode = fs::metadata(file)?.permissions().mode() & 0o777;
        ensure!(
            mode & 0o077 == 0 || !["identity", "state", "cluster"].iter().any(|k| named(file, k)),
            "{}: {mode:o}",
            file.display()
        );
    }
    Ok(files)
}
