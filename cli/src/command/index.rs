//! `tierfeed index`.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tierfeed_core::units::Bytes;
use tierfeed_workload_analyzer::{Dataset, Index as DatasetIndex, job::Format};

use crate::{
    arguments::{FormatName, Index},
    failure::Failure,
    output,
};

#[derive(Serialize)]
struct Summary<'a> {
    index: &'a Path,
    source: &'a Path,
    format: &'static str,
    samples: u32,
    total_bytes: u64,
    classes: usize,
    fingerprint: String,
}

pub(crate) fn run(arguments: &Index) -> Result<(), Failure> {
    let dataset = dataset(arguments)?;
    let path = arguments.output.clone().unwrap_or_else(|| default_output(&dataset.source));
    let bar = output::bar();
    let index = DatasetIndex::build(&dataset, &mut |it| output::show_indexing(&bar, it));
    bar.finish_and_clear();
    let index = index.map_err(Failure::input)?;
    index.save(&path).map_err(Failure::work)?;
    let summary = Summary {
        index: &path,
        source: index.source(),
        format: index.format().name(),
        samples: index.len(),
        total_bytes: index.total().0,
        classes: index.class_names().len(),
        fingerprint: format!("{:016x}", index.fingerprint()),
    };
    if arguments.json {
        return output::json(&summary);
    }
    output::lines(&format!(
        "{}: {} samples, {}, {} classes, fingerprint {}",
        path.display(),
        summary.samples,
        Bytes(summary.total_bytes),
        summary.classes,
        summary.fingerprint
    ))
}

fn dataset(arguments: &Index) -> Result<Dataset, Failure> {
    let format = match (arguments.format, arguments.record_bytes) {
        (FormatName::ImageFolder, _) => Format::ImageFolder,
        (FormatName::Raw, Some(record_bytes)) if record_bytes.0 > 0 => Format::Raw { record_bytes },
        (FormatName::Raw, _) => {
            let error = anyhow::anyhow!("--record-bytes: format raw needs a size of at least 1 B");
            return Err(Failure::Input(error));
        }
    };
    let text = arguments.source.to_string_lossy();
    let source = match text.strip_prefix("file://") {
        Some(path) => PathBuf::from(path),
        None => arguments.source.clone(),
    };
    let source = std::path::absolute(source).map_err(Failure::input)?;
    Ok(Dataset { source, format, speed: None, index: None })
}

fn default_output(source: &Path) -> PathBuf {
    let name = source.file_name().unwrap_or("dataset".as_ref());
    Path::new(name).with_extension("tfx")
}
