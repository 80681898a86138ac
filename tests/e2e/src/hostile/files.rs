//! Executables that are not what they were a moment ago, that hang, that are huge, and that have several names. The daemon keeps
//! tracing the scheduler, harms no program, and traces what can be traced.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use harness::{metrics::Metrics, schedspan::Schedspan, stage::Stage, wait::wait_until};
use xtask::process;

use super::{
    fakes::{Does, Fake, Model},
    fuse::Fuse,
    trust::{Watched, scheduled},
};
use crate::{checks::nothing_lost, mounts::Mount};

/// Fakes are root's.
const ROOT: &str = "0";
const TIMEOUT: Duration = Duration::from_secs(60);
/// Rounds of the swap, and swaps in each.
const ROUNDS: usize = 10;
const SWAPS: usize = 10;
/// How much later each swap of a round comes than the one before it: together, as long as a plan takes.
const STEP: Duration = Duration::from_millis(15);
/// Time for harm to be done. A look for processes comes once a second.
const HARM: Duration = Duration::from_millis(1_500);
/// The program that is not to be traced.
const VICTIM: &str = "victim";
const CUTS: u32 = 20;
const SPARSE: usize = 6;
const SPARSE_BYTES: u64 = 512 << 20;

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    let scheduler = stage.cluster.scheduler()?.executable;
    let model = Model::of(&scheduler, &stage.executable)?;
    names(stage, &model).context("names")?;
    others(stage).context("other tracers")?;
    huge(stage, &model).context("huge files")?;
    hangs(stage, &model).context("a file system that hangs")?;
    cut(stage, &model).context("files that are cut")?;
    swaps(stage, &model).context("swaps")
}

/// A daemon that traces whatever this test starts. The harness names itself as the parent of all that is trusted.
fn daemon(stage: &Stage) -> Result<Schedspan> {
    Schedspan::start(&stage.options()?)
}

fn traced(schedspan: &mut Schedspan, number: usize) -> Result<()> {
    schedspan.wait_for(&format!("{number} processes to be traced"), TIMEOUT, |metrics| {
        metrics.sum("schedspan_schedulers", &[]) == number as f64
    })
}

fn sites(metrics: &Metrics) -> f64 {
    metrics.sum("schedspan_plan_sites", &[])
}

/// The same file under several names, and several files with the same number: each process has its breakpoints, and no file
/// has them twice.
fn names(stage: &Stage, model: &Model) -> Result<()> {
    let mut schedspan = daemon(stage)?;
    let of_scheduler = sites(&schedspan.metrics()?);
    let mut others = Vec::new();
    let mut expect = |schedspan: &mut Schedspan, fake: Fake, files: usize, what: &str| -> Result<()> {
        others.push(fake);
        traced(schedspan, others.len() + 1).context(what.to_owned())?;
        for fake in &others {
            model.check_probed(fake.pid()).context(what.to_owned())?;
        }
        let (now, due) = (sites(&schedspan.metrics()?), of_scheduler * (files + 1) as f64);
        ensure!(now == due, "{what}: {now} sites are attached instead of {due}");
        Ok(())
    };

    // Two starts of one file, with other rights and another name in between.
    let first = model.start("kube-scheduler-named", Does::Waits, ROOT)?;
    let (file, link) = (first.executable.clone(), model.dir().join("kube-scheduler-linked"));
    expect(&mut schedspan, first, 1, "one file")?;
    fs::set_permissions(&file, Permissions::from_mode(0o700))?;
    fs::hard_link(&file, &link)?;
    expect(&mut schedspan, model.run(&link, ROOT)?, 1, "the same file after chmod and ln")?;

    // Two copies on file systems of their own, alike in all that a file says of itself but the device.
    let [one, other] = ["one", "other"].map(|name| Mount::tmpfs(model.dir(), name, c"size=512m,mode=755"));
    let (one, other) = (one?, other?);
    let copies = [&one, &other].map(|mount| mount.0.join("image/kube-scheduler"));
    for (mount, copy) in [&one, &other].into_iter().zip(&copies) {
        fs::create_dir(mount.0.join("image"))?;
        process::run("cp", Command::new("cp").arg("--preserve=all").args([&file, copy]))?;
    }
    let number = |path: &PathBuf| fs::metadata(path).map(|meta| (meta.ino(), meta.len(), meta.mtime_nsec()));
    ensure!(number(&copies[0])? == number(&copies[1])?, "the copies are not alike: the test shows nothing");
    expect(&mut schedspan, model.run(&copies[0], ROOT)?, 2, "a copy")?;
    expect(&mut schedspan, model.run(&copies[1], ROOT)?, 3, "a copy with the same number")?;

    // Two containers of one image.
    let [left, right] = ["left", "right"].map(|name| Mount::overlay(&one.0, name));
    let (left, right) = (left?, right?);
    for (mount, what) in [(&left, "an overlay of a probed file"), (&right, "another overlay of it")] {
        expect(&mut schedspan, model.run(&mount.0.join("kube-scheduler"), ROOT)?, 3, what)?;
    }
    // A new daemon finds all of them in one search.
    schedspan.stop()?;
    let mut schedspan = daemon(stage)?;
    traced(&mut schedspan, others.len() + 1).context("all at once")?;
    let (now, due) = (sites(&schedspan.metrics()?), of_scheduler * 4.0);
    ensure!(now == due, "all at once: {now} sites are attached instead of {due}");
    let metrics = schedspan.metrics()?;
    ensure!(metrics.sum("schedspan_foreign_probes", &[]) == 0.0, "own probes are taken for others'");
    ensure!(metrics.sum("schedspan_schedulers_refused", &[]) == 0.0, "something is refused");
    println!(
        "         chmod, ln, clones, overlays, one by one and all at once: {} fakes of 3 files have each breakpoint once",
        others.len()
    );
    drop(others);
    traced(&mut schedspan, 1)?;
    nothing_lost(&scheduled(stage, &mut schedspan, "names")?)?;
    schedspan.stop()
}

/// Two daemons on one scheduler: the second one says so.
fn others(stage: &Stage) -> Result<()> {
    let first = daemon(stage)?;
    let alone = first.metrics()?.sum("schedspan_foreign_probes", &[]);
    ensure!(alone == 0.0, "the first one sees {alone} breakpoints of others");
    let second = Schedspan::start(&stage.options()?)?;
    let metrics = second.metrics()?;
    let foreign = metrics.sum("schedspan_foreign_probes", &[]);
    ensure!(foreign == sites(&metrics), "{foreign} breakpoints of others at {} sites", sites(&metrics));
    let (log, pid) = (second.log()?, format!("perhaps the schedspan with pid {}", first.pid()));
    ensure!(log.contains(&pid), "the log does not say `{pid}`");
    let trust = format!("parent={}", std::process::id());
    // Its exit code depends on the API server and the Collector as well.
    let doctor = Command::new(&stage.executable).args(["doctor", "--trust", &trust]).output()?;
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    ensure!(said.contains("has breakpoints at") && said.contains(&first.pid().to_string()), "doctor: {said}");
    second.stop()?;
    first.stop()?;
    println!("         a second schedspan names the first one, and so does doctor");
    Ok(())
}

/// Files of which nothing can be found without reading all of them.
fn huge(stage: &mut Stage, model: &Model) -> Result<()> {
    let mut fakes = Vec::new();
    for number in 0..SPARSE {
        let path = model.dir().join(format!("kube-scheduler-sparse-{number}"));
        model.write(&path, model.sparse(SPARSE_BYTES)?)?;
        File::options().write(true).open(&path)?.set_len(SPARSE_BYTES)?;
        fakes.push(model.run(&path, ROOT)?);
    }
    // Processes are looked at by pid: the fakes come first.
    stage.cluster.restart_scheduler()?;
    let mut schedspan = daemon(stage)?;
    nothing_lost(&scheduled(stage, &mut schedspan, "huge")?)?;
    println!("         {SPARSE} sparse files of {} MiB: the scheduler is traced", SPARSE_BYTES >> 20);
    drop(fakes);
    schedspan.stop()
}

/// A file system that takes every request and answers none.
fn hangs(stage: &mut Stage, model: &Model) -> Result<()> {
    let fuse = Fuse::mount(model.dir(), model.code(Does::Waits)?)?;
    let fake = model.run(&fuse.file(), ROOT)?;
    fuse.fall_silent();
    stage.cluster.restart_scheduler()?;
    let mut schedspan = daemon(stage)?;
    schedspan.wait_for("the file to be given up", TIMEOUT, |metrics| {
        metrics.sum("schedspan_executables_given_up_total", &[]) > 0.0
    })?;
    nothing_lost(&scheduled(stage, &mut schedspan, "hangs")?)?;
    for path in ["healthz", "readyz"] {
        let answer = schedspan.says(path)?;
        ensure!(answer.contains("ok"), "/{path} says {answer}");
    }
    let log = schedspan.log()?;
    let told = log.lines().filter(|line| line.contains(&format!("pid={}", fake.pid())));
    let told: Vec<_> = told.collect();
    ensure!(
        matches!(told[..], [line] if line.contains("does not answer")),
        "not one line tells of it: {told:?}"
    );
    // It ends although its reader cannot: the harness waits for ten seconds.
    schedspan.stop()?;
    drop(fake);
    drop(fuse);
    println!("         FUSE that falls silent: given up, the scheduler is traced, SIGTERM ends the daemon");
    Ok(())
}

/// Files that end in their middle while they are read.
fn cut(stage: &Stage, model: &Model) -> Result<()> {
    let fuse = Fuse::mount(model.dir(), model.code(Does::Waits)?)?;
    let fake = model.run(&fuse.file(), ROOT)?;
    fuse.cut();
    let mut schedspan = daemon(stage)?;
    // What is missing is an end or zeros, as the kernel's cache has it: an error, or a file without a program.
    wait_until("the file to be read", TIMEOUT, || Ok((fuse.cut_reads() > 0).then_some(())))?;
    nothing_lost(&scheduled(stage, &mut schedspan, "ends")?)?;
    drop(fake);
    drop(fuse);
    // The kernel protects a file that is executed: the process is killed first.
    for number in 0..CUTS {
        let fake = model.start("kube-scheduler-cut", Does::Waits, ROOT)?;
        let watched = Watched::of(std::slice::from_ref(&fake))?;
        watched.wait()?;
        sleep(STEP * number / 4);
        let path = fake.executable.clone();
        drop(fake);
        File::options().write(true).open(&path)?.set_len(4096)?;
    }
    nothing_lost(&scheduled(stage, &mut schedspan, "cut")?)?;
    println!("         {CUTS} files cut while they are read: the daemon goes on");
    schedspan.stop()
}

/// Processes execute another file while their first one is read: that one is not touched, neither in them nor in others that run
/// it.
fn swaps(stage: &Stage, model: &Model) -> Result<()> {
    let mut schedspan = daemon(stage)?;
    let dir = model.dir().join("one");
    fs::create_dir_all(&dir)?;
    let paths = swapping(model, &dir, &dir)?;
    swap(model, &paths, &dir.join(VICTIM), &dir.join(VICTIM)).context("on one file system")?;
    // Each executable is as large as a scheduler.
    fs::remove_dir_all(&dir)?;

    // Two containers of one image: the attacker's, and another with the same program.
    let layers = model.dir().join("layers");
    let image = layers.join("image");
    fs::create_dir_all(&image)?;
    let paths = swapping(model, &image, &layers.join("left"))?;
    let [left, right] = ["left", "right"].map(|name| Mount::overlay(&layers, name));
    let (left, right) = (left?, right?);
    swap(model, &paths, &left.0.join(VICTIM), &right.0.join(VICTIM)).context("over a shared layer")?;

    nothing_lost(&scheduled(stage, &mut schedspan, "swaps")?)?;
    let number = ROUNDS * SWAPS;
    println!(
        "         {number} processes that execute another file while theirs is read, and {number} over a shared layer: untouched"
    );
    schedspan.stop()
}

/// Writes an innocent program, and executables that execute it where it is seen in the folder `seen`. Returns the path of each,
/// and where it is seen.
fn swapping(model: &Model, dir: &Path, seen: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    model.write(&dir.join(VICTIM), model.innocent()?)?;
    let code = model.swapping(&seen.join(VICTIM))?;
    let mut paths = Vec::new();
    for number in 0..SWAPS {
        let name = format!("kube-scheduler-swaps-{number}");
        model.write(&dir.join(&name), code.clone())?;
        paths.push((dir.join(&name), seen.join(&name)));
    }
    Ok(paths)
}

/// Runs the executables, which swap themselves for the program `victim`, beside a process that runs it as `other`.
fn swap(model: &Model, paths: &[(PathBuf, PathBuf)], victim: &Path, other: &Path) -> Result<()> {
    let (mut other, program) = (model.run(other, ROOT)?, model.innocent()?);
    for _ in 0..ROUNDS {
        let mut fakes = Vec::new();
        for ((file, path), number) in paths.iter().zip(0..) {
            // Another file, as far as anyone can tell.
            File::options().write(true).open(file)?.set_modified(SystemTime::now())?;
            let mut fake = model.run_with(path, ROOT, &[], Stdio::piped())?;
            let watched = Watched::of(std::slice::from_ref(&fake))?;
            watched.wait()?;
            sleep(STEP * number);
            fake.swap()?;
            wait_until("the swap", TIMEOUT, || {
                let runs = fs::read_link(format!("/proc/{}/exe", fake.pid()))?;
                Ok((runs == victim).then_some(()))
            })?;
            fakes.push(fake);
        }
        sleep(HARM);
        for innocent in fakes.iter_mut().chain([&mut other]) {
            model.check_untouched(innocent.pid())?;
            model.check_code(innocent.pid(), &program)?;
            ensure!(innocent.is_alive()?, "an innocent process has died");
        }
    }
    Ok(())
}
