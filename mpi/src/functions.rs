//! The functions of MPI.
#![allow(non_snake_case)]

use super::communicator::Elements;
use super::datatype::Datatype;
use super::failing::{fail, or_end};
use super::objects::{Handle, ompi_mpi_comm_null};
use super::operator::{Function, Operator};
use super::world;
use std::ffi::{c_char, c_int, c_void};

/// All functions that return have succeeded.
const SUCCESS: c_int = 0;

/// In place of the input: it is in the output.
const IN_PLACE: usize = 1;

/// Any rank, and any tag.
const ANY: c_int = -1;

/// MLX looks for the words "Open MPI", for the layout of its objects.
const VERSION: &[u8] = b"potluck's subset of MPI, laid out as Open MPI\0";

/// The beginning of Open MPI's status of a receive.
#[repr(C)]
pub struct Status {
    source: c_int,
    tag: c_int,
    error: c_int,
    cancelled: c_int,
    bytes: usize,
}

/// The version of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Get_library_version(text: *mut c_char, length: *mut c_int) -> c_int {
    // SAFETY: MPI's standard has room for 256 bytes there.
    unsafe {
        text.cast::<u8>().copy_from_nonoverlapping(VERSION.as_ptr(), VERSION.len());
        length.write(VERSION.len() as c_int - 1);
    }
    SUCCESS
}

/// Joins the group that the environment names, and waits until all are there.
#[unsafe(no_mangle)]
pub extern "C" fn MPI_Init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> c_int {
    or_end("MPI_Init", world::begin);
    SUCCESS
}

/// Leaves the group.
#[unsafe(no_mangle)]
pub extern "C" fn MPI_Finalize() -> c_int {
    or_end("MPI_Finalize", || {
        world::end();
        Ok(())
    });
    SUCCESS
}

/// This process's rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Comm_rank(comm: Handle, rank: *mut c_int) -> c_int {
    let own = or_end("MPI_Comm_rank", || Ok(world::communicator(comm)?.rank()));
    // SAFETY: a place for it.
    unsafe { rank.write(own as c_int) };
    SUCCESS
}

/// The number of processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Comm_size(comm: Handle, size: *mut c_int) -> c_int {
    let all = or_end("MPI_Comm_size", || Ok(world::communicator(comm)?.size()));
    // SAFETY: a place for it.
    unsafe { size.write(all as c_int) };
    SUCCESS
}

/// The processes that give the same colour.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Comm_split(
    comm: Handle,
    colour: c_int,
    key: c_int,
    new: *mut Handle,
) -> c_int {
    let name =
        or_end("MPI_Comm_split", || match world::communicator(comm)?.split(colour, key)? {
            Some(communicator) => world::named(communicator),
            None => Ok(ompi_mpi_comm_null.handle()),
        });
    // SAFETY: a place for it.
    unsafe { new.write(name) };
    SUCCESS
}

/// Forgets a communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Comm_free(comm: *mut Handle) -> c_int {
    // SAFETY: a place with a communicator.
    unsafe {
        world::free(comm.read());
        comm.write(ompi_mpi_comm_null.handle());
    }
    SUCCESS
}

/// A type of some elements of another one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Type_contiguous(count: c_int, of: Handle, new: *mut Handle) -> c_int {
    let name = or_end("MPI_Type_contiguous", || Datatype::of(of)?.contiguous(counted(count)?));
    // SAFETY: a place for it.
    unsafe { new.write(name) };
    SUCCESS
}

/// A type may be used from the beginning.
#[unsafe(no_mangle)]
pub extern "C" fn MPI_Type_commit(_datatype: *mut Handle) -> c_int {
    SUCCESS
}

/// An operator of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Op_create(
    function: Option<Function>,
    _commutes: c_int,
    new: *mut Handle,
) -> c_int {
    let Some(function) = function else { fail("MPI_Op_create", "there is no function") };
    // SAFETY: a place for it.
    unsafe { new.write(Operator::made_of(function)) };
    SUCCESS
}

/// Combines the elements of all processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Allreduce(
    input: *const c_void,
    output: *mut c_void,
    count: c_int,
    datatype: Handle,
    operator: Handle,
    comm: Handle,
) -> c_int {
    or_end("MPI_Allreduce", || {
        let data = elements(output, count, datatype)?;
        if input as usize != IN_PLACE {
            let bytes = data.count * data.of.bytes();
            // SAFETY: both have so many bytes.
            unsafe { output.cast::<u8>().copy_from(input.cast(), bytes) };
        }
        world::communicator(comm)?.all_reduce(data, datatype, Operator::of(operator)?)
    });
    SUCCESS
}

/// Collects the elements of all processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Allgather(
    input: *const c_void,
    count: c_int,
    datatype: Handle,
    output: *mut c_void,
    out_count: c_int,
    out_datatype: Handle,
    comm: Handle,
) -> c_int {
    or_end("MPI_Allgather", || {
        let communicator = world::communicator(comm)?;
        let part = elements(output, out_count, out_datatype)?;
        let bytes = part.count * part.of.bytes();
        let start = match input as usize {
            IN_PLACE => output.cast::<u8>().wrapping_add(communicator.rank() * bytes).cast(),
            _ => input.cast_mut(),
        };
        let data = match input as usize {
            IN_PLACE => Elements { start, ..part },
            _ => elements(start, count, datatype)?,
        };
        if data.count * data.of.bytes() != bytes {
            return Err("input and output have different lengths".to_owned());
        }
        communicator.all_gather(data, output)
    });
    SUCCESS
}

/// Sends a message. Returns when it has been received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Send(
    data: *const c_void,
    count: c_int,
    datatype: Handle,
    to: c_int,
    tag: c_int,
    comm: Handle,
) -> c_int {
    or_end("MPI_Send", || {
        let data = elements(data.cast_mut(), count, datatype)?;
        world::communicator(comm)?.send(data, to, tagged(tag))
    });
    SUCCESS
}

/// Receives a message. Messages between two processes arrive in order; a tag only compares.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Recv(
    data: *mut c_void,
    count: c_int,
    datatype: Handle,
    from: c_int,
    tag: c_int,
    comm: Handle,
    status: *mut Status,
) -> c_int {
    let (source, bytes) = or_end("MPI_Recv", || {
        let data = elements(data, count, datatype)?;
        let from = (from != ANY).then_some(from);
        let source = world::communicator(comm)?.receive(data, from, tagged(tag))?;
        Ok((source as c_int, data.count * data.of.bytes()))
    });
    if !status.is_null() {
        let tag = tagged(tag) as c_int;
        // SAFETY: a place for it.
        unsafe { status.write(Status { source, tag, error: SUCCESS, cancelled: 0, bytes }) };
    }
    SUCCESS
}

fn elements(start: *mut c_void, count: c_int, datatype: Handle) -> Result<Elements, String> {
    let (count, of) = (counted(count)?, Datatype::of(datatype)?);
    count.checked_mul(of.bytes()).ok_or("there are more bytes than fit in memory")?;
    Ok(Elements { start, count, of })
}

fn counted(count: c_int) -> Result<usize, String> {
    usize::try_from(count).map_err(|_| format!("{count} elements are none that can be"))
}

/// Any tag is 0, which MLX sends with.
fn tagged(tag: c_int) -> u32 {
    u32::try_from(tag).unwrap_or(0)
}
