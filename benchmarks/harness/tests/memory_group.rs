//! A memory group limits its processes, on a disk that is slow too.

use std::{path::Path, process::Stdio, time::Duration};

use tierfeed_core::units::Bytes;
use tierfeed_harness::{files, memory_group::MemoryGroup, slow_disk::on_slow_disk};
use tierfeed_test_needs::{Need, skip};

const LIMIT: Bytes = Bytes::mib(32);

#[test]
fn a_process_beside_a_slow_disk_is_in_the_groups_of_both_and_dies_of_too_much_memory() {
    if let Err(error) = MemoryGroup::make(None) {
        return skip(Need::MemoryGroups, format!("{error:#}"));
    }
    let in_group = |folder: &Path| {
        on_slow_disk(folder, Bytes::mib(1), |disk| {
            let group = MemoryGroup::make(Some(disk))?;
            group.limit(LIMIT)?;
            let joined = group.enter("cat".as_ref()).arg("/proc/self/cgroup").output()?;
            // `tail` keeps a line that does not end.
            let mut hungry = group.enter("sh".as_ref());
            hungry.args(["-c", "head -c 100M /dev/zero | tail"]);
            hungry.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            assert!(group.wait_until_empty(Duration::from_secs(5)));
            Ok((String::from_utf8_lossy(&joined.stdout).into_owned(), group.has_killed()))
        })
    };
    match files::in_folder(&std::env::temp_dir(), in_group) {
        Ok((joined, has_killed)) => {
            assert!(joined.contains("-disk-") && joined.contains("-memory-"), "{joined}");
            assert!(has_killed);
        }
        Err(error) => skip(Need::Mounts, format!("{error:#}")),
    }
}
