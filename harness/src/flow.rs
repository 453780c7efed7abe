//! The TCP connections of a machine of the lab, as `ss` shows them.

use anyhow::{Context, Result, ensure};

use crate::lab::Lab;

/// A TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The port on this machine.
    pub port: u16,
    /// The port at the other end.
    pub other: u16,
    /// Bytes of payload so far, sent and received.
    pub bytes: u64,
}

impl Flow {
    /// The established connections of a machine. Needs `ss`.
    pub fn all_of(lab: &Lab, machine: &str) -> Result<Vec<Flow>> {
        let output =
            lab.command(machine, "ss").args(["-tinOH", "state", "established"]).output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ss on {machine}: {complaint}");
        let text = String::from_utf8(output.stdout).context("what ss says")?;
        text.lines()
            .map(|line| read(line).with_context(|| format!("a line of ss: {line}")))
            .collect()
    }
}

/// `0 0 10.77.0.1:47474 10.77.0.2:51234 cubic ... bytes_sent:12 ... bytes_received:30 ...`
fn read(line: &str) -> Option<Flow> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let port = |at: usize| words.get(at)?.rsplit(':').next()?.parse().ok();
    // Left out as long as there are none.
    let bytes = |of: &str| words.iter().find_map(|word| word.strip_prefix(of)?.parse::<u64>().ok());
    let bytes = bytes("bytes_sent:").unwrap_or(0) + bytes("bytes_received:").unwrap_or(0);
    Some(Flow { port: port(2)?, other: port(3)?, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_ss_is_read() {
        let line = "0 0 [fe80::1]%eth0:47474 [fe80::2]:51234 cubic wscale:7,7 rto:201 \
                    bytes_sent:1200 bytes_acked:1200 bytes_received:34 segs_out:5";
        assert_eq!(read(line), Some(Flow { port: 47474, other: 51234, bytes: 1234 }));
        let fresh = "0 0 10.77.0.1:1 10.77.0.2:2 cubic rto:1000";
        assert_eq!(read(fresh), Some(Flow { port: 1, other: 2, bytes: 0 }));
        assert_eq!(read("0 0 10.77.0.1"), None);
    }
}
