//! The size of a buffer.

use std::fmt;

/// A number of bytes that hold whole elements of four bytes: at least one, at most a GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(u64);

impl Size {
    /// Reads `64K`, `1M`, `1G` or a number of bytes.
    pub fn parse(text: &str) -> Result<Size, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "" | "B" => 1,
            "K" | "KIB" => 1 << 10,
            "M" | "MIB" => 1 << 20,
            "G" | "GIB" => 1 << 30,
            _ => return Err("a size is a number and K, M or G".to_owned()),
        };
        let number = digits.parse::<u64>().ok();
        let bytes = number.and_then(|n| n.checked_mul(unit));
        Size::of(bytes.ok_or("a size is a number and K, M or G")?)
    }

    pub fn of(bytes: u64) -> Result<Size, String> {
        if bytes == 0 || !bytes.is_multiple_of(4) || bytes > 1 << 30 {
            return Err("a size is a multiple of 4 bytes, from 4 bytes to 1G".to_owned());
        }
        Ok(Size(bytes))
    }

    pub fn bytes(self) -> u64 {
        self.0
    }

    /// The number of `f32` elements.
    pub fn elements(self) -> usize {
        (self.0 / 4) as usize
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match self.0 {
            n if n.is_multiple_of(1 << 30) => (n >> 30, "GiB"),
            n if n.is_multiple_of(1 << 20) => (n >> 20, "MiB"),
            n if n.is_multiple_of(1 << 10) => (n >> 10, "KiB"),
            n => (n, "B"),
        };
        write!(f, "{number} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        let shown = |text: &str| Size::parse(text).map(|size| size.to_string());
        assert_eq!(shown("4K"), Ok("4 KiB".to_owned()));
        assert_eq!(shown("64MiB"), Ok("64 MiB".to_owned()));
        assert_eq!(shown("1G"), Ok("1 GiB".to_owned()));
        assert_eq!(shown("12"), Ok("12 B".to_owned()));
        for bad in ["", "M", "0", "6", "2G", "1T", "-4", "4 K", "99999999999999999999", "ä"] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }
}
