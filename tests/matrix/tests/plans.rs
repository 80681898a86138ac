//! The plans of real executables stay what they are in `tests/plans`, to the last register and offset.
//!
//! Reads what the cache folder has: `cargo xtask matrix schedulers`, `cargo xtask e2e controllers operators`, `cargo xtask kind up` and
//! `cargo xtask kind lifecycle --kubelet VERSION` build it. After a wanted change, `UPDATE_PLANS=1 cargo test -p matrix --test plans` writes
//! the files again, and `git diff` shows what it did. An empty file with the name of another executable adds that one.

use std::{env, fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result};
use client_go::ClientGo;
use controller_runtime::ControllerRuntime;
use gotrace::{
    Detail, Plan,
    plan::{Slot, explain, may_have},
    program::Program,
    worker::{ProgramWorker, Summary, Worker as _},
};
use harness::{
    controllers, kubelets, operators,
    schedulers::{self, Scheduler},
};
use kube_apiserver::KubeApiserver;
use kube_scheduler::KubeScheduler;
use kubelet::Kubelet;
use wire::{MAP_WALK, Read, TOP};
use xtask::{
    components::{APISERVER, Component},
    paths,
};

/// The plan as text: a line for each site, read, name, field and signature.
fn text<P: Program>(executable: &[u8]) -> Result<String> {
    let plan = Plan::<P>::checked(executable)?;
    let mut text = format!("{:?}\n", plan.identity);
    for site in &plan.sites {
        let (function, range) = (gotrace::plan::name(site.function), &site.called_by);
        write!(
            text,
            "{function} {:?} at {:#x} ({:#x}) {:?} ",
            site.role, site.address, site.file_offset, site.class
        )?;
        writeln!(text, "in {} at depth {}, called by {range:x?}", site.symbol, site.stack_depth)?;
        let wire::Site { goid_offset, reads_len, texts, time, unless, reads, layout } = site.spec;
        let detail = site.detail;
        writeln!(
            text,
            "    {detail:?}, goid {goid_offset:#x}, time {time}, texts {texts}, unless {unless:b}"
        )?;
        if let Some(list) = site.list {
            writeln!(text, "    {list:?} by {layout:?}")?;
        }
        for ((reading, slot), read) in site.values.iter().zip(&reads[..reads_len as usize]) {
            let Read { base, steps, kind, slot: number, offsets, last } = *read;
            assert!(matches!(*slot, Slot::Word(place) | Slot::Text(place) if place == usize::from(number)));
            let way = &offsets[..usize::from(steps)];
            writeln!(text, "    {reading:?}: {slot:?} of kind {kind} from {base} {way:x?} + {last:x}")?;
        }
    }
    writeln!(text, "cut at most {:?}", plan.most)?;
    for missing in &plan.missing {
        writeln!(text, "{missing:?}")?;
    }
    writeln!(text, "not yet {:?}", plan.not_yet)?;
    for name in &plan.names {
        writeln!(text, "{name:x?}")?;
    }
    for (address, error) in &plan.errors {
        writeln!(text, "error {error} at {address:#x}")?;
    }
    for (address, typ) in &plan.alike {
        writeln!(text, "alike {typ} at {address:#x}")?;
    }
    for layout in plan.layouts.iter().filter(|layout| layout.read) {
        writeln!(text, "{layout:?}")?;
    }
    for signature in &plan.signatures {
        writeln!(text, "{signature:?}")?;
    }
    writeln!(text, "{:?}", plan.debug_info)?;
    for detail in [Detail::Attempts, Detail::Phases, Detail::Plugins, Detail::Full] {
        let sites = plan.clone().with_detail(detail).sites;
        let lists = sites.iter().filter(|site| [TOP, MAP_WALK].contains(&site.spec.texts)).count();
        writeln!(text, "{detail:?}: {} sites, {lists} with a list", sites.len())?;
    }
    let parsed = goexe::Executable::parse(executable)?;
    let worker = ProgramWorker::<P, ()>::new(Detail::Plugins, |_| ());
    let prepared =
        worker.planner().plan(&parsed, &parsed.functions()?).context("it has not the program")??;
    let Summary { programs, emulated, single_stepped, missing, .. } = prepared.summary;
    writeln!(
        text,
        "{programs:?}: {emulated} emulated, {single_stepped} single-stepped, {} missing",
        missing.len()
    )?;
    let first = plan.sites.first().context("it has no site")?;
    // By the end of the symbol, as a person writes it.
    let wanted = first.symbol.rsplit('.').next().unwrap_or_default();
    write!(text, "{}", explain::<P>(executable.into(), wanted)?)?;
    Ok(text)
}

/// Compares the plans of these executables with the stored ones; says which are not built.
fn check<P: Program>(components: &[Component]) -> Result<()> {
    for Scheduler { name, component, .. } in schedulers::named(components)? {
        let path = paths::repository().join("tests/plans").join(format!("{name}.txt"));
        if path.exists() {
            compare::<P>(&name, &component, &path).context(name)?;
        }
    }
    Ok(())
}

fn compare<P: Program>(name: &str, component: &Component, path: &Path) -> Result<()> {
    let Some(executable) = component.built()? else {
        println!("skipped: {name} is not built");
        return Ok(());
    };
    let text = text::<P>(&fs::read(executable)?)?;
    if env::var_os("UPDATE_PLANS").is_some() {
        return Ok(fs::write(path, text)?);
    }
    let stored = fs::read_to_string(path)?;
    for (number, (stored, text)) in stored.lines().zip(text.lines()).enumerate() {
        assert_eq!(stored, text, "line {} of {}", number + 1, path.display());
    }
    assert_eq!(stored.lines().count(), text.lines().count(), "lines of {}", path.display());
    Ok(())
}

#[test]
fn a_scheduler_is_planned_as_it_was() -> Result<()> {
    check::<KubeScheduler>(&schedulers::ALL)
}

#[test]
fn an_executable_may_have_a_program_if_it_has_a_module_from_its_place() -> Result<()> {
    let Some(executable) = controllers::ALL[0].built()? else {
        println!("skipped: the controller manager is not built");
        return Ok(());
    };
    let data = fs::read(executable)?;
    let executable = goexe::Executable::parse(data.as_slice())?;
    let mut info = executable.build_info().clone();
    assert!(may_have(&info, KubeScheduler::MARKERS));
    assert!(!may_have(&info, &["example.com/other.f"]));
    (info.main, info.dependencies) = (None, Vec::new());
    assert!(may_have(&info, &["example.com/other.f"]), "it names no modules");
    Ok(())
}

#[test]
fn a_controller_manager_is_planned_as_it_was() -> Result<()> {
    check::<ClientGo>(&controllers::ALL)
}

#[test]
fn an_operator_is_planned_as_it_was() -> Result<()> {
    check::<ControllerRuntime>(&operators::ALL)
}

#[test]
fn a_kubelet_is_planned_as_it_was() -> Result<()> {
    check::<Kubelet>(&kubelets::ALL)
}

#[test]
fn an_api_server_is_planned_as_it_was() -> Result<()> {
    check::<KubeApiserver>(&[APISERVER])
}
