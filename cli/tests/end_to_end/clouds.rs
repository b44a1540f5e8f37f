//! `tierfeed index` and `tierfeed run` on Google Cloud Storage and Azure Blob Storage, as servers on
//! loopback play them.

use std::{fs, path::Path, process::Command};

use crate::{
    cloud_server::{ACCOUNT, ACCOUNT_KEY, Cloud, Provider, SAS, SAS_EXPIRED},
    fixture::{
        Fixture, Running, SAMPLES, assert_complete, assert_ended, digest, eventually, object_of,
    },
};

const PROVIDERS: [Provider; 2] = [Provider::Google, Provider::Azure];

/// Google's client sends no token that it would have to fetch from Google.
const SERVICE_ACCOUNT: &str = r#"{"private_key": "the-private-key", "private_key_id": "1",
    "client_email": "tests@example.org", "disable_oauth": true}"#;

/// A server with the dataset of `fixture`, and the job on it.
fn serve(fixture: &Fixture, provider: Provider) -> Cloud {
    let cloud = Cloud::start(provider);
    let data = fixture.path("data");
    for class in fs::read_dir(&data).unwrap() {
        for file in fs::read_dir(class.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let key = Path::new("train").join(path.strip_prefix(&data).unwrap());
            cloud.put(key.to_str().unwrap(), fs::read(path).unwrap());
        }
    }
    fixture.write_job("");
    let text = fs::read_to_string(fixture.job()).unwrap();
    let files = format!("source: file://{}", data.display());
    assert!(text.contains(&files), "{text}");
    let bucket = format!("source: {}\n  endpoint: {}", url(provider), cloud.endpoint());
    fs::write(fixture.job(), text.replace(&files, &bucket)).unwrap();
    cloud
}

fn url(provider: Provider) -> &'static str {
    match provider {
        Provider::Google => "gs://bucket/train",
        Provider::Azure => "az://bucket/train",
    }
}

fn with_credentials(command: &mut Command, provider: Provider) -> &mut Command {
    match provider {
        Provider::Google => command.env("GOOGLE_SERVICE_ACCOUNT_KEY", SERVICE_ACCOUNT),
        Provider::Azure => command
            .env("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
            .env("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY),
    }
}

#[test]
fn a_training_on_google_or_azure_gets_the_bytes_of_its_objects() {
    for provider in PROVIDERS {
        let fixture = Fixture::new();
        let cloud = serve(&fixture, provider);
        let mut run = fixture.run(0);
        with_credentials(&mut run, provider).env("TRAINER_COPY", fixture.path("data"));
        assert_ended(&run.output().unwrap(), 0);
        let log = fixture.log();
        assert_eq!(assert_complete(&log), log.len(), "all from the agent, bytes compared");
        assert_eq!(fixture.report()["order_digest"], digest(&log));
        let asked = cloud.asked();
        let pages = asked.iter().filter(|it| it.query.contains_key("prefix")).count();
        // Four folders of 25 objects, in pages of 7, and the one above them.
        assert!(pages >= 17, "{provider:?}: {pages} pages");
        #[expect(
            clippy::case_sensitive_file_extension_comparisons,
            reason = "as the fixture names them"
        )]
        let reads: Vec<_> = asked.iter().filter(|it| it.path.ends_with(".jpg")).collect();
        assert!(reads.len() >= 100, "{provider:?}: {} reads", reads.len());
        assert!(reads.iter().all(|it| it.if_match.is_some()), "each names the version it wants");
    }
}

#[test]
fn records_of_one_object_are_read_by_ranges() {
    for provider in PROVIDERS {
        let fixture = Fixture::new();
        let cloud = serve(&fixture, provider);
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|it| (it / 7).to_le_bytes()[0]).collect();
        cloud.put("records/all.bin", bytes.clone());
        fs::create_dir(fixture.path("copy")).unwrap();
        fs::write(fixture.path("copy/all.bin"), bytes).unwrap();
        let text = fs::read_to_string(fixture.job()).unwrap();
        let text = text
            .replace("format: image-folder", "format: raw\n  record_bytes: 30000 B")
            .replace("bucket/train", "bucket/records");
        fs::write(fixture.job(), text).unwrap();
        let mut run = fixture.run(0);
        with_credentials(&mut run, provider).env("TRAINER_COPY", fixture.path("copy"));
        assert_ended(&run.output().unwrap(), 0);
        let log = fixture.log();
        assert_eq!(assert_complete(&log), log.len(), "all from the agent, bytes compared");
        let ranges: Vec<_> = cloud.asked().into_iter().filter_map(|it| it.range).collect();
        assert!(ranges.contains(&"bytes=30000-59999".to_owned()), "{provider:?}: {ranges:?}");
    }
}

#[test]
fn objects_that_are_replaced_in_a_run_stop_it_with_a_name() {
    for provider in PROVIDERS {
        let fixture = Fixture::new();
        let cloud = serve(&fixture, provider);
        let mut run = fixture.run(20_000);
        run.env("TRAINER_COPY", fixture.path("data"));
        let mut run = Running::start(with_credentials(&mut run, provider));
        eventually("the first batches are taken", || fixture.lines() >= 2 || run.has_ended());
        for sample in 0..SAMPLES {
            let object = object_of(sample.into());
            let len = fs::metadata(fixture.path("data").join(&object)).unwrap().len();
            cloud.put(&format!("train/{object}"), vec![0; usize::try_from(len).unwrap()]);
        }
        run.ends_with(1);
        let said = run.errors();
        let named = (0..SAMPLES).any(|it| said.contains(&object_of(it.into())));
        assert!(named && said.contains("fault=\"changed\""), "{provider:?}: {said}");
        assert!(!said.contains("wrong bytes"), "{provider:?}: {said}");
    }
}

#[test]
fn expired_credentials_are_named_and_no_secret_is() {
    for provider in PROVIDERS {
        let fixture = Fixture::new();
        let cloud = serve(&fixture, provider);
        let mut index = fixture.tierfeed(&["index", url(provider), "--format", "image-folder"]);
        index.args(["--endpoint", &cloud.endpoint()]);
        match provider {
            Provider::Google => {
                cloud.expire_after(0);
                index.env("GOOGLE_SERVICE_ACCOUNT_KEY", SERVICE_ACCOUNT);
            }
            Provider::Azure => {
                index.env("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT);
                index.env("AZURE_STORAGE_SAS_KEY", SAS_EXPIRED);
            }
        }
        let output = index.output().unwrap();
        assert_ended(&output, 2);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(url(provider)) && said.contains("refuses access"), "{said}");
        for secret in ["the-private-key", "b2xkLXNlY3JldA", ACCOUNT_KEY] {
            assert!(!said.contains(secret), "{said}");
        }
    }
}

#[test]
fn a_signature_of_azure_is_enough() {
    let fixture = Fixture::new();
    let cloud = serve(&fixture, Provider::Azure);
    let mut index = fixture.tierfeed(&["index", "az://bucket/train", "--json", "--endpoint"]);
    index.arg(cloud.endpoint()).env("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT);
    let output = index.env("AZURE_STORAGE_SAS_KEY", SAS).output().unwrap();
    assert_ended(&output, 0);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["samples"], 100);
    assert!(cloud.asked().iter().all(|it| it.query.contains_key("sig")));
}

#[test]
fn credentials_that_expire_in_a_run_end_it_with_the_reason() {
    for provider in PROVIDERS {
        let fixture = Fixture::new();
        let cloud = serve(&fixture, provider);
        // The listing, and some of the objects.
        cloud.expire_after(60);
        let text = fs::read_to_string(fixture.job()).unwrap();
        let format = "  format: image-folder\n";
        fs::write(fixture.job(), text.replace(format, &format!("{format}  patience: 1 s\n")))
            .unwrap();
        let mut run = fixture.run(0);
        with_credentials(&mut run, provider).env("TRAINER_COPY", fixture.path("data"));
        let output = run.output().unwrap();
        assert_ended(&output, 1);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("could not be read"), "{provider:?}: {said}");
        assert!(!said.contains(ACCOUNT_KEY) && !said.contains("the-private-key"), "{said}");
    }
}
