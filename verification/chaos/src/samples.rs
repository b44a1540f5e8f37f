//! The samples of a campaign: noise that trainers get as it is stored, or images that the agent transforms,
//! of which some can never become a row.

use std::{
    fs::{self, File},
    io::BufWriter,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use tierfeed_core::latency_quantiles::Draws;
use tierfeed_harness::files;
use tierfeed_transform::worker_protocol::InputForm;
use tierfeed_transform_worker::{Input, Transform};
use tierfeed_workload_analyzer::Job;
use xxhash_rust::xxh3::xxh3_64;

/// What lies in the files of the dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Samples {
    /// Bytes without a pattern.
    Noise,
    /// Images, which the agent transforms. Some are damaged, and the job leaves them out.
    Images,
}

/// An image is damaged if its number modulo [`CYCLE`] is one of those that follow.
const CYCLE: u64 = 50;
const NO_IMAGE: u64 = 7;
const CUT: u64 = 19;
const CLAIMS_TOO_MUCH: u64 = 31;

/// More pixels a side than any job allows.
const CLAIMED_SIDE: u32 = 60_000;

impl Samples {
    /// Writes an image folder, and returns its files by sample number: by class, then by name.
    pub(crate) fn write(self, folder: &Path, count: u64) -> anyhow::Result<Vec<PathBuf>> {
        let path =
            |number, suffix| folder.join(format!("class{:02}/{number:05}.{suffix}", number % 10));
        let numbered = 0..count;
        let mut files: Vec<PathBuf> = match self {
            Self::Noise => {
                files::write_image_folder(folder, count)?;
                numbered.map(|number| path(number, "jpg")).collect()
            }
            Self::Images => numbered
                .map(|number| {
                    let path = path(number, "png");
                    write_image(&path, number).map(|()| path)
                })
                .collect::<anyhow::Result<_>>()?,
        };
        files.sort();
        Ok(files)
    }

    /// The keys of the job for its samples; none for noise. Rows are the same in all epochs.
    pub(crate) const fn job_text(self) -> &'static str {
        match self {
            Self::Noise => "",
            Self::Images => {
                "on_error: { skip: 20 % }\ntransform:\n  steps:\n    - resize: [48, 48]\n"
            }
        }
    }
}

fn write_image(path: &Path, number: u64) -> anyhow::Result<()> {
    if number % CYCLE == NO_IMAGE {
        return files::write_noise(path, number, 30_000);
    }
    let class = path.parent().context("an image is in a folder")?;
    fs::create_dir_all(class).with_context(|| class.display().to_string())?;
    let side = |factor: u64| u32::try_from(80 + number * factor % 120).expect("a short side");
    let (width, height) = (side(7), side(11));
    write_png(path, number, (width, height)).with_context(|| path.display().to_string())?;
    match number % CYCLE {
        CUT => {
            let bytes = fs::read(path)?;
            fs::write(path, &bytes[..bytes.len() / 2])?;
        }
        CLAIMS_TOO_MUCH => claim(path)?,
        _ => {}
    }
    Ok(())
}

fn write_png(path: &Path, seed: u64, (width, height): (u32, u32)) -> anyhow::Result<()> {
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut draws = Draws::of(seed, 0);
    let pixels: Vec<u8> = (0..width * height * 3).map(|_| draws.word().to_le_bytes()[0]).collect();
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(())
}

/// Lets the header of a PNG state more pixels than it has.
fn claim(path: &Path) -> anyhow::Result<()> {
    let mut bytes = fs::read(path)?;
    // Behind the signature: the length of the header, its name, width and height, and the checksum at 29.
    bytes[16..20].copy_from_slice(&CLAIMED_SIDE.to_be_bytes());
    bytes[20..24].copy_from_slice(&CLAIMED_SIDE.to_be_bytes());
    let sum = crc32fast::hash(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    Ok(fs::write(path, bytes)?)
}

/// The checksum of the row of each object, `None` for one without a row; no checksums for a job without a
/// transform.
pub(crate) fn sums_of_rows(
    job: &Path,
    objects: &[PathBuf],
) -> anyhow::Result<Option<Vec<Option<u64>>>> {
    let job = Job::load(job)?;
    let Some(transform) = &job.transform else { return Ok(None) };
    let pipeline = transform.pipeline.clone();
    let mut row = vec![0; usize::try_from(pipeline.row_bytes())?];
    let mut transform = Transform::new(pipeline, job.seed);
    let mut sums = Vec::new();
    for (sample, object) in (0..).zip(objects) {
        let bytes = fs::read(object).with_context(|| object.display().to_string())?;
        let input = Input { sample, epoch: 0, form: InputForm::Stored, bytes: &bytes };
        sums.push(transform.apply(&input, &mut row, None).is_ok().then(|| xxh3_64(&row)));
    }
    let missing = sums.iter().filter(|it| it.is_none()).count();
    ensure!(missing < objects.len() / 4, "{missing} of {} images have no row", objects.len());
    Ok(Some(sums))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_images_have_no_row_and_all_others_one_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let objects = Samples::Images.write(&data, CYCLE).unwrap();
        assert!(objects.iter().all(|it| it.exists()));
        let job = folder.path().join("job.yaml");
        let text = format!(
            "name: rows\n\
             dataset: {{ source: {}, format: image-folder }}\n\
             order: {{ shuffle: sequential, epochs: 1 }}\n\
             batch_size: 2\n\
             world: {{ nodes: 1, ranks_per_node: 1 }}\n\
             {}",
            data.display(),
            Samples::Images.job_text(),
        );
        fs::write(&job, text).unwrap();
        let sums = sums_of_rows(&job, &objects).unwrap().unwrap();
        let number = |object: &PathBuf| object.file_stem()?.to_str()?.parse::<u64>().ok();
        let missing = objects.iter().zip(&sums).filter(|(_, sum)| sum.is_none());
        let mut missing: Vec<u64> = missing.map(|(object, _)| number(object).unwrap()).collect();
        missing.sort_unstable();
        assert_eq!(missing, [NO_IMAGE, CUT, CLAIMS_TOO_MUCH]);
        let mut rows: Vec<u64> = sums.into_iter().flatten().collect();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len() as u64, CYCLE - 3);
    }
}
