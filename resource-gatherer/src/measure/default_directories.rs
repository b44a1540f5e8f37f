//! The RAM disk and the local storage that a probe measures by default.

use std::path::{Path, PathBuf};

use crate::{
    inventory::{mount, mount::Medium},
    sysroot::{ReadError, Sysroot},
};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Directories {
    pub scratch: Option<PathBuf>,
    pub storage: Option<PathBuf>,
}

/// `/dev/shm` if it is in memory, and `/var/tmp`, else `/tmp`, if it is neither in memory nor on another
/// host.
///
/// # Errors
///
/// The mounts of the process cannot be read.
pub fn default_directories(sysroot: Sysroot<'_>) -> Result<Directories, ReadError> {
    let mounts = mount::read_all(sysroot)?;
    let find = |candidates: &[&str], fits: fn(Medium) -> bool| {
        let fitting = |path: &&&str| {
            let medium = mount::holding(&mounts, Path::new(path)).map(|mount| mount.medium);
            sysroot.join(path).is_dir() && medium.is_some_and(fits)
        };
        candidates.iter().find(fitting).map(PathBuf::from)
    };
    Ok(Directories {
        scratch: find(&["/dev/shm"], |medium| medium == Medium::Memory),
        storage: find(&["/var/tmp", "/tmp"], |medium| {
            !matches!(medium, Medium::Memory | Medium::Network)
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::FakeSysroot;

    #[test]
    fn each_directory_must_lie_on_its_medium() {
        let machine = FakeSysroot::bare();
        for directory in ["dev/shm", "var/tmp", "tmp"] {
            machine.write(&format!("{directory}/x"), "");
        }
        let found = || default_directories(Sysroot(machine.path())).unwrap();
        assert_eq!(found(), Directories { scratch: None, storage: Some("/var/tmp".into()) });
        machine.write(
            "proc/self/mountinfo",
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
             2 1 0:3 / /dev/shm rw - tmpfs tmpfs rw\n\
             3 1 0:4 / /var rw - nfs4 server:/var rw\n",
        );
        let both = Directories { scratch: Some("/dev/shm".into()), storage: Some("/tmp".into()) };
        assert_eq!(found(), both);
    }

    #[test]
    fn what_does_not_exist_is_not_named() {
        let found = default_directories(Sysroot(FakeSysroot::bare().path())).unwrap();
        assert_eq!(found, Directories::default());
    }
}
