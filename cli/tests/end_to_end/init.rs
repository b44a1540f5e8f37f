//! `tierfeed init`: the job file that it writes runs, and what it says of a script.

use std::{fs, path::Path, process::Output};

use serde_json::Value;

use crate::fixture::{Fixture, assert_complete, assert_ended, trainer};

const SCRIPT: &str = "\
import argparse
import torch
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder

def main(rank, args):
    torch.distributed.init_process_group('gloo')
    images = ImageFolder(args.data, transform=crop)
    sampler = DistributedSampler(images, seed=42)
    loader = DataLoader(images, batch_size=args.batch_size, sampler=sampler,
                        num_workers=4, pin_memory=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for pixels, labels in loader:
            loss = model(pixels)
            loss.backward()

if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--data', default='data')
    parser.add_argument('--batch-size', type=int, default=8)
    torch.multiprocessing.spawn(main, nprocs=2, args=(parser.parse_args(),))
";

fn init(fixture: &Fixture, arguments: &[&str]) -> Output {
    fixture.tierfeed(&["init", "--probe", "never"]).args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    assert_ended(output, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_job_that_is_written_for_a_script_serves_its_training() {
    let fixture = Fixture::new();
    fs::write(fixture.path("train.py"), SCRIPT).unwrap();
    let made = json(&init(&fixture, &["-o", "made.yaml", "--json"]));
    assert_eq!(made["samples"], 100);
    assert_eq!((&made["format"], &made["source"]), (&"image-folder".into(), &"./data".into()));
    assert!(made["command"].as_str().unwrap().starts_with("tierfeed run made.yaml -- python"));
    let line = made["hint"]["line"].as_str().unwrap();
    assert!(line.starts_with("loader = tierfeed.torch.TierLoader("), "{line}");
    assert_eq!(made["warnings"], serde_json::json!([]));
    let notes = made["notes"].to_string();
    for expected in [
        "train.py:10: pin_memory=True is pin_memory= of TierLoader",
        "train.py:13: sampler.set_epoch(epoch) becomes set_epoch of the TierLoader",
    ] {
        assert!(notes.contains(expected), "{notes}");
    }
    assert_eq!(fs::read_to_string(fixture.path("train.py")).unwrap(), SCRIPT, "it is not changed");
    let mut run = fixture.tierfeed(&["run", "made.yaml", "--run-dir", "run", "--"]);
    assert_ended(&run.arg(trainer()).arg(fixture.path("log")).output().unwrap(), 0);
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len(), "the agent serves every batch");
}

#[test]
fn a_dataset_alone_is_enough() {
    let fixture = Fixture::new();
    let output = init(&fixture, &["data", "-o", "new.yaml", "--ranks", "2"]);
    assert_ended(&output, 0);
    assert!(
        text(&output).contains("assumed     batch_size: 32, there is no script"),
        "{}",
        text(&output)
    );
    assert!(text(&output).contains("new.yaml: 100 samples"), "{}", text(&output));
    let plan = fixture.tierfeed(&["plan", "new.yaml", "--dump"]).output().unwrap();
    assert_ended(&plan, 0);
}

#[test]
fn a_job_file_that_is_there_is_replaced_by_force_alone() {
    let fixture = Fixture::new();
    let before = fs::read(fixture.job()).unwrap();
    let output = init(&fixture, &["data"]);
    assert_ended(&output, 2);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("job.yaml is there already; --force replaces it"), "{error}");
    assert_eq!(fs::read(fixture.job()).unwrap(), before);
    assert_ended(&init(&fixture, &["data", "--force"]), 0);
    assert_ne!(fs::read(fixture.job()).unwrap(), before);
}

#[test]
fn what_is_missing_or_wrong_is_named_and_nothing_is_written() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("empty")).unwrap();
    fs::create_dir(fixture.path("tokens")).unwrap();
    fs::write(fixture.path("tokens/train.bin"), [0; 64]).unwrap();
    let elsewhere = SCRIPT.replace("'data'", "'/no/such/data'");
    fs::create_dir(fixture.path("alone")).unwrap();
    fs::write(fixture.path("alone/train.py"), elsewhere).unwrap();
    for (arguments, expected) in [
        (&["empty"][..], "empty: no dataset is recognized in it"),
        (&["alone"], "alone/train.py:10: its dataset /no/such/data is not here"),
        (&["/no/such/place"], "/no/such/place: no such file or directory"),
        (&["--source", "/no/such/place"], "/no/such/place: no such file or directory"),
        (&["--source", "s3:/bucket"], "s3:/bucket: "),
        (&["--source", "tokens", "--format", "raw"], "--format raw needs --record-bytes"),
        (&["data", "--batch-size", "0"], "new.yaml (not written):11: batch_size is `0`"),
        (&["empty", "--script", "no.py"], "no.py: cannot be read"),
    ] {
        let output = init(&fixture, &[&["-o", "new.yaml"], arguments].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_ended(&output, 2);
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert!(!fixture.path("new.yaml").exists(), "{arguments:?}");
    }
}

#[test]
fn training_data_is_chosen_before_data_that_is_held_out_and_the_others_are_named() {
    let fixture = Fixture::new();
    copy(&fixture.path("data/class0"), &fixture.path("set/train/cat"), 3);
    copy(&fixture.path("data/class1"), &fixture.path("set/train/dog"), 3);
    copy(&fixture.path("data/class2"), &fixture.path("set/val/cat"), 9);
    copy(&fixture.path("data/class3"), &fixture.path("set/val/dog"), 9);
    let made = json(&init(&fixture, &["set", "-o", "new.yaml", "--json"]));
    assert_eq!((&made["source"], &made["samples"]), (&"./set/train".into(), &6.into()));
    let assumed = made["assumed"][0].as_str().unwrap();
    assert_eq!(
        assumed,
        "the dataset: set/train (image-folder); there is also set/val (image-folder)"
    );
}

#[test]
fn a_dataset_that_is_held_out_stands_in_comments_that_can_be_taken_as_they_are() {
    let fixture = Fixture::new();
    for (class, place) in [("class0", "train/cat"), ("class1", "train/dog"), ("class2", "val/cat")]
    {
        copy(&fixture.path("data").join(class), &fixture.path("set").join(place), 4);
    }
    copy(&fixture.path("data/class3"), &fixture.path("set/val/dog"), 4);
    let made = json(&init(&fixture, &["set", "-o", "new.yaml", "--batch-size", "2", "--json"]));
    let yaml = made["yaml"].as_str().unwrap();
    assert!(yaml.contains("#   validation: { source: ./set/val, format: image-folder }"), "{yaml}");
    let taken = yaml.replace("# datasets:", "datasets:").replace("#   validation", "  validation");
    fs::write(fixture.path("both.yaml"), taken).unwrap();
    let plan = fixture.tierfeed(&["plan", "both.yaml", "--dump"]).output().unwrap();
    assert_ended(&plan, 0);
    let batches = |output: &Output| text(output).lines().filter(|it| it.starts_with("0 ")).count();
    let alone = fixture.tierfeed(&["plan", "new.yaml", "--dump"]).output().unwrap();
    assert!(batches(&plan) > batches(&alone), "{}", text(&plan));
}

fn copy(from: &Path, to: &Path, count: usize) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().take(count) {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn the_code_of_a_notebook_is_a_script() {
    let fixture = Fixture::new();
    let cell =
        |kind: &str, source: &str| serde_json::json!({"cell_type": kind, "source": [source]});
    let code = SCRIPT.replace("import argparse", "%matplotlib inline\nimport argparse");
    let cells = [cell("markdown", "# Training"), cell("code", &code)];
    let notebook = serde_json::json!({"cells": cells, "nbformat": 4});
    fs::write(fixture.path("train.ipynb"), notebook.to_string()).unwrap();
    let made = json(&init(&fixture, &["-o", "new.yaml", "--json"]));
    assert_eq!(made["script"], "train.ipynb");
    assert!(
        made["yaml"]
            .as_str()
            .unwrap()
            .contains("batch_size: 8  # default of --batch-size, train.ipynb:22")
    );
    assert_eq!(made["command"], "tierfeed run new.yaml -- jupyter lab train.ipynb");
    fs::write(fixture.path("broken.ipynb"), "{}").unwrap();
    let output = init(&fixture, &["broken.ipynb", "-o", "other.yaml"]);
    assert_ended(&output, 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("broken.ipynb: is no notebook"));
}

#[test]
fn loaders_of_other_frameworks_are_named_with_their_page() {
    let fixture = Fixture::new();
    for (script, expected) in [
        (
            "import tensorflow as tf\ndata = tf.data.Dataset.list_files('data/*/*.jpg').shuffle(9).batch(8)\n\
             for epoch in range(2):\n    for batch in data: pass\n",
            "tierfeed.tensorflow.dataset",
        ),
        (
            "from transformers import Trainer, TrainingArguments\n\
             trainer = Trainer(model, TrainingArguments('out'), train_dataset=images)\ntrainer.train()\n",
            "TierTrainer(model",
        ),
        (
            "import grain\nloader = grain.DataLoader(data_source=images, sampler=sampler)\n\
             for batch in loader: pass\n",
            "TierIterDataset()",
        ),
    ] {
        fs::write(fixture.path("train.py"), script).unwrap();
        let made = json(&init(&fixture, &["--source", "data", "--force", "--json"]));
        let line = made["hint"]["line"].as_str().unwrap();
        assert!(line.contains(expected), "{script}: {line}");
        let page = made["hint"]["page"].as_str().unwrap();
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page).exists(), "{page}");
    }
}

/// A script over the images of the fixture, with a training that makes its loader so.
fn loading(lines: &str) -> String {
    format!(
        "import torch\nfrom torch.utils.data import DataLoader, random_split\n\
         from torchvision.datasets import CIFAR10, ImageFolder\n{lines}\n\
         for epoch in range(2):\n    for images, labels in loader:\n        pass\n"
    )
}

#[test]
fn no_job_is_written_for_a_training_on_a_part_unless_its_source_is_named() {
    let fixture = Fixture::new();
    let script = loading(
        "train, held_out = random_split(ImageFolder('data'), [0.8, 0.2])\n\
         loader = DataLoader(train, batch_size=8)",
    );
    fs::write(fixture.path("train.py"), script).unwrap();
    let output = init(&fixture, &["-o", "new.yaml"]);
    assert_ended(&output, 2);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("train.py:5: the script trains on a part of the samples, by random_split"),
        "{error}"
    );
    assert!(!fixture.path("new.yaml").exists());
    let made = json(&init(&fixture, &["-o", "new.yaml", "--source", "data", "--json"]));
    assert!(made["warnings"].to_string().contains("by random_split"), "{}", made["warnings"]);
    assert!(
        made["yaml"]
            .as_str()
            .unwrap()
            .contains("# Warning: train.py:5: the script trains on a part")
    );
}

#[test]
fn an_order_that_the_script_may_not_have_is_said_to_be_assumed() {
    let fixture = Fixture::new();
    for (lines, expected) in [
        (
            "torch.manual_seed(0)\nnetwork = torch.nn.Linear(4, 2)\n\
             loader = DataLoader(ImageFolder('data'), batch_size=8, shuffle=True)",
            "train.py:4: torch-random repeats it only if nothing draws before the loop",
        ),
        (
            "loader = DataLoader(ImageFolder('data'), batch_size=8, shuffle=True)",
            "because the script sets no seed",
        ),
    ] {
        fs::write(fixture.path("train.py"), loading(lines)).unwrap();
        let made = json(&init(&fixture, &["-o", "new.yaml", "--force", "--json"]));
        let assumed = made["assumed"].to_string();
        assert!(assumed.contains("order: torch-distributed with seed 0, because"), "{assumed}");
        assert!(assumed.contains(expected), "{assumed}");
    }
    let own = "loader = DataLoader(ImageFolder('data'), batch_size=8, shuffle=True, \
               generator=torch.Generator().manual_seed(7))";
    fs::write(fixture.path("train.py"), loading(own)).unwrap();
    let made = json(&init(&fixture, &["-o", "new.yaml", "--force", "--json"]));
    let yaml = made["yaml"].as_str().unwrap();
    assert!(yaml.contains("shuffle: torch-random") && yaml.contains("seed: 7"), "{yaml}");
}

#[test]
fn a_dataset_that_no_job_reads_is_not_replaced_by_another_one_that_lies_there() {
    let fixture = Fixture::new();
    let script = loading("loader = DataLoader(CIFAR10('root', download=True), batch_size=8)");
    fs::write(fixture.path("train.py"), script).unwrap();
    let output = init(&fixture, &["-o", "new.yaml"]);
    assert_ended(&output, 2);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("train.py:4: its dataset is CIFAR10, whose files a job does not read"),
        "{error}"
    );
    let unknown = loading("loader = DataLoader(made(), batch_size=8)");
    fs::write(fixture.path("train.py"), unknown).unwrap();
    let made = json(&init(&fixture, &["-o", "new.yaml", "--json"]));
    assert!(made["assumed"].to_string().contains("dataset: data; "), "{}", made["assumed"]);
}

#[test]
fn images_beside_their_masks_and_parts_of_a_dataset_are_no_classes() {
    let fixture = Fixture::new();
    for (place, folders, expected) in [
        ("pairs", ["images", "masks"], "pairs/images holds a part of each sample"),
        ("coco", ["train2017", "val2017"], "coco/train2017 holds a part of a dataset"),
    ] {
        for folder in folders {
            copy(&fixture.path("data/class0"), &fixture.path(place).join(folder), 3);
        }
        for arguments in [&[place][..], &["--source", place]] {
            let output = init(&fixture, &[&["-o", "new.yaml"], arguments].concat());
            assert_ended(&output, 2);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(error.contains(&expected[place.len() + 1..]), "{arguments:?}: {error}");
        }
    }
}

#[test]
fn a_job_with_fewer_samples_than_a_batch_says_so() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("text")).unwrap();
    fs::write(fixture.path("text/train.jsonl"), "{}\n{}\n").unwrap();
    let made = json(&init(
        &fixture,
        &["--source", "text", "-o", "new.yaml", "--batch-size", "16", "--json"],
    ));
    let warnings = made["warnings"].to_string();
    assert!(
        warnings.contains(
            "1 samples for 1 ranks are fewer than a batch of 16: a sample is a whole file"
        ),
        "{warnings}"
    );
}
