//! The user's choice of interfaces: `eth0,en0`, `wl*`, or `^docker,utun`.

use super::interface::Interface;
use std::fmt;

/// A choice of interfaces, from `--interface` or `POTLUCK_INTERFACES`.
///
/// `eth0,wl*` selects exactly these names; a star at the end stands for any rest. Such a list also
/// selects loopback and VPN interfaces that it matches; a star alone names none, so it selects all
/// usable interfaces. `^docker,utun` selects all usable interfaces except those whose names begin
/// with one of these. The default, and an empty text, selects all usable interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceFilter {
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Only(Vec<Pattern>),
    Except(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Name(String),
    Prefix(String),
}

/// The reason why a text is not a choice of interfaces. Positions count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterfaceFilterError {
    /// The name at this position is empty.
    EmptyName(usize),
    /// The name at this position contains a character that no interface name has, or a star before
    /// its end.
    Character(usize),
    /// `^` stands before the name at this position instead of before the whole list.
    CaretInside(usize),
    /// There are more than 64 names.
    TooMany,
}

impl InterfaceFilter {
    /// Parses a choice. Blanks around the names are ignored.
    pub fn parse(text: &str) -> Result<InterfaceFilter, InterfaceFilterError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(InterfaceFilter::default());
        }
        let rule = match text.strip_prefix('^') {
            Some(rest) => {
                Rule::Except(patterns(rest)?.into_iter().map(Pattern::into_text).collect())
            }
            None => Rule::Only(patterns(text)?),
        };
        Ok(InterfaceFilter { rule })
    }

    /// Whether the filter allows this name, regardless of the interface's kind.
    pub fn allows(&self, name: &str) -> bool {
        match &self.rule {
            Rule::Only(patterns) => patterns.iter().any(|pattern| pattern.matches(name)),
            Rule::Except(prefixes) => !prefixes.iter().any(|prefix| name.starts_with(prefix)),
        }
    }

    /// Whether to use the interface: its name is allowed, and it is usable or the filter names it
    /// by more than a bare star.
    pub fn picks(&self, interface: &Interface) -> bool {
        let is_named = || match &self.rule {
            Rule::Only(patterns) => patterns.iter().any(|pattern| pattern.names(&interface.name)),
            Rule::Except(_) => false,
        };
        self.allows(&interface.name) && (interface.usable() || is_named())
    }
}

impl Default for InterfaceFilter {
    fn default() -> InterfaceFilter {
        InterfaceFilter { rule: Rule::Except(Vec::new()) }
    }
}

impl Pattern {
    fn matches(&self, name: &str) -> bool {
        match self {
            Pattern::Name(exact) => name == exact,
            Pattern::Prefix(prefix) => name.starts_with(prefix),
        }
    }

    /// Whether it matches this name by at least one of its characters.
    fn names(&self, name: &str) -> bool {
        self.matches(name) && *self != Pattern::Prefix(String::new())
    }

    fn into_text(self) -> String {
        let (Pattern::Name(text) | Pattern::Prefix(text)) = self;
        text
    }
}

impl fmt::Display for InterfaceFilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceFilterError::EmptyName(place) => write!(f, "interface name {place} is empty")?,
            InterfaceFilterError::Character(place) => {
                write!(f, "interface name {place} has a character that no interface has")?;
            }
            InterfaceFilterError::CaretInside(place) => {
                write!(
                    f,
                    "^ stands before interface name {place}; it applies to the whole list, so it \
                     must stand before the first name"
                )?;
            }
            InterfaceFilterError::TooMany => write!(f, "more than {NAMES_MAX} interface names")?,
        }
        f.write_str("; write eth0,wl* for these only, or ^docker,utun for all but these")
    }
}

impl std::error::Error for InterfaceFilterError {}

fn patterns(list: &str) -> Result<Vec<Pattern>, InterfaceFilterError> {
    let names = list.split(',').take(NAMES_MAX + 1);
    let patterns: Result<Vec<Pattern>, _> =
        names.enumerate().map(|(i, name)| pattern(name.trim(), i + 1)).collect();
    patterns.and_then(|patterns| {
        if patterns.len() > NAMES_MAX { Err(InterfaceFilterError::TooMany) } else { Ok(patterns) }
    })
}

fn pattern(text: &str, place: usize) -> Result<Pattern, InterfaceFilterError> {
    let (name, is_prefix) = text.strip_suffix('*').map_or((text, false), |prefix| (prefix, true));
    if name.starts_with('^') {
        return Err(InterfaceFilterError::CaretInside(place));
    }
    if name.is_empty() && !is_prefix {
        return Err(InterfaceFilterError::EmptyName(place));
    }
    if name.chars().any(|c| !c.is_ascii_graphic() || matches!(c, '*' | '/')) {
        return Err(InterfaceFilterError::Character(place));
    }
    Ok(if is_prefix { Pattern::Prefix(name.to_owned()) } else { Pattern::Name(name.to_owned()) })
}

// More interfaces than a machine has; bounds the memory that the environment can make us use.
const NAMES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::interface::InterfaceKind;
    use super::*;
    use proptest::prelude::*;

    fn filter(text: &str) -> InterfaceFilter {
        InterfaceFilter::parse(text).expect("a good filter")
    }

    fn interface(name: &str, kind: InterfaceKind) -> Interface {
        Interface {
            name: name.to_owned(),
            index: 1,
            kind,
            addresses: Vec::new(),
            speed_mbps: None,
            mtu: None,
        }
    }

    #[test]
    fn names_allow_only_these() {
        let only = filter("eth0, en0,wl*");
        for (name, allowed) in [
            ("eth0", true),
            ("eth01", false),
            ("en0", true),
            ("wlan7", true),
            ("eth1", false),
            ("", false),
        ] {
            assert_eq!(only.allows(name), allowed, "{name}");
        }
    }

    #[test]
    fn a_caret_allows_all_usable_ones_but_these() {
        let except = filter("^eth1,wl*");
        assert!(except.picks(&interface("eth0", InterfaceKind::Ethernet)));
        assert!(!except.picks(&interface("eth10", InterfaceKind::Ethernet)));
        assert!(!except.picks(&interface("wlan0", InterfaceKind::Wifi)));
        assert!(!except.picks(&interface("docker0", InterfaceKind::Container)));
    }

    #[test]
    fn only_a_name_makes_an_unusable_interface_used() {
        for kind in [
            InterfaceKind::Loopback,
            InterfaceKind::Container,
            InterfaceKind::Vpn,
            InterfaceKind::Other,
        ] {
            let interface = interface("x0", kind);
            assert!(!filter("").picks(&interface) && !InterfaceFilter::default().picks(&interface));
            assert!(filter("x0").picks(&interface));
        }
        for kind in [
            InterfaceKind::Ethernet,
            InterfaceKind::Wifi,
            InterfaceKind::Thunderbolt,
            InterfaceKind::Bridge,
        ] {
            assert!(filter(" ").picks(&interface("x0", kind)));
        }
    }

    #[test]
    fn a_star_alone_names_no_interface() {
        for text in ["*", "*,eth7", "eth7 , *"] {
            let filter = filter(text);
            assert!(filter.picks(&interface("eth0", InterfaceKind::Ethernet)), "{text}");
            for kind in [InterfaceKind::Loopback, InterfaceKind::Vpn, InterfaceKind::Container] {
                assert!(!filter.picks(&interface("x0", kind)), "{text} picks {kind:?}");
            }
        }
        assert!(filter("*,lo").picks(&interface("lo", InterfaceKind::Loopback)));
        assert!(filter("tun*").picks(&interface("tun0", InterfaceKind::Vpn)));
    }

    #[test]
    fn a_bad_choice_says_which_name() {
        for (text, error) in [
            ("eth0,,en0", InterfaceFilterError::EmptyName(2)),
            ("^", InterfaceFilterError::EmptyName(1)),
            ("eth0,^docker", InterfaceFilterError::CaretInside(2)),
            ("e*h0", InterfaceFilterError::Character(1)),
            ("eth0,a b", InterfaceFilterError::Character(2)),
            ("../x", InterfaceFilterError::Character(1)),
        ] {
            assert_eq!(InterfaceFilter::parse(text), Err(error));
            assert!(error.to_string().contains("write eth0"));
        }
        assert_eq!(InterfaceFilter::parse(&"a,".repeat(99)), Err(InterfaceFilterError::TooMany));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}", name in "[a-z0-9*]{1,8}") {
            if let Ok(filter) = InterfaceFilter::parse(&text) {
                let _ = filter.allows(&name);
            }
        }
    }
}
