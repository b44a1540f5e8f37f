//! Recognises launchers in a command: a launcher starts the ranks of a node itself, so it is started once.
//!
//! Only words before the first script count; the following ones are arguments of the training. A launcher
//! that is not recognised is started once for each rank, and a program that is mistaken for one starts a
//! single process: the agent refuses both when trainers connect, and `--launch` overrides the choice.

use std::path::Path;

const PROGRAMS: &[&str] = &[
    "accelerate",
    "accelerate-launch",
    "aprun",
    "deepspeed",
    "horovodrun",
    "jsrun",
    "mpiexec",
    "mpirun",
    "orterun",
    "prterun",
    "prun",
    "srun",
    "torchrun",
    "torchrun_xla",
];

/// The suffixes by which distributions distinguish programs of the same name.
const SUFFIXES: &[&str] = &[".hydra", ".mpich", ".openmpi"];

/// Modules that start ranks, behind `python -m`.
const MODULES: &[&str] = &[
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
    "torch.distributed.launch",
    "torch.distributed.run",
];

/// The launcher in `command`, such as `torchrun` in `env A=B /opt/bin/torchrun train.py` or in
/// `bash -c "torchrun train.py"`.
pub(crate) fn launcher_in(command: &[String]) -> Option<&'static str> {
    let words = command.iter().flat_map(|argument| argument.split_whitespace());
    #[expect(
        clippy::case_sensitive_file_extension_comparisons,
        reason = "as Python names its files"
    )]
    let mut before_script = words.take_while(|word| !word.ends_with(".py"));
    before_script.find_map(|word| program(word).or_else(|| module(word)))
}

fn program(word: &str) -> Option<&'static str> {
    let name = Path::new(word).file_name()?.to_str()?;
    let plain = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
    PROGRAMS.iter().find(|known| **known == plain).copied()
}

fn module(word: &str) -> Option<&'static str> {
    MODULES.iter().find(|known| **known == word).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(command: &str) -> Option<&'static str> {
        // `|` stands for a space inside one argument.
        let command: Vec<_> = command.split(' ').map(|word| word.replace('|', " ")).collect();
        launcher_in(&command)
    }

    #[test]
    fn launchers_are_found_wherever_they_stand() {
        for (command, launcher) in [
            ("torchrun --nproc-per-node 2 train.py", "torchrun"),
            ("/opt/venv/bin/torchrun train.py", "torchrun"),
            (
                "python -m torch.distributed.run --nproc-per-node=2 train.py",
                "torch.distributed.run",
            ),
            ("python3 -m torch.distributed.launch train.py", "torch.distributed.launch"),
            ("accelerate launch --num_processes 2 train.py", "accelerate"),
            ("python -m accelerate.commands.launch train.py", "accelerate.commands.launch"),
            ("deepspeed --num_gpus 2 train.py", "deepspeed"),
            ("mpirun -n 2 python train.py", "mpirun"),
            ("mpirun.openmpi -n 2 python train.py", "mpirun"),
            ("mpiexec.hydra -n 2 python train.py", "mpiexec"),
            ("srun --overlap -n 2 python train.py", "srun"),
            ("env OMP_NUM_THREADS=1 numactl -N 0 torchrun train.py", "torchrun"),
            ("uv run torchrun train.py", "torchrun"),
            ("bash -c torchrun|--nproc-per-node|2|train.py", "torchrun"),
        ] {
            assert_eq!(found(command), Some(launcher), "{command}");
        }
    }

    #[test]
    fn plain_scripts_and_their_arguments_are_no_launchers() {
        for command in [
            "python train.py",
            "python train.py --launcher torchrun",
            "./train.sh",
            "python -m trainer",
            "bash -c python|train.py|mpirun",
            "python -m trainer --config accelerate.yaml",
            "/home/mpirun/bin/python train.py",
        ] {
            assert_eq!(found(command), None, "{command}");
        }
    }
}
