//! The library from outside: programs in C, as MLX would call it.

use anyhow::{Context, Result, ensure};
use potluck::keys::ClusterKey;
use potluck_harness::{Need, Suite};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const NEEDS: [Need; 2] = [Need::Command("cc"), Need::LoopbackMulticast];

fn main() {
    let mut suite = Suite::new();
    suite.test_needing("mpi: calls of two processes", &NEEDS, || calls(2));
    suite.test_needing("mpi: calls of three processes", &NEEDS, || calls(3));
    suite.test_needing("mpi: the loss of one process ends the others", &NEEDS, killed);
    suite.test_needing("mpi: a world that cannot be joined ends the process", &NEEDS, refused);
    suite.test_needing("mpi: only MPI's names are exported", &[Need::Command("nm")], exported);
    suite.run();
}

/// The library. cargo does not build it together with this test.
fn library() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.parent().and_then(Path::parent).context("a target folder")?;
    let library = folder.join("libpotluck_mpi.so");
    ensure!(library.exists(), "run cargo build -p potluck-mpi before this");
    Ok(library)
}

/// Processes of one world.
struct World {
    folder: TempDir,
    program: PathBuf,
    members: usize,
}

impl World {
    fn of(members: usize) -> Result<World> {
        let folder = TempDir::new()?;
        let (program, library) = (folder.path().join("world"), library()?);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/world.c");
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]).arg(source);
        command.arg(&library).arg("-o").arg(&program);
        let rpath = library.parent().context("a folder")?.display();
        let output = command.arg(format!("-Wl,-rpath,{rpath}")).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(World { folder, program, members })
    }

    fn process(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let home = self.folder.path();
        let space = home.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let space = format!("mpi-{}", space.trim_start_matches('.'));
        let members = self.members.to_string();
        let key = ClusterKey::from_bytes(&[7; ClusterKey::BYTES]).to_text();
        for (name, value) in [
            ("POTLUCK_NETWORK", "loopback"),
            ("POTLUCK_NAMESPACE", &space),
            ("POTLUCK_KEY", &key),
            ("POTLUCK_MEMBERS", &members),
        ] {
            command.env(name, value);
        }
        command.env("POTLUCK_HOME", home);
        command
    }

    fn started(&self, arguments: &[&str]) -> Result<Vec<Child>> {
        (0..self.members).map(|_| Ok(self.process(arguments).spawn()?)).collect()
    }
}

/// The exit code of a process, and what it has printed.
fn ended(process: Child) -> Result<(Option<i32>, String, String)> {
    let output = process.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

fn calls(members: usize) -> Result<()> {
    let world = World::of(members)?;
    let mut told = Vec::new();
    for process in world.started(&[])? {
        let (code, out, err) = ended(process)?;
        ensure!(code == Some(0), "{code:?}: {out}{err}");
        told.push(out);
    }
    told.sort();
    let wanted = (0..members).map(|rank| format!("rank {rank} of {members}: all is right\n"));
    ensure!(told == wanted.collect::<Vec<_>>(), "{told:?}");
    Ok(())
}

fn killed() -> Result<()> {
    let world = World::of(3)?;
    let mut processes = world.started(&["rounds"])?;
    for process in &mut processes {
        let output = process.stdout.take().context("its output")?;
        let first = BufReader::new(output).lines().next().context("it has ended")??;
        ensure!(first == "ready", "{first}");
    }
    let mut victim = processes.remove(0);
    let killed = victim.kill();
    victim.wait()?;
    killed?;
    for process in processes {
        let (code, _, err) = ended(process)?;
        ensure!(code == Some(75), "{code:?}: {err}");
        ensure!(err.starts_with("potluck: MPI_Allreduce failed, so this process ends: "), "{err}");
        ensure!(err.trim_end().lines().count() == 1, "{err}");
    }
    Ok(())
}

fn refused() -> Result<()> {
    let world = World::of(2)?;
    for (name, value, words) in [
        ("POTLUCK_MEMBERS", "2..4", "the world of MPI has one size"),
        ("POTLUCK_KEY", "no key", "key"),
        ("POTLUCK_NETWORK", "abroad", "may be home or loopback"),
    ] {
        let process = world.process(&[]).env(name, value).spawn()?;
        let (code, _, err) = ended(process)?;
        ensure!(code == Some(75), "{name}: {code:?}: {err}");
        ensure!(err.starts_with("potluck: MPI_Init failed") && err.contains(words), "{err}");
    }
    Ok(())
}

fn exported() -> Result<()> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()?).output()?;
    let symbols = String::from_utf8(output.stdout)?;
    let names: Vec<&str> =
        symbols.lines().filter_map(|line| line.split_whitespace().last()).collect();
    let is_one = |name: &&str| name.starts_with("MPI_") || name.starts_with("ompi_mpi_");
    ensure!(names.len() == 14 + 17 && names.iter().all(is_one), "{names:?}");
    Ok(())
}
