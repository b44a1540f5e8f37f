//! Sizes in the file of a paper: sums such as `25 % + 16 MiB`.
//!
//! | part | stands for |
//! |---|---|
//! | `16 MiB` | itself |
//! | `25 %` | so many per cent of the data of the trial |
//! | `25 % in chunks` | the same in whole MiB |
//! | `110 % prepared` | so many per cent of all images as they are decoded and cropped |
//! | `staged` | what a job of this training stages beside its tiers, as a run reported it |

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value as Json;
use tierfeed_core::units::Bytes;

use super::expansion::replaced;

/// Tiers have whole chunks.
const CHUNK: u64 = 1 << 20;

/// A prepared image: three levels for each pixel.
const PREPARED: u64 = 3 * 224 * 224;

/// What parts of sums stand for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) data: Bytes,
    pub(super) images: u32,
    pub(super) staged: Bytes,
    /// The folder of the experiment, which a job may name.
    pub(super) folder: &'a Path,
}

impl Known<'_> {
    /// # Errors
    ///
    /// If a part is none of those above.
    pub(super) fn size(&self, sum: &str) -> anyhow::Result<Bytes> {
        let mut size = Bytes(0);
        for part in sum.split(" + ") {
            let mut parts = part.split(" - ");
            size.0 += self.part(parts.next().unwrap_or_default())?.0;
            for less in parts {
                size.0 = size.0.saturating_sub(self.part(less)?.0);
            }
        }
        Ok(size)
    }

    fn part(&self, part: &str) -> anyhow::Result<Bytes> {
        let Some((percent, of)) = part.split_once(" %") else {
            return match part {
                "staged" => Ok(self.staged),
                other => other.parse().with_context(|| format!("{other} is no size")),
            };
        };
        let (whole, tenths) = percent.split_once('.').unwrap_or((percent, "0"));
        let is_wrong = || format!("{part}: per cent have one digit after the point");
        let [whole, tenths] = [whole, tenths].map(|it| it.parse::<u64>().with_context(is_wrong));
        let per_mille = whole? * 10 + tenths?;
        let data = self.data.0 * per_mille / 1000;
        Ok(Bytes(match of {
            "" => data,
            " in chunks" => data / CHUNK * CHUNK,
            " prepared" => u64::from(self.images) * PREPARED * per_mille / 1000,
            _ => anyhow::bail!("{part} is no size"),
        }))
    }

    /// Every `size` of a job in bytes, and the folder where the job names it.
    pub(super) fn in_job(&self, job: &mut Json) -> anyhow::Result<()> {
        let folder = |name: &str| (name == "folder").then(|| self.folder.display().to_string());
        for (key, value) in job.as_object_mut().into_iter().flatten() {
            match value {
                Json::String(sum) if key == "size" => *sum = format!("{} B", self.size(sum)?.0),
                Json::String(text) => *text = replaced(text, folder),
                other => self.in_job(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_sums_of_parts_of_the_data() {
        let known = Known {
            data: Bytes(10_000_000),
            images: 10,
            staged: Bytes(5),
            folder: Path::new("/f"),
        };
        let size = |sum| known.size(sum).unwrap().0;
        assert_eq!(size("25 % + 1 MiB"), 2_500_000 + (1 << 20));
        assert_eq!(size("29.6 % - 1 B"), 2_959_999);
        assert_eq!(size("1 % - 32 MiB"), 0);
        assert_eq!(size("20 % in chunks + staged"), (1 << 20) + 5);
        assert_eq!(size("110 % prepared"), 11 * PREPARED);
        let mut job = serde_json::json!({ "a": { "size": "1 %", "path": "{folder}/x" } });
        known.in_job(&mut job).unwrap();
        assert_eq!(job, serde_json::json!({ "a": { "size": "100000 B", "path": "/f/x" } }));
        assert!(known.size("much").is_err() && known.size("5 % of it").is_err());
    }
}
