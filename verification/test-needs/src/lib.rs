//! Makes skipped tests visible: every test that cannot run on a machine reports it through
//! [`skip`].
//!
//! Two environment variables decide the consequence (`docs/testing.md`):
//!
//! - `TIERFEED_REQUIRE` lists the needs that this machine meets, separated by commas, and with a
//!   `-` before them those that it does not meet. `scripts/offers.py` determines them with system
//!   calls of its own, so a fault of the code under test cannot excuse a skip. A skip for a need
//!   that is not marked with `-` fails the test. Without the variable a skip is only printed.
//! - `TIERFEED_SKIPS` names a file that receives one line for each skip: need, place, reason.

#![expect(clippy::print_stdout, reason = "the runner of tests shows it")]
#![forbid(unsafe_code)]

use std::{
    env,
    fmt::{self, Display},
    fs::File,
    io::{self, Write as _},
    panic::Location,
    process::Command,
};

/// A need that a machine may not meet. `scripts/offers.py` probes for each of these under the same
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    IoUring,
    /// A file system below the folder for temporary files that can bypass the page cache.
    DirectIo,
    /// The system call `cachestat(2)`, Linux 6.5.
    Cachestat,
    Mounts,
    Fuse,
    /// The right to make a control group with a limit of memory, of version 1 or 2.
    MemoryGroups,
    /// The right to fill the pool of reserved huge pages.
    HugePages,
    /// The right to poison a page of memory (`MADV_HWPOISON`).
    MemoryPoison,
    /// `set_mempolicy(2)` with `MPOL_PREFERRED_MANY`, Linux 5.15.
    MemoryPolicies,
    /// The right to lock a few MiB of memory.
    LockedMemory,
    OneNode,
    SeveralNodes,
    /// The user root, who gives files to other users and starts their processes.
    Superuser,
    Setpriv,
    /// The program `strace`, and the right to trace a child.
    Strace,
}

impl Need {
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io-uring",
            Self::DirectIo => "direct-io",
            Self::Cachestat => "cachestat",
            Self::Mounts => "mounts",
            Self::Fuse => "fuse",
            Self::MemoryGroups => "memory-groups",
            Self::HugePages => "huge-pages",
            Self::MemoryPoison => "memory-poison",
            Self::MemoryPolicies => "memory-policies",
            Self::LockedMemory => "locked-memory",
            Self::OneNode => "one-node",
            Self::SeveralNodes => "several-nodes",
            Self::Superuser => "superuser",
            Self::Setpriv => "setpriv",
            Self::Strace => "strace",
        }
    }
}

impl Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Records that the calling test does not run here. The test returns right after the call.
///
/// # Panics
///
/// If `TIERFEED_REQUIRE` is set and does not list that this machine lacks `need`.
#[track_caller]
pub fn skip(need: Need, why: impl Display) {
    let place = format!("{} ({})", Location::caller(), test_name());
    let required = variable("TIERFEED_REQUIRE");
    assert!(
        required.as_deref().is_none_or(|list| is_excused(list, need)),
        "{place} skips for want of {need}, and TIERFEED_REQUIRE does not list -{need}: {why}"
    );
    println!("skipped for want of {need}: {place}: {why}");
    if let Some(path) = variable("TIERFEED_SKIPS") {
        record(&path, &format!("{need}\t{place}\t{why}"))
            .unwrap_or_else(|error| panic!("TIERFEED_SKIPS={path}: {error}"));
    }
}

/// Whether `TIERFEED_REQUIRE` requires that a test with this need runs.
pub fn requires(need: Need) -> bool {
    variable("TIERFEED_REQUIRE").is_some_and(|list| !is_excused(&list, need))
}

/// Runs the calling test again, as root without the right to bypass permission bits. For tests of
/// refusals, which root does not get otherwise.
///
/// # Panics
///
/// If the test fails there.
#[track_caller]
pub fn again_without_file_rights(test: &str) {
    const AGAIN: &str = "TIERFEED_TEST_AGAIN";
    const RIGHTS: &str = "-dac_override,-dac_read_search";
    assert!(variable(AGAIN).is_none(), "this process has the rights that were taken from it");
    let mut command = Command::new("setpriv");
    command.args([format!("--inh-caps={RIGHTS}"), format!("--bounding-set={RIGHTS}")]);
    let exe = env::current_exe().expect("a test runs from a file");
    match command.arg(exe).args(["--exact", test]).env(AGAIN, "1").output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
        }
        Err(error) => skip(Need::Setpriv, error),
    }
}

/// `cargo nextest` runs a test in the main thread of a process of its own.
fn test_name() -> String {
    let of_thread = || std::thread::current().name().map(str::to_owned);
    variable("NEXTEST_TEST_NAME").or_else(of_thread).unwrap_or_else(|| "unnamed".to_owned())
}

fn is_excused(required: &str, need: Need) -> bool {
    required.split(',').any(|entry| entry.trim().strip_prefix('-') == Some(need.name()))
}

#[expect(clippy::disallowed_methods, reason = "only tests link this, and their runner speaks so")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// One write for one line, so that lines of concurrent tests stay whole.
fn record(path: &str, line: &str) -> io::Result<()> {
    let one_line = line.replace('\n', " ") + "\n";
    File::options().append(true).create(true).open(path)?.write_all(one_line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_need_that_the_machine_is_said_to_lack_excuses_a_skip() {
        assert!(is_excused("io-uring,-cachestat", Need::Cachestat));
        assert!(is_excused("mounts, -cachestat ,-strace", Need::Cachestat));
        assert!(!is_excused("io-uring,cachestat", Need::Cachestat));
        assert!(!is_excused("all", Need::Cachestat));
        assert!(!is_excused("", Need::IoUring), "an unnamed need excuses nothing");
        assert!(!is_excused("-io-uring-of-old", Need::IoUring));
    }

    #[test]
    fn lines_of_skips_follow_each_other() {
        let path = std::env::temp_dir().join(format!("tierfeed-skips-{}", std::process::id()));
        let path = path.to_str().unwrap();
        record(path, "a\tb\tsaid\nin two lines").unwrap();
        record(path, "c").unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(text, "a\tb\tsaid in two lines\nc\n");
    }
}
