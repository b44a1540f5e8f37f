use std::{fs::File, time::Duration};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tierfeed_core::id::NodeId;
use tierfeed_resource_gatherer::Sysroot;
use tierfeed_test_needs::{Need, skip};
use tierfeed_workload_analyzer::job::{AfterRun, JobScratch};

use super::*;

/// A file system whose server never answers, until it is dropped.
struct Silent {
    server: Option<File>,
    at: PathBuf,
}

impl Silent {
    /// `None` where this user may not mount, or the kernel has no FUSE.
    fn mount(at: &std::path::Path) -> Option<Self> {
        use std::os::fd::AsRawFd as _;
        let server = File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        mount(Some("silent"), at, Some("fuse"), MsFlags::empty(), Some(options.as_str())).ok()?;
        Some(Self { server: Some(server), at: at.to_owned() })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Processes that wait for the server get an error now.
        drop(self.server.take());
        umount2(&self.at, MntFlags::MNT_DETACH).unwrap();
    }
}

fn watch() -> Watch {
    Watch::new(Sysroot::live()).unwrap()
}

#[tokio::test]
async fn disks_are_told_of_with_the_next_look_at_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let mut monitor = Monitor::new(watch(), vec![folder.path().to_owned()], None);
    assert!(monitor.next().await.is_none(), "nothing is looked at yet");
    loop {
        monitor.measure();
        let available = monitor.next().await.unwrap().available.unwrap();
        assert!(available.host.0 > 0);
        if let [disk] = &available.disks[..] {
            assert_eq!(disk.path, folder.path());
            return;
        }
    }
}

#[tokio::test]
async fn processes_of_the_job_are_looked_for_at_a_tick_and_not_at_each_look() {
    let limit = Bytes(1);
    let mut monitor = Monitor::new(watch().within(Some(limit)), Vec::new(), None);
    let left = async |monitor: &mut Monitor| {
        monitor.next().await.unwrap().available.unwrap().cgroup.unwrap()
    };
    monitor.measure();
    assert_eq!(left(&mut monitor).await, Bytes(0), "this process holds more");
    assert!(monitor.job_processes.as_ref().unwrap().contains(&std::process::id()));
    monitor.job_processes = Some(Vec::new());
    monitor.measure_memory();
    assert_eq!(left(&mut monitor).await, limit, "a look reads the processes that are known");
    monitor.measure();
    assert_eq!(left(&mut monitor).await, Bytes(0));
}

#[tokio::test]
async fn a_disk_and_a_scratch_that_do_not_answer_delay_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let wish = JobScratch { size: Bytes::mib(1), after_run: AfterRun::Keep };
    let scratch = Scratch::prepare((folder.path(), None), "job", NodeId(0), wish).unwrap();
    let place = scratch.path().to_owned();
    let Some(silent) = Silent::mount(&place) else {
        skip(Need::Fuse, "this user may not mount a FUSE file system");
        return;
    };
    let mut monitor = Monitor::new(watch(), vec![place.join("tier")], Some(scratch));
    for _ in 0..20 {
        monitor.measure();
        let availability = tokio::time::timeout(Duration::from_secs(5), monitor.next()).await;
        let available = availability.expect("memory is told of").unwrap().available.unwrap();
        assert_eq!(available.disks, []);
    }
    assert_eq!(monitor.open.len(), 2, "one look at the disk and one at the scratch are open");
    drop(silent);
    assert!(monitor.end().await.is_some(), "it answers again");
}
