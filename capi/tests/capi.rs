//! The C interface from outside: programs in C and C++, compiled with the header and either
//! library.

use anyhow::{Context, Result, bail, ensure};
use potluck_harness::{Need, Suite, chance};
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

type Test = (&'static str, &'static [Need], fn() -> Result<()>);

const C: Need = Need::Command("cc");
const CPP: Need = Need::Command("c++");

const MONO: [Need; 3] = [Need::Command("mcs"), Need::Command("mono"), Need::LoopbackMulticast];

const TESTS: [Test; 11] = [
    ("c: two processes sum, with the shared library", &[C, Need::LoopbackMulticast], shared),
    ("c: two processes sum, with the archive", &[C, Need::LoopbackMulticast], archived),
    ("c: one of three is killed, and the others go on", &[C, Need::LoopbackMulticast], killed),
    ("c++: two processes average", &[CPP, Need::LoopbackMulticast], averaged),
    ("c: pkg-config finds an installed library", &[C, Need::Command("pkg-config")], installed),
    ("c: only functions of potluck are exported", &[Need::Command("nm")], exported),
    ("c: calls in any order", &[C], orders),
    ("c: every error code of the library has a status", &[C], statuses),
    (".net: one of three is killed, and the others go on", &MONO, dotnet_sums),
    (".net: calls, cancellations and errors", &MONO, dotnet_calls),
    (".net: without the library there is a clear error", &MONO, dotnet_without),
];

fn main() {
    let mut suite = Suite::new();
    for (name, needs, body) in TESTS {
        suite.test_needing(name, needs, body);
    }
    suite.run();
}

/// The folder of this package.
fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder with the libraries. cargo does not build them together with this test.
fn libraries() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.parent().and_then(Path::parent).context("a target folder")?;
    let is_built = folder.join("libpotluck.so").exists() && folder.join("libpotluck.a").exists();
    ensure!(is_built, "run cargo build -p potluck-capi before this");
    Ok(folder.to_owned())
}

/// How a program finds the library.
enum Linked {
    Shared,
    Archive,
}

/// Compiles a program with all warnings as errors. `POTLUCK_SANITIZE=address` has the compiler's
/// AddressSanitizer watch it.
fn compiled(folder: &Path, source: &str, linked: &Linked) -> Result<PathBuf> {
    let source = package().join(source);
    let program = folder.join(source.file_stem().context("a name")?);
    let is_cpp = source.extension().is_some_and(|ending| ending == "cpp");
    let (compiler, standard) = if is_cpp { ("c++", "-std=c++17") } else { ("cc", "-std=c11") };
    let mut command = Command::new(compiler);
    let standard = if source.ends_with("examples/sum.c") { "-std=c99" } else { standard };
    command.args([standard, "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]);
    command.arg(package().join("include")).arg(&source).arg("-o").arg(&program);
    if let Some(sanitizer) = std::env::var_os("POTLUCK_SANITIZE") {
        let sanitizer = sanitizer.to_string_lossy().into_owned();
        command.args([format!("-fsanitize={sanitizer}"), "-fno-omit-frame-pointer".to_owned()]);
    }
    let libraries = libraries()?;
    match linked {
        Linked::Shared => {
            // Programs ask for the library by the name with its version.
            let named = folder.join("libpotluck.so.0");
            if !named.exists() {
                std::os::unix::fs::symlink(libraries.join("libpotluck.so"), &named)?;
            }
            command.arg(named).arg(format!("-Wl,-rpath,{}", folder.display()));
        }
        Linked::Archive => {
            command.arg(libraries.join("libpotluck.a")).args(["-lpthread", "-ldl", "-lm"]);
        }
    }
    succeeded(&mut command)?;
    Ok(program)
}

fn succeeded(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{told}", output.status);
    Ok(output)
}

/// A namespace that no other test has.
fn namespace() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("c-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Starts a program that forms a group on this machine.
fn start(program: &Path, home: &Path, arguments: &[&str]) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).env("POTLUCK_EXAMPLE_LOOPBACK", "1").env("POTLUCK_HOME", home);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().with_context(|| format!("{command:?}"))
}

fn ended(process: Child) -> Result<String> {
    let output = process.wait_with_output()?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}\n{out}\n{err}", output.status);
    Ok(out.into_owned())
}

/// Runs two of these at the same time, and returns their outputs in order.
fn pair(program: &Path, folder: &Path, arguments: &[&str]) -> Result<[String; 2]> {
    let first = start(program, &folder.join("home"), arguments)?;
    let second = start(program, &folder.join("home"), arguments)?;
    let mut outputs = [ended(first)?, ended(second)?];
    outputs.sort();
    Ok(outputs)
}

fn sums(linked: &Linked) -> Result<()> {
    let folder = TempDir::new()?;
    let program = compiled(folder.path(), "examples/sum.c", linked)?;
    let outputs = pair(&program, folder.path(), &[&namespace(), "2", "5"])?;
    let right = |rank| format!("rank {rank} of 2: the sum is right\n");
    ensure!(outputs == [right(0), right(1)], "{outputs:?}");
    Ok(())
}

fn shared() -> Result<()> {
    sums(&Linked::Shared)
}

fn archived() -> Result<()> {
    sums(&Linked::Archive)
}

fn averaged() -> Result<()> {
    let folder = TempDir::new()?;
    let program = compiled(folder.path(), "examples/mean.cpp", &Linked::Shared)?;
    let outputs = pair(&program, folder.path(), &[&namespace(), "2"])?;
    let mean = |rank| format!("rank {rank}: the mean is 0.5\n");
    ensure!(outputs == [mean(0), mean(1)], "{outputs:?}");
    Ok(())
}

/// Kills the first of three that sum without end, and sees the others go on: their call was under
/// way, or had not begun; its memory is as it was; and then they sum as two.
fn one_is_killed(begin: impl Fn() -> Result<Child>, memory: &str) -> Result<()> {
    let mut members = [begin()?, begin()?, begin()?];
    let outputs: Result<Vec<_>> = members.iter_mut().map(lines).collect();
    let mut outputs = outputs?;
    let told = (|| {
        for lines in &mut outputs {
            let first = lines.next().context("it has ended")??;
            ensure!(first.ends_with("of 3: the sum is right"), "{first}");
        }
        members[0].kill()?;
        for lines in &mut outputs[1..] {
            let lost = lines.next().context("it has ended")??;
            let kept = |code| lost.ends_with(&format!("of 3: {code}, {memory} kept"));
            ensure!(kept("aborted") || kept("view-changed"), "{lost}");
            let next = lines.next().context("it has ended")??;
            ensure!(next.ends_with("of 2: the sum is right"), "{next}");
        }
        Ok(())
    })();
    for mut member in members {
        let _ = member.kill();
        member.wait()?;
    }
    told
}

fn lines(process: &mut Child) -> Result<Lines<BufReader<ChildStdout>>> {
    Ok(BufReader::new(process.stdout.take().context("its output")?).lines())
}

fn killed() -> Result<()> {
    let folder = TempDir::new()?;
    let program = compiled(folder.path(), "examples/sum.c", &Linked::Shared)?;
    let (space, home) = (namespace(), folder.path().join("home"));
    one_is_killed(|| start(&program, &home, &[&space, "3", "1000000000"]), "buffer")
}

/// Compiles a program of C# with the binding.
fn compiled_net(folder: &Path, source: &str) -> Result<PathBuf> {
    let source = package().join(source);
    let program = folder.join(source.with_extension("exe").file_name().context("a name")?);
    let mut command = Command::new("mcs");
    command.args(["-unsafe", "-langversion:7.2", "-warnaserror", "-warn:4"]);
    command.arg(format!("-out:{}", program.display()));
    for file in ["dotnet/NativeMethods.g.cs", "dotnet/Potluck.cs"] {
        command.arg(package().join(file));
    }
    succeeded(command.arg(source))?;
    Ok(program)
}

/// A command for a program of C#, which finds the library.
fn mono(program: &Path) -> Result<Command> {
    let mut command = Command::new("mono");
    command.arg(program).env("LD_LIBRARY_PATH", libraries()?).env("POTLUCK_EXAMPLE_LOOPBACK", "1");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

fn dotnet_sums() -> Result<()> {
    let folder = TempDir::new()?;
    let program = compiled_net(folder.path(), "examples/Sum.cs")?;
    let space = namespace();
    let begin = || -> Result<Child> {
        let mut command = mono(&program)?;
        command.args([&space, "3", "1000000000"]).env("POTLUCK_HOME", folder.path().join("home"));
        Ok(command.spawn()?)
    };
    one_is_killed(begin, "array")
}

fn dotnet_calls() -> Result<()> {
    let folder = TempDir::new()?;
    let program = compiled_net(folder.path(), "tests/programs/Calls.cs")?;
    // It must end by itself, although it leaves handles to the garbage collector.
    let mut command = Command::new("timeout");
    command.args(["120", "mono"]).arg(&program).env("LD_LIBRARY_PATH", libraries()?);
    let output = succeeded(&mut command)?;
    let told = String::from_utf8(output.stdout)?;
    ensure!(told.ends_with("all is right\n"), "{told}");
    Ok(())
}

fn dotnet_without() -> Result<()> {
    let folder = TempDir::new()?;
    let program = compiled_net(folder.path(), "examples/Sum.cs")?;
    let output = mono(&program)?.env_remove("LD_LIBRARY_PATH").args(["a", "2", "1"]).output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3), "{output:?}");
    ensure!(told.starts_with("the native library of potluck (libpotluck) is not found;"), "{told}");
    Ok(())
}

fn installed() -> Result<()> {
    let folder = TempDir::new()?;
    let prefix = folder.path().join("usr");
    let install = package().join("../scripts/capi.sh");
    succeeded(Command::new(install).arg("install").arg(&prefix).env("LIBRARIES", libraries()?))?;
    let query = |what: &str| -> Result<Vec<String>> {
        let folder = prefix.join("lib/pkgconfig");
        let mut command = Command::new("pkg-config");
        let output = succeeded(command.args([what, "potluck"]).env("PKG_CONFIG_PATH", folder))?;
        let words = String::from_utf8(output.stdout)?;
        Ok(words.split_whitespace().map(str::to_owned).collect())
    };
    let program = folder.path().join("sum");
    let mut command = Command::new("cc");
    command.args(query("--cflags")?).arg(package().join("examples/sum.c")).arg("-o").arg(&program);
    succeeded(command.args(query("--libs")?))?;
    let mut usage = Command::new(&program);
    let output = usage.env("LD_LIBRARY_PATH", prefix.join("lib")).output()?;
    ensure!(output.status.code() == Some(2), "{output:?}");
    Ok(())
}

fn exported() -> Result<()> {
    let library = libraries()?.join("libpotluck.so");
    let output = succeeded(Command::new("nm").args(["-D", "--defined-only"]).arg(library))?;
    let symbols = String::from_utf8(output.stdout)?;
    let names: Vec<&str> =
        symbols.lines().filter_map(|line| line.split_whitespace().last()).collect();
    let header = fs::read_to_string(package().join("include/potluck.h"))?;
    for name in &names {
        ensure!(name.starts_with("potluck_") && header.contains(&format!("{name}(")), "{name}");
    }
    ensure!(names.len() > 40, "{names:?}");
    Ok(())
}

/// `POTLUCK_SECONDS` has it run longer than usual.
fn orders() -> Result<()> {
    let folder = TempDir::new()?;
    let program = compiled(folder.path(), "tests/programs/orders.c", &Linked::Shared)?;
    let seconds = std::env::var("POTLUCK_SECONDS").unwrap_or_else(|_| "5".to_owned());
    let seed = chance::seed("orders")?.to_string();
    let output = succeeded(Command::new(program).args([&seed, &seconds]))?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

fn statuses() -> Result<()> {
    let page = fs::read_to_string(package().join("../docs/errors.md"))?;
    let status = fs::read_to_string(package().join("src/status.rs"))?;
    let header = fs::read_to_string(package().join("include/potluck.h"))?;
    let failures = fs::read_to_string(package().join("../foreign/src/failure.rs"))?;
    let of_c = fs::read_to_string(package().join("../docs/c.md"))?;
    let table = page.split("## ").find(|part| part.starts_with("Codes\n"));
    // No function of the interface looks for a pairing code.
    let mut codes = codes_in(table.context("docs/errors.md has no codes")?);
    codes.retain(|code| *code != "pairing");
    ensure!(codes.len() > 10, "docs/errors.md has another form");
    let own = codes_in(&of_c);
    let mut named = vec!["timed-out"];
    for line in failures.lines().filter(|line| line.contains("Failure::") && line.contains("=> \""))
    {
        let code = line.split('"').nth(1).context("a code")?;
        named.push(code);
    }
    ensure!(named.len() > 6, "failure.rs has another form");
    for code in named {
        ensure!(own.contains(&code), "docs/c.md does not list {code}");
    }
    // Its status is that of errors without one.
    codes.extend(own.iter().filter(|code| **code != "thread"));
    for code in &codes {
        let name = format!("POTLUCK_{}", code.to_uppercase().replace('-', "_"));
        if !status.contains(&format!("\"{code}\"")) || !header.contains(&name) {
            bail!("{code} has no status");
        }
    }
    Ok(())
}

/// The codes in the first column of a table.
fn codes_in(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|row| row.strip_prefix("| `")?.split_once('`'));
    rows.map(|(code, _)| code).collect()
}
