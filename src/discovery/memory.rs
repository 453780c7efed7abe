//! Discovery without a network, for simulations: every node on a [`Medium`] hears every other node.
//!
//! Adverts are transmitted as TXT records, so a simulation uses the real encoder and decoder.

use super::Discovery;
use super::report::{Activity, DiscoveryProblem, InterfaceReport};
use super::sighting::{Advert, Sighting};
use crate::os::InterfaceAddress;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Most sightings that wait for one node. A node that does not read loses later ones, as on a
/// network.
const WAITING_MAX: usize = 1024;

/// The shared network of a simulation.
#[derive(Clone, Default)]
pub struct Medium {
    air: Arc<Mutex<Air>>,
}

/// All nodes of a medium are in one network.
fn of_one_network(ip: IpAddr) -> InterfaceAddress {
    InterfaceAddress { ip, prefix_bits: 0 }
}

#[derive(Default)]
struct Air {
    next_node: u64,
    listeners: BTreeMap<u64, Sender<Heard>>,
    /// Announcements by node; each node has at most one.
    records: BTreeMap<u64, Record>,
}

/// One announcement as transmitted.
#[derive(Clone, Debug)]
struct Record {
    instance: String,
    port: u16,
    addresses: Vec<SocketAddr>,
    txt: Vec<(String, Vec<u8>)>,
}

#[derive(Clone, Debug)]
enum Heard {
    Record(Record),
    Goodbye(String),
}

/// One node's connection to a [`Medium`].
pub struct MemoryDiscovery {
    medium: Medium,
    node: u64,
    heard: Receiver<Heard>,
    adverts: u64,
    dropped: u64,
}

impl Medium {
    /// A medium without nodes.
    pub fn new() -> Medium {
        Medium::default()
    }

    /// Adds a node, which hears the present announcements at once.
    pub fn node(&self) -> MemoryDiscovery {
        let (sender, heard) = channel(WAITING_MAX);
        let mut air = self.air();
        air.records
            .values()
            .for_each(|record| drop(sender.try_send(Heard::Record(record.clone()))));
        let node = air.next_node;
        air.next_node += 1;
        air.listeners.insert(node, sender);
        MemoryDiscovery { medium: self.clone(), node, heard, adverts: 0, dropped: 0 }
    }

    fn air(&self) -> MutexGuard<'_, Air> {
        // No section panics half way, so a poisoned state is consistent.
        self.air.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Air {
    fn announce(&mut self, node: u64, record: Record) {
        let before = self.records.insert(node, record.clone());
        if let Some(before) = before.filter(|before| before.instance != record.instance) {
            self.tell(node, &Heard::Goodbye(before.instance));
        }
        self.tell(node, &Heard::Record(record));
    }

    fn withdraw(&mut self, node: u64) {
        if let Some(record) = self.records.remove(&node) {
            self.tell(node, &Heard::Goodbye(record.instance));
        }
    }

    fn tell(&self, from: u64, heard: &Heard) {
        for (_, listener) in self.listeners.iter().filter(|(node, _)| **node != from) {
            drop(listener.try_send(heard.clone()));
        }
    }
}

impl MemoryDiscovery {
    fn sighting(&mut self, heard: Heard) -> Option<Sighting> {
        let record = match heard {
            Heard::Goodbye(instance) => return Some(Sighting::Vanished { instance }),
            Heard::Record(record) => record,
        };
        let txt = record.txt.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
        let advert = Advert::from_txt(&record.instance, record.port, record.addresses, txt);
        *if advert.is_ok() { &mut self.adverts } else { &mut self.dropped } += 1;
        advert.ok().map(Sighting::Appeared)
    }
}

#[async_trait]
impl Discovery for MemoryDiscovery {
    async fn announce(&mut self, advert: &Advert) -> Result<(), DiscoveryProblem> {
        let txt = advert
            .to_txt()
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.into_bytes()))
            .collect();
        let (instance, addresses) = (advert.instance.clone(), advert.addresses.clone());
        self.medium
            .air()
            .announce(self.node, Record { instance, port: advert.port, addresses, txt });
        Ok(())
    }

    async fn next(&mut self) -> Sighting {
        loop {
            // The medium keeps the sender while the node exists; without a sender nothing would
            // ever be heard.
            let Some(heard) = self.heard.recv().await else { return std::future::pending().await };
            if let Some(sighting) = self.sighting(heard) {
                return sighting;
            }
        }
    }

    fn report(&self) -> Vec<InterfaceReport> {
        let air = self.medium.air();
        let addresses = air
            .records
            .get(&self.node)
            .map(|record| record.addresses.iter().map(|at| of_one_network(at.ip())).collect());
        let addresses = addresses.unwrap_or_default();
        let activity = Activity::Active {
            addresses,
            queries: None,
            adverts: self.adverts,
            dropped: self.dropped,
        };
        vec![InterfaceReport { interface: "memory".to_owned(), activity }]
    }

    async fn withdraw(&mut self) {
        self.medium.air().withdraw(self.node);
    }
}

impl Drop for MemoryDiscovery {
    fn drop(&mut self) {
        let mut air = self.medium.air();
        air.withdraw(self.node);
        air.listeners.remove(&self.node);
    }
}

#[cfg(test)]
mod tests {
    use super::super::contract::Stage;
    use super::*;
    use crate::discovery::contract;

    struct InMemory(Medium);

    impl Stage for InMemory {
        fn node(&mut self) -> Box<dyn Discovery> {
            Box::new(self.0.node())
        }

        fn noise(
            &mut self,
            instance: &str,
            port: u16,
            txt: &[(&str, &str)],
        ) -> Box<dyn std::any::Any> {
            let node = self.0.node();
            let txt = txt
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
                .collect();
            let addresses = vec![SocketAddr::from(([127, 0, 0, 1], port))];
            self.0.air().announce(
                node.node,
                Record { instance: instance.to_owned(), port, addresses, txt },
            );
            Box::new(node)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_the_contract_of_discovery() {
        contract::suite(|| InMemory(Medium::new())).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_deaf_node_costs_a_bounded_queue() {
        let medium = Medium::new();
        let (mut deaf, mut loud) = (medium.node(), medium.node());
        for n in 0..5000 {
            loud.announce(&super::super::sighting::advert(n, None))
                .await
                .expect("memory is always there");
        }
        let mut heard = 0;
        while tokio::time::timeout(std::time::Duration::from_secs(1), deaf.next()).await.is_ok() {
            heard += 1;
        }
        assert_eq!(heard, WAITING_MAX);
    }
}
