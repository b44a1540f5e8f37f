//! One function for each experiment: its settings from the arguments, its outcome to the output.

mod papers;

use std::{fs, os::unix::process::CommandExt as _, path::Path, process::Command, time::Duration};

use anyhow::{Context, anyhow};
use tierfeed_benchmarks::{
    agents, copy, decode, direct, end_to_end, frameworks, handoff, hogged, import,
    index, io, no_harm, objects, peers, peers_transport, phases, policies, reader,
    tiers_accuracy, tiers_contended,
    transforms::{self, Experiment},
};
use tierfeed_core::{id::NumaNode, units::BytesPerSecond};
use tierfeed_experiments::{dlcache, limits};
use tierfeed_harness::{
    environment,
    failure::Failure,
    judgement::Judgement,
    leftovers::{self, Watch},
    output::FolderAndFormat,
    programs::{self, Programs},
};

use crate::arguments::{
    Bench, BenchAgents, BenchCopy, BenchDecode, BenchDirect, BenchDlcache,
    BenchEndToEnd, BenchFrameworks, BenchHandoff, BenchImport, BenchIndex, BenchIo, BenchLimits,
    BenchNoHarm, BenchObjects, BenchPeers, BenchPhases, BenchPolicies, BenchReader,
    BenchTiersAccuracy, BenchTiersContended, BenchTransforms, DlcachePatterns, ForwardedArguments,
    IoEngine, RemoveLeftovers, TiersSubject,
};

const RAM_DISK: &str = "/dev/shm";

pub(crate) fn run(bench: Bench) -> Result<(), Failure> {
    match bench {
        Bench::Handoff(it) => handoff(it),
        Bench::Frameworks(it) => frameworks(it),
        Bench::Decode(it) => decode(it),
        Bench::Transforms(it) => transforms(Experiment::EndToEnd, it),
        Bench::CachedForm(it) => transforms(Experiment::CachedForm, it),
        Bench::Balance(it) => transforms(Experiment::Balance, it),
        Bench::Copy(it) => copy(it),
        Bench::Direct(it) => direct(&it),
        Bench::Policies(it) => policies(it),
        Bench::Phases(it) => phases(it),
        Bench::Import(it) => import(it),
        Bench::Index(it) => index(it),
        Bench::Dlcache(it) => dlcache(&it),
        Bench::TiersAccuracy(it) => tiers_accuracy(it),
        Bench::TiersContended(it) => tiers_contended(&it),
        Bench::Limits(it) => limits(&it),
        Bench::Loaders(it) => papers::loaders(it),
        Bench::Paper(it) => papers::paper(it),
        Bench::Objects(it) => objects(it),
        Bench::EndToEnd(it) => end_to_end(it),
        Bench::NoHarm(it) => no_harm(it),
        Bench::Hogged(it) => hogged(&it),
        Bench::Io(it) => cold_files(it),
        Bench::Chaos(it) => exec_chaos("tierfeed-bench chaos", None, &it),
        Bench::Agents(it) => agents(it),
        Bench::Idle(it) => exec_chaos("tierfeed-bench", Some("idle"), &it),
        Bench::Peers(it) => peers(it),
        Bench::PeersServe(it) => peers_transport::serve(it.sample).map_err(Failure::Work),
        Bench::PeersRelay(it) => peers_transport::relay(it.to, it.delay).map_err(Failure::Work),
        Bench::Reader(it) => read(&it),
        Bench::RemoveLeftovers(it) => remove_leftovers(&it),
    }
}

/// If this process dies while the result lives, a second process removes its files in `folder`, its disks and its
/// control groups.
fn watch(folder: &Path) -> Result<Watch, Failure> {
    let folders = [folder, Path::new(RAM_DISK)].map(Path::to_owned);
    Watch::start(&Programs::find()?.own, &folders).map_err(Failure::Work)
}

fn remove_leftovers(arguments: &RemoveLeftovers) -> Result<(), Failure> {
    let ended =
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).context("cannot read the input");
    ended.map_err(Failure::Work)?;
    leftovers::remove(arguments.process, &arguments.folders);
    Ok(())
}

/// Replaces this process by `tierfeed-chaos`, whose help names it `name`. So output, signals and exit code
/// are those of one process.
fn exec_chaos(
    name: &str,
    command: Option<&str>,
    arguments: &ForwardedArguments,
) -> Result<(), Failure> {
    let program = programs::beside("tierfeed-chaos", "tierfeed-chaos")?;
    let mut chaos = Command::new(&program);
    let error = chaos.arg0(name).args(command).args(&arguments.options).exec();
    Err(Failure::Work(anyhow::Error::new(error).context(program.display().to_string())))
}

fn agents(arguments: BenchAgents) -> Result<(), Failure> {
    let BenchAgents { agents, seconds, output } = arguments;
    let reporting = Duration::from_secs(seconds);
    let settings = agents::Settings {
        programs: Programs::find()?,
        folder: output.folder(),
        agents,
        reporting,
    };
    let outcome = agents::run(&settings).map_err(Failure::Work)?;
    output.print(&outcome, agents::table)?;
    passed(outcome.judged())
}

/// Fails if a promise was certainly missed, or if that is not certain.
fn passed(judged: Judgement) -> Result<(), Failure> {
    let Judgement { missed, inconclusive } = judged;
    match (missed.as_slice(), inconclusive.as_slice()) {
        ([], []) => Ok(()),
        ([], unclear) => Err(Failure::Inconclusive(anyhow!(
            "{} figures are inconclusive; repeat on a quiet machine or with more rounds:\n{}",
            unclear.len(),
            unclear.join("\n")
        ))),
        (missed, _) => {
            Err(Failure::Work(anyhow!("{} promises missed:\n{}", missed.len(), missed.join("\n"))))
        }
    }
}

fn handoff(arguments: BenchHandoff) -> Result<(), Failure> {
    let BenchHandoff { python, files, rounds, output } = arguments;
    let settings = handoff::Settings {
        tierfeed: Programs::find()?.tierfeed,
        python,
        folder: output.folder(),
        files,
        rounds,
    };
    let outcome = handoff::run(&settings).map_err(Failure::Work)?;
    output.print(&outcome, handoff::table)?;
    passed(outcome.judged())
}

fn frameworks(arguments: BenchFrameworks) -> Result<(), Failure> {
    let BenchFrameworks { python, only, samples, sample, batch_size, .. } = arguments;
    let BenchFrameworks { epochs, rounds, rate, output, .. } = arguments;
    let _watch = watch(&output.folder())?;
    let settings = frameworks::Settings {
        tierfeed: Programs::find()?.tierfeed,
        python,
        folder: output.folder(),
        only,
        samples,
        sample,
        batch_size,
        epochs,
        rounds,
        rate,
    };
    let outcome = frameworks::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    output.print(&outcome, frameworks::table)?;
    passed(outcome.judged())
}

fn decode(arguments: BenchDecode) -> Result<(), Failure> {
    let BenchDecode { python, photographs, images, rounds, quick, output } = arguments;
    let (images_max, rounds) = if quick { (96, 3) } else { (images, rounds) };
    let tierfeed = Programs::find()?.tierfeed;
    let folder = output.folder();
    let settings = decode::Settings { tierfeed, python, photographs, folder, rounds, images_max };
    let outcome = decode::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    output.print(&outcome, decode::table)?;
    passed(outcome.judged())
}

fn transforms(experiment: Experiment, arguments: BenchTransforms) -> Result<(), Failure> {
    let BenchTransforms { python, samples, rounds, quick, output } = arguments;
    let (samples, rounds) = if quick { (240, 3) } else { (samples.next_multiple_of(24), rounds) };
    let settings = transforms::Settings {
        tierfeed: Programs::find()?.tierfeed,
        python,
        folder: output.folder(),
        samples,
        rounds,
    };
    let outcome = transforms::run(experiment, &settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    output.print(&outcome, transforms::table)?;
    passed(outcome.judged())
}

fn direct(arguments: &BenchDirect) -> Result<(), Failure> {
    let &BenchDirect { numa_node, chunk, sample, threads, rounds, format } = arguments;
    let node = numa_node.map(NumaNode);
    let settings = direct::Settings { node, chunk, sample, threads, rounds };
    let outcome = direct::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    format.print(&outcome, direct::table)?;
    passed(outcome.judged())
}

fn copy(arguments: BenchCopy) -> Result<(), Failure> {
    let BenchCopy { chunk, rounds, threads, scratch, output } = arguments;
    let settings = copy::Settings { folder: output.folder(), scratch, chunk, rounds, threads };
    let outcome = copy::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    output.print(&outcome, copy::table)?;
    passed(outcome.judged())
}

fn cold_files(arguments: BenchIo) -> Result<(), Failure> {
    let BenchIo { data, file, turn, rounds, engine, fio, output } = arguments;
    let engine = engine.map(|engine| match engine {
        IoEngine::Threads => io::Engine::Threads,
        IoEngine::ThreadsDropping => io::Engine::ThreadsDropping,
        IoEngine::Ring => io::Engine::Ring,
    });
    let settings = io::Settings { fio, folder: output.folder(), data, file, turn, rounds, engine };
    let outcome = io::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    output.print(&outcome, io::table)?;
    passed(outcome.judged())
}

fn end_to_end(arguments: BenchEndToEnd) -> Result<(), Failure> {
    let BenchEndToEnd { data, scratch, epochs, step, output } = arguments;
    let _watch = watch(&output.folder())?;
    let settings = end_to_end::Settings {
        programs: Programs::find()?,
        folder: output.folder(),
        scratch,
        photographs: data,
        epochs,
        step: Duration::from_nanos(step.0),
    };
    let outcome = end_to_end::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    output.print(&outcome, end_to_end::table)?;
    passed(outcome.judged())
}

fn phases(arguments: BenchPhases) -> Result<(), Failure> {
    let BenchPhases { data, output } = arguments;
    let settings = phases::Settings { programs: Programs::find()?, folder: output.folder(), data };
    let outcome = phases::run(&settings).map_err(Failure::Work)?;
    output.print(&outcome, phases::table)?;
    passed(outcome.judged())
}

fn peers(arguments: BenchPeers) -> Result<(), Failure> {
    let BenchPeers { nodes, transport, samples, delays, turn, rounds, output } = arguments;
    if transport {
        let settings = peers_transport::Settings { samples, delays, turn, rounds };
        let outcome = peers_transport::run(&settings, &mut |step| tracing::info!("{step}"));
        let outcome = outcome.map_err(Failure::Work)?;
        output.print(&outcome, peers_transport::table)?;
        return passed(outcome.judged());
    }
    let settings = peers::Settings { programs: Programs::find()?, folder: output.folder(), nodes };
    let outcome = peers::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    output.print(&outcome, peers::table)?;
    passed(outcome.judged())
}

fn no_harm(arguments: BenchNoHarm) -> Result<(), Failure> {
    let BenchNoHarm { python, quick, files, file, batch_size, step, rate, tier, .. } = arguments;
    let BenchNoHarm { epochs, rounds, workers, output, .. } = arguments;
    let _watch = watch(&output.folder())?;
    let settings = no_harm::Settings {
        programs: Programs::find()?,
        python,
        folder: output.folder(),
        files,
        file,
        batch_size,
        step: Duration::from_nanos(step.0),
        rate: if quick { BytesPerSecond(rate.0 * 2) } else { rate },
        tier,
        epochs: if quick { 3 } else { epochs },
        rounds: if quick { 1 } else { rounds },
        workers,
    };
    let outcome = no_harm::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    output.print(&outcome, no_harm::table)?;
    passed(outcome.judged())
}

fn hogged(output: &FolderAndFormat) -> Result<(), Failure> {
    let _watch = watch(&output.folder())?;
    let settings = hogged::Settings { programs: Programs::find()?, folder: output.folder() };
    let outcome = hogged::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    output.print(&outcome, hogged::table)?;
    passed(outcome.judged())
}

fn policies(arguments: BenchPolicies) -> Result<(), Failure> {
    let BenchPolicies { files, scratch, output } = arguments;
    let settings =
        policies::Settings { programs: Programs::find()?, folder: output.folder(), scratch, files };
    let outcome = policies::run(&settings).map_err(Failure::Work)?;
    output.print(&outcome, policies::table)?;
    passed(outcome.judged())
}

fn import(arguments: BenchImport) -> Result<(), Failure> {
    let BenchImport { module, before, python, rounds, format } = arguments;
    let outcome = import::run(&import::Settings { python, module, before, rounds });
    let outcome = outcome.map_err(Failure::Work)?;
    format.print(&outcome, import::table)?;
    passed(outcome.judged())
}

fn index(arguments: BenchIndex) -> Result<(), Failure> {
    let BenchIndex { files, rounds, folder, format } = arguments;
    let settings = index::Settings { tierfeed: Programs::find()?.tierfeed, folder, files, rounds };
    let outcome = index::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    format.print(&outcome, index::table)?;
    passed(outcome.judged())
}

fn objects(arguments: BenchObjects) -> Result<(), Failure> {
    let BenchObjects { server, python, rounds, output } = arguments;
    let server = programs::s3_server(server)?;
    let settings = objects::Settings { server, python, folder: output.folder(), rounds };
    let outcome = objects::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    output.print(&outcome, objects::table)?;
    passed(outcome.judged())
}

fn dlcache(arguments: &BenchDlcache) -> Result<(), Failure> {
    let chunks = match &arguments.chunks {
        Some(path) => dlcache::Chunks::read(path).map_err(Failure::Input)?,
        None => dlcache::Chunks::generated(),
    };
    let patterns = match arguments.patterns {
        DlcachePatterns::Full => dlcache::Patterns::Paper,
        DlcachePatterns::Published => dlcache::Patterns::Published,
        DlcachePatterns::Quick => dlcache::Patterns::Quick,
    };
    let outcome = dlcache::run(&chunks, patterns, &mut |step| tracing::info!("{step}"));
    arguments.format.print(&outcome, dlcache::table)?;
    passed(outcome.judged())
}

fn tiers_accuracy(arguments: BenchTiersAccuracy) -> Result<(), Failure> {
    let BenchTiersAccuracy { only, pairs, samples, array, compiler, fio, output } = arguments;
    let subjects = if only.is_empty() {
        tiers_accuracy::Subject::ALL.to_vec()
    } else {
        only.into_iter().map(subject).collect()
    };
    let folder = output.folder();
    let settings =
        tiers_accuracy::Settings { folder, compiler, fio, pairs, samples, array, subjects };
    let outcome = tiers_accuracy::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    output.print(&outcome, tiers_accuracy::table)?;
    passed(outcome.judged())
}

const fn subject(subject: TiersSubject) -> tiers_accuracy::Subject {
    match subject {
        TiersSubject::Bandwidth => tiers_accuracy::Subject::Bandwidth,
        TiersSubject::Latency => tiers_accuracy::Subject::Latency,
        TiersSubject::Storage => tiers_accuracy::Subject::Storage,
    }
}

fn tiers_contended(arguments: &BenchTiersContended) -> Result<(), Failure> {
    let &BenchTiersContended { pairs, time, buffer, format } = arguments;
    let settings = tiers_contended::Settings { pairs, time, buffer };
    let outcome = tiers_contended::run(&settings, &mut |step| tracing::info!("{step}"));
    let outcome = outcome.map_err(Failure::Work)?;
    format.print(&outcome, tiers_contended::table)?;
    passed(outcome.judged())
}

fn limits(arguments: &BenchLimits) -> Result<(), Failure> {
    let &BenchLimits { accesses, format } = arguments;
    let outcome = limits::run(&limits::Settings { accesses }, &mut |step| tracing::info!("{step}"));
    format.print(&outcome, limits::table)?;
    let missed: Vec<String> = outcome.missed().collect();
    match missed.as_slice() {
        [] => Ok(()),
        missed => {
            Err(Failure::Work(anyhow!("{} marks missed:\n{}", missed.len(), missed.join("\n"))))
        }
    }
}

fn read(arguments: &BenchReader) -> Result<(), Failure> {
    let socket = environment::required(environment::SOCKET)?;
    let step = Duration::from_nanos(arguments.step.0);
    let pause = Duration::from_nanos(arguments.pause.0);
    let is_last = |number: u64| arguments.pause_every.is_some_and(|it| number.is_multiple_of(it));
    let time = |number| if is_last(number) { step + pause } else { step };
    let epochs = reader::read_all(&[socket.into()], time).map_err(Failure::Work)?;
    let Some(file) = &arguments.record else { return Ok(()) };
    let seconds: Vec<f64> = epochs.iter().map(Duration::as_secs_f64).collect();
    let text =
        serde_json::to_string(&seconds).context("times are numbers").map_err(Failure::Work)?;
    fs::write(file, text)
        .with_context(|| format!("cannot write {}", file.display()))
        .map_err(Failure::Work)
}
