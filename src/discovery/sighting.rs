//! The announcement of a node, and the sightings of it by other nodes.
//!
//! An advert is only a hint. Any node on the network can forge one, so it may cause a dial, never a
//! decision. It contains no name of a person, host, namespace or job. The only values derived from
//! a secret are [`Advert::tags`], which look random without the cluster key.

#[cfg(test)]
pub(crate) use testing::advert;

use crate::identity::{Boot, Selector};
use crate::wire::{Malformed, PROTOCOL_VERSION};
use data_encoding::{BASE32_NOPAD, HEXLOWER};
use std::net::SocketAddr;

/// Shows something about a boot to the members of one namespace, and to no other node.
pub type Tag = [u8; 8];

/// The tags of a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags {
    /// It belongs to this namespace.
    pub cluster: Tag,
    /// It runs this job.
    pub job: Tag,
}

/// One node's announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advert {
    /// Name of the announcement: 1 to 63 letters, digits or hyphens, random for every boot.
    pub instance: String,
    /// The start (boot) of the node that is announced.
    pub boot: Boot,
    /// Tags of the namespace and the job for this boot; `None` while the node has no cluster key.
    pub tags: Option<Tags>,
    /// Protocol version of the node.
    pub version: u8,
    /// Supported handshake suites, as bits. So far there is one.
    pub suites: u8,
    /// This is no node but an invitation, whose code begins with these two digits.
    pub pairing: Option<Selector>,
    /// Its TCP port.
    pub port: u16,
    /// Addresses to dial, at most [`Advert::ADDRESSES_MAX`].
    pub addresses: Vec<SocketAddr>,
}

/// One TXT entry, key and value as transmitted.
pub type TxtEntry = (&'static str, String);

/// An observation by discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// A node is announced, for the first time or again, possibly with other addresses.
    Appeared(Advert),
    /// An announcement was withdrawn or has expired.
    Vanished {
        /// Its [`Advert::instance`].
        instance: String,
    },
}

impl Advert {
    /// Most addresses of one advert. A host with more has interfaces that should not be dialled.
    pub const ADDRESSES_MAX: usize = 16;

    /// Longest instance name, the limit of a DNS label.
    pub const INSTANCE_BYTES_MAX: usize = 63;

    /// Most TXT entries that are read.
    const TXT_ENTRIES_MAX: usize = 32;

    /// An instance name made of 80 random bits: 16 base32 characters.
    pub fn instance_of(random: [u8; 10]) -> String {
        BASE32_NOPAD.encode(&random).to_ascii_lowercase()
    }

    /// The TXT record: `v` decimal, `b`, `t`, `j` and `s` in lower-case hexadecimal, `pair` only of
    /// an invitation, two digits.
    pub fn to_txt(&self) -> Vec<TxtEntry> {
        let mut txt = vec![
            ("v", self.version.to_string()),
            ("b", HEXLOWER.encode(&self.boot.0.to_be_bytes())),
        ];
        if let Some(Tags { cluster, job }) = self.tags {
            txt.push(("t", HEXLOWER.encode(&cluster)));
            txt.push(("j", HEXLOWER.encode(&job)));
        }
        txt.push(("s", HEXLOWER.encode(&[self.suites])));
        if let Some(selector) = self.pairing {
            txt.push(("pair", selector.to_string()));
        }
        txt
    }

    /// Decodes a TXT record. Ignores unknown keys; the first of repeated keys counts.
    ///
    /// `v` and `b` have the same form in every version. If another version's remaining fields are
    /// unreadable, they count as absent: such a node is reported, never joined. Fails if the
    /// instance name, the port, the version or the boot is invalid, or any field of our own
    /// version.
    pub fn from_txt<'a>(
        instance: &str,
        port: u16,
        addresses: impl IntoIterator<Item = SocketAddr>,
        txt: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Advert, Malformed> {
        if instance.is_empty() || instance.len() > Advert::INSTANCE_BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        if port == 0 || !instance.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(Malformed::Inconsistent);
        }
        let fields = Fields::pick(txt.into_iter().take(Advert::TXT_ENTRIES_MAX));
        let version = decimal(fields.version.ok_or(Malformed::Truncated)?)?;
        let boot = Boot(u64::from_be_bytes(hex(fields.boot.ok_or(Malformed::Truncated)?)?));
        let mut advert = Advert {
            instance: instance.to_owned(),
            boot,
            tags: None,
            version,
            suites: 0,
            pairing: None,
            port,
            addresses: bounded(addresses),
        };
        match advert.read_rest(&fields) {
            Err(problem) if version == PROTOCOL_VERSION => Err(problem),
            _ => Ok(advert),
        }
    }

    fn read_rest(&mut self, fields: &Fields<'_>) -> Result<(), Malformed> {
        let tags = match (fields.cluster, fields.job) {
            (None, None) => None,
            (Some(cluster), Some(job)) => Some(Tags { cluster: hex(cluster)?, job: hex(job)? }),
            _ => return Err(Malformed::Inconsistent),
        };
        let [suites] = hex(fields.suites.ok_or(Malformed::Truncated)?)?;
        let pairing = match fields.pairing {
            None => None,
            Some(text) => Some(Selector::parse(text).ok_or(Malformed::UnknownTag)?),
        };
        (self.tags, self.suites, self.pairing) = (tags, suites, pairing);
        Ok(())
    }
}

/// The values of the known keys, as received.
#[derive(Default)]
struct Fields<'a> {
    version: Option<&'a [u8]>,
    boot: Option<&'a [u8]>,
    cluster: Option<&'a [u8]>,
    job: Option<&'a [u8]>,
    suites: Option<&'a [u8]>,
    pairing: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn pick(txt: impl Iterator<Item = (&'a str, &'a [u8])>) -> Fields<'a> {
        let mut fields = Fields::default();
        for (key, value) in txt {
            // DNS-SD keys are case-insensitive.
            let field = match key {
                "v" | "V" => &mut fields.version,
                "b" | "B" => &mut fields.boot,
                "t" | "T" => &mut fields.cluster,
                "j" | "J" => &mut fields.job,
                "s" | "S" => &mut fields.suites,
                _ if key.eq_ignore_ascii_case("pair") => &mut fields.pairing,
                _ => continue,
            };
            field.get_or_insert(value);
        }
        fields
    }
}

/// Sorted, without duplicates, at most as many as an advert may hold.
fn bounded(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    // Reads up to twice the limit, so that a few duplicates do not displace other addresses, and
    // the work is bounded.
    let mut addresses: Vec<SocketAddr> =
        addresses.into_iter().take(2 * Advert::ADDRESSES_MAX).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(Advert::ADDRESSES_MAX);
    addresses
}

/// `N` bytes in exactly `2 * N` lower-case digits.
fn hex<const N: usize>(text: &[u8]) -> Result<[u8; N], Malformed> {
    match text.len() {
        len if len < 2 * N => return Err(Malformed::Truncated),
        len if len > 2 * N => return Err(Malformed::TooLong),
        _ => {}
    }
    let mut bytes = [0; N];
    HEXLOWER.decode_mut(text, &mut bytes).map_err(|_| Malformed::UnknownTag)?;
    Ok(bytes)
}

/// One to three digits without a leading zero.
fn decimal(text: &[u8]) -> Result<u8, Malformed> {
    if text.len() > 3 {
        return Err(Malformed::TooLong);
    }
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|t| t.parse::<u8>().ok())
        .ok_or(Malformed::UnknownTag)?;
    if number.to_string().as_bytes() == text { Ok(number) } else { Err(Malformed::Inconsistent) }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// An advert of boot `n` with port `40000 + n` on 127.0.0.1, whose two tags are `tag`.
    pub(crate) fn advert(n: u16, tag: Option<Tag>) -> Advert {
        let port = 40_000 + n;
        Advert {
            instance: format!("instance{n:08}"),
            boot: Boot(u64::from(n)),
            tags: tag.map(|tag| Tags { cluster: tag, job: tag }),
            version: PROTOCOL_VERSION,
            suites: 1,
            pairing: None,
            port,
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], port))],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::advert;
    use super::*;
    use proptest::prelude::*;

    fn decoded(advert: &Advert, txt: &[(&str, String)]) -> Result<Advert, Malformed> {
        let txt = txt.iter().map(|(key, value)| (*key, value.as_bytes()));
        Advert::from_txt(&advert.instance, advert.port, advert.addresses.iter().copied(), txt)
    }

    #[test]
    fn the_record_has_the_six_fields_and_no_more() {
        let tags = Some(Tags { cluster: [0xab; 8], job: [0xcd; 8] });
        let advert = Advert { pairing: Selector::of(7), tags, ..advert(0x1234, None) };
        let text: Vec<String> =
            advert.to_txt().iter().map(|(key, value)| format!("{key}={value}")).collect();
        let tags = ["t=abababababababab", "j=cdcdcdcdcdcdcdcd"];
        assert_eq!(text, ["v=1", "b=0000000000001234", tags[0], tags[1], "s=01", "pair=07"]);
    }

    #[test]
    fn every_shortened_or_missing_value_is_refused() {
        let whole = Advert { pairing: Selector::of(42), ..advert(7, Some([9; 8])) };
        let txt = whole.to_txt();
        for (at, (key, value)) in txt.iter().enumerate() {
            for end in 0..value.len() {
                let mut cut = txt.clone();
                cut[at].1.truncate(end);
                assert!(decoded(&whole, &cut).is_err(), "accepted {key} cut to {end}");
            }
            let mut longer = txt.clone();
            longer[at].1.push('0');
            // A longer `v` is another version; everything else has one length.
            let read = decoded(&whole, &longer);
            assert!(
                read.as_ref().is_ok_and(|advert| advert.version == 10) || read.is_err(),
                "accepted a longer {key}"
            );
        }
        for missing in ["v", "b", "s"] {
            let rest: Vec<TxtEntry> =
                txt.iter().filter(|(key, _)| *key != missing).cloned().collect();
            assert_eq!(decoded(&whole, &rest), Err(Malformed::Truncated));
        }
        for missing in ["t", "j"] {
            let rest: Vec<TxtEntry> =
                txt.iter().filter(|(key, _)| *key != missing).cloned().collect();
            assert_eq!(decoded(&whole, &rest), Err(Malformed::Inconsistent));
        }
    }

    #[test]
    fn another_version_is_readable_whatever_else_it_says() {
        let ours = advert(3, None);
        let txt = [
            ("v", "2".to_owned()),
            ("b", "0000000000000003".to_owned()),
            ("s", "later".to_owned()),
        ];
        let seen = decoded(&ours, &txt).expect("version and boot suffice");
        assert_eq!((seen.version, seen.boot, seen.tags), (2, Boot(3), None));
    }

    #[test]
    fn addresses_and_instances_are_bounded() {
        let ours = advert(1, None);
        let txt = ours.to_txt();
        let many = (0..1000u16).map(|n| SocketAddr::from(([10, 0, 0, 1], 1024 + n)));
        let txt = || txt.iter().map(|(key, value)| (*key, value.as_bytes()));
        let seen = Advert::from_txt("x", 1, many, txt()).expect("only the list is long");
        assert_eq!(seen.addresses.len(), Advert::ADDRESSES_MAX);
        for bad in ["", "a b", "a\u{1b}[1m", &"x".repeat(64)] {
            assert!(Advert::from_txt(bad, 1, [], txt()).is_err(), "accepted {bad:?}");
        }
        assert!(Advert::from_txt("x", 0, [], txt()).is_err());
    }

    proptest! {
        #[test]
        fn adverts_survive_their_record(
            boot: u64,
            tags: Option<[[u8; 8]; 2]>,
            suites: u8,
            pairing in 0u8..101,
            port in 1u16..,
        ) {
            let tags = tags.map(|[cluster, job]| Tags { cluster, job });
            let pairing = Selector::of(pairing);
            let addresses = vec![SocketAddr::from(([192, 168, 1, 1], port))];
            let sent = Advert {
                boot: Boot(boot),
                tags,
                suites,
                pairing,
                port,
                addresses,
                ..advert(0, None)
            };
            prop_assert_eq!(decoded(&sent, &sent.to_txt()), Ok(sent));
        }

        #[test]
        fn garbage_never_panics_and_what_is_accepted_is_canonical(
            instance in ".{0,80}",
            port: u16,
            txt in proptest::collection::vec(
                ("[vbtjsVBTJSx]|pair|.{0,9}", proptest::collection::vec(any::<u8>(), 0..20)),
                0..40,
            ),
        ) {
            let entries = txt.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
            if let Ok(advert) = Advert::from_txt(&instance, port, [], entries) {
                prop_assert_eq!(decoded(&advert, &advert.to_txt()), Ok(advert));
            }
        }

        #[test]
        fn one_wrong_byte_never_passes_as_the_same_advert(
            at in 0usize..6,
            byte in 0usize..16,
            value: u8,
        ) {
            let sent = Advert { pairing: Selector::of(42), ..advert(77, Some([0x5a; 8])) };
            let txt = sent.to_txt();
            let mut raw: Vec<(&str, Vec<u8>)> =
                txt.iter().map(|(key, value)| (*key, value.clone().into_bytes())).collect();
            let len = raw[at].1.len();
            prop_assume!(raw[at].1[byte % len] != value);
            raw[at].1[byte % len] = value;
            let entries = raw.iter().map(|(key, value)| (*key, value.as_slice()));
            prop_assert_ne!(
                Advert::from_txt(&sent.instance, sent.port, sent.addresses.clone(), entries),
                Ok(sent)
            );
        }
    }
}
