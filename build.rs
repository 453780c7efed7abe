//! Builds the C++ bridge if the feature `gloo` is on, and does nothing otherwise.
//!
//! CMake finds Gloo, and compiles the shim together with cxx's generated code into one archive, so
//! that their order on the linker's command line does not matter.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "gloo")]
    gloo::build();
}

#[cfg(feature = "gloo")]
mod gloo {
    use anyhow::{Context, Result, bail};
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::{env, fs};

    const MISSING: &str = "potluck's feature `gloo` needs Gloo: apt-get install libgloo-dev cmake \
        g++, or set GLOO_ROOT to the prefix of a Gloo built from its sources (docs/gloo.md)";

    const SHORTCUT: &str = "potluck's feature `gloo` cannot use this Gloo, because it moves data \
        between processes of one machine past its transport (it has gloo/allreduce_shm.h), and \
        potluck's links are one: take one without it (docs/gloo.md)";

    const SOURCES: [&str; 5] = ["CMakeLists.txt", "shim.cc", "shim.h", "store.h", "transport.h"];
    const BRIDGE: &str = "src/gloo_ffi/bridge.rs";

    pub fn build() {
        for file in SOURCES {
            println!("cargo::rerun-if-changed=cpp/{file}");
        }
        println!("cargo::rerun-if-changed={BRIDGE}");
        for variable in ["GLOO_ROOT", "CMAKE", "CXX", "DOCS_RS"] {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        // A documentation build needs no C++.
        if env::var_os("DOCS_RS").is_some() {
            return;
        }
        if let Err(error) = compile() {
            println!("cargo::error={error}");
        }
    }

    /// The definitions for CMake.
    struct Settings {
        defines: Vec<(&'static str, String)>,
    }

    fn compile() -> Result<()> {
        let out = PathBuf::from(env::var("OUT_DIR")?);
        let settings = Settings::of(&out)?;
        settings.try_out(&out.join("gloo-check"))?;
        // Generate only, without `compile`: CMake compiles.
        drop(cxx_build::bridge(BRIDGE));
        let mut cmake = cmake::Config::new("cpp");
        for (name, value) in &settings.defines {
            cmake.define(name, value);
        }
        // Optimize in every profile: the loops that move data are too slow in a debug build.
        let built = cmake.profile("Release").build_target("potluck_gloo").build().join("build");
        println!("cargo::rustc-link-search=native={}", built.display());
        println!("cargo::rustc-link-lib=static=potluck_gloo");
        link_gloo(&built)?;
        let target = env::var("TARGET")?;
        println!(
            "cargo::rustc-link-lib={}",
            if target.contains("apple") { "c++" } else { "stdc++" }
        );
        Ok(())
    }

    impl Settings {
        fn of(out: &Path) -> Result<Settings> {
            let root = env::var_os("GLOO_ROOT").map(|root| root.to_string_lossy().into_owned());
            let rustflags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
            let sanitize = if rustflags.contains("sanitizer=address") { "address" } else { "" };
            let bridge = out.join("cxxbridge");
            Ok(Settings {
                defines: vec![
                    // A set but empty GLOO_ROOT differs from an unset one: the check then fails
                    // instead of searching the default prefixes.
                    (
                        "POTLUCK_GLOO_ROOT_ONLY",
                        if root.is_some() { "ON" } else { "OFF" }.to_string(),
                    ),
                    ("POTLUCK_GLOO_ROOT", root.unwrap_or_default()),
                    ("POTLUCK_SANITIZE", sanitize.to_string()),
                    ("POTLUCK_BRIDGE_INCLUDE", text(&bridge.join("include"))?),
                    (
                        "POTLUCK_BRIDGE_SOURCE",
                        text(&bridge.join("sources/potluck").join(BRIDGE).with_extension("rs.cc"))?,
                    ),
                ],
            })
        }

        /// Runs CMake's configuration alone, so that a missing Gloo is reported in one sentence
        /// instead of pages of CMake's output.
        fn try_out(&self, folder: &Path) -> Result<()> {
            // Remove the result of an earlier check; the folder may not exist.
            let _ = fs::remove_dir_all(folder);
            let program = env::var_os("CMAKE").unwrap_or_else(|| "cmake".into());
            let mut cmake = Command::new(program);
            cmake.arg("-S").arg("cpp").arg("-B").arg(folder).arg("-DPOTLUCK_CHECK=ON");
            for (name, value) in &self.defines {
                cmake.arg(format!("-D{name}={value}"));
            }
            let Ok(said) = cmake.output() else { bail!(MISSING) };
            if said.status.success() {
                return Ok(());
            }
            if String::from_utf8_lossy(&said.stderr).contains("allreduce_shm.h") {
                bail!(SHORTCUT);
            }
            match env::var("GLOO_ROOT") {
                Ok(root) => bail!("{MISSING}; GLOO_ROOT is `{root}`, and only that is searched"),
                Err(_) => bail!(MISSING),
            }
        }
    }

    /// Links Gloo's library, whose path CMake wrote to a file.
    fn link_gloo(built: &Path) -> Result<()> {
        let file = built.join("gloo_link.txt");
        let library = PathBuf::from(
            fs::read_to_string(&file)
                .with_context(|| format!("{} cannot be read", file.display()))?
                .trim(),
        );
        let (Some(folder), Some(extension)) = (library.parent(), library.extension()) else {
            bail!("CMake says that Gloo's library is `{}`", library.display());
        };
        let kind = if extension == "a" { "static" } else { "dylib" };
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib={kind}=gloo");
        // The system's loader does not search this folder by itself. This argument does not reach
        // programs that depend on potluck.
        let is_system = folder.starts_with("/usr")
            || folder.starts_with("/lib")
            || folder.starts_with("/lib64");
        if kind == "dylib" && !is_system {
            println!("cargo::rustc-link-arg=-Wl,-rpath,{}", folder.display());
        }
        Ok(())
    }

    fn text(path: &Path) -> Result<String> {
        Ok(path.to_str().context("the build folder's name is not UTF-8")?.to_string())
    }
}
