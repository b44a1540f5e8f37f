//! Files for experiments: made in a folder of their own, and removed with it.

use std::{
    fs,
    io::{BufWriter, Write as _},
    path::Path,
};

use anyhow::Context as _;

use crate::{leftovers, parallel};

/// Runs `experiment` in a new folder below `parent`, and removes the folder even if the experiment fails.
///
/// # Errors
///
/// Those of the experiment, and if the folder cannot be made or removed.
pub fn in_folder<T>(
    parent: &Path,
    experiment: impl FnOnce(&Path) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let folder = parent.join(leftovers::own_name());
    fs::create_dir_all(&folder)
        .with_context(|| format!("{}: cannot make the folder", folder.display()))?;
    let outcome = experiment(&folder);
    let removed = fs::remove_dir_all(&folder);
    // What went wrong in the experiment is the cause, also of a folder that cannot be removed.
    let value = outcome?;
    removed.with_context(|| format!("{}: left behind", folder.display()))?;
    Ok(value)
}

/// Writes an image folder of `count` files of 20 to 200 KB in ten classes, and returns their bytes.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write_image_folder(folder: &Path, count: u64) -> anyhow::Result<u64> {
    let numbers: Vec<u64> = (0..count).collect();
    let write = |&number: &u64| {
        let class = folder.join(format!("class{:02}", number % 10));
        let len = 20_000 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 180_000;
        write_noise(&class.join(format!("{number:05}.jpg")), number, len)?;
        Ok(len)
    };
    parallel::each(&numbers, write, &mut |_| ()).into_iter().sum()
}

/// Writes `len` bytes without a pattern, the same for the same seed; makes the folder if need be.
///
/// # Errors
///
/// If folder or file cannot be written.
pub fn write_noise(path: &Path, seed: u64, len: u64) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    let file = fs::File::create(path).with_context(|| format!("{}", path.display()))?;
    let mut writer = BufWriter::with_capacity(1 << 16, file);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut left = usize::try_from(len).context("the file is larger than memory")?;
    while left > 0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = state.to_le_bytes();
        let piece = left.min(word.len());
        writer.write_all(&word[..piece])?;
        left -= piece;
    }
    writer.flush()?;
    Ok(())
}
