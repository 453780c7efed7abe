//! The command that opens a port, in the words of the firewall of this machine.

use std::fs;
use std::path::Path;

/// A port, or a range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// TCP, for the nodes.
    Nodes,
    /// UDP, for multicast DNS.
    Multicast,
}

/// The command that lets others reach these ports of this machine. Without a firewall that is
/// known, that of nftables.
pub fn opened(ports: Ports) -> String {
    if is_ufw_on() {
        return for_ufw(ports);
    }
    match (Path::new("/run/firewalld").exists(), ports) {
        (true, Ports::Nodes) => "sudo firewall-cmd --permanent --add-port=47474-47489/tcp && sudo \
            firewall-cmd --reload"
            .to_owned(),
        (true, Ports::Multicast) => {
            "sudo firewall-cmd --permanent --add-service=mdns && sudo firewall-cmd --reload"
                .to_owned()
        }
        (false, Ports::Nodes) => {
            "sudo nft insert rule inet filter input tcp dport 47474-47489 accept".to_owned()
        }
        (false, Ports::Multicast) => {
            "sudo nft insert rule inet filter input udp dport 5353 accept".to_owned()
        }
    }
}

/// The command of the commonest firewall, for another machine, whose firewall is unknown.
pub fn for_ufw(ports: Ports) -> String {
    match ports {
        Ports::Nodes => "sudo ufw allow 47474:47489/tcp".to_owned(),
        Ports::Multicast => "sudo ufw allow 5353/udp".to_owned(),
    }
}

fn is_ufw_on() -> bool {
    let text = fs::read_to_string("/etc/ufw/ufw.conf").unwrap_or_default();
    text.lines().any(|line| line.trim() == "ENABLED=yes")
}
