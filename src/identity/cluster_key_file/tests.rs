//! The sources of a cluster key, the checks of its file, and concurrent changes.

use super::super::node_id::assert_hides;
use super::super::scratch::Scratch;
use super::*;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;

fn scratch_home() -> (Scratch, Home, NamespaceName) {
    let scratch = Scratch::new();
    let home = Home::at(scratch.path().join("potluck"));
    (scratch, home, NamespaceName::default())
}

fn find(
    name: &NamespaceName,
    home: &Home,
    variable: Option<&str>,
) -> Result<Option<ClusterKey>, IdentityProblem> {
    let found = find_cluster_keys(name, home, |asked| {
        variable.filter(|_| asked == "POTLUCK_KEY").map(OsString::from)
    });
    found.map(|keys| keys.map(|keys| keys.current))
}

#[test]
fn while_the_key_changes_there_are_two() {
    let (_scratch, home, name) = scratch_home();
    let [old, new, other] = [1, 2, 3].map(|byte| ClusterKey::from_bytes(&[byte; 32]));
    let both = ClusterKeys { current: old.clone(), next: Some(new.clone()) };
    store_cluster_key(&name, &home, &old, Stored::Keep).expect("stored");
    assert_eq!(store_next_key(&name, &home, &new), Ok(true));
    assert_eq!(stored_cluster_keys(&name, &home), Ok(Some(both.clone())));
    let text = both.to_text();
    let found = find_cluster_keys(&name, &home, |_| Some(OsString::from(text.as_str())));
    assert_eq!(found, Ok(Some(both)));
    for kept in [&old, &new] {
        store_cluster_key(&name, &home, kept, Stored::Keep).expect("it is there");
    }
    assert!(store_cluster_key(&name, &home, &other, Stored::Keep).is_err());
}

#[test]
fn without_a_key_nothing_changes_and_nothing_is_made() {
    let (_scratch, home, name) = scratch_home();
    let key = ClusterKey::from_bytes(&[1; 32]);
    assert_eq!(store_next_key(&name, &home, &key), Ok(false));
    assert_eq!(rotate_cluster_key(&name, &home), Ok(None));
    assert_eq!(finish_cluster_key(&name, &home), Ok(None));
    assert!(!home.config_dir().exists());
    store_cluster_key(&name, &home, &key, Stored::Keep).expect("stored");
    assert_eq!(finish_cluster_key(&name, &home), Ok(Some(false)));
}

#[test]
fn changes_at_the_same_time_lose_no_key() {
    let (_scratch, home, name) = scratch_home();
    let first = create_cluster_key(&name, &home).expect("created");
    let rotated: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> =
            (0..8).map(|_| scope.spawn(|| rotate_cluster_key(&name, &home))).collect();
        all.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    let keys = stored_cluster_keys(&name, &home).expect("a file").expect("two keys");
    assert_eq!(keys.current, first);
    // All have made or found the same next key.
    assert!(keys.next.is_some() && rotated.iter().all(|next| *next == Ok(keys.next.clone())));
    assert_eq!(finish_cluster_key(&name, &home), Ok(Some(true)));
    let only = keys.next.map(ClusterKeys::only);
    assert_eq!(stored_cluster_keys(&name, &home), Ok(only));
    let lock = home.cluster_key_path(&name).with_extension("lock");
    let mode = fs::metadata(lock).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn the_environment_comes_before_the_file_and_nothing_is_no_key() {
    let (_scratch, home, name) = scratch_home();
    assert_eq!(find(&name, &home, None), Ok(None));
    let filed = create_cluster_key(&name, &home).expect("created");
    assert_eq!(find(&name, &home, None), Ok(Some(filed.clone())));
    assert_eq!(find(&name, &home, Some("")), Ok(Some(filed.clone())));
    let other = ClusterKey::from_bytes(&[3; 32]);
    assert_eq!(find(&name, &home, Some(&other.to_text())), Ok(Some(other)));
    let elsewhere = NamespaceName::parse("lab").expect("a name");
    assert_eq!(find(&elsewhere, &home, None), Ok(None));
    let mode = fs::metadata(home.cluster_key_path(&name)).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_stored_key_is_replaced_only_on_demand() {
    let (_scratch, home, name) = scratch_home();
    let (first, second) = (ClusterKey::from_bytes(&[1; 32]), ClusterKey::from_bytes(&[2; 32]));
    store_cluster_key(&name, &home, &first, Stored::Keep).expect("stored");
    store_cluster_key(&name, &home, &first, Stored::Keep).expect("the same again");
    let taken = IdentityProblem::OtherKeyStored { path: home.cluster_key_path(&name) };
    assert_eq!(store_cluster_key(&name, &home, &second, Stored::Keep), Err(taken.clone()));
    assert_eq!(create_cluster_key(&name, &home), Err(taken));
    assert_eq!(find(&name, &home, None), Ok(Some(first)));
    store_cluster_key(&name, &home, &second, Stored::Replace).expect("replaced");
    assert_eq!(find(&name, &home, None), Ok(Some(second)));
}

#[test]
fn a_bad_source_is_an_error_and_not_passed_over() {
    let (_scratch, home, name) = scratch_home();
    create_cluster_key(&name, &home).expect("created");
    let bad = |reason| Err(IdentityProblem::NotAKeyVariable { variable: "POTLUCK_KEY", reason });
    assert_eq!(find(&name, &home, Some("secret")), bad(KeyTextError::Prefix));
    let not_text = find_cluster_keys(&name, &home, |_| Some(OsString::from_vec(vec![0xff])));
    assert_eq!(not_text.map(drop), bad(KeyTextError::NotText).map(drop));

    let path = home.cluster_key_path(&name);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
    assert_eq!(
        find(&name, &home, None),
        Err(IdentityProblem::LoosePermissions { path: path.clone(), mode: 0o640 })
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
    fs::write(&path, "plk1nonsense").expect("written");
    let reason = KeyTextError::Length(12);
    assert_eq!(
        find(&name, &home, None),
        Err(IdentityProblem::NotAKey { path: path.clone(), reason })
    );
    fs::write(&path, b"").expect("written");
    assert_eq!(
        find(&name, &home, None),
        Err(IdentityProblem::Empty { path, content: FileContent::ClusterKey })
    );
}

#[test]
fn a_key_written_by_hand_may_have_blanks() {
    let (_scratch, home, name) = scratch_home();
    let key = create_cluster_key(&name, &home).expect("created");
    let text = key.to_text();
    fs::write(home.cluster_key_path(&name), format!("\n {} {} \r\n", &text[..30], &text[30..]))
        .expect("written");
    assert_eq!(find(&name, &home, None), Ok(Some(key)));
}

#[test]
fn problems_do_not_show_the_key() {
    let (_scratch, home, name) = scratch_home();
    let key = ClusterKey::from_bytes(&std::array::from_fn(|i| i as u8 + 65));
    let text = key.to_text();
    let wrong = format!("{}a", &text[..59]).replace('7', "6");
    let problems = [
        find(&name, &home, Some(&wrong)),
        find(&name, &home, Some(&text[..58])),
        find(&name, &home, Some(&text)),
    ];
    for shown in problems.map(|found| {
        format!("{found:?} {}", found.as_ref().err().map(ToString::to_string).unwrap_or_default())
    }) {
        assert_hides(&shown, text.as_bytes());
        assert_hides(&shown, key.bytes());
    }
}

#[test]
fn the_namespace_is_named_by_the_environment() {
    let named = |value: Option<&str>| {
        namespace_name(|asked| value.filter(|_| asked == "POTLUCK_NAMESPACE").map(OsString::from))
    };
    assert_eq!(named(Some("lab")).map(|n| n.to_string()), Ok("lab".to_owned()));
    assert_eq!(named(None), Ok(NamespaceName::default()));
    assert_eq!(named(Some("")), Ok(NamespaceName::default()));
    assert_eq!(named(Some("a/b")), Err(NamespaceNameError::Character(2)));
    assert_eq!(
        namespace_name(|_| Some(OsString::from_vec(vec![b'a', 0xff]))),
        Err(NamespaceNameError::Character(2))
    );
}
