//! What scripts in the style of well-known trainings say: every finding, as people read it.
//!
//! Beside each script lies what the analysis prints of it. To see what a change does to one, run
//! `tierfeed analyze --script NAME.py` in `tests/scripts`; that is also how the texts were written,
//! and then read line by line. So the texts show that nothing changed; [`BY_HAND`] shows what is right,
//! for it was written from the scripts alone.

#![expect(clippy::unwrap_used, reason = "a fixture that cannot be read fails its test")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::{prelude::*, sample::Index, test_runner::FileFailurePersistence};
use tierfeed_workload_analyzer::{
    Job,
    script::{self, Analysis, Certainty, Kind, Literal},
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

fn text(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

fn analysis(name: &str) -> Analysis {
    script::analyze_text(&format!("{name}.py"), &text(&format!("{name}.py")))
}

/// The analysis of `name` is the text beside it, line by line.
fn check(name: &str, found: &Analysis) {
    let (expected, found) = (text(&format!("{name}.txt")), script::table(found));
    let lines = expected.lines().zip(found.lines());
    for (number, (expected, found)) in lines.enumerate() {
        assert_eq!(found, expected, "{name}.txt, line {}", number + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{name}.txt: lines");
}

#[test]
fn an_image_classifier_with_argparse_and_ddp() {
    check("imagenet", &analysis("imagenet"));
}

#[test]
fn a_lightning_module_with_a_data_module() {
    check("lightning_module", &analysis("lightning_module"));
}

#[test]
fn a_language_model_with_the_trainer_of_transformers() {
    check("hf_trainer", &analysis("hf_trainer"));
}

#[test]
fn a_residual_network_with_tf_data_on_tfrecords() {
    check("tf_resnet", &analysis("tf_resnet"));
}

#[test]
fn a_segmentation_of_volumes_in_npz_files() {
    check("unet3d", &analysis("unet3d"));
}

#[test]
fn a_regression_on_gzipped_tfrecords_with_horovod() {
    check("cosmoflow", &analysis("cosmoflow"));
}

#[test]
fn a_language_model_on_a_file_of_tokens() {
    check("tokens", &analysis("tokens"));
}

#[test]
fn a_contrastive_model_on_web_shards() {
    check("webdataset_clip", &analysis("webdataset_clip"));
}

#[test]
fn an_image_classifier_on_mosaic_shards() {
    check("streaming_mosaic", &analysis("streaming_mosaic"));
}

#[test]
fn a_jax_training_with_grain() {
    check("grain_jax", &analysis("grain_jax"));
}

#[test]
fn a_script_that_is_half_python_2_and_cut_off() {
    check("broken", &analysis("broken"));
}

#[test]
fn a_training_of_several_files_is_followed_from_the_first() {
    let found = script::analyze(&[folder().join("package/train.py")]).unwrap();
    let names: Vec<_> = found.files.iter().map(|file| file.rsplit('/').next().unwrap()).collect();
    assert_eq!(
        names,
        ["train.py", "settings.py", "__init__.py", "data.py", "model.py", "saving.py"]
    );
    let shown = script::table(&found).replace(&format!("{}/", folder().display()), "");
    assert_eq!(shown, text("package.txt"));
}

/// What a reader of the scripts finds: script, line, fact, value in JSON, certainty. A value that stands in
/// the call, or in the only call of what makes it, is certain, one that a run can change is likely, one that
/// only a run knows is unknown (`docs/analyze-script.md`).
///
/// Two things a reader finds and the analysis does not: the steps of `tokens`, which are counted by hand, and
/// the epochs of `broken`, behind a bracket that is never closed.
const BY_HAND: &[(&str, u32, &str, &str, Certainty)] = &[
    ("imagenet", 30, "seed", "null", Certainty::Unknown),
    ("imagenet", 78, "batch_size", "256", Certainty::Likely),
    ("imagenet", 78, "num_workers", "4", Certainty::Likely),
    ("imagenet", 78, "pin_memory", "true", Certainty::Certain),
    ("imagenet", 81, "shuffle", "false", Certainty::Certain),
    ("imagenet", 86, "epochs", "90", Certainty::Likely),
    ("imagenet", 118, "path", r#""model_best.pth.tar""#, Certainty::Certain),
    ("lightning_module", 26, "shuffle", "true", Certainty::Certain),
    ("lightning_module", 26, "num_workers", "8", Certainty::Certain),
    ("lightning_module", 26, "persistent_workers", "true", Certainty::Certain),
    ("lightning_module", 26, "batch_size", "96", Certainty::Certain),
    ("lightning_module", 31, "batch_size", "192", Certainty::Certain),
    ("lightning_module", 58, "epochs", "30", Certainty::Certain),
    ("lightning_module", 56, "seed", "1234", Certainty::Certain),
    ("hf_trainer", 23, "seed", "17", Certainty::Certain),
    ("hf_trainer", 24, "split", r#""train""#, Certainty::Certain),
    ("hf_trainer", 25, "split", r#""validation""#, Certainty::Certain),
    ("hf_trainer", 35, "epochs", "3", Certainty::Certain),
    ("tf_resnet", 44, "seed", "11", Certainty::Certain),
    ("tf_resnet", 53, "epochs", "60", Certainty::Likely),
    ("unet3d", 41, "seed", "9", Certainty::Certain),
    ("unet3d", 41, "drop_last", "true", Certainty::Certain),
    ("unet3d", 43, "batch_size", "7", Certainty::Likely),
    ("unet3d", 43, "num_workers", "4", Certainty::Likely),
    ("unet3d", 54, "seed", "0", Certainty::Certain),
    ("unet3d", 59, "epochs", "5", Certainty::Likely),
    ("cosmoflow", 44, "epochs", "4", Certainty::Certain),
    ("tokens", 15, "seed", "1337", Certainty::Certain),
    ("tokens", 47, "path", r#""out/ckpt.pt""#, Certainty::Certain),
    ("webdataset_clip", 28, "num_workers", "null", Certainty::Unknown),
    ("webdataset_clip", 30, "num_workers", "2", Certainty::Certain),
    ("webdataset_clip", 33, "epochs", "32", Certainty::Likely),
    ("streaming_mosaic", 28, "seed", "1", Certainty::Certain),
    ("streaming_mosaic", 31, "batch_size", "256", Certainty::Likely),
    ("streaming_mosaic", 31, "drop_last", "true", Certainty::Certain),
    ("streaming_mosaic", 33, "epochs", "36", Certainty::Certain),
    ("grain_jax", 18, "seed", "3", Certainty::Likely),
    ("grain_jax", 25, "worker_count", "16", Certainty::Certain),
    ("grain_jax", 25, "worker_buffer_size", "2", Certainty::Certain),
    ("broken", 19, "batch_size", "32", Certainty::Likely),
];

#[test]
fn what_a_reader_finds_in_the_scripts_the_analysis_finds_too() {
    let mut missing = Vec::new();
    for (name, line, fact, value, certainty) in BY_HAND {
        let value: serde_json::Value = serde_json::from_str(value).unwrap();
        let findings = analysis(name).findings;
        let at_line = findings.iter().filter(|it| it.line == *line);
        let found: Vec<_> = at_line
            .flat_map(|it| &it.facts)
            .filter(|it| it.name == *fact)
            .map(|it| (serde_json::to_value(&it.value).unwrap(), it.certainty))
            .collect();
        if !found.contains(&(value.clone(), *certainty)) {
            missing.push(format!("{name}.py:{line} {fact}: {value} {certainty:?}, not {found:?}"));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_same_facts_are_in_the_json() {
    let json = serde_json::to_value(analysis("imagenet")).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let loader = findings.iter().find(|it| it["kind"] == "loader").unwrap();
    assert_eq!((&loader["file"], &loader["line"]), (&"imagenet.py".into(), &78.into()));
    let fact = |name: &str| {
        let facts = loader["facts"].as_array().unwrap();
        facts.iter().find(|it| it["name"] == name).unwrap().clone()
    };
    let batch = fact("batch_size");
    assert_eq!((&batch["value"], &batch["certainty"]), (&256.into(), &"likely".into()));
    assert_eq!(batch["why"], "default of --batch-size, imagenet.py:20");
    let sampler = fact("sampler");
    assert_eq!((&sampler["value"], &sampler["certainty"]), (&().into(), &"unknown".into()));
    assert_eq!(fact("pin_memory")["value"], true);
    assert_eq!(fact("batch_bytes")["value"], 3 * 224 * 224 * 4 * 256);
}

#[test]
fn what_is_unknown_has_a_reason() {
    for name in SCRIPTS {
        for finding in analysis(name).findings {
            for fact in finding.facts {
                let is_told = fact.certainty == Certainty::Certain || fact.why.is_some();
                assert!(is_told, "{name}: {} of {}: {fact:?}", fact.name, finding.what);
            }
        }
    }
}

#[test]
fn a_suggestion_is_a_job_where_the_script_tells_everything() {
    let script = "
import torch
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
train = ImageFolder('/data/my images: train')
sampler = DistributedSampler(train, seed=5, drop_last=True)
loader = DataLoader(train, batch_size=32, sampler=sampler)
for epoch in range(7):
    sampler.set_epoch(epoch)
    for batch in loader: pass
";
    let found = script::analyze_text("my-script.py", script);
    let job = Job::parse(&found.job_yaml, Path::new("job.yaml")).unwrap();
    assert_eq!((job.name.as_str(), job.batch_size, job.epochs), ("my-script", 32, 7));
    assert_eq!((job.shuffle.name(), job.seed, job.drop_last), ("torch-distributed", 5, true));
    assert_eq!(found.compared_with(&job).contradictions, []);
}

#[test]
fn contradictions_with_a_job_name_both_sides_and_the_place() {
    let job = "
name: a
dataset: { source: /data/kits19/train, format: raw, record_bytes: 4 }
order: { shuffle: torch-distributed, seed: 8, epochs: 6, drop_last: false }
batch_size: 8
";
    let job = Job::parse(job, Path::new("job.yaml")).unwrap();
    let found = analysis("unet3d").compared_with(&job).contradictions;
    let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "batch_size: 8 in the job, 7 at unet3d.py:43 [likely: assigned at unet3d.py:10]",
            "order.epochs: 6 in the job, 5 at unet3d.py:59 [likely: assigned at unet3d.py:10]",
            "order.seed: 8 in the job, 9 at unet3d.py:43 [certain]",
            "dataset.format: raw in the job, npz at unet3d.py:43 [likely: the file speaks of .npz]",
            "order.drop_last: false in the job, True at unet3d.py:43 [certain]",
        ]
    );
    let job = "
name: a
dataset: { source: /data, format: image-folder }
order: { shuffle: torch-random, seed: 8, epochs: 30 }
batch_size: 96
world: { nodes: 1, ranks_per_node: 8 }
";
    let job = Job::parse(job, Path::new("job.yaml")).unwrap();
    let found = analysis("lightning_module").compared_with(&job).contradictions;
    let shown: Vec<_> = found.iter().map(|it| (it.key, &*it.job, &*it.script)).collect();
    assert_eq!(
        shown,
        [
            ("order.shuffle", "torch-random", "published"),
            ("world", "1 nodes of 8 ranks", "2 nodes of 4 ranks"),
        ]
    );
}

const SCRIPTS: [&str; 11] = [
    "imagenet",
    "lightning_module",
    "hf_trainer",
    "tf_resnet",
    "unet3d",
    "cosmoflow",
    "tokens",
    "webdataset_clip",
    "streaming_mosaic",
    "grain_jax",
    "broken",
];

/// A script with some of its bytes changed, cut or doubled, or lines of another among its own.
fn changed() -> impl Strategy<Value = String> {
    let noise =
        "[\\[\\](){}:,.=*@#'\"\\\\ \n\ta-f0-9%+-]{0,6}|def |class |lambda |if |else:|\u{00E9}";
    let edits = prop::collection::vec((any::<Index>(), any::<Index>(), noise, 0..4_u8), 1..6);
    let scripts = (0..SCRIPTS.len(), 0..SCRIPTS.len());
    (scripts, edits).prop_map(|((first, second), edits)| {
        let mut script: Vec<char> = text(&format!("{}.py", SCRIPTS[first])).chars().collect();
        let other = text(&format!("{}.py", SCRIPTS[second]));
        let other: Vec<&str> = other.lines().collect();
        for (from, to, noise, kind) in edits {
            let (a, b) = (from.index(script.len() + 1), to.index(script.len() + 1));
            let (a, b) = (a.min(b), a.max(b));
            match kind {
                0 => script.truncate(b),
                1 => drop(script.splice(a..b.min(a + 40), noise.chars())),
                2 => drop(script.splice(a..a, noise.chars())),
                _ => drop(script.splice(a..a, other[to.index(other.len())].chars())),
            }
        }
        script.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::with_cases(96)
    })]

    #[test]
    fn any_change_of_a_script_is_analysed_without_a_panic(script in changed()) {
        let found = script::analyze_text("changed.py", &script);
        let lines = u32::try_from(script.lines().count()).unwrap();
        for finding in &found.findings {
            prop_assert!((1..=lines).contains(&finding.line));
            let is_shown = !finding.what.is_empty() || finding.kind == Kind::Framework;
            prop_assert!(is_shown);
            for fact in &finding.facts {
                let is_read = fact.certainty != Certainty::Unknown || fact.why.is_some();
                prop_assert!(is_read && (fact.value == Literal::Nothing || !fact.name.is_empty()));
            }
        }
        // Whatever is suggested is YAML.
        let yaml = &found.job_yaml;
        if let Err(error) = Job::parse(yaml, Path::new("job.yaml")) {
            let message = error.to_string();
            prop_assert!(!message.contains("did not find"), "{message}\n{yaml}");
        }
        prop_assert!(!script::table(&found).is_empty());
    }
}
