use std::path::Path;

use tierfeed_core::units::{BytesPerSecond, Nanoseconds};

use super::*;

/// 1,000 samples of 1,000 B in `objects`.
fn sizes(objects: u64) -> Sizes {
    Sizes::of(objects, || std::iter::repeat_n(Bytes(1_000), 1_000))
}

fn analysed(objects: u64, free: u64, keys: &str) -> Analysis {
    let text = format!(
        "name: a\ndataset: {{ source: x, format: image-folder }}\n\
         order: {{ shuffle: torch-distributed, epochs: 3 }}\nbatch_size: 50\n{keys}\n"
    );
    let job = Job::parse(&text, Path::new("a.yaml")).unwrap_or_else(|error| panic!("{error}"));
    let demand = Demand::of(&job, &sizes(objects)).unwrap();
    Analysis::of(&job, &sizes(objects), &demand, Bytes(free))
}

#[test]
fn a_job_has_the_phases_that_it_names_data_processing_first() {
    let names = |analysis: &Analysis| -> Vec<_> {
        analysis.phases.iter().map(|it| it.phase.name()).collect()
    };
    assert_eq!(names(&analysed(1, 0, "")), ["loading", "training"]);
    let all = analysed(
        1,
        0,
        "step_time: 10 ms\nloader: { workers: 2, preprocessing: 1 ms }\n\
         validation: { samples: 101, sample_bytes: 100, batch_size: 10, step_time: 1 ms, every: 2 epochs }\n\
         evaluation: { samples: 7 }\nworld: { ranks_per_node: 2 }",
    );
    assert_eq!(names(&all), ["loading", "preprocessing", "training", "validation", "evaluation"]);
    let training = all.phases[2];
    assert_eq!((training.passes, training.steps, training.samples), (3, 10, 1_000));
    assert_eq!((training.bytes, training.batch), (Bytes(1_000_000), Bytes(50_000)));
    assert_eq!(training.time, Some(Nanoseconds(100_000_000)));
    assert_eq!(training.rank_rate, Some(BytesPerSecond(5_000_000)));
    // 50 samples of 1 ms by two workers.
    assert_eq!(all.phases[1].time, Some(Nanoseconds(250_000_000)));
    let validation = all.phases[3];
    // 51 samples a rank in batches of 10; after the second of three epochs.
    assert_eq!((validation.passes, validation.steps), (1, 6));
    assert_eq!((validation.bytes, validation.batch), (Bytes(10_100), Bytes(1_000)));
    assert_eq!(validation.rank_rate, Some(BytesPerSecond(1_000_000)));
    let evaluation = all.phases[4];
    assert_eq!((evaluation.passes, evaluation.steps, evaluation.batch), (1, 1, Bytes(4_000)));
    assert_eq!((evaluation.time, evaluation.rank_rate), (None, None));
}

/// DeepMemoryDL, section 3.3.3: the sum over all elements of width, height, depth and bytes.
#[test]
fn a_decoded_batch_is_the_sum_over_its_elements() {
    assert_eq!(analysed(1, 0, "").decoded_batch, None);
    let image = "decoded: { width: 224, height: 224, channels: 3, bytes_per_element: 4 }";
    assert_eq!(analysed(1, 0, image).decoded_batch, Some(Bytes(50 * 224 * 224 * 3 * 4)));
    let volume = "decoded: { elements: [ { width: 8, height: 8, depth: 8, bytes_per_element: 4 }, \
                  { width: 8, height: 8, depth: 8 } ] }";
    assert_eq!(analysed(1, 0, volume).decoded_batch, Some(Bytes(50 * (2_048 + 512))));
}

#[test]
fn uneven_shards_cost_the_extra_time_of_the_busiest_worker() {
    let shards = |objects, keys: &str| analysed(objects, 0, keys).shards;
    let even = shards(16, "world: { ranks_per_node: 2 }\nloader: { workers: 4 }");
    assert!(even.even && even.idle_workers == 0 && even.longer_percent.abs() < 1e-9);
    assert_eq!((even.objects_per_rank, even.objects_per_worker), (8, 2));
    assert_eq!((even.rank, even.worker), (Bytes(500_000), Bytes(125_000)));
    // 10 objects for 8 workers: five for a rank, two for its busiest worker, 1.25 on average.
    let uneven = shards(10, "world: { ranks_per_node: 2 }\nloader: { workers: 4 }");
    assert!(!uneven.even && (uneven.longer_percent - 60.0).abs() < 1e-9, "{uneven:?}");
    assert_eq!((uneven.objects_per_rank, uneven.objects_per_worker), (5, 2));
    let few = shards(3, "world: { ranks_per_node: 2 }\nloader: { workers: 4 }");
    assert_eq!((few.idle_workers, few.objects_per_worker), (5, 1));
    assert_eq!(shards(3, "").workers_per_rank, 1);
}

#[test]
fn a_job_needs_memory_for_its_model_its_batches_and_its_checkpoint() {
    let model = |device: &str| {
        format!(
            "world: {{ ranks_per_node: 2 }}\nloader: {{ workers: 3 }}\ndecoded: {{ width: 10 }}\n\
             model: {{ parameters: 1000, optimizer: adam, device: {device} }}\n\
             checkpoint: {{ every: 1 epoch }}"
        )
    };
    let cpu = analysed(1, 50_000, &model("cpu")).memory;
    // Parameters, gradients and two states of 4 B, for two ranks.
    assert_eq!(cpu.model, Bytes(2 * 4 * 4_000));
    // Two batches of 500 B for each of three workers of two ranks.
    assert_eq!(cpu.decoded, Bytes(500 * 2 * 3 * 2));
    assert_eq!(cpu.checkpoint, Bytes(3 * 4_000));
    assert_eq!((cpu.needed, cpu.missing), (Bytes(50_000), Bytes(0)));
    assert_eq!(analysed(1, 10_000, &model("cpu")).memory.missing, Bytes(40_000));
    let gpu = analysed(1, 0, &model("gpu")).memory;
    assert_eq!((gpu.model, gpu.needed), (Bytes(0), Bytes(18_000)));
    assert_eq!(analysed(1, 0, "").memory.needed, Bytes(0));
}

#[test]
fn checkpoints_are_written_before_the_next_is_due() {
    let of = |keys: &str| analysed(1, 0, keys).checkpoint;
    assert_eq!(of(""), None);
    let steps = of("step_time: 10 ms\ncheckpoint: { every: 25 steps, bytes: 1 MB }").unwrap();
    // Three epochs of 20 steps.
    assert_eq!((steps.every_steps, steps.count, steps.total), (25, 2, Bytes(2_000_000)));
    assert_eq!(steps.interval, Some(Nanoseconds(250_000_000)));
    assert_eq!(steps.write_rate, Some(BytesPerSecond(4_000_000)));
    let epochs = of("checkpoint: { every: 2 epochs, bytes: 1 MB }").unwrap();
    assert_eq!((epochs.every_steps, epochs.count, epochs.write_rate), (40, 1, None));
    let model = "model: { parameters: 100, optimizer: sgd }\ncheckpoint: { every: 1 epoch }";
    assert_eq!(of(model).unwrap().bytes, Bytes(400));
}

#[test]
fn a_cache_of_the_framework_gives_a_warning() {
    assert!(analysed(1, 0, "cache: none").warnings.is_empty());
    for (keys, place) in [("cache: memory", "in memory"), ("cache: /tmp/c", "in /tmp/c")] {
        let warnings = analysed(1, 0, keys).warnings;
        assert!(warnings[0].contains(place) && warnings[0].contains("held twice"), "{warnings:?}");
        assert!(warnings[0].contains(&Bytes(1_000_000).to_string()), "{warnings:?}");
    }
}

#[test]
fn threads_that_nothing_uses_give_a_warning() {
    assert!(analysed(1, 0, "threads: auto").warnings.is_empty());
    assert!(analysed(1, 0, "threads: 3").warnings[0].contains("without transform"));
    let transform = "threads: 3\ntransform: { steps: [{ random_resized_crop: 224 }] }";
    assert!(analysed(1, 0, transform).warnings.is_empty());
}

#[test]
fn the_table_shows_the_analysis() {
    let analysis = analysed(
        10,
        0,
        "step_time: 10 ms\nworld: { ranks_per_node: 4 }\ncache: memory\n\
         model: { parameters: 1000, optimizer: adam }\ncheckpoint: { every: 1 epoch }",
    );
    let text = table(&analysis);
    for part in [
        "training            3 x 1000 samples, 976.56 KiB in 5 steps of 48.82 KiB in 0.050 s",
        "unevenly: dealt whole, the busiest worker reads 20.0 % longer",
        "more than is free beside the tiers",
        "checkpoints         11.71 KiB every 5 steps",
        "warning             the framework caches samples",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let json = serde_json::to_value(&analysis).unwrap();
    assert_eq!(json["phases"][1]["pass_s"], 0.05);
    assert_eq!(json["memory"]["missing_bytes"], json["memory"]["needed_bytes"]);
}
