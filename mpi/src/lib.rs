//! The part of MPI that MLX uses, carried out by potluck: fourteen functions and the objects that
//! they name, laid out as Open MPI lays them out.
//!
//! MLX loads the library that `MLX_MPI_LIBNAME` names. `MPI_Init` joins the group that the
//! environment names (`POTLUCK_NAMESPACE`, `POTLUCK_JOB`, `POTLUCK_KEY`) and waits until
//! `POTLUCK_MEMBERS` processes are there, by default two. That is the world: nobody enters later,
//! and the loss of any process ends all others.
//!
//! A failure ends the process with one sentence and code 75, as MPI's default error handler does:
//! MLX does not look at what the functions return, and would go on with a wrong sum. Ctrl-C ends a
//! wait for other processes, and with it the process.
//!
//! # Safety
//! Every exported function trusts the program in what MPI's standard says of its arguments.

mod communicator;
mod datatype;
mod failing;
mod functions;
mod interrupts;
mod objects;
mod operator;
mod world;
