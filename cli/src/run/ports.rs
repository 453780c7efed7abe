//! Free TCP ports for the programs, held until they start.

use anyhow::{Context, Result};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};

/// Ports that no other program of this machine gets, as long as this is not dropped.
#[derive(Debug)]
pub struct Ports {
    listeners: Vec<TcpListener>,
    numbers: Vec<u16>,
}

impl Ports {
    /// Takes this many: those from `first` on, else any free ones.
    pub fn hold(count: usize, first: Option<u16>) -> Result<Ports> {
        let wanted = (0..count).map(|i| match first {
            Some(first) => first.saturating_add(u16::try_from(i).unwrap_or(u16::MAX)),
            None => 0,
        });
        let listeners = wanted.map(listen).collect::<Result<Vec<TcpListener>>>()?;
        let number = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
        let numbers = listeners.iter().map(number).collect::<std::io::Result<_>>()?;
        Ok(Ports { listeners, numbers })
    }

    /// Their numbers.
    pub fn numbers(&self) -> &[u16] {
        &self.numbers
    }

    /// Lets the programs have them.
    pub fn release(self) {
        drop(self.listeners);
    }
}

/// On all addresses of both families, or of IPv4 where there is no IPv6.
fn listen(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
        .with_context(|| match port {
            0 => "no free TCP port for the programs".to_owned(),
            port => format!("TCP port {port} cannot be used; choose another --port"),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_ports_differ_and_are_free_again_after_release() {
        let ports = Ports::hold(3, None).expect("there are free ports");
        let numbers = ports.numbers().to_vec();
        assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2] && !numbers.contains(&0));
        assert!(Ports::hold(1, Some(numbers[0])).is_err(), "it is held");
        ports.release();
        let again = Ports::hold(1, Some(numbers[0])).expect("it is free");
        assert_eq!(again.numbers(), [numbers[0]]);
    }
}
