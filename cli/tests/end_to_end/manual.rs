//! What a shell and `man` are told of the commands, and what `scripts/install.sh` puts where.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

const TIERFEED: &str = env!("CARGO_BIN_EXE_tierfeed");

/// Standard output of a program that succeeds.
fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn tierfeed(arguments: &[&str]) -> String {
    said(Command::new(TIERFEED).args(arguments))
}

fn commands() -> Vec<String> {
    let help = tierfeed(&["help"]);
    let (_, listed) = help.split_once("Commands:\n").unwrap();
    let lines = listed.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    // `help` belongs to the parser, and has no page.
    let names: Vec<_> = names.filter(|name| *name != "help").map(str::to_owned).collect();
    assert!(names.len() > 10 && names.iter().any(|it| it == "analyze"), "{help}");
    names
}

/// Every file below `folder`, by its path from there.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry.path();
                found.insert(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    tierfeed(&["man", "--output", pages.to_str().unwrap()]);
    for name in commands() {
        let page = fs::read_to_string(pages.join(format!("tierfeed-{name}.1"))).unwrap();
        assert!(page.contains(".TH ") && page.contains(".SH DESCRIPTION"), "{name}: {page}");
    }
    let page = fs::read_to_string(pages.join("tierfeed-tiers-probe.1")).unwrap();
    assert!(page.contains("quick"), "the options of a command below a command: {page}");
    let whole = fs::read_to_string(pages.join("tierfeed.1")).unwrap();
    assert_eq!(whole, tierfeed(&["man"]), "without a folder the page goes to standard output");
}

#[test]
fn bash_completes_commands_and_their_options() {
    let script = "source <(\"$0\" completions bash)
        COMP_WORDS=(tierfeed \"$@\") COMP_CWORD=$#
        _tierfeed tierfeed \"${@: -1}\" tierfeed
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let completed = |typed: &[&str]| {
        let mut bash = Command::new("bash");
        said(bash.args(["--norc", "-c", script, TIERFEED]).args(typed))
    };
    assert_eq!(completed(&["anal"]), "analyze\n");
    assert_eq!(completed(&["hog", "--tak"]), "--take\n");
    let all = completed(&[""]);
    for name in commands() {
        assert!(all.lines().any(|line| line == name), "{name} in\n{all}");
    }
}

#[test]
fn zsh_and_fish_are_told_of_every_command() {
    for (shell, head) in [("zsh", "#compdef tierfeed"), ("fish", "complete -c tierfeed")] {
        let script = tierfeed(&["completions", shell]);
        assert!(script.contains(head), "{shell}: {script}");
        for name in commands() {
            assert!(script.contains(&name), "{shell}: {name}");
        }
    }
}

/// The program for HDF5 belongs to another package, which need not be built here: a script stands in.
#[test]
fn what_is_installed_runs_and_is_removed_again_without_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let (target, prefix) = (folder.path().join("target"), folder.path().join("prefix"));
    fs::create_dir_all(target.join("debug")).unwrap();
    symlink(TIERFEED, target.join("debug/tierfeed")).unwrap();
    fs::write(target.join("debug/tierfeed-hdf5-indexer"), "#!/bin/sh\necho indexer\n").unwrap();
    let others = ["bin/tier", "share/man/man1/tier.1", "share/zsh/site-functions/_tier"];
    for other in others.map(|it| prefix.join(it)) {
        fs::create_dir_all(other.parent().unwrap()).unwrap();
        fs::write(other, "").unwrap();
    }
    let install = |arguments: &[&str]| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/install.sh");
        let mut command = Command::new(script);
        command.args(arguments).env("CARGO_TARGET_DIR", &target).env("PREFIX", &prefix);
        said(command.env("TIERFEED_PROFILE", "dev"))
    };
    let text = install(&[]);
    assert!(text.contains(&format!("PATH=\"{}/bin:$PATH\"", prefix.display())), "{text}");
    let mut expected: BTreeSet<_> = others.map(str::to_owned).into();
    expected.extend(
        [
            "bin/tierfeed",
            "bin/tierfeed-hdf5-indexer",
            "share/bash-completion/completions/tierfeed",
            "share/zsh/site-functions/_tierfeed",
            "share/fish/vendor_completions.d/tierfeed.fish",
            "share/man/man1/tierfeed.1",
        ]
        .map(str::to_owned),
    );
    let installed = files(&prefix);
    let is_page = |name: &String| name.starts_with("share/man/man1/tierfeed-");
    let (pages, rest): (BTreeSet<_>, BTreeSet<_>) = installed.into_iter().partition(is_page);
    assert_eq!(rest, expected);
    for name in commands() {
        assert!(pages.contains(&format!("share/man/man1/tierfeed-{name}.1")), "{name}: {pages:?}");
    }
    let version = said(Command::new(prefix.join("bin/tierfeed")).arg("--version"));
    assert_eq!(version, tierfeed(&["--version"]));
    assert_eq!(said(&mut Command::new(prefix.join("bin/tierfeed-hdf5-indexer"))), "indexer\n");
    install(&["uninstall"]);
    assert_eq!(files(&prefix), others.map(str::to_owned).into());
}
