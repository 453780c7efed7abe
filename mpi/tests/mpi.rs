//! The library from outside: programs in C, as MLX would call it.

use anyhow::{Context, Result, bail, ensure};
use potluck::keys::ClusterKey;
use potluck_harness::{Need, Suite};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NEEDS: [Need; 2] = [Need::Command("cc"), Need::LoopbackMulticast];

fn main() {
    let mut suite = Suite::new();
    suite.test_needing("mpi: calls of two processes", &NEEDS, || calls(2));
    suite.test_needing("mpi: calls of three processes", &NEEDS, || calls(3));
    suite.test_needing("mpi: the loss of one process ends the others", &NEEDS, killed);
    suite.test_needing("mpi: Ctrl-C ends a wait for others", &NEEDS, interrupted);
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
            // Each line on stderr is a failure.
            ("POTLUCK_NOTICES", "0"),
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

/// The exit code of a process, and its output.
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

/// The program has a handler that only takes a note, as Python's own; of either kind.
fn interrupted() -> Result<()> {
    let world = World::of(2)?;
    // Nobody else comes.
    let mut alone = world.process(&["handler"]).spawn()?;
    let mut lines = lines_of(&mut alone)?;
    wait_for(&mut lines, "begins")?;
    ends_by_interrupt(alone, lines)?;
    // Nobody sends.
    let mut both = world.started(&["handler", "long"])?;
    let mut outputs = both.iter_mut().map(lines_of).collect::<Result<Vec<_>>>()?;
    outputs.iter_mut().try_for_each(|lines| wait_for(lines, "ready"))?;
    let (other, one) = (both.remove(1), both.remove(0));
    ends_by_interrupt(one, outputs.remove(0))?;
    let (code, _, err) = ended(other)?;
    ensure!(code == Some(75) && err.starts_with("potluck: MPI_Recv failed"), "{code:?}: {err}");
    Ok(())
}

type Lines = std::io::Lines<BufReader<std::process::ChildStdout>>;

fn lines_of(process: &mut Child) -> Result<Lines> {
    Ok(BufReader::new(process.stdout.take().context("its output")?).lines())
}

fn wait_for(lines: &mut Lines, line: &str) -> Result<()> {
    let found = lines.map_while(Result::ok).any(|found| found == line);
    ensure!(found, "it has ended without {line:?}");
    Ok(())
}

/// Interrupts a process until it has ended: before its wait has begun, an interrupt is the
/// program's alone.
fn ends_by_interrupt(mut process: Child, mut lines: Lines) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(20);
    let status = loop {
        // SAFETY: a process that has not been waited for.
        unsafe { libc::kill(libc::pid_t::try_from(process.id())?, libc::SIGINT) };
        if let Some(status) = process.try_wait()? {
            break status;
        }
        if Instant::now() >= until {
            process.kill()?;
            process.wait()?;
            bail!("Ctrl-C did not end it");
        }
        thread::sleep(Duration::from_millis(300));
    };
    ensure!(status.signal() == Some(libc::SIGINT), "{status}");
    wait_for(&mut lines, "noted").context("the program's own handler")?;
    let mut told = String::new();
    process.stderr.take().context("piped")?.read_to_string(&mut told)?;
    ensure!(told.starts_with("potluck: interrupted while it waited"), "{told}");
    ensure!(told.trim_end().lines().count() == 1, "{told}");
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
