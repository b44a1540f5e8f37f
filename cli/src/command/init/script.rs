//! The training script: which one, what it says of a job, and what a job does not carry over.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::questions::Questions;
use crate::{command::script_analysis, failure::Failure};

#[derive(Debug, Deserialize)]
pub(super) struct Script {
    #[serde(rename = "script")]
    pub(super) path: PathBuf,
    error: Option<String>,
    #[serde(default)]
    imports: Vec<PathBuf>,
    pub(super) loader: Option<Loader>,
    #[serde(default)]
    trains: bool,
    #[serde(default)]
    pub(super) is_distributed: bool,
    #[serde(default)]
    pub(super) shuffle: String,
    #[serde(default)]
    keys: Vec<Key>,
    pub(super) world: Option<World>,
    /// The dataset of its loader, as the script names it.
    #[serde(default)]
    pub(super) reads: String,
    /// Whether no job can read that: it is made in memory, or is in a format of others.
    #[serde(default)]
    pub(super) is_foreign: bool,
    /// Why the training reads other samples than a job over the same files.
    pub(super) part: Option<String>,
    /// Parts of the script that change samples, labels or order, and are not carried over.
    #[serde(default)]
    pub(super) warnings: Vec<String>,
    /// Settings that are said in another place, such as arguments of a loader.
    #[serde(default)]
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Loader {
    pub(super) what: String,
    pub(super) file: String,
    pub(super) line: u32,
}

/// The replacement of a framework's loader: an import, the lines with it, and the page that shows a training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Hint {
    pub(super) import: &'static str,
    pub(super) line: &'static str,
    pub(super) page: &'static str,
}

impl Hint {
    const PYTORCH: Self = Self {
        import: "import tierfeed.torch",
        line: "loader = tierfeed.torch.TierLoader(decode=decode)   # decode(sample, label)",
        page: "docs/frameworks/pytorch.md",
    };
    /// For images in folders, whose transform is that of the script.
    const IMAGE_FOLDER: Self = Self {
        import: "import tierfeed.images, tierfeed.torch",
        line: "loader = tierfeed.torch.TierLoader(decode=tierfeed.images.decoder(transform))   # that of the dataset",
        page: "docs/frameworks/pytorch.md",
    };
    /// For an order that the script makes itself.
    const PUBLISHED: Self = Self {
        import: "import tierfeed.torch",
        line: "loader = DataLoader(tierfeed.torch.TierDataset(decode=decode), …)   # with the sampler as it is\n\
               tierfeed.torch.announce(loader, epoch=epoch)   # before each epoch",
        page: "docs/frameworks/pytorch.md",
    };
    const TENSORFLOW: Self = Self {
        import: "import tierfeed.tensorflow",
        line: "data = tierfeed.tensorflow.dataset()   # a tf.data.Dataset of staged bytes",
        page: "docs/frameworks/tensorflow.md",
    };
    const KERAS: Self = Self {
        import: "from tierfeed.keras import TierPyDataset",
        line: "data = TierPyDataset(transform=transform)   # for fit",
        page: "docs/frameworks/keras.md",
    };
    const GRAIN: Self = Self {
        import: "from tierfeed.grain import TierIterDataset",
        line: "dataset = TierIterDataset()   # batches of all epochs",
        page: "docs/frameworks/grain.md",
    };
    const HUGGING_FACE: Self = Self {
        import: "from tierfeed.huggingface import TierTrainerMixin   # class TierTrainer(TierTrainerMixin, Trainer)",
        line: "trainer = TierTrainer(model, arguments, train_dataset=tierfeed.torch.TierLoader(decode=decode))",
        page: "docs/frameworks/huggingface.md",
    };

    /// For the loader of a script, else for the format of a dataset.
    pub(super) fn of(script: Option<&Script>, format: &str) -> Self {
        let loader = script.and_then(|script| script.loader.as_ref());
        let library = loader.and_then(|loader| loader.what.split('.').next());
        let reads_folders = script.is_none_or(|script| script.reads.contains("ImageFolder"));
        match library.unwrap_or_default() {
            "tensorflow" | "tensorflow_datasets" => Self::TENSORFLOW,
            "keras" => Self::KERAS,
            "grain" => Self::GRAIN,
            "transformers" => Self::HUGGING_FACE,
            _ if script.is_some_and(Script::hands_order_over) => Self::PUBLISHED,
            _ if reads_folders && format == "image-folder" => Self::IMAGE_FOLDER,
            _ => Self::PYTORCH,
        }
    }
}

impl Loader {
    /// Whether it is one of PyTorch, whose sampler can hand its order over.
    fn is_of_torch(&self) -> bool {
        let of_torch = ["torch", "torchdata", "torch_geometric", "monai"];
        self.what.split('.').next().is_some_and(|library| of_torch.contains(&library))
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Key {
    /// With its section, such as `order.seed`.
    pub(super) name: String,
    /// `None` if only a run tells it.
    pub(super) value: Option<Value>,
    /// Where it comes from, if it does not stand there literally; or why it is not known.
    pub(super) why: Option<String>,
    #[serde(default)]
    pub(super) is_certain: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct World {
    pub(super) nodes: u32,
    pub(super) ranks_per_node: u32,
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl Script {
    pub(super) fn named(path: &Path) -> Result<Self, Failure> {
        let script = analysed(&[path.to_owned()])?.pop();
        let script = script.context("the analysis of scripts said nothing")?;
        match &script.error {
            Some(error) => Err(Failure::Input(anyhow!("{error}"))),
            None => Ok(script),
        }
    }

    /// The one of several that starts a training; `None` if none of them has a loader.
    pub(super) fn chosen(
        paths: &[PathBuf],
        questions: &mut Questions,
    ) -> Result<Option<Self>, Failure> {
        if paths.is_empty() {
            return Ok(None);
        }
        let mut scripts = analysed(paths)?;
        scripts.retain(|script| script.error.is_none() && script.loader.is_some());
        let imported: Vec<PathBuf> = scripts.iter().flat_map(|it| it.imports.clone()).collect();
        scripts.retain(|script| {
            let real = fs::canonicalize(&script.path);
            real.is_ok_and(|path| !imported.contains(&path))
        });
        // A stable sort: nearer scripts first, then by name.
        scripts.sort_by_key(|script| (!script.trains, !script.is_called_train()));
        questions.choose("the training script", scripts)
    }

    fn is_called_train(&self) -> bool {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
        stem.contains("train") || stem == "main"
    }

    pub(super) fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The keys that only the order of its loader has.
    pub(super) fn keys_of_order(&self) -> impl Iterator<Item = &Key> {
        let of_all = ["order.shuffle", "order.epochs"];
        self.keys
            .iter()
            .filter(move |key| key.name.starts_with("order.") && !of_all.contains(&&*key.name))
    }

    /// Whether its order is its own, and its loader can hand it over.
    pub(super) fn hands_order_over(&self) -> bool {
        self.shuffle == "published" && self.loader.as_ref().is_some_and(Loader::is_of_torch)
    }

    /// The place of its loader in the source, or the name of the script.
    pub(super) fn place(&self) -> String {
        match &self.loader {
            Some(loader) => format!("{}:{}", loader.file, loader.line),
            None => self.path.display().to_string(),
        }
    }
}

impl Key {
    pub(super) fn from(&self, script: &Script) -> String {
        self.why.clone().unwrap_or_else(|| script.place())
    }

    pub(super) fn text(&self) -> Option<&str> {
        self.value.as_ref()?.as_str()
    }

    pub(super) fn number(&self) -> Option<u32> {
        u32::try_from(self.value.as_ref()?.as_u64()?).ok()
    }
}

fn analysed(paths: &[PathBuf]) -> Result<Vec<Script>, Failure> {
    let text = script_analysis::starts(paths)?;
    let parsed = serde_json::from_str(&text).context("the analysis of scripts");
    parsed.map_err(Failure::Work)
}
