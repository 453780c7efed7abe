//! The group of this process: joined by `MPI_Init`, left by `MPI_Finalize`.

use super::communicator::Communicator;
use super::interrupts;
use super::objects::{Handle, ompi_mpi_comm_world};
use potluck::blocking::{Cluster, Wait};
use potluck::{Builder, Config};
use potluck_foreign::{Call, Executor, ProcessLocal, SharedContext};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The objects that MPI_Init has made.
struct World {
    cluster: ProcessLocal<potluck::Cluster>,
    all: Communicator,
    /// Those made by MPI_Comm_split, by name.
    split: BTreeMap<usize, Communicator>,
}

/// MPI is one for the whole process.
static WORLD: Mutex<Option<World>> = Mutex::new(None);

/// Joins the group, and waits until all processes are there.
///
/// # Errors
/// A sentence.
pub fn begin() -> Result<(), String> {
    if world().is_some() {
        return Err("MPI_Init was called before".to_owned());
    }
    interrupts::watch();
    let before = interrupts::so_far();
    let members = members()?;
    // Nobody enters later, and nobody is missing: the size of the world is fixed.
    let builder = Builder::new(config()?)
        .members(members)
        .min_members(members)
        .max_members(members)
        .stateless();
    let cluster = Cluster::join_with(builder).map_err(|error| error.to_string())?;
    let cluster = potluck::Cluster::from(cluster);
    let executor = Executor::start().map_err(|error| error.to_string())?;
    let all_here = Call::begin(&executor, {
        let (cluster, executor) = (cluster.clone(), executor.clone());
        async move { Ok(SharedContext::new(cluster.context().await?, &executor)) }
    });
    let calls = interrupts::outcome(&all_here, before).map_err(|error| error.to_string())?;
    let all = Communicator::world(calls.as_ref().cloned().map_err(ToString::to_string)?)?;
    let cluster = ProcessLocal::new(cluster);
    *world() = Some(World { cluster, all, split: BTreeMap::new() });
    Ok(())
}

/// Leaves the group. Calls that the others make from then on fail: it does not wait for them,
/// because it also runs at the exit of a program that has failed. Nothing in a fork of the process.
pub fn end() {
    let ended = world().take();
    if let Some(ended) = ended {
        drop((ended.all, ended.split));
        if let Ok(cluster) = ended.cluster.take() {
            cluster.leave().wait();
        }
    }
}

/// The communicator of this name.
///
/// # Errors
/// A sentence, before MPI_Init and for a name that is none.
pub fn communicator(handle: Handle) -> Result<Communicator, String> {
    let world = world();
    let world = world.as_ref().ok_or("MPI_Init was not called")?;
    if handle == ompi_mpi_comm_world.handle() {
        return Ok(world.all.clone());
    }
    let split = world.split.get(&(handle as usize)).cloned();
    split.ok_or_else(|| "the communicator is not one that it knows".to_owned())
}

/// Gives a communicator a name.
///
/// # Errors
/// A sentence, after MPI_Finalize.
pub fn named(communicator: Communicator) -> Result<Handle, String> {
    let mut world = world();
    let world = world.as_mut().ok_or("MPI_Finalize was called")?;
    // Never freed, so that no later one has the same name.
    let name: &'static mut [u8; 16] = Box::leak(Box::default());
    let handle: Handle = std::ptr::from_mut(name).cast();
    world.split.insert(handle as usize, communicator);
    Ok(handle)
}

/// Forgets a communicator.
pub fn free(handle: Handle) {
    if let Some(world) = world().as_mut() {
        world.split.remove(&(handle as usize));
    }
}

/// `POTLUCK_MEMBERS`: one number, because the world of MPI has one size.
fn members() -> Result<usize, String> {
    let Ok(text) = std::env::var("POTLUCK_MEMBERS") else { return Ok(2) };
    let problem =
        || format!("POTLUCK_MEMBERS is {text:?}, and the world of MPI has one size, such as 3");
    text.trim().parse().map_err(|_| problem())
}

/// The job has a name of its own: that of the executable is that of the Python interpreter.
fn config() -> Result<Config, String> {
    let mut config = match std::env::var("POTLUCK_NETWORK").as_deref() {
        Ok("loopback") => Config::loopback(),
        Ok("home") | Err(_) => Config::home(),
        Ok(other) => {
            return Err(format!("POTLUCK_NETWORK is {other:?}, and may be home or loopback"));
        }
    };
    if std::env::var_os("POTLUCK_JOB").is_none() {
        config.job = Some("mpi".to_owned());
    }
    Ok(config)
}

fn world() -> MutexGuard<'static, Option<World>> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}
