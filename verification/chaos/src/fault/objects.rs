//! Faults of the cold store: objects that vanish, are cut short or stall, and a store that refuses. Files are
//! replaced in their folder; a bucket is told to misbehave.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use anyhow::Context as _;
use nix::{fcntl::OFlag, sys::stat::Mode, unistd::mkfifo};

use super::{Fault, Injection, undone_by};
use crate::{bucket::Bucket, supervisor::Supervisor, testbed::Testbed};

const OBJECTS_PER_FAULT: usize = 8;

pub(super) fn hide<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    damage(at.testbed, fault, "hide", OBJECTS_PER_FAULT, |_, _| Ok(()))
}

pub(super) fn cut<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    damage(at.testbed, fault, "cut", OBJECTS_PER_FAULT, |object, aside| {
        let bytes = fs::read(aside)?;
        Ok(fs::write(object, &bytes[..bytes.len() / 2])?)
    })
}

/// A process that opens a pipe for reading waits for a writer, as for a file server that is gone.
pub(super) fn stall<'a>(at: &mut Supervisor<'a>, fault: Fault) -> Injection<'a> {
    let put_pipe = |object: &Path, _: &Path| Ok(mkfifo(object, Mode::S_IRUSR | Mode::S_IWUSR)?);
    damage(at.testbed, fault, "stall", 1, put_pipe)
}

/// Every request is refused.
pub(super) fn refuse<'a>(at: &mut Supervisor<'a>, _: Fault) -> Injection<'a> {
    let Some(bucket) = &at.testbed.bucket else { return Ok(None) };
    fail(bucket, "refuse", &[])
}

fn fail<'a>(bucket: &'a Bucket, what: &str, keys: &[String]) -> Injection<'a> {
    let number = bucket.begin(what, keys)?;
    Ok(Some(undone_by(move |_| bucket.end(number))))
}

/// Lets the server do `what` to some objects, or moves `count` files aside and puts something else in their
/// place. The fault selects the first; those that follow are consecutive.
fn damage<'a>(
    testbed: &'a Testbed,
    fault: Fault,
    what: &str,
    count: usize,
    put: fn(&Path, &Path) -> anyhow::Result<()>,
) -> Injection<'a> {
    let objects = &testbed.objects;
    let first = usize::try_from(fault.target % objects.len() as u64).expect("below a length");
    let objects = objects.iter().cycle().skip(first);
    if let Some(bucket) = &testbed.bucket {
        let data = testbed.folder.data();
        let keys = objects.take(OBJECTS_PER_FAULT).map(|object| {
            let name = object.strip_prefix(&data)?;
            Ok(name.to_str().context("names of objects are UTF-8")?.to_owned())
        });
        return fail(bucket, what, &keys.collect::<anyhow::Result<Vec<_>>>()?);
    }
    let mut displaced = Vec::new();
    for object in objects.take(count) {
        let name = object.file_name().context("an object has a name")?;
        let aside = testbed.folder.join("aside").join(name);
        // Another fault may have moved it already.
        if aside.exists() {
            continue;
        }
        fs::rename(object, &aside)?;
        put(object, &aside)?;
        displaced.push((object, aside));
    }
    let has_some = !displaced.is_empty();
    let put_back = move |_: &mut _| displaced.iter().try_for_each(|it| restore(it.0, &it.1));
    Ok(has_some.then(|| undone_by(put_back)))
}

fn restore(object: &Path, aside: &Path) -> anyhow::Result<()> {
    // Opening the pipe for writing releases its readers; it fails if there are none.
    let mut options = OpenOptions::new();
    let flags = OFlag::O_NONBLOCK.bits();
    drop(options.write(true).custom_flags(flags).open(object));
    Ok(fs::rename(aside, object)?)
}
