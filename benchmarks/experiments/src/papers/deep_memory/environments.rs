//! Figure 8: total time in six environments.

use std::{fs, path::Path};

use tierfeed_core::units::Bytes;
use tierfeed_harness::leftovers::own_name;

use super::DISK;
use crate::{
    claim::less_time,
    figure::{Along, Chart, Figure, Headline, Paper, Series, Source},
    stage::{BATCH, STAGING, Side, Stage, copy_below, cxl_memory, job, value},
    training::{Trained, Training},
};

pub(super) const NAME: &str = "deep-memory-8";

/// Main memory and CXL memory for data, in per cent of the dataset.
const MAIN: u64 = 25;
const CXL: u64 = 50;
const EPOCHS: u32 = 3;

/// Steps of three models, in seconds: below, near and above what decoding takes.
const STEPS_S: [f64; 3] = [0.005, 0.015, 0.04];

/// What a training has beside the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Environment {
    Unconstrained,
    Constrained,
    CxlAsMemory,
    CxlAsStorage,
    CxlAsBoth,
    Tierfeed,
}

impl Environment {
    const ALL: [Self; 6] = [
        Self::Unconstrained,
        Self::Constrained,
        Self::CxlAsMemory,
        Self::CxlAsStorage,
        Self::CxlAsBoth,
        Self::Tierfeed,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Unconstrained => "unconstrained",
            Self::Constrained => "constrained memory",
            Self::CxlAsMemory => "CXL memory as memory",
            Self::CxlAsStorage => "CXL memory as storage",
            Self::CxlAsBoth => "CXL as memory and storage",
            Self::Tierfeed => "tierfeed",
        }
    }

    /// Memory for page cache or tiers.
    fn room(self, main: Bytes, cxl: Bytes) -> Option<Bytes> {
        match self {
            Self::Unconstrained => None,
            Self::Constrained | Self::CxlAsStorage => Some(main),
            Self::CxlAsMemory | Self::CxlAsBoth => Some(Bytes(main.0 + cxl.0)),
            Self::Tierfeed => Some(Bytes(main.0 + cxl.0 + STAGING.0)),
        }
    }

    fn is_on_ram_disk(self) -> bool {
        matches!(self, Self::CxlAsStorage | Self::CxlAsBoth)
    }
}

/// The published gain in total time over environments, in per cent.
///
/// # Source
///
/// `DeepMemoryDL`, abstract, and section on figure 8.
const PUBLISHED: [(Environment, f64); 4] = [
    (Environment::Constrained, 34.0),
    (Environment::CxlAsMemory, 27.0),
    (Environment::CxlAsStorage, 25.0),
    (Environment::Unconstrained, 20.0),
];

/// The loaders of today, by their names in the script and for people.
const LOADERS: [(&str, &str); 2] = [("dataloader", "DataLoader"), ("tf.data", "tf.data")];

pub(super) fn figure(stage: &mut Stage<'_>, step: &mut dyn FnMut(&str)) -> anyhow::Result<Figure> {
    let folder = own_name();
    let ram_disk = Path::new("/dev/shm").join(folder);
    copy_below(&stage.made, &ram_disk)?;
    let mut headlines = Vec::new();
    let charts = LOADERS.map(|loader| measure(stage, &ram_disk, loader, &mut headlines, step));
    fs::remove_dir_all(&ram_disk)?;
    Ok(Figure {
        name: NAME.to_owned(),
        paper: Paper::DeepMemory,
        number: "Figure 8".to_owned(),
        title: "Total time in six environments".to_owned(),
        setting: format!(
            "{} photographs ({}) on a disk of {DISK}, decoded and cropped by 2 workers or threads; \
             memory for {MAIN} % of them, CXL memory for {CXL} %; a step sleeps.",
            stage.settings.photographs, stage.dataset
        ),
        charts: charts.into_iter().collect::<anyhow::Result<_>>()?,
        headlines,
        predictions: Vec::new(),
        emulated: vec![
            stage.emulated.clone(),
            "CXL memory as memory is main memory, and CXL memory as storage a RAM disk: both are faster than \
             the paper's"
                .to_owned(),
            "the tier of tierfeed waits 350 ns an access and passes 20 GB/s".to_owned(),
        ],
        command: format!("tierfeed-bench paper {NAME}"),
    })
}

/// All environments with one loader of today.
fn measure(
    stage: &mut Stage<'_>,
    ram_disk: &Path,
    (loader, name): (&str, &str),
    headlines: &mut Vec<Headline>,
    step: &mut dyn FnMut(&str),
) -> anyhow::Result<Chart> {
    let on_disk = stage.photographs();
    let (main, cxl) = (stage.percent(MAIN), stage.percent(CXL));
    let mut series = Vec::new();
    for step_s in STEPS_S {
        let model = format!("step of {:.0} ms", step_s * 1e3);
        let side = |environment: Environment| Side {
            name: format!("{name}, {model}, {}", environment.name()),
            room: environment.room(main, cxl),
            training: Training {
                loader: if environment == Environment::Tierfeed { "tierfeed" } else { loader },
                data: if environment.is_on_ram_disk() { ram_disk } else { &on_disk },
                batch_size: BATCH,
                epochs: EPOCHS,
                step_s,
                workers: 2,
                decode: true,
                job: job(Bytes(main.0 + STAGING.0), &[("tiers", cxl_memory(cxl))]),
            },
        };
        let turns = stage.turns(&Environment::ALL.map(side), step)?;
        let values: Vec<_> = turns.iter().map(|turns| value(turns, Trained::total_s)).collect();
        for (against, published) in PUBLISHED {
            let what = format!("{name}, {model}, against {}", against.name());
            let theirs = values[against as usize];
            let ours = values[Environment::Tierfeed as usize];
            headlines.extend(less_time(&what, published, ours, theirs));
        }
        series.push(Series { name: model, source: Source::Measured, values });
    }
    Ok(Chart {
        title: name.to_owned(),
        x: "environment".to_owned(),
        y: format!("total time of {EPOCHS} epochs, s"),
        along: Along::Groups(Environment::ALL.map(|it| it.name().to_owned()).to_vec()),
        series,
    })
}
