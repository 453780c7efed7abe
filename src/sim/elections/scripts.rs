//! Scripted election tests: every file in `tests/scripts` holds commands for a simulated group and,
//! below the divider, the expected trace. All claims must hold in each.
//!
//! `POTLUCK_REWRITE=1 cargo test -p potluck --lib scripts` rewrites the expected traces. Read the
//! difference before you keep it.

use super::world::World;
use crate::protocol::Partition;
use std::path::{Path, PathBuf};

const DIVIDER: &str = "----\n";

/// Seed of all scripts.
const SEED: u64 = 1;

#[test]
fn every_story_ends_as_written() {
    let mut scripts = scripts();
    scripts.sort();
    assert!(!scripts.is_empty(), "no scripts in tests/scripts");
    let rewrite = std::env::var_os("POTLUCK_REWRITE").is_some();
    let mut wrong = Vec::new();
    for path in scripts {
        let text = std::fs::read_to_string(&path).expect("the script can be read");
        let (commands, expected) = text.split_once(DIVIDER).unwrap_or((&text, ""));
        let found = run(commands, &path);
        if rewrite {
            std::fs::write(&path, format!("{commands}{DIVIDER}{found}"))
                .expect("the script can be written");
        } else if found != expected {
            wrong.push(format!("{}\nexpected:\n{expected}\nfound:\n{found}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let files = std::fs::read_dir(folder)
        .expect("the folder exists")
        .map(|file| file.expect("it can be listed").path());
    files.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect()
}

/// Runs the commands. Returns the trace and the final state of every living node, one per line.
fn run(commands: &str, path: &Path) -> String {
    let mut world = World::new(SEED);
    for line in commands.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        carry_out(&mut world, line)
            .unwrap_or_else(|| panic!("{}: no such command: {line}", path.display()));
    }
    let broken = world.broken();
    assert!(broken.is_empty(), "{}: {} does not hold", path.display(), broken.join(", "));
    let ends = world.living().into_iter().map(|n| world.state(n)).collect::<Vec<_>>();
    world.trace.iter().chain(&ends).map(|line| format!("{line}\n")).collect()
}

fn carry_out(world: &mut World, line: &str) -> Option<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (command, rest) = words.split_first()?;
    match (*command, rest) {
        ("wall", [a, b]) => world.network.wall(node(a)?, node(b)?),
        ("run", [ms]) => world.run(ms.parse().ok()?),
        ("late", [per_mille]) => world.network.rates.late = per_mille.parse().ok()?,
        ("disk", [who, ms]) => world.disk(node(who)?, ms.parse().ok()?),
        ("sleep", [who, ms]) => world.sleep(node(who)?, ms.parse().ok()?),
        ("stop", [who, ms]) => world.stop(node(who)?, ms.parse().ok()?),
        ("majority", who) => world.rule(|roster| Partition::Majority { roster }, &nodes(who)?),
        ("all", who) => world.rule(|roster| Partition::All { roster }, &nodes(who)?),
        ("sizes", [members, min, max, who @ ..]) => {
            let sizes = [members.parse().ok()?, min.parse().ok()?, max.parse().ok()?];
            world.sizes(sizes, &nodes(who)?)?;
        }
        ("notices", []) => world.shows_notices = true,
        ("quarantine", []) => world.quarantine(),
        ("copy", [who, of]) => world.copy(node(who)?, node(of)?),
        ("repeat", [per_mille]) => world.repetition(per_mille.parse().ok()?),
        ("engines", [ms]) => world.engine_ms = ms.parse().ok()?,
        ("pause", [who, ms]) => world.pause(node(who)?, ms.parse().ok()?),
        ("mend", []) => world.network.mend(),
        ("sync", [who, version]) => world.sync(node(who)?, version.parse().ok()?),
        ("part", [a, b]) => world.part(node(a)?, node(b)?),
        ("mute", [from, to]) => world.network.mute(node(from)?, node(to)?),
        ("cut", [a, b]) => world.unlink(node(a)?, node(b)?),
        ("start", who) => each(who, |n| world.start(n))?,
        ("kill", who) => each(who, |n| world.kill(n))?,
        ("leave", who) => each(who, |n| world.leave(n))?,
        ("give_up", who) => each(who, |n| world.give_up(n))?,
        ("call", who) => each(who, |n| world.call(n))?,
        _ => return None,
    }
    Some(())
}

fn each(names: &[&str], mut act: impl FnMut(u8)) -> Option<()> {
    names.iter().try_for_each(|name| node(name).map(&mut act))
}

fn nodes(names: &[&str]) -> Option<Vec<u8>> {
    names.iter().map(|name| node(name)).collect()
}

/// A to Z.
fn node(name: &str) -> Option<u8> {
    match name.as_bytes() {
        [letter @ b'A'..=b'Z'] => Some(letter - b'A' + 1),
        _ => None,
    }
}
