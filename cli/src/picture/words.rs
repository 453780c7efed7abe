//! The texts in pictures, and the escaping of untrusted text for each picture format.
//!
//! A member chooses its own name. The library admits only letters, digits and ASCII punctuation,
//! but a picture may be drawn from the answer of any process on the socket.

use potluck::report::LinkDirection;
use potluck::report::document::{GraphDocument, GraphLink, GraphMember};

/// For a terminal: replaces every character that is not plain text by U+FFFD.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// For text and quoted attributes in XML 1.0.
pub fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// For a quoted label in DOT, including the quotes. DOT uses backslash escapes and interprets HTML
/// entities.
pub fn dot(text: &str) -> String {
    let mut escaped = String::from("\"");
    for c in plain(text).chars() {
        match c {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '&' => escaped.push_str("&amp;"),
            c => escaped.push(c),
        }
    }
    escaped + "\""
}

/// Not a control character, not a character that reorders or hides other text, and not a
/// noncharacter.
fn is_plain(c: char) -> bool {
    let is_format = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
        | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e0fff}');
    !c.is_control() && !is_format
}

/// For example `941 Mbit/s`, `2.35 Gbit/s`.
pub fn rate(bps: u64) -> String {
    let mbps = bps as f64 / 1e6;
    match mbps {
        _ if mbps >= 999.5 => format!("{:.2} Gbit/s", mbps / 1e3),
        _ if mbps >= 9.95 => format!("{mbps:.0} Mbit/s"),
        _ => format!("{mbps:.1} Mbit/s"),
    }
}

/// The rates of both directions; one rate if they differ by less than a tenth.
pub fn rates(link: &GraphLink) -> Option<String> {
    match (link.there.rate_bps, link.back.rate_bps) {
        (Some(there), Some(back)) if there.abs_diff(back) * 10 < there.max(back) => {
            Some(rate(there.min(back)))
        }
        (Some(there), Some(back)) => Some(format!("{} there, {} back", rate(there), rate(back))),
        (Some(one), None) | (None, Some(one)) => Some(format!("{} one way", rate(one))),
        (None, None) => None,
    }
}

/// For example `0.21 ms`.
pub fn time(us: u64) -> String {
    match us {
        1_000_000.. => format!("{:.2} s", us as f64 / 1e6),
        10_000.. => format!("{:.0} ms", us as f64 / 1e3),
        _ => format!("{:.2} ms", us as f64 / 1e3),
    }
}

/// The interface kinds of both ends; `?` for an unknown one.
pub fn kinds(link: &GraphLink) -> Option<String> {
    let kind = |way: &LinkDirection| {
        let kind = way.kind?.to_string();
        // Radio is always shared, so it is not mentioned.
        let is_news = way.medium.is_some() && kind != "wifi";
        Some(if is_news { format!("shared {kind}") } else { kind })
    };
    match link.directions().map(kind) {
        [None, None] => None,
        [a, b] if a == b => a,
        [a, b] => {
            Some(format!("{} to {}", a.as_deref().unwrap_or("?"), b.as_deref().unwrap_or("?")))
        }
    }
}

/// The number of buffers that go over it, both directions together, as `1.33 buffers`.
pub fn share(link: &GraphLink) -> Option<String> {
    let ppm: u64 = link.directions().iter().filter_map(|way| way.share_ppm).map(u64::from).sum();
    (ppm > 0).then(|| format!("{:.2} buffers", ppm as f64 / 1e6))
}

/// A sentence that names the slowest member.
pub fn slowest(graph: &GraphDocument) -> Option<String> {
    let slow = graph.members.get(graph.slowest?)?;
    let fastest = graph.members.iter().filter_map(|member| member.rate_bps).max()?;
    Some(format!(
        "{} is the slow one: {} where others have up to {}",
        named(slow),
        rate(slow.rate_bps?),
        rate(fastest)
    ))
}

/// A sentence with the predicted time for a large buffer.
pub fn forecast(graph: &GraphDocument) -> Option<String> {
    let of = graph.forecasts.last()?;
    Some(format!("An all-reduce of {} MiB should take {}", of.bytes >> 20, time(of.us)))
}

/// The member's name in quotes, as `"ada"`.
pub fn named(member: &GraphMember) -> String {
    format!("\"{}\"", plain(&member.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that tries to break every picture format.
    pub const NASTY: &str =
        "a\"]; x -> y [label=\"\\N</text><script>&lt;'\u{1b}[31m\u{202e}\u{0}\u{9b}\n\\";

    #[test]
    fn nothing_gets_out_of_a_terminal_line() {
        let escaped = plain(NASTY);
        assert!(!escaped.chars().any(|c| c.is_control() || c == '\u{202e}'), "{escaped:?}");
        assert_eq!(plain("Jürgens Büro 小"), "Jürgens Büro 小");
        assert_eq!(plain(NASTY).chars().count(), NASTY.chars().count());
    }

    #[test]
    fn nothing_gets_out_of_xml() {
        let escaped = xml(NASTY);
        assert!(
            !escaped.contains(['<', '>', '"', '\'']) && !escaped.chars().any(char::is_control),
            "{escaped:?}"
        );
        assert!(
            escaped.contains("&amp;lt;&#39;") && escaped.starts_with("a&quot;];"),
            "{escaped:?}"
        );
    }

    #[test]
    fn nothing_gets_out_of_a_label() {
        let escaped = dot(NASTY);
        // Parsed like Graphviz: up to the first unescaped quote.
        let (mut chars, mut read) = (escaped.chars().skip(1), String::new());
        while let Some(c) = chars.next() {
            match c {
                '"' => break,
                '\\' => read.extend(chars.next()),
                c => read.push(c),
            }
        }
        assert_eq!((chars.next(), read), (None, plain(NASTY).replace('&', "&amp;")));
    }

    #[test]
    fn figures_are_short() {
        let rates = [94_150_000, 941_499_000, 2_354_000_000, 1_234_567].map(rate);
        assert_eq!(rates, ["94 Mbit/s", "941 Mbit/s", "2.35 Gbit/s", "1.2 Mbit/s"]);
        assert_eq!([212, 12_300, 3_450_000].map(time), ["0.21 ms", "12 ms", "3.45 s"]);
    }
}
