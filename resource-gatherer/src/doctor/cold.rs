//! Judges how the files of datasets are read: by rings past the page cache, or by threads through it.

use tierfeed_file_io::direct::Alignment;

use super::{
    Facts, Finding, FixPlace,
    facts::{Attempt, ColdFiles, Rings},
};
use crate::inventory::mount::Medium;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let of_path = |files: &ColdFiles| [engine(facts, files), dont_cache(facts, files), view(files)];
    facts.cold.iter().flat_map(of_path).collect()
}

/// The engine that an agent chooses for these files before it measures both engines. Faults of the rings
/// themselves belong to the finding about rings.
fn engine(facts: &Facts, files: &ColdFiles) -> Finding {
    const SUBJECT: &str = "cold reads";
    let place = place(files);
    let can_ring = matches!(facts.rings, Rings::Usable | Rings::Untried);
    match files.direct {
        Attempt::Untried => Finding::ok(SUBJECT, format!("{place}: no file to try")),
        Attempt::Refused(_) if files.medium == Medium::Memory => {
            Finding::ok(SUBJECT, format!("{place}: threads; the files are in memory already"))
        }
        Attempt::Refused(_) => container_volume(
            Finding::degraded(
                SUBJECT,
                format!("{place}: O_DIRECT {}", files.direct.said()),
                "its files are read by threads through the page cache, which costs more CPU time",
            ),
            files,
        ),
        Attempt::Done if can_ring && !is_refused(files.view) => {
            let asks = files.alignment.map_or_else(String::new, asks);
            Finding::ok(
                SUBJECT,
                format!("{place}: io_uring past the page cache where samples share files{asks}"),
            )
        }
        Attempt::Done => Finding::ok(SUBJECT, format!("{place}: threads through the page cache")),
    }
}

fn dont_cache(facts: &Facts, files: &ColdFiles) -> Finding {
    const SUBJECT: &str = "page cache spared";
    const SINCE: (u32, u32) = (6, 14);
    let found = format!("{}: RWF_DONTCACHE {}", place(files), files.dont_cache.said());
    if !is_refused(files.dont_cache) || files.medium == Medium::Memory {
        return Finding::ok(SUBJECT, found);
    }
    let finding = Finding::degraded(
        SUBJECT,
        found,
        "what threads read in is dropped afterwards by posix_fadvise, page by page, at more CPU time",
    );
    if version(&facts.kernel).is_some_and(|version| version >= SINCE) {
        // The kernel could; the file system cannot.
        return container_volume(finding, files);
    }
    finding.fix(FixPlace::Host, "boot Linux 6.14 or later, with the files on ext4, xfs or btrfs")
}

fn view(files: &ColdFiles) -> Finding {
    const SUBJECT: &str = "page cache seen";
    let found = format!("{}: cachestat {}", place(files), files.view.said());
    let finding = Finding::degraded(
        SUBJECT,
        found.clone(),
        "files are read by threads, because rings would read again what is in the page cache",
    );
    match files.view {
        Attempt::Done | Attempt::Untried => Finding::ok(SUBJECT, found),
        denied if denied.is_denied() => finding
            .fix(FixPlace::Container, "--security-opt seccomp=PROFILE.json that allows cachestat")
            .fix(FixPlace::Systemd, "SystemCallFilter=cachestat"),
        Attempt::Refused(_) => finding.fix(FixPlace::Host, "boot Linux 6.5 or later"),
    }
}

/// A layered file system of a container hides the disk below it.
fn container_volume(finding: Finding, files: &ColdFiles) -> Finding {
    let path = files.path.display();
    match files.file_system.as_str() {
        "overlay" => finding
            .fix(FixPlace::Container, format!("-v {path}:{path}"))
            .fix(FixPlace::Kubernetes, format!("a volume mounted at {path}")),
        _ => finding.fix(
            FixPlace::Host,
            format!("put the files of {path} on ext4 or xfs, which have direct I/O"),
        ),
    }
}

fn is_refused(attempt: Attempt) -> bool {
    matches!(attempt, Attempt::Refused(_))
}

fn place(files: &ColdFiles) -> String {
    format!("{} on {}", files.path.display(), files.file_system)
}

fn asks(alignment: Alignment) -> String {
    let Alignment { memory, offset } = alignment;
    format!(", memory at multiples of {memory}, offsets of {offset}")
}

/// The first two numbers of a release such as `6.12.9-amd64`.
fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel.trim().split(|char: char| !char.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert_eq!(version("6.12.9-amd64\n"), Some((6, 12)));
        assert_eq!(version("6.14-rc3"), Some((6, 14)));
        assert!(version("6.9.0").unwrap() < (6, 14));
        assert_eq!(version("kernel"), None);
    }
}
