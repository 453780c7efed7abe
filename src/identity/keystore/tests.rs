//! Identities in files: created once, one for each process, and refused if damaged or unsafe.

use super::super::node_id::assert_hides;
use super::super::scratch::Scratch;
use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A home with an identity that no process holds.
fn used_home() -> (Scratch, Home, PathBuf) {
    let scratch = Scratch::new();
    let home = Home::at(scratch.path().join("potluck"));
    drop(load_or_create_identity(&home).expect("a new identity"));
    let path = home.identity_path(IdentitySlot::FIRST);
    (scratch, home, path)
}

/// The problem with the home. Checks that the file was not changed and that the message
/// contains advice.
fn problem(home: &Home, path: &Path) -> IdentityProblem {
    let before = fs::read(path).ok();
    let problem = load_or_create_identity(home).expect_err("an unusable file");
    assert_eq!(fs::read(path).ok(), before, "the file was touched");
    assert_eq!(problem.path(), Some(path));
    assert!(problem.to_string().starts_with(&path.display().to_string()), "{problem}");
    assert!(problem.to_string().contains(". "), "says nothing to do: {problem}");
    problem
}

fn rewrite(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("readable");
    change(&mut bytes);
    fs::write(path, bytes).expect("writable");
}

#[test]
fn an_identity_is_for_life() {
    let (_scratch, home, path) = used_home();
    let first = load_or_create_identity(&home).expect("the identity").identity().id();
    assert_eq!(load_or_create_identity(&home).expect("the identity").identity().id(), first);
    let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(home.state_dir())), (0o600, 0o700));
}

#[test]
fn a_second_process_takes_the_next_slot_and_a_third_the_one_after() {
    let (_scratch, home, _) = used_home();
    let held: Vec<HeldIdentity> =
        (0..3).map(|_| load_or_create_identity(&home).expect("a slot")).collect();
    assert_eq!(held.iter().map(|h| h.slot().0).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(held[0].identity().id() != held[1].identity().id());
    assert!(home.identity_path(IdentitySlot(2)).ends_with("identity.2.key"));
    let name = NamespaceName::default();
    let job = JobName::of_program(Path::new("train"));
    let state = held[1].state_file(&home, &name, &job);
    assert!(state.path().ends_with("state-default.train.1.bin"));
    let second = held[1].identity().id();
    drop(held);
    let again: Vec<HeldIdentity> =
        (0..2).map(|_| load_or_create_identity(&home).expect("a slot")).collect();
    assert!(again[1].identity().id() == second, "a slot keeps its identity");
}

#[test]
fn slots_end() {
    let (_scratch, home, _) = used_home();
    let held: Vec<_> =
        (0..SLOTS_MAX).map(|_| load_or_create_identity(&home).expect("a slot")).collect();
    let none = load_or_create_identity(&home).expect_err("none left");
    assert_eq!(none, IdentityProblem::AllSlotsTaken { path: home.state_dir().to_owned() });
    assert_eq!(held.len(), 64);
}

#[test]
fn every_damage_has_its_own_name_and_is_never_repaired() {
    let content = FileContent::Identity;
    let (_scratch, home, path) = used_home();
    let good = fs::read(&path).expect("readable");
    let truncated = IdentityProblem::Truncated { path: path.clone(), content };
    let damaged = IdentityProblem::Damaged { path: path.clone(), content };
    let empty = IdentityProblem::Empty { path: path.clone(), content };
    let too_long = IdentityProblem::TooLong { path: path.clone(), content };
    type Damage = fn(&mut Vec<u8>);
    let damages: [(Damage, _); 5] = [
        (|bytes| bytes.truncate(40), &truncated),
        (|bytes| bytes[30] ^= 1, &damaged),
        (Vec::clear, &empty),
        (|bytes| bytes.resize(4097, b'x'), &too_long),
        (|bytes| bytes.extend_from_within(..), &too_long),
    ];
    for (damage, expected) in damages {
        rewrite(&path, damage);
        assert_eq!(problem(&home, &path), *expected);
        rewrite(&path, |bytes| bytes.clone_from(&good));
    }
    assert!(load_or_create_identity(&home).is_ok());
}

#[test]
fn an_unsafe_file_is_refused_and_left_alone() {
    let (scratch, home, path) = used_home();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("changed");
    let loose = problem(&home, &path);
    assert_eq!(loose, IdentityProblem::LoosePermissions { path: path.clone(), mode: 0o644 });
    assert!(loose.to_string().contains("chmod 600"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");

    let elsewhere = scratch.path().join("elsewhere.key");
    fs::rename(&path, &elsewhere).expect("moved");
    std::os::unix::fs::symlink(&elsewhere, &path).expect("linked");
    assert_eq!(problem(&home, &path), IdentityProblem::Symlink { path: path.clone() });
    fs::remove_file(&path).expect("removed");
    std::os::unix::fs::symlink(scratch.path().join("nowhere"), &path).expect("linked");
    assert_eq!(problem(&home, &path), IdentityProblem::Symlink { path: path.clone() });
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("made");
    assert_eq!(problem(&home, &path), IdentityProblem::NotAFile { path: path.clone() });
}

#[test]
fn a_lock_file_is_judged_like_a_key_file() {
    let (scratch, home, _) = used_home();
    let lock = home.lock_path(IdentitySlot::FIRST);
    fs::remove_file(&lock).expect("removed");
    std::os::unix::fs::symlink(scratch.path().join("nowhere"), &lock).expect("linked");
    assert_eq!(problem(&home, &lock), IdentityProblem::Symlink { path: lock.clone() });
    assert!(!scratch.path().join("nowhere").exists(), "the link was followed");
    fs::remove_file(&lock).expect("removed");
    fs::create_dir(&lock).expect("made");
    assert_eq!(problem(&home, &lock), IdentityProblem::NotAFile { path: lock.clone() });
}

#[test]
fn a_home_that_cannot_be_made_is_an_error() {
    let (_scratch, _, path) = used_home();
    let below_a_file = path.join("home");
    let problem =
        load_or_create_identity(&Home::at(&below_a_file)).expect_err("a file is in the way");
    let (action, reason) = (FileAction::MakeDirectory, io::ErrorKind::NotADirectory);
    assert_eq!(problem, IdentityProblem::Refused { path: below_a_file, action, reason });
}

#[test]
fn an_identity_of_another_version_is_left_alone() {
    let (_scratch, home, path) = used_home();
    // The checksum matches the text before it.
    rewrite(&path, |bytes| *bytes = b"potluck-ed25519-v2 x 1d753516b0f66859\n".to_vec());
    assert_eq!(problem(&home, &path), IdentityProblem::UnknownVersion { path: path.clone() });
}

#[test]
fn nothing_that_holds_the_key_shows_it() {
    let (_scratch, home, path) = used_home();
    let text = fs::read(&path).expect("readable");
    let held = load_or_create_identity(&home).expect("the identity");
    let seed = held.identity().seed();
    rewrite(&path, |bytes| bytes[60] ^= 1);
    drop(load_or_create_identity(&home).expect("slot 1"));
    let shown = format!("{held:?} {:?}", held.identity());
    drop(held);
    let problem = load_or_create_identity(&home).expect_err("damaged");
    for shown in [shown, format!("{problem:?} {problem}"), format!("{:?}", decode_identity(&text))]
    {
        assert_hides(&shown, &*seed);
        assert_hides(&shown, &text[19..83]);
    }
}

#[test]
fn every_start_has_its_own_number() {
    assert_ne!(new_boot(), new_boot());
}
