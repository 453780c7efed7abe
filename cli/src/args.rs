//! Command-line options that several commands share.

use clap::Args;
use potluck::Config;

/// Which cluster.
#[derive(Args, Clone, Debug)]
pub struct Which {
    /// The namespace: this machine's name for a cluster, 1 to 32 of a-z, 0-9 and - [default:
    /// POTLUCK_NAMESPACE or "default"]
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// Which network.
#[derive(Args, Clone, Debug)]
pub struct Where {
    /// Interfaces to use, as eth0,en* or with a leading ^ those not to use [default:
    /// POTLUCK_INTERFACES, else the home network]
    #[arg(long, value_name = "FILTER")]
    pub interface: Option<String>,
    /// Only this machine: 127.0.0.1
    #[arg(long)]
    pub loopback: bool,
}

impl Which {
    /// The configuration of this cluster on the local network.
    pub fn config(&self) -> Config {
        let mut config = Config::home();
        config.namespace.clone_from(&self.namespace);
        config
    }

    /// The option as typed after a potluck command; empty for the default namespace.
    pub fn flag(&self) -> String {
        self.namespace.as_ref().map(|name| format!(" --namespace {name}")).unwrap_or_default()
    }
}

impl Where {
    /// The configuration of this cluster on this network.
    pub fn config(&self, which: &Which) -> Config {
        let mut config = if self.loopback { Config::loopback() } else { Config::home() };
        config.namespace.clone_from(&which.namespace);
        config.interfaces.clone_from(&self.interface);
        config
    }
}
