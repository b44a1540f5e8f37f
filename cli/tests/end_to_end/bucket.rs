//! `tierfeed index` and `tierfeed run` on a bucket of the S3 server of the tests, on loopback.

use std::{fs, path::Path, process::Command};

use tierfeed_object_stores::test_server::{Access, KEY, SECRET, Server};

use crate::{
    apart::{Cluster, end_well},
    fixture::{Fixture, assert_complete, assert_ended, eventually},
};

/// A server with the dataset of `fixture`, and the keys that a job needs to find it.
fn serve(fixture: &Fixture) -> (Server, String) {
    let server = Server::serving(Access::Signed);
    let data = fixture.path("data");
    for class in fs::read_dir(&data).unwrap() {
        for file in fs::read_dir(class.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let key = Path::new("train").join(path.strip_prefix(&data).unwrap());
            server.put_bytes(key.to_str().unwrap(), fs::read(path).unwrap());
        }
    }
    let source = format!("source: s3://bucket/train\n  endpoint: {}", server.endpoint());
    (server, source)
}

fn with_credentials(command: &mut Command) -> &mut Command {
    command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET)
}

fn write_job(fixture: &Fixture, source: &str) {
    fixture.write_job("");
    let text = fs::read_to_string(fixture.job()).unwrap();
    let files = format!("source: file://{}", fixture.path("data").display());
    assert!(text.contains(&files), "{text}");
    fs::write(fixture.job(), text.replace(&files, source)).unwrap();
}

#[test]
fn a_training_on_a_bucket_gets_the_bytes_of_its_objects() {
    let fixture = Fixture::new();
    let (server, source) = serve(&fixture);
    write_job(&fixture, &source);
    let mut command = fixture.run(0);
    let command = with_credentials(&mut command).env("TRAINER_COPY", fixture.path("data"));
    assert_ended(&command.output().unwrap(), 0);
    let log = fixture.log();
    assert_eq!(assert_complete(&log), log.len(), "the stand-in compares what the agent hands over");
    assert_eq!(fixture.report()["fault_count"], 0);
    assert!(server.seen().iter().all(|request| request.is_signed));
}

/// The variables of a training on a bucket whose trainers compare what they get with `fixture`.
fn variables(fixture: &Fixture) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("TRAINER_COPY", fixture.path("data").display().to_string()),
    ]
}

#[test]
fn a_killed_agent_costs_no_sample_of_a_bucket() {
    for lines in [1, 17, 31] {
        let fixture = Fixture::new();
        let (server, source) = serve(&fixture);
        write_job(&fixture, &source);
        let variables = variables(&fixture);
        let cluster = Cluster::of(fixture, variables);
        let mut agent = cluster.agent();
        let trainers = cluster.trainers(2_000);
        eventually("the training is on its way", || cluster.fixture.lines() >= lines);
        let seen = server.seen().len();
        agent.kill();
        end_well(trainers);
        let log = cluster.fixture.log();
        let from_agent = assert_complete(&log);
        assert!(from_agent >= lines, "{from_agent} of {lines} from the agent: {}", agent.errors());
        let alone: usize =
            log.values().filter(|it| it.source == "self").map(|it| it.samples.len()).sum();
        assert!(alone > 0, "the agent was killed too late to be missed");
        assert!(server.seen().len() >= seen + alone, "trainers read the bucket itself");
        assert!(server.seen().iter().all(|request| request.is_signed));
    }
}

#[test]
fn an_index_of_a_bucket_names_its_objects_and_no_secret() {
    let fixture = Fixture::new();
    let (server, _) = serve(&fixture);
    let endpoint = server.endpoint();
    let mut index = fixture.tierfeed(&["index", "s3://bucket/train", "--json", "--endpoint"]);
    let output = with_credentials(index.arg(&endpoint)).output().unwrap();
    assert_ended(&output, 0);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["samples"], &summary["classes"]), (&100.into(), &4.into()));
    let mut refused = fixture.tierfeed(&["index", "s3://bucket/train", "--endpoint", &endpoint]);
    let refused = refused.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", "wrong-one");
    let output = refused.output().unwrap();
    assert_ended(&output, 2);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("s3://bucket/train") && !said.contains("wrong-one"), "{said}");
}

#[test]
fn a_web_server_is_indexed_by_a_manifest_and_by_nothing_else() {
    let fixture = Fixture::new();
    let server = Server::serving(Access::Everybody);
    server.put_bytes("train/b/2.bin", vec![2; 20]);
    server.put_bytes("train/1.bin", vec![1; 10]);
    let url = format!("{}/bucket/train", server.endpoint());
    let manifest = fixture.path("list.txt");
    let indexed = |lines: &str| {
        fs::write(&manifest, lines).unwrap();
        let mut index = fixture.tierfeed(&["index", &url, "--format", "files", "--json"]);
        index.args(["--anonymous", "-o", "web.tfx", "--manifest"]).arg(&manifest).output().unwrap()
    };
    let output = indexed("b/2.bin\n./1.bin\n");
    assert_ended(&output, 0);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["samples"], &summary["total_bytes"]), (&2.into(), &30.into()));
    let output = indexed("b/2.bin\nb/3.bin\n");
    assert_ended(&output, 2);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("/bucket/train/b/3.bin"), "{said}");
    let mut raw = fixture.tierfeed(&["index", &url, "--format", "raw", "--record-bytes", "10"]);
    let output = raw.arg("--anonymous").output().unwrap();
    assert_ended(&output, 2);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("name the objects in a manifest"), "{said}");
}

#[test]
fn a_job_is_written_for_a_bucket_whose_names_tell_its_format() {
    let fixture = Fixture::new();
    let (server, _) = serve(&fixture);
    let init = ["init", "s3://bucket/train", "--endpoint", &server.endpoint(), "-o", "new.yaml"];
    let mut command = fixture.tierfeed(&init);
    command.args(["--probe", "never", "--batch-size", "8", "--ranks", "2", "--json"]);
    let output = with_credentials(&mut command).output().unwrap();
    assert_ended(&output, 0);
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&made["format"], &made["samples"]), (&"image-folder".into(), &100.into()));
    let mut run = fixture.tierfeed(&["run", "new.yaml", "--", "true"]);
    assert_ended(&with_credentials(&mut run).output().unwrap(), 0);

    let unsigned = fixture.tierfeed(&[&init[..5], &["other.yaml"]].concat()).output().unwrap();
    assert_ended(&unsigned, 2);
    assert!(!fixture.path("other.yaml").exists());
}
