//! `cargo xtask e2e`: tests that need a real scheduler, each on a cluster of its own.

use std::{
    collections::BTreeSet,
    process::{self, ExitCode},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use harness::{
    cluster::{self, OwnSpans},
    controllers::{ONE_PROCESS, of_version},
    schedulers::{apiserver_for_groups, plain, timed_version, troubled, woven},
    stage::Stage,
};
use xtask::{
    build,
    components::{Component, SCHEDULER},
    tally::Tally,
};

use crate::{
    api_calls, apiserver, batching, compare, configuration, context, controllers, decision, deploy, errors,
    export, extenders, faults, governor, groups, hostile, inject, inspect, jaeger, kubectl, lifecycle, link,
    load, moves, one_process, operators, page, plugins, profile, prometheus, queue, sampling, slow, truth,
    versions, viewers,
};

#[derive(clap::Args)]
pub struct Options {
    /// Which tests; `export`, `faults`, `governor`, `hostile` and `version` stand for all whose names begin with it [default: all but `apiserver`, `governor`, `one-process`, `slow-attempts`, and of `version` those but 1.29, 1.33 and 1.37]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(names()))]
    names: Vec<String>,
    /// The version of the scheduler, such as 1.33: for `truth`, `decision`, `extenders`, `queue`, `moves`, `batching`, `api-calls`, `groups`, `compare` and `plugins`
    #[arg(long, value_name = "VERSION")]
    scheduler: Option<String>,
    /// The version of kube-controller-manager, such as 1.33: for `controllers`
    #[arg(long = "version", value_name = "VERSION")]
    manager: Option<String>,
    /// Skip the tests that would begin after this time
    #[arg(long, value_name = "SECONDS")]
    begin_within: Option<u64>,
}

/// Runs of a test that the machine disturbs, at most.
const ROUNDS: usize = 5;

/// A test with all its rounds ends within it; the longest takes a quarter.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// One test.
struct Test {
    name: &'static str,
    nodes: u32,
    scheduler: Scheduler,
    /// The scheduler's `--v`.
    verbosity: Option<u32>,
    pod_groups: bool,
    /// Whether kube-controller-manager runs: tests with Deployments, Jobs or volume claims need it.
    controllers: bool,
    /// Whether that is the one of the version in `--version`.
    manager_of_version: bool,
    /// Whether one process is scheduler and kube-controller-manager.
    one_process: bool,
    apiserver_tracing: bool,
    /// Whether the API server writes down who changes what.
    audit: bool,
    /// Feature gates besides those that the scheduler's version needs.
    gates: Option<&'static str>,
    /// Why it runs only if it is named.
    only_if_named: Option<&'static str>,
    run: fn(&mut Stage) -> Result<()>,
}

impl Test {
    /// `version` for `version-1.29`.
    fn group(&self) -> Option<&'static str> {
        const GROUPS: [&str; 5] = ["export", "faults", "governor", "hostile", "version"];
        let (group, _) = self.name.split_once('-')?;
        GROUPS.contains(&group).then_some(group)
    }
}

/// The scheduler of a test.
enum Scheduler {
    Own,
    /// The build of this version.
    Of(&'static str),
    /// The build of the version in `--scheduler`; by default the cluster's own.
    Plain,
    /// The build of the version in `--scheduler` with a plugin that fails, waits or panics on request.
    Troubled,
    /// The build of the version in `--scheduler` that makes spans itself.
    Woven,
    /// The build of the version in `--scheduler` that times each call of a plugin.
    Timed,
}

const TEST: Test = Test {
    name: "",
    nodes: 0,
    scheduler: Scheduler::Own,
    verbosity: None,
    pod_groups: false,
    controllers: false,
    manager_of_version: false,
    one_process: false,
    apiserver_tracing: false,
    audit: false,
    gates: None,
    only_if_named: None,
    run: inspect::run,
};
/// The test of a scheduler of another version.
const VERSION: Test = Test { nodes: versions::NODES, run: versions::run, ..TEST };
/// The test of a version that differs little from those beside it.
const BETWEEN: Test = Test { only_if_named: Some("it builds one more scheduler"), ..VERSION };

const TESTS: &[Test] = &[
    Test { name: "inspect", run: inspect::run, ..TEST },
    Test { name: "errors", run: errors::run, ..TEST },
    Test { name: "deploy", run: deploy::run, ..TEST },
    Test { name: "link", nodes: 1, run: link::run, ..TEST },
    Test { name: "export", nodes: 1, run: export::run, ..TEST },
    Test { name: "export-outage", nodes: 100, run: export::outage, ..TEST },
    Test { name: "jaeger", nodes: 1, run: jaeger::run, ..TEST },
    Test { name: "prometheus", nodes: prometheus::NODES, run: prometheus::run, ..TEST },
    Test { name: "configuration", nodes: 1, run: configuration::run, ..TEST },
    Test { name: "context", nodes: 1, controllers: true, run: context::run, ..TEST },
    Test { name: "inject", nodes: 1, controllers: true, apiserver_tracing: true, run: inject::run, ..TEST },
    Test { name: "kubectl", nodes: 1, controllers: true, apiserver_tracing: true, run: kubectl::run, ..TEST },
    Test { name: "kubectl-untraced", nodes: 1, controllers: true, run: kubectl::untraced, ..TEST },
    Test {
        name: "lifecycle",
        nodes: 1,
        controllers: true,
        apiserver_tracing: true,
        run: lifecycle::run,
        ..TEST
    },
    Test {
        name: "truth",
        nodes: truth::NODES,
        scheduler: Scheduler::Troubled,
        controllers: true,
        run: truth::run,
        ..TEST
    },
    Test {
        name: "decision",
        nodes: decision::NODES,
        scheduler: Scheduler::Troubled,
        // At this level the scheduler logs each score.
        verbosity: Some(10),
        controllers: true,
        run: decision::run,
        ..TEST
    },
    Test {
        name: "extenders",
        nodes: extenders::NODES,
        scheduler: Scheduler::Troubled,
        run: extenders::run,
        ..TEST
    },
    Test { name: "queue", nodes: queue::NODES, scheduler: Scheduler::Troubled, run: queue::run, ..TEST },
    Test {
        name: "moves",
        nodes: moves::NODES,
        scheduler: Scheduler::Troubled,
        verbosity: Some(moves::VERBOSITY),
        run: moves::run,
        ..TEST
    },
    Test {
        name: "batching",
        nodes: batching::NODES,
        scheduler: Scheduler::Plain,
        verbosity: Some(batching::VERBOSITY),
        run: batching::run,
        ..TEST
    },
    Test {
        name: "api-calls",
        nodes: api_calls::NODES,
        scheduler: Scheduler::Troubled,
        gates: Some(api_calls::GATES),
        run: api_calls::run,
        ..TEST
    },
    Test {
        name: "controllers",
        nodes: controllers::NODES,
        controllers: true,
        manager_of_version: true,
        audit: true,
        run: controllers::run,
        ..TEST
    },
    Test {
        name: "one-process",
        nodes: controllers::NODES,
        one_process: true,
        audit: true,
        only_if_named: Some("its executable takes longer to build than a scheduler"),
        run: one_process::run,
        ..TEST
    },
    Test {
        name: "apiserver",
        nodes: controllers::NODES,
        controllers: true,
        only_if_named: Some("it waits until there are no writes"),
        run: apiserver::run,
        ..TEST
    },
    Test { name: "operators", run: operators::run, ..TEST },
    Test {
        name: "groups",
        scheduler: Scheduler::Plain,
        pod_groups: true,
        gates: Some(groups::GATES),
        run: groups::run,
        ..TEST
    },
    Test {
        name: "compare",
        nodes: compare::test::NODES,
        scheduler: Scheduler::Woven,
        run: compare::test::run,
        ..TEST
    },
    Test { name: "plugins", nodes: plugins::NODES, scheduler: Scheduler::Timed, run: plugins::run, ..TEST },
    Test { name: "page", nodes: page::NODES, run: page::run, ..TEST },
    Test { name: "viewers", run: viewers::run, ..TEST },
    Test { name: "profile", nodes: profile::NODES, run: profile::run, ..TEST },
    Test { name: "load", nodes: load::NODES, run: load::run, ..TEST },
    Test {
        name: "governor",
        nodes: governor::NODES,
        only_if_named: Some("it takes the CPUs for some minutes, and measures them"),
        run: governor::run,
        ..TEST
    },
    Test {
        name: "governor-short",
        nodes: governor::FEW_NODES,
        only_if_named: Some("it takes the CPUs for some minutes, and measures them"),
        run: governor::run_short,
        ..TEST
    },
    Test {
        name: "slow-attempts",
        nodes: slow::NODES,
        only_if_named: Some("it creates 5,000 Nodes for two attempts"),
        run: slow::run,
        ..TEST
    },
    Test { name: "sampling", nodes: sampling::NODES, run: sampling::run, ..TEST },
    Test { name: "faults-api-server", nodes: 1, run: faults::api_server, ..TEST },
    Test { name: "faults-kills", nodes: 100, run: faults::kills, ..TEST },
    Test { name: "faults-leaders", nodes: 100, run: faults::leaders, ..TEST },
    Test { name: "faults-memory", nodes: 100, run: faults::memory, ..TEST },
    Test { name: "faults-names", nodes: 1, run: faults::names, ..TEST },
    Test { name: "faults-panic", nodes: 1, scheduler: Scheduler::Troubled, run: faults::panic, ..TEST },
    Test { name: "faults-pause", nodes: 100, run: faults::pause, ..TEST },
    Test { name: "faults-peers", nodes: 1, run: faults::peers, ..TEST },
    Test { name: "hostile-files", nodes: hostile::trust::NODES, run: hostile::files::run, ..TEST },
    Test { name: "hostile-secrets", nodes: 1, run: hostile::secrets::run, ..TEST },
    Test { name: "hostile-servers", nodes: 1, run: hostile::servers::run, ..TEST },
    Test { name: "hostile-trust", nodes: hostile::trust::NODES, run: hostile::trust::run, ..TEST },
    Test { name: "hostile-webhook", nodes: 1, apiserver_tracing: true, run: hostile::webhook::run, ..TEST },
    Test { name: "version-1.28", scheduler: Scheduler::Of("1.28"), ..BETWEEN },
    Test { name: "version-1.29", scheduler: Scheduler::Of("1.29"), ..VERSION },
    Test { name: "version-1.30", scheduler: Scheduler::Of("1.30"), ..BETWEEN },
    Test { name: "version-1.31", scheduler: Scheduler::Of("1.31"), ..BETWEEN },
    Test { name: "version-1.32", scheduler: Scheduler::Of("1.32"), ..BETWEEN },
    Test { name: "version-1.33", scheduler: Scheduler::Of("1.33"), ..VERSION },
    Test { name: "version-1.34", scheduler: Scheduler::Of("1.34"), ..BETWEEN },
    Test { name: "version-1.35", scheduler: Scheduler::Of("1.35"), ..BETWEEN },
    Test { name: "version-1.37", scheduler: Scheduler::Of("1.37"), ..VERSION },
];

pub fn main(options: &Options) -> Result<ExitCode> {
    let mut tally = Tally::default();
    run(options, &mut tally)?;
    Ok(tally.end())
}

/// The names of the tests, and the groups that they begin with.
fn names() -> impl Iterator<Item = &'static str> {
    let names: BTreeSet<&str> =
        TESTS.iter().flat_map(|test| [Some(test.name), test.group()]).flatten().collect();
    names.into_iter()
}

/// Runs the tests of these names or groups, or all. Tests that take a scheduler get the one of this version.
///
/// # Errors
///
/// If schedspan cannot be built, or a test does not take the version.
fn run(options: &Options, tally: &mut Tally) -> Result<()> {
    let Options { names, scheduler, manager, begin_within } = options;
    let (version, manager) = (scheduler.as_deref(), manager.as_deref());
    let (start, most) = (Instant::now(), begin_within.map_or(Duration::MAX, Duration::from_secs));
    let named = |test: &&Test| names.iter().any(|name| name == test.name || Some(&**name) == test.group());
    let by_default = |test: &&Test| names.is_empty() && test.only_if_named.is_none();
    let chosen = || TESTS.iter().filter(|test| by_default(test) || named(test));
    if version.is_some()
        && let Some(Test { name, .. }) =
            chosen().find(|test| matches!(test.scheduler, Scheduler::Own | Scheduler::Of(_)))
    {
        bail!(
            "e2e {name} does not take another scheduler: --scheduler goes with the names of tests that do, truth, decision, extenders, queue, moves, batching, api-calls, groups, compare and plugins"
        );
    }
    if manager.is_some()
        && let Some(Test { name, .. }) = chosen().find(|test| !test.manager_of_version)
    {
        bail!("e2e {name} does not take another kube-controller-manager: --version goes with `controllers`");
    }
    let version = version.unwrap_or(SCHEDULER.version);
    let executable = build::build()?;
    for Test { name, only_if_named, .. } in TESTS.iter().filter(|_| names.is_empty()) {
        if let Some(why) = only_if_named {
            println!("skipped  e2e {name}: {why}; `cargo xtask e2e {name}` runs it");
        }
    }
    for test in chosen() {
        if start.elapsed() > most {
            println!(
                "skipped  e2e {}: no test begins after {} s; `cargo xtask e2e {0}` runs it",
                test.name,
                most.as_secs()
            );
            continue;
        }
        let Test {
            name,
            nodes,
            scheduler,
            verbosity,
            pod_groups,
            controllers,
            manager_of_version,
            one_process,
            apiserver_tracing,
            audit,
            gates: own_gates,
            only_if_named: _,
            run,
        } = test;
        tally.run(&format!("e2e {name}"), || {
            let other = match *scheduler {
                Scheduler::Own => None,
                Scheduler::Of(version) => Some(plain(version)?),
                Scheduler::Plain => (version != SCHEDULER.version).then(|| plain(version)).transpose()?,
                Scheduler::Troubled => Some(troubled(version)?),
                Scheduler::Woven => Some(woven(version)?),
                Scheduler::Timed => Some(timed_version(version)?),
            };
            let (component, gates) = other.unzip();
            let gates: Vec<&str> = gates.flatten().into_iter().chain(*own_gates).collect();
            let options = cluster::Options {
                nodes: *nodes,
                scheduler_verbosity: *verbosity,
                pod_groups: *pod_groups,
                apiserver: component
                    .filter(|_| *pod_groups)
                    .and_then(|component| apiserver_for_groups(&component))
                    .map(|(apiserver, groups)| anyhow::Ok((apiserver.executable()?, groups)))
                    .transpose()?,
                scheduler: component.as_ref().map(Component::executable).transpose()?,
                scheduler_feature_gates: (!gates.is_empty()).then(|| gates.join(",")),
                own_spans: if matches!(scheduler, Scheduler::Woven) {
                    OwnSpans::Timed
                } else {
                    OwnSpans::None
                },
                scheduler_profiles: match scheduler {
                    Scheduler::Troubled => truth::profiles(),
                    Scheduler::Timed => plugins::profiles(),
                    Scheduler::Own | Scheduler::Of(_) | Scheduler::Plain | Scheduler::Woven => Vec::new(),
                },
                // More requests a second than any test makes.
                scheduler_qps: Some(5000),
                no_controllers: !controllers,
                controllers: manager
                    .filter(|_| *manager_of_version)
                    .map(|version| of_version(version)?.executable())
                    .transpose()?,
                one_process: one_process.then(|| ONE_PROCESS.executable()).transpose()?,
                apiserver_tracing: *apiserver_tracing,
                audit: *audit,
                ..cluster::Options::default()
            };
            let _limit = Limit::of(name);
            for _ in 1..ROUNDS {
                let mut disturbed = None;
                Stage::play(&options, &executable, |stage| match run(stage) {
                    Err(error) if error.is::<truth::Disturbed>() => {
                        disturbed = Some(error);
                        Ok(())
                    }
                    result => result,
                })?;
                match disturbed {
                    Some(error) => println!("again    e2e {name}: {error}"),
                    None => return Ok(()),
                }
            }
            Stage::play(&options, &executable, run)
        });
    }
    Ok(())
}

/// Ends this process, and by that its cluster, when it is not dropped in time: a test that hangs must not take the time of the others.
struct Limit(#[expect(dead_code, reason = "its end is the message")] mpsc::Sender<()>);

impl Limit {
    fn of(test: &'static str) -> Self {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            if receiver.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                println!("FAILED   e2e {test}: it has not ended within {LIMIT:?}: it hangs");
                process::exit(1);
            }
        });
        Self(sender)
    }
}
