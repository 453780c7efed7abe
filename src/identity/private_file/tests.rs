//! Private files: written whole, closed to others, and refused if somebody else may change them.

use super::super::scratch::Scratch;
use super::*;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

fn read_state(path: &Path) -> Result<Option<Vec<u8>>, IdentityProblem> {
    read(path, FileContent::State, 8).map(|bytes| bytes.map(|bytes| bytes.to_vec()))
}

fn entries(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir)
        .expect("a directory")
        .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

#[test]
fn what_is_written_is_read_and_closed_to_others() {
    let scratch = Scratch::new();
    let path = scratch.path().join("f");
    assert_eq!(read_state(&path), Ok(None));
    create(&path, b"one").expect("created");
    assert_eq!(create(&path, b"two").map_err(|e| e.kind()), Err(io::ErrorKind::AlreadyExists));
    assert_eq!(read_state(&path), Ok(Some(b"one".to_vec())));
    replace(&path, b"three").expect("replaced");
    assert_eq!(read_state(&path), Ok(Some(b"three".to_vec())));
    assert_eq!(fs::metadata(&path).expect("it exists").permissions().mode() & 0o777, 0o600);
    assert_eq!(entries(scratch.path()), ["f"], "temporary files were left");
}

#[test]
fn one_of_many_creators_wins_and_nobody_sees_half_a_file() {
    let scratch = Scratch::new();
    let path = scratch.path().join("f");
    let won: usize = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..8u8)
            .map(|i| {
                scope.spawn({
                    let path = &path;
                    move || create(path, &[i; 8]).is_ok()
                })
            })
            .collect();
        tries.into_iter().map(|t| usize::from(t.join().expect("no panic"))).sum()
    });
    assert_eq!(won, 1);
    let bytes = read_state(&path).expect("readable").expect("there");
    assert_eq!(bytes, [bytes[0]; 8]);
}

#[test]
fn each_unsafe_file_is_refused_by_name() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    let assert_refused = |name: &str, problem: &dyn Fn(PathBuf) -> IdentityProblem| {
        assert_eq!(read_state(&at(name)), Err(problem(at(name))));
    };
    let content = FileContent::State;
    create(&at("good"), b"good").expect("created");
    std::os::unix::fs::symlink(at("good"), at("link")).expect("linked");
    assert_refused("link", &|path| IdentityProblem::Symlink { path });
    fs::create_dir(at("dir")).expect("made");
    let made = std::process::Command::new("mkfifo").arg(at("fifo")).status();
    assert!(made.expect("mkfifo runs").success());
    let _socket = UnixListener::bind(at("socket")).expect("bound");
    for name in ["dir", "fifo", "socket"] {
        assert_refused(name, &|path| IdentityProblem::NotAFile { path });
    }
    create(&at("long"), b"123456789").expect("created");
    assert_refused("long", &|path| IdentityProblem::TooLong { path, content });
    create(&at("empty"), b"").expect("created");
    assert_refused("empty", &|path| IdentityProblem::Empty { path, content });
    for mode in [0o640, 0o604, 0o620, 0o601] {
        fs::set_permissions(at("good"), fs::Permissions::from_mode(mode)).expect("changed");
        assert_refused("good", &|path| IdentityProblem::LoosePermissions { path, mode });
    }
}

#[test]
fn a_file_of_somebody_else_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.path().join("f");
    create(&path, b"x").expect("created");
    let facts = fs::metadata(&path).expect("it exists");
    let stranger = facts.uid() + 1;
    assert_eq!(
        judge(&path, &facts, stranger),
        Err(IdentityProblem::WrongOwner { path: path.clone(), owner: facts.uid() })
    );
    assert_eq!(judge(&path, &facts, facts.uid()), Ok(()));
    // Only root can change the owner; then the whole path is tested.
    if std::os::unix::fs::chown(&path, Some(stranger), None).is_ok() {
        assert_eq!(
            read_state(&path),
            Err(IdentityProblem::WrongOwner { path: path.clone(), owner: stranger })
        );
    }
}

#[test]
fn a_directory_that_others_may_change_is_refused() {
    let scratch = Scratch::new();
    let (home, path) = (scratch.path().join("home"), scratch.path().join("home/f"));
    fs::create_dir(&home).expect("made");
    create(&path, b"x").expect("created");
    let set = |mode| fs::set_permissions(&home, fs::Permissions::from_mode(mode));
    for mode in [0o770, 0o707, 0o777, 0o1777, 0o720] {
        set(mode).expect("changed");
        let refused = IdentityProblem::LooseDirectory { path: home.clone(), mode };
        assert_eq!(read_state(&path), Err(refused));
    }
    for mode in [0o700, 0o755, 0o750] {
        set(mode).expect("changed");
        assert_eq!(read_state(&path), Ok(Some(b"x".to_vec())));
    }
    let link = scratch.path().join("link");
    std::os::unix::fs::symlink(&home, &link).expect("linked");
    assert_eq!(read_state(&link.join("f")), Ok(Some(b"x".to_vec())), "a link of this user");
    // Only root can change an owner; then the path of a foreign directory and of a foreign link
    // is tested.
    let stranger = rustix::process::geteuid().as_raw() + 1;
    let foreign =
        |path: &Path| IdentityProblem::WrongOwner { path: path.to_owned(), owner: stranger };
    if std::os::unix::fs::lchown(&link, Some(stranger), None).is_ok() {
        assert_eq!(read_state(&link.join("f")), Err(foreign(&link)));
        std::os::unix::fs::chown(&home, Some(stranger), None).expect("given away");
        assert_eq!(read_state(&path), Err(foreign(&home)));
    }
}

#[test]
fn leftovers_of_a_killed_writer_are_swept() {
    let scratch = Scratch::new();
    let path = scratch.path().join("f");
    create(&path, b"x").expect("created");
    for name in [".f.0123456789abcdef.tmp", ".g.0123456789abcdef.tmp"] {
        fs::write(scratch.path().join(name), b"half").expect("written");
    }
    sweep(&path).expect("swept");
    assert_eq!(entries(scratch.path()), [".g.0123456789abcdef.tmp", "f"]);
}

#[test]
fn a_missing_directory_is_an_error_of_the_writer_only() {
    let scratch = Scratch::new();
    let path = scratch.path().join("missing/f");
    assert_eq!(read_state(&path), Ok(None));
    assert_eq!(replace(&path, b"x").map_err(|e| e.kind()), Err(io::ErrorKind::NotFound));
}

/// Those of a write that may still be under way stay.
#[test]
fn what_was_abandoned_long_ago_goes_with_the_next_write() {
    let scratch = Scratch::new();
    let path = scratch.path().join("cluster.key");
    let [old, young, other] = [".cluster.key.1.tmp", ".cluster.key.2.tmp", ".peers.toml.1.tmp"]
        .map(|name| scratch.path().join(name));
    for left in [&old, &young, &other] {
        fs::write(left, b"half").expect("written");
    }
    for left in [&old, &other] {
        let long_ago = std::time::SystemTime::now() - 2 * ABANDONED;
        let file = OpenOptions::new().write(true).open(left).expect("it is there");
        file.set_modified(long_ago).expect("set");
    }
    replace(&path, b"whole").expect("written");
    assert_eq!([&old, &young, &other].map(|left| left.exists()), [false, true, true]);
}
