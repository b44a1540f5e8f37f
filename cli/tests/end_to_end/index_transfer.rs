//! The index of the dataset, which the manager passes on to the agents.

use std::{fs, process::Command};

use crate::{
    apart::{Cluster, end_well},
    fixture::{assert_complete, assert_ended},
};

#[test]
fn an_agent_takes_the_index_of_its_manager_and_does_not_list_the_dataset() {
    let cluster = Cluster::start();
    // A listing would show it, and the index would be another one.
    fs::write(cluster.fixture.path("data/class0/zzz.jpg"), "one more").unwrap();
    let trainers = cluster.trainers(0);
    let mut agent = cluster.agent();
    end_well(trainers);
    assert!(agent.errors().contains("index from the manager"), "{}", agent.errors());
    assert_eq!(assert_complete(&cluster.fixture.log()), cluster.fixture.lines());
    let [own, passed] = ["manager/dataset.index", "run/dataset.index"]
        .map(|name| fs::read(cluster.fixture.path(name)).unwrap());
    assert!(own == passed, "the files differ");
    let left = fs::read_dir(cluster.fixture.path("run")).unwrap();
    let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let parts: Vec<String> = names.filter(|name| name.starts_with("dataset.index.")).collect();
    assert!(parts.is_empty(), "{parts:?}");
}

#[test]
fn an_agent_that_sees_other_objects_lists_the_dataset_and_says_what_differs() {
    let cluster = Cluster::start();
    let files = (0..100).map(|number| format!("class{}/{number:03}.jpg", number % 4));
    let mut touch = Command::new("touch");
    touch.args(["-d", "2001-02-03"]).args(files.map(|it| cluster.fixture.path("data").join(it)));
    assert!(touch.status().unwrap().success());
    let output = cluster.agent_command().output().unwrap();
    assert_ended(&output, 2);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("objects on this node are not those that the manager indexed"),
        "{errors}"
    );
    assert!(errors.contains("but the manager works with"), "{errors}");
}
