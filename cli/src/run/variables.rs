//! The environment of a program: its place in the group, as the clients of several frameworks
//! expect it.

use super::command::Command;
use super::layout::Layout;
use super::subnet;
use std::env::var_os;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The variables that all programs of this machine share in a generation.
#[derive(Debug)]
pub struct Place<'g> {
    /// The ranks and addresses of all.
    pub layout: &'g Layout,
    /// The place of this machine in its order.
    pub machine: usize,
    /// The interface over which this machine reaches the master, or the master another one.
    pub interface: Option<String>,
    /// Counts from 1.
    pub generation: u32,
    /// How often the run may start again.
    pub restarts: u32,
}

impl Place<'_> {
    /// The address of the master, as this machine reaches it.
    pub fn master(&self) -> SocketAddr {
        SocketAddr::new(self.master_ip(), self.layout.master_port)
    }

    /// The lowest rank on this machine.
    pub fn first_rank(&self) -> usize {
        self.layout.first_ranks.get(self.machine).copied().unwrap_or_default()
    }

    fn master_ip(&self) -> IpAddr {
        let masters = &self.layout.masters;
        masters.get(self.machine).copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }
}

/// The variables of a process of this machine. A variable that the user has set is not replaced, if
/// it is a preference and not a place in the group.
pub fn variables(
    place: &Place<'_>,
    command: &Command,
    process: usize,
) -> Vec<(&'static str, String)> {
    let layout = place.layout;
    let (rank, master) = (place.first_rank() + process, place.master());
    let coordinator = SocketAddr::new(master.ip(), layout.coordinator_port);
    let name = command.run_name.as_deref().unwrap_or("run");
    let mut set = vec![
        ("POTLUCK_RUN", name.to_owned()),
        ("POTLUCK_GENERATION", place.generation.to_string()),
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", layout.world.to_string()),
        ("LOCAL_RANK", process.to_string()),
        ("LOCAL_WORLD_SIZE", command.processes.to_string()),
        ("GROUP_RANK", place.machine.to_string()),
        ("GROUP_WORLD_SIZE", layout.order.len().to_string()),
        ("ROLE_NAME", "default".to_owned()),
        ("ROLE_RANK", rank.to_string()),
        ("ROLE_WORLD_SIZE", layout.world.to_string()),
        ("MASTER_ADDR", master.ip().to_string()),
        ("MASTER_PORT", master.port().to_string()),
        ("TORCHELASTIC_RUN_ID", name.to_owned()),
        ("TORCHELASTIC_RESTART_COUNT", place.generation.saturating_sub(1).to_string()),
        ("TORCHELASTIC_MAX_RESTARTS", place.restarts.to_string()),
        ("TORCHELASTIC_USE_AGENT_STORE", "False".to_owned()),
        ("MLX_RANK", rank.to_string()),
        ("JAX_COORDINATOR_ADDRESS", coordinator.to_string()),
        ("JAX_PROCESS_ID", rank.to_string()),
        ("JAX_NUM_PROCESSES", layout.world.to_string()),
    ];
    set.extend(command.namespace.iter().map(|name| ("POTLUCK_NAMESPACE", name.clone())));
    set.extend(preferences(place, command).into_iter().filter(|(key, _)| var_os(key).is_none()));
    set
}

fn preferences(place: &Place<'_>, command: &Command) -> Vec<(&'static str, String)> {
    let mut preferred = Vec::new();
    for key in ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"] {
        preferred.extend(place.interface.iter().map(|interface| (key, interface.clone())));
    }
    // Open MPI also tries the networks that each machine has for itself, such as Docker's, and
    // waits there for ever.
    let ring = place.layout.ring.iter().flatten().map(SocketAddr::ip);
    preferred.extend(subnet::common(ring).map(|net| ("OMPI_MCA_btl_tcp_if_include", net)));
    if command.processes > 1 {
        preferred.push(("OMP_NUM_THREADS", "1".to_owned()));
    }
    // For programs that use potluck: all of them are one group, apart from that of another run.
    preferred.extend(command.run_name.iter().map(|name| ("POTLUCK_JOB", name.clone())));
    if (1..=POTLUCK_MEMBERS_MAX).contains(&place.layout.world) {
        preferred.push(("POTLUCK_MEMBERS", place.layout.world.to_string()));
    }
    preferred
}

/// The host file of MLX's ring: the address of each rank.
pub fn ring_file(ring: &[SocketAddr]) -> String {
    let ranks: Vec<[String; 1]> = ring.iter().map(|address| [address.to_string()]).collect();
    serde_json::json!(ranks).to_string()
}

const POTLUCK_MEMBERS_MAX: usize = 32;
