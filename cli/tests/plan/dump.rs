//! Every batch of a run as text.

use std::{
    io::{BufRead, BufReader, Read},
    process::Stdio,
};

use crate::{JOB, command, folder, json, long_job, refused, text};

fn parts(line: &str) -> (&str, Vec<&str>) {
    let (batch, samples) = line.rsplit_once(' ').unwrap();
    (batch, samples.split(',').collect())
}

#[test]
fn with_a_policy_each_sample_stands_with_where_it_comes_from() {
    let folder = folder(JOB);
    let order = text(folder.path(), &["--dump"]);
    let sources = text(folder.path(), &["--dump", "--policy", "gap"]);
    let mut cold = [0_u64; 3];
    for (line, told) in order.lines().zip(sources.lines()).skip(1) {
        let ((batch, samples), (again, told)) = (parts(line), parts(told));
        assert_eq!(batch, again);
        let names = told.iter().map(|it| it.split_once(':').unwrap());
        assert_eq!(samples, names.clone().map(|it| it.0).collect::<Vec<_>>());
        let epoch: usize = batch.split(' ').next().unwrap().parse().unwrap();
        cold[epoch] += names.filter(|it| it.1 == "cold").count() as u64;
    }
    assert_eq!(order.lines().count(), sources.lines().count());
    let plan = json(folder.path(), &["--simulate", "--policy", "gap"]);
    for (epoch, cold) in cold.iter().enumerate() {
        assert_eq!(plan["epochs"][epoch]["cold_samples"], *cold, "epoch {epoch}");
    }
    assert!(sources.contains(":main-memory") && sources.contains(":cxl-memory"));
}

#[test]
fn a_node_is_printed_alone_and_all_nodes_one_after_the_other() {
    let folder = folder(&JOB.replace("nodes: 1", "nodes: 2"));
    let ranks = |arguments: &[&str]| {
        let printed = text(folder.path(), &[&["--dump"], arguments].concat());
        let rank = |line: &str| line.split(' ').nth(2).unwrap().to_owned();
        let mut ranks: Vec<_> = printed.lines().skip(1).map(rank).collect();
        let lines = ranks.len();
        ranks.dedup_by_key(|rank| rank.parse::<u32>().unwrap() / 2);
        (lines, ranks.len())
    };
    assert_eq!(ranks(&[]), (3 * 25 * 4, 3 * 25 * 2), "ranks of both nodes take turns");
    assert_eq!(ranks(&["--node", "1"]), (3 * 25 * 2, 1));
    assert_eq!(ranks(&["--node", "1", "--policy", "gap"]), (3 * 25 * 2, 1));
    assert_eq!(ranks(&["--all-nodes", "--policy", "gap"]), (3 * 25 * 4, 2));
    let said = refused(folder.path(), &["--dump", "--policy", "gap,fifo"], 2);
    assert!(said.contains("--policy names 2 policies; this takes one"), "{said}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let folder = folder(&long_job());
    for arguments in [&["--dump"][..], &["--dump", "--policy", "none"]] {
        let mut dump = command(folder.path(), arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(dump.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "epoch step rank samples");
        drop(lines);
        let mut said = String::new();
        dump.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((dump.wait().unwrap().code(), said.as_str()), (Some(0), ""));
    }
}
