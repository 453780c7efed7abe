//! The formats of host files.

use super::Host;
use clap::ValueEnum;
use serde_json::{Value, json};

/// The format of a host file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// An address on each line
    Plain,
    /// For `mpirun --hostfile` of Open MPI: an address with slots on each line
    Mpi,
    /// For `mlx.launch --hostfile`: JSON
    Mlx,
    /// For `~/.ssh/config`: a host named potluck-NAME for each machine
    Ssh,
    /// The document that --json prints
    Json,
}

impl Format {
    /// The machines in this format; `document` is the one of --json.
    pub fn text(self, hosts: &[Host], document: &Value) -> String {
        let lines =
            |line: fn(&Host) -> String| hosts.iter().map(line).collect::<Vec<_>>().join("\n");
        match self {
            Format::Plain => lines(|host| host.address.to_string()),
            Format::Mpi => lines(|host| format!("{} slots={}", host.address, host.slots)),
            Format::Mlx => {
                let entry = |host: &Host| json!({ "ssh": host.address, "ips": [host.address] });
                hosts.iter().map(entry).collect::<Value>().to_string()
            }
            Format::Ssh => {
                lines(|host| format!("Host potluck-{}\n  HostName {}", alias(host), host.address))
            }
            Format::Json => document.to_string(),
        }
    }
}

/// A node may call itself anything. In a file that other programs read, only letters, digits, dots
/// and hyphens are its name.
fn alias(host: &Host) -> &str {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let is_usable = !host.name.is_empty() && host.name.chars().all(is_plain);
    if is_usable { &host.name } else { host.node.get(..8).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(rank: usize, name: &str, address: [u8; 4], slots: usize) -> Host {
        let node = format!("{rank}abcdef012345678");
        Host { rank, name: name.to_owned(), node, address: address.into(), slots }
    }

    #[test]
    fn each_client_gets_its_own_format() {
        let hosts = [host(0, "ada", [10, 0, 0, 1], 1), host(1, "bob", [10, 0, 0, 2], 2)];
        assert_eq!(Format::Plain.text(&hosts, &Value::Null), "10.0.0.1\n10.0.0.2");
        assert_eq!(Format::Mpi.text(&hosts, &Value::Null), "10.0.0.1 slots=1\n10.0.0.2 slots=2");
        assert_eq!(
            Format::Mlx.text(&hosts, &Value::Null),
            r#"[{"ips":["10.0.0.1"],"ssh":"10.0.0.1"},{"ips":["10.0.0.2"],"ssh":"10.0.0.2"}]"#
        );
        assert_eq!(
            Format::Ssh.text(&hosts, &Value::Null),
            "Host potluck-ada\n  HostName 10.0.0.1\nHost potluck-bob\n  HostName 10.0.0.2"
        );
    }

    #[test]
    fn a_name_that_means_something_to_ssh_is_replaced() {
        for name in ["*", "a b", "a\nProxyCommand rm", "", "ß"] {
            let text = Format::Ssh.text(&[host(3, name, [10, 0, 0, 3], 1)], &Value::Null);
            assert_eq!(text, "Host potluck-3abcdef0\n  HostName 10.0.0.3");
        }
    }
}
