//! The part of MPI that MLX uses, carried out by potluck: fourteen functions and the objects that
//! they name, laid out as Open MPI lays them out.
//!
//! MLX loads the library that `MLX_MPI_LIBNAME` names. `MPI_Init` joins the group that the
//! environment names (`POTLUCK_NAMESPACE`, `POTLUCK_JOB`, `POTLUCK_KEY`) and waits until
//! `POTLUCK_MEMBERS` processes are there, by default two. That is the world: nobody enters later,
//! and the loss of any process ends all others.
//!
//! A failure ends the process with one sentence and exit code 75. MPI's default error handler also
//! ends the process, and MLX relies on that: it ignores the results of the functions, and would go
//! on with a wrong sum. Ctrl-C ends a wait for other processes, and with it the process.
//!
//! # Safety
//! Every exported function trusts the program to obey MPI's standard in its arguments.

mod communicator;
mod datatype;
mod failing;
mod functions;
mod interrupts;
mod objects;
mod operator;
mod world;
