//! Finds the cluster key: in the environment, else in the key file of the namespace. While the key
//! is being changed, the next one stands in the second line.

use super::cluster_key::{ClusterKey, KeyTextError};
use super::cluster_keys::ClusterKeys;
use super::home::{Home, make_private_dir};
use super::keystore::random_seed;
use super::namespace::{NamespaceName, NamespaceNameError};
use super::private_file;
use super::problem::{FileAction, FileContent, IdentityProblem};
use std::ffi::OsString;
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

/// The environment variable that holds a cluster key.
pub const KEY_VARIABLE: &str = "POTLUCK_KEY";

/// The environment variable that names the namespace.
pub const NAMESPACE_VARIABLE: &str = "POTLUCK_NAMESPACE";

/// The action if another key is stored under the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Keep it and fail.
    Keep,
    /// Replace it: this machine leaves the other cluster for good.
    Replace,
}

/// The namespace named by `POTLUCK_NAMESPACE`, else `default`. An empty variable counts as unset.
pub fn namespace_name(
    lookup: impl Fn(&str) -> Option<OsString>,
) -> Result<NamespaceName, NamespaceNameError> {
    match lookup(NAMESPACE_VARIABLE).filter(|value| !value.is_empty()) {
        // Invalid text becomes the replacement character, which no name may contain.
        Some(value) => NamespaceName::parse(&value.to_string_lossy()),
        None => Ok(NamespaceName::default()),
    }
}

/// The keys of the namespace: those of `POTLUCK_KEY`, else those of its key file, else `None`. A
/// variable or file that exists but holds no valid key is an error; the search does not continue.
pub fn find_cluster_keys(
    name: &NamespaceName,
    home: &Home,
    lookup: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<ClusterKeys>, IdentityProblem> {
    match lookup(KEY_VARIABLE).filter(|value| !value.is_empty()) {
        Some(value) => keys_of_variable(value).map(Some),
        None => stored_cluster_keys(name, home),
    }
}

/// The keys in the key file of the namespace, if it exists.
pub fn stored_cluster_keys(
    name: &NamespaceName,
    home: &Home,
) -> Result<Option<ClusterKeys>, IdentityProblem> {
    load(&home.cluster_key_path(name))
}

/// Creates a key from the operating system's randomness and stores it. Fails if any key is stored
/// under the name.
pub fn create_cluster_key(
    name: &NamespaceName,
    home: &Home,
) -> Result<ClusterKey, IdentityProblem> {
    let key = random_cluster_key()?;
    store_cluster_key(name, home, &key, Stored::Keep)?;
    Ok(key)
}

/// A new key from the operating system's randomness, not stored anywhere.
pub fn random_cluster_key() -> Result<ClusterKey, IdentityProblem> {
    Ok(ClusterKey::from_bytes(&*random_seed()?))
}

/// Stores a key. Storing the stored key again changes nothing; with [`Stored::Keep`], neither does
/// storing the next one.
///
/// With [`Stored::Keep`], a different key or an unreadable file is kept and is an error.
pub fn store_cluster_key(
    name: &NamespaceName,
    home: &Home,
    key: &ClusterKey,
    stored: Stored,
) -> Result<(), IdentityProblem> {
    make_private_dir(home.config_dir())?;
    let path = home.cluster_key_path(name);
    let text = ClusterKeys::only(key.clone()).to_text();
    let written = match stored {
        Stored::Keep => private_file::create(&path, text.as_bytes()),
        Stored::Replace => private_file::replace(&path, text.as_bytes()),
    };
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => keep_if_same(&path, key),
        Err(error) => Err(private_file::refused(&path, FileAction::Write, &error)),
    }
}

/// Stores the next key of a namespace beside its current one, in place of any other next key.
/// Changes nothing if it is the current one already. Returns false if no key is stored.
pub fn store_next_key(
    name: &NamespaceName,
    home: &Home,
    next: &ClusterKey,
) -> Result<bool, IdentityProblem> {
    let Some(ClusterKeys { current, .. }) = stored_cluster_keys(name, home)? else {
        return Ok(false);
    };
    if current != *next {
        replace_cluster_keys(name, home, &ClusterKeys { current, next: Some(next.clone()) })?;
    }
    Ok(true)
}

/// Replaces the keys of a namespace.
pub fn replace_cluster_keys(
    name: &NamespaceName,
    home: &Home,
    keys: &ClusterKeys,
) -> Result<(), IdentityProblem> {
    make_private_dir(home.config_dir())?;
    let path = home.cluster_key_path(name);
    private_file::replace(&path, keys.to_text().as_bytes())
        .map_err(|error| private_file::refused(&path, FileAction::Write, &error))
}

fn keep_if_same(path: &Path, key: &ClusterKey) -> Result<(), IdentityProblem> {
    match load(path)? {
        Some(there) if there.iter().any(|kept| kept == key) => Ok(()),
        _ => Err(IdentityProblem::OtherKeyStored { path: path.to_owned() }),
    }
}

fn keys_of_variable(value: OsString) -> Result<ClusterKeys, IdentityProblem> {
    let bad = |reason| IdentityProblem::NotAKeyVariable { variable: KEY_VARIABLE, reason };
    let text = Zeroizing::new(value.into_string().map_err(|_| bad(KeyTextError::NotText))?);
    ClusterKeys::parse(&text).map_err(bad)
}

fn load(path: &Path) -> Result<Option<ClusterKeys>, IdentityProblem> {
    let Some(bytes) = private_file::read(path, FileContent::ClusterKey, FILE_BYTES_MAX)? else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| KeyTextError::NotText);
    let keys = text.and_then(ClusterKeys::parse);
    keys.map(Some).map_err(|reason| IdentityProblem::NotAKey { path: path.to_owned(), reason })
}

// Two keys have 120 characters; the user may have added white space.
const FILE_BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
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
        replace_cluster_keys(&name, &home, &both).expect("stored");
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
        let mode =
            fs::metadata(home.cluster_key_path(&name)).expect("it exists").permissions().mode();
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
        let bad =
            |reason| Err(IdentityProblem::NotAKeyVariable { variable: "POTLUCK_KEY", reason });
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
            format!(
                "{found:?} {}",
                found.as_ref().err().map(ToString::to_string).unwrap_or_default()
            )
        }) {
            assert_hides(&shown, text.as_bytes());
            assert_hides(&shown, key.bytes());
        }
    }

    #[test]
    fn the_namespace_is_named_by_the_environment() {
        let named = |value: Option<&str>| {
            namespace_name(|asked| {
                value.filter(|_| asked == "POTLUCK_NAMESPACE").map(OsString::from)
            })
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
}
