//! Compiles the references and runs them: C of a few lines each, so that nothing has to be downloaded.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use super::sample::Sample;

const COMPILE_FLAGS: [&str; 4] =
    ["-O3", "-march=native", "-fopenmp", "-fno-tree-loop-distribute-patterns"];

#[derive(Debug)]
pub(super) struct Program(PathBuf);

#[derive(Debug, Default, PartialEq)]
pub(super) struct Printed {
    pub(super) samples: BTreeMap<String, Vec<Sample>>,
    /// Bytes of its memory in huge pages.
    pub(super) huge_bytes: Option<f64>,
}

impl Program {
    /// Compiles `source` to `folder/name`. The error is the reason and the remedy.
    pub(super) fn compile(
        compiler: &Path,
        folder: &Path,
        name: &str,
        source: &str,
    ) -> Result<Self, String> {
        let (from, to) = (folder.join(format!("{name}.c")), folder.join(name));
        fs::write(&from, source).map_err(|error| format!("{}: {error}", from.display()))?;
        let output =
            Command::new(compiler).args(COMPILE_FLAGS).arg("-o").arg(&to).arg(&from).output();
        let output = output.map_err(|error| {
            format!(
                "no reference: {} cannot be started ({error}); install a C compiler with OpenMP \
                 (Debian: apt-get install gcc libc6-dev) or name one with --compiler",
                compiler.display()
            )
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().find(|line| line.contains("error")).unwrap_or_default();
            return Err(format!("no reference: {} refuses {name}.c: {said}", compiler.display()));
        }
        Ok(Self(to))
    }

    /// Runs it with its threads on `cpus`, one on each.
    pub(super) fn run(&self, arguments: &[u64], cpus: &[usize]) -> anyhow::Result<Printed> {
        let places: Vec<String> = cpus.iter().map(|cpu| format!("{{{cpu}}}")).collect();
        let output = Command::new(&self.0)
            .args(arguments.iter().map(ToString::to_string))
            .env("OMP_NUM_THREADS", cpus.len().to_string())
            .env("OMP_DYNAMIC", "false")
            .env("OMP_PROC_BIND", "true")
            .env("OMP_PLACES", places.join(","))
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("{}: cannot be started", self.0.display()))?;
        if !output.status.success() {
            bail!("{}: failed ({})", self.0.display(), output.status);
        }
        parse(&String::from_utf8_lossy(&output.stdout))
    }
}

fn parse(text: &str) -> anyhow::Result<Printed> {
    let mut printed = Printed::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["huge_bytes", bytes] => {
                let bytes: f64 = bytes.parse().with_context(|| line.to_owned())?;
                printed.huge_bytes = (bytes >= 0.0).then_some(bytes);
            }
            [kernel, wall_ns, cpu_share] => {
                let sample = Sample {
                    wall_ns: wall_ns.parse().with_context(|| line.to_owned())?,
                    cpu_share: cpu_share.parse::<f64>().with_context(|| line.to_owned())?.min(1.0),
                };
                printed.samples.entry(kernel.to_owned()).or_default().push(sample);
            }
            _ => bail!("a reference printed {line:?}, which is neither a sample nor its pages"),
        }
    }
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_in_order_by_kernel() {
        let text = "copy 1000 0.9\ntriad 3000 1.2\ncopy 900 1.0\nhuge_bytes 4096\n";
        let printed = parse(text).unwrap();
        let sample = |wall_ns, cpu_share| Sample { wall_ns, cpu_share };
        assert_eq!(printed.samples["copy"], [sample(1000.0, 0.9), sample(900.0, 1.0)]);
        assert_eq!(printed.samples["triad"], [sample(3000.0, 1.0)]);
        assert_eq!(printed.huge_bytes, Some(4096.0));
    }

    #[test]
    fn a_kernel_that_does_not_tell_its_huge_pages_is_understood() {
        assert_eq!(parse("huge_bytes -1\n").unwrap().huge_bytes, None);
    }

    #[test]
    fn other_output_is_refused() {
        for text in ["copy fast 1.0", "copy 1", "segmentation fault in copy"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_compiler_says_what_to_install() {
        let folder = tempfile::tempdir().unwrap();
        let absent = Path::new("/nonexistent/cc");
        let reason = Program::compile(absent, folder.path(), "x", "int main;").unwrap_err();
        assert!(reason.contains("apt-get install gcc"), "{reason}");
    }
}
