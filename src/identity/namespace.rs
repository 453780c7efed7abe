//! A [`Namespace`]: the cluster of a node, and the secrets that keep it apart from other clusters
//! on the same network.
//!
//! A *keyed* namespace admits nodes by its [`ClusterKey`], or by either of two while the key is
//! being changed; its name is only a local label. An *open* one is identified by its name alone,
//! which gives separation but no admission control. The pre-shared key and the tag keys of a keyed
//! namespace are derived from the cluster key by HKDF-SHA256 (RFC 5869), so none reveals the
//! cluster key or another one. The pre-shared key of an open namespace is a hash of its name, and
//! its tag keys are derived from that.

use super::cluster_key::ClusterKey;
use super::cluster_keys::ClusterKeys;
use super::job_name::JobName;
use super::node_id::Boot;
use derive_more::Display;
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use std::fmt;
use zeroize::Zeroizing;

/// The name of a namespace: 1 to 32 of `a-z`, `0-9` and `-`. Part of file names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName(String);

/// Why a text is not a namespace name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum NamespaceNameError {
    /// It is empty.
    #[display("a namespace name must not be empty; use 1 to 32 of a-z, 0-9 and -")]
    Empty,
    /// It has more than 32 characters.
    #[display("a namespace name has at most 32 characters; shorten it")]
    TooLong,
    /// The character at this position, counted from 1, is not one of `a-z`, `0-9` and `-`.
    #[display(
        "character {_0} of the namespace name is not one of a-z, 0-9 and -; choose another \
             name"
    )]
    Character(usize),
}

/// One of the clusters that share a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    name: NamespaceName,
    admission: Admission,
}

/// The condition of admission.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Admission {
    /// Knowledge of one of the keys.
    Key(ClusterKeys),
    /// Knowledge of the name.
    Open,
}

impl NamespaceName {
    /// Most characters of a name.
    pub const CHARS_MAX: usize = 32;

    /// Parses a name. The error names the fault.
    pub fn parse(text: &str) -> Result<NamespaceName, NamespaceNameError> {
        if text.is_empty() {
            return Err(NamespaceNameError::Empty);
        }
        if let Some(place) = text.chars().position(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
            return Err(NamespaceNameError::Character(place + 1));
        }
        if text.len() > NamespaceName::CHARS_MAX {
            return Err(NamespaceNameError::TooLong);
        }
        Ok(NamespaceName(text.to_owned()))
    }

    /// The text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for NamespaceName {
    /// The default name: `default`.
    fn default() -> NamespaceName {
        NamespaceName("default".to_owned())
    }
}

impl Namespace {
    /// The cluster of all holders of `key`, called `name` on this machine.
    pub fn keyed(name: NamespaceName, key: ClusterKey) -> Namespace {
        Namespace::with_keys(name, ClusterKeys::only(key))
    }

    /// The same, while its key may be changing.
    pub fn with_keys(name: NamespaceName, keys: ClusterKeys) -> Namespace {
        Namespace { name, admission: Admission::Key(keys) }
    }

    /// The cluster of all nodes on the network that use `name`. Its links are encrypted, but every
    /// node that knows the name is admitted.
    pub fn open(name: NamespaceName) -> Namespace {
        Namespace { name, admission: Admission::Open }
    }

    /// Its name on this machine.
    pub fn name(&self) -> &NamespaceName {
        &self.name
    }

    /// Whether knowledge of the name suffices for admission.
    pub fn is_open(&self) -> bool {
        matches!(self.admission, Admission::Open)
    }

    /// The pre-shared keys of handshakes that are accepted. The first one is shown first.
    pub fn psks(&self) -> Vec<Zeroizing<[u8; 32]>> {
        match &self.admission {
            Admission::Key(keys) => {
                keys.iter().map(|key| derived(key.bytes(), b"potluck/1/psk")).collect()
            }
            Admission::Open => vec![self.public_psk()],
        }
    }

    /// The tag in the adverts of this boot. Members recognise it; without the key it looks random,
    /// so other nodes cannot link two boots of one node.
    pub fn tag(&self, boot: Boot) -> [u8; 8] {
        self.first_of(|secret| tag(secret, boot))
    }

    /// Whether the advert of a boot with this tag is one of this cluster.
    pub fn knows(&self, boot: Boot, of_advert: [u8; 8]) -> bool {
        self.any_of(|secret| tag(secret, boot) == of_advert)
    }

    /// The tag of a job in the adverts of this boot. Members of the cluster that know the name of
    /// the job recognise it. Without the key it looks random: other nodes cannot tell whether two
    /// boots run one job, and cannot try names. In an open namespace they can.
    pub fn job_tag(&self, boot: Boot, job: &JobName) -> [u8; 8] {
        self.first_of(|secret| job_tag(secret, boot, job))
    }

    /// The tag in place of a job's in the adverts of a boot that observes. Only members know it.
    pub fn observer_tag(&self, boot: Boot) -> [u8; 8] {
        self.first_of(|secret| observer_tag(secret, boot))
    }

    /// Whether the advert of a boot with this tag, of this cluster, is one of an observer.
    pub fn knows_observer(&self, boot: Boot, of_advert: [u8; 8]) -> bool {
        self.any_of(|secret| observer_tag(secret, boot) == of_advert)
    }

    /// Whether the advert of a boot with this tag, of this cluster, is one of this job.
    pub fn knows_job(&self, boot: Boot, job: &JobName, of_advert: [u8; 8]) -> bool {
        self.any_of(|secret| job_tag(secret, boot, job) == of_advert)
    }

    /// From the secret that this node shows.
    fn first_of<T>(&self, make: impl Fn(&[u8; 32]) -> T) -> T {
        match &self.admission {
            Admission::Key(keys) => make(keys.current.bytes()),
            Admission::Open => make(&self.public_psk()),
        }
    }

    /// Whether it holds for one of the secrets that this node accepts.
    fn any_of(&self, holds: impl Fn(&[u8; 32]) -> bool) -> bool {
        match &self.admission {
            Admission::Key(keys) => keys.iter().any(|key| holds(key.bytes())),
            Admission::Open => holds(&self.public_psk()),
        }
    }

    fn public_psk(&self) -> Zeroizing<[u8; 32]> {
        let digest =
            Sha256::new_with_prefix(b"potluck/1/open").chain_update(self.name.as_str()).finalize();
        Zeroizing::new(digest.into())
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.is_open() { " (open)" } else { "" })
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NamespaceNameError {}

fn tag(secret: &[u8; 32], boot: Boot) -> [u8; 8] {
    mac(secret, b"potluck/1/tag", boot, b"")
}

fn job_tag(secret: &[u8; 32], boot: Boot, job: &JobName) -> [u8; 8] {
    mac(secret, b"potluck/1/job", boot, job.as_str().as_bytes())
}

fn observer_tag(secret: &[u8; 32], boot: Boot) -> [u8; 8] {
    mac(secret, b"potluck/1/observer", boot, b"")
}

/// HMAC-SHA256 (RFC 2104) of a boot and a text under a key derived for `info`, cut to 8 bytes.
fn mac(secret: &[u8; 32], info: &[u8], boot: Boot, text: &[u8]) -> [u8; 8] {
    let key = derived(secret, info);
    // HMAC takes keys of any length, so this cannot fail.
    let mut mac = Hmac::<Sha256>::new_from_slice(&*key).expect("HMAC takes keys of any length");
    mac.update(&boot.0.to_le_bytes());
    mac.update(text);
    let full = mac.finalize().into_bytes();
    let mut tag = [0; 8];
    tag.copy_from_slice(&full[..8]);
    tag
}

fn derived(secret: &[u8; 32], info: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut key = Zeroizing::new([0; 32]);
    // HKDF-SHA256 gives up to 8160 bytes, so 32 cannot fail.
    Hkdf::<Sha256>::new(None, secret)
        .expand(info, &mut *key)
        .expect("32 bytes are within HKDF's limit");
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NamespaceName {
        NamespaceName::parse(text).expect("a valid name")
    }

    fn keyed(name_text: &str, byte: u8) -> Namespace {
        Namespace::keyed(name(name_text), ClusterKey::from_bytes(&[byte; 32]))
    }

    fn job(text: &str) -> JobName {
        JobName::parse(text).expect("a valid name")
    }

    impl Namespace {
        fn psk(&self) -> Zeroizing<[u8; 32]> {
            self.psks().swap_remove(0)
        }
    }

    #[test]
    fn while_the_key_changes_both_are_accepted_and_the_first_is_shown() {
        let [old, new] = [1, 2].map(|byte| ClusterKey::from_bytes(&[byte; 32]));
        let keys = ClusterKeys { current: old, next: Some(new) };
        let both = Namespace::with_keys(name("a"), keys);
        let (old, new, boot) = (keyed("a", 1), keyed("a", 2), Boot(5));
        assert_eq!(both.psks(), [old.psk(), new.psk()]);
        assert_eq!(both.tag(boot), old.tag(boot));
        assert!(both.knows(boot, old.tag(boot)) && both.knows(boot, new.tag(boot)));
        assert!(old.knows(boot, both.tag(boot)) && !new.knows(boot, both.tag(boot)));
        assert!(!both.knows(boot, keyed("a", 3).tag(boot)));
    }

    #[test]
    fn names_are_fit_for_file_names() {
        assert_eq!(NamespaceName::parse("lab-2").as_ref().map(NamespaceName::as_str), Ok("lab-2"));
        assert_eq!(NamespaceName::parse(""), Err(NamespaceNameError::Empty));
        assert_eq!(NamespaceName::parse(&"x".repeat(33)), Err(NamespaceNameError::TooLong));
        assert!(NamespaceName::parse(&"x".repeat(32)).is_ok());
        for (bad, place) in [("../etc", 1), ("Lab", 1), ("a b", 2), ("a.b", 2), ("aé", 2)] {
            assert_eq!(NamespaceName::parse(bad), Err(NamespaceNameError::Character(place)));
        }
        assert_eq!(NamespaceName::default().as_str(), "default");
    }

    #[test]
    fn the_key_decides_and_the_name_of_a_keyed_namespace_does_not() {
        assert_eq!(keyed("a", 1).psk(), keyed("b", 1).psk());
        assert_eq!(keyed("a", 1).tag(Boot(5)), keyed("b", 1).tag(Boot(5)));
        assert_ne!(keyed("a", 1).psk(), keyed("a", 2).psk());
        assert_ne!(keyed("a", 1).tag(Boot(5)), keyed("a", 2).tag(Boot(5)));
        assert_ne!(keyed("a", 1).tag(Boot(5)), keyed("a", 1).tag(Boot(6)));
    }

    #[test]
    fn an_open_namespace_is_its_name() {
        let (a, b) = (Namespace::open(name("a")), Namespace::open(name("b")));
        assert!(a.is_open() && !keyed("a", 1).is_open());
        assert_ne!(a.psk(), b.psk());
        assert_ne!(a.tag(Boot(1)), b.tag(Boot(1)));
        assert_eq!(a.to_string(), "a (open)");
        let expected: [u8; 32] = Sha256::digest(b"potluck/1/opena").into();
        assert_eq!(*a.psk(), expected);
    }

    #[test]
    fn a_job_is_recognised_by_members_alone() {
        let (train, other) = (job("train"), job("other"));
        let (a, b, boot) = (keyed("a", 1), keyed("a", 2), Boot(5));
        let tag = a.job_tag(boot, &train);
        assert!(a.knows_job(boot, &train, tag) && !a.knows_job(boot, &other, tag));
        assert!(!b.knows_job(boot, &train, tag));
        // Each start and each cluster has its own tag of one job, and none is the cluster's.
        let tags = [tag, a.job_tag(Boot(6), &train), b.job_tag(boot, &train), a.tag(boot)];
        for (i, one) in tags.iter().enumerate() {
            assert!(!tags[..i].contains(one), "{i}");
        }
        let [old, new] = [1, 2].map(|byte| ClusterKey::from_bytes(&[byte; 32]));
        let keys = ClusterKeys { current: old, next: Some(new) };
        let both = Namespace::with_keys(name("a"), keys);
        assert!(both.knows_job(boot, &train, tag));
        assert!(both.knows_job(boot, &train, b.job_tag(boot, &train)));
    }

    #[test]
    fn neither_the_key_nor_the_psk_goes_out_as_it_is() {
        let namespace = keyed("a", 7);
        assert_ne!(*namespace.psk(), [7; 32]);
        assert_ne!(namespace.tag(Boot(1))[..], namespace.psk()[..8]);
    }

    #[test]
    fn derived_values_never_change() {
        // RFC 5869 and RFC 2104 computed by other software; two versions of potluck must agree on
        // these.
        assert_eq!(
            data_encoding::HEXLOWER.encode(&*keyed("a", 1).psk()),
            "c3c1681e81e8d546d41e8fd0b6484fbfef951361df4a5759a4f880a81bcb1650"
        );
        assert_eq!(data_encoding::HEXLOWER.encode(&keyed("a", 1).tag(Boot(2))), "47fe4b4bd45c1fee");
        assert_eq!(
            data_encoding::HEXLOWER.encode(&Namespace::open(name("a")).tag(Boot(2))),
            "7ea5127fb3caf3b3"
        );
    }

    #[test]
    fn a_namespace_shows_no_key() {
        let key = ClusterKey::from_bytes(&[0x5a; 32]);
        let namespace = Namespace::keyed(name("lab"), key.clone());
        for shown in [format!("{namespace:?} {namespace}"), format!("{:?}", Some(&key))] {
            super::super::node_id::assert_hides(&shown, &[0x5a; 32]);
            super::super::node_id::assert_hides(&shown, key.to_text().as_bytes());
            super::super::node_id::assert_hides(&shown, &*namespace.psk());
        }
    }
}
