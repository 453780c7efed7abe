//! The program `potluck`.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let itself = std::env::current_exe().map(OsString::from).into_iter().collect();
    let arguments = std::env::args_os().skip(1).collect();
    potluck_cli::main(arguments, itself).into()
}
