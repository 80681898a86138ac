//! `cargo xtask schedulers`: builds schedulers of many versions, to read; and the variants that tests trace, with a plugin that
//! fails on request or with spans of their own.

use anyhow::{Context as _, Result, ensure};
use xtask::{
    components::{APISERVER, ARM64, CGO, Component, DWARF, PIE, SCHEDULER, STRIPPED, WOVEN},
    go::Go::{self, Machine, Release},
};

use crate::{
    cluster::{GROUPS_OF_GROUPS, Groups},
    versions,
};

/// The last version whose statuses call a plugin the failed one; other projects still build their schedulers on it.
const FAILED_PLUGIN: Component = kubernetes("1.28.15", "schedulers/1.28.15", Release("1.22.10"));
const OLDEST: Component = kubernetes("1.29.15", "schedulers/1.29.15", Release("1.23.9"));
/// The first version that passes Nodes as `NodeInfo`.
const NODE_INFOS: Component = kubernetes("1.30.14", "schedulers/1.30.14", Release("1.23.9"));
/// The last version whose queue is an internal package.
const INTERNAL_QUEUE: Component = kubernetes("1.31.0", "schedulers/1.31.0", Release("1.24.11"));
/// The first version whose statuses by Node are in a struct.
const STATUSES_IN_STRUCT: Component = kubernetes("1.32.0", "schedulers/1.32.0", Release("1.24.11"));
/// The last version in which the `CycleState` is a pointer, not an interface: all registers after it differ from later versions.
const STATE_BY_POINTER: Component = kubernetes("1.33.13", "schedulers/1.33.13", Release("1.25.5"));
const NEWEST: Component = kubernetes("1.37.1", "schedulers/1.37.1", Machine);
/// Feature gates that [`NEWEST`] needs on the test cluster, whose API server of 1.36 lacks objects that it would wait for.
const NEWEST_GATES: Option<&str> = Some("DRADeviceTaintRules=false");
/// The API server of [`NEWEST`].
const NEWEST_APISERVER: Component =
    Component { version: NEWEST.version, module: "cluster/kubernetes-1.37.1", ..APISERVER };
/// The first version with `PreBindPreFlight`, and the only one whose plugin API is in two packages.
const API_IN_TWO: Component = kubernetes("1.34.9", "schedulers/1.34.9", Release("1.25.5"));

/// The first version that tries the Node of a similar Pod first.
const BATCHING: Component = kubernetes("1.35.4", "schedulers/1.35.4", Release("1.25.5"));

/// A scheduler, and the feature gates that it needs on the test cluster.
type Versioned = (Component, Option<&'static str>);

/// A quick check of old and new versions: the test cluster's own, and those farthest from it.
const FEW: [Component; 3] = [OLDEST, SCHEDULER, NEWEST];

/// Every minor version, most with the Go release of their time, some with another, and one of every kind. Of 1.31 and 1.32 the
/// first release, because the module proxy lacks modules of later ones.
pub const ALL: [Component; 20] = [
    FAILED_PLUGIN,
    OLDEST,
    kubernetes("1.29.15", "schedulers/1.29.15", Release("1.21.13")),
    NODE_INFOS,
    kubernetes("1.30.14", "schedulers/1.30.14", Release("1.22.10")),
    INTERNAL_QUEUE,
    STATUSES_IN_STRUCT,
    STATE_BY_POINTER,
    kubernetes("1.33.13", "schedulers/1.33.13", Release("1.24.11")),
    API_IN_TWO,
    BATCHING,
    kubernetes("1.36.3", "schedulers/1.36.3", Machine),
    SCHEDULER,
    Component { go: Release("1.27.3"), ..SCHEDULER },
    Component { kind: PIE, ..SCHEDULER },
    Component { kind: CGO, ..SCHEDULER },
    Component { kind: DWARF, ..SCHEDULER },
    Component { kind: ARM64, ..SCHEDULER },
    NEWEST,
    // A main package of another project around Kubernetes' scheduler.
    Component {
        name: "scheduler-plugins",
        version: "0.34.7",
        module: "schedulers/scheduler-plugins-0.34.7",
        package: "sigs.k8s.io/scheduler-plugins/cmd/scheduler",
        tags: "",
        // The scheduler would take the project's version for one of Kubernetes and refuse to start.
        version_packages: &[],
        go: Release("1.25.5"),
        ..SCHEDULER
    },
];

/// Schedulers as they are, and the feature gates that each needs on the test cluster.
const PLAIN: [Versioned; 10] = [
    (FAILED_PLUGIN, None),
    (OLDEST, None),
    (NODE_INFOS, None),
    (INTERNAL_QUEUE, None),
    (STATUSES_IN_STRUCT, None),
    (STATE_BY_POINTER, None),
    (API_IN_TWO, None),
    (BATCHING, None),
    (SCHEDULER, None),
    (NEWEST, NEWEST_GATES),
];

/// Main packages around Kubernetes' scheduler with an out-of-tree plugin that fails, waits, or panics if a Pod's annotations ask
/// for it, and the feature gates that each needs on the test cluster. Each is built like the scheduler of its version; they differ
/// in the plugin API.
const TROUBLE: [Versioned; 6] = [
    (trouble(FAILED_PLUGIN, "schedulers/trouble/1.28.15"), None),
    (trouble(OLDEST, "schedulers/trouble/1.29.15"), None),
    (trouble(STATE_BY_POINTER, "schedulers/trouble/1.33.13"), None),
    (trouble(API_IN_TWO, "schedulers/trouble/1.34.9"), None),
    (trouble(SCHEDULER, "schedulers/trouble/1.36.4"), None),
    (trouble(NEWEST, "schedulers/trouble/1.37.1"), NEWEST_GATES),
];

const fn trouble(like: Component, module: &'static str) -> Component {
    Component {
        name: "trouble-scheduler",
        module,
        shared: &["schedulers/trouble/plugin"],
        package: ".",
        ..like
    }
}

/// Schedulers that make spans with the OpenTelemetry SDK in the functions that schedspan traces, and the feature gates that
/// each needs on the test cluster.
const PEERS: [Versioned; 5] = [
    (peer(STATE_BY_POINTER), None),
    (peer(API_IN_TWO), None),
    (peer(BATCHING), None),
    (peer(SCHEDULER), None),
    (peer(NEWEST), NEWEST_GATES),
];

const fn peer(like: Component) -> Component {
    Component { name: "peer-scheduler", shared: &["peer", "weave"], kind: WOVEN, ..like }
}

/// Schedulers with plugins that burn CPU time, sleep, reject half of the Nodes, and panic, which log how long each call of a
/// plugin took, and the feature gates that each needs on the test cluster.
const TIMED: [Versioned; 4] = [
    (timed(OLDEST, &["schedulers/timed/plugins", "schedulers/timed/1.29", "weave"]), None),
    (timed(STATE_BY_POINTER, &["schedulers/timed/plugins", "schedulers/timed/1.33", "weave"]), None),
    (timed(SCHEDULER, &["schedulers/timed/plugins", "schedulers/timed/1.36", "weave"]), None),
    (timed(NEWEST, &["schedulers/timed/plugins", "schedulers/timed/1.36", "weave"]), NEWEST_GATES),
];

const fn timed(like: Component, shared: &'static [&'static str]) -> Component {
    Component { name: "timed-scheduler", shared, kind: WOVEN, ..like }
}

/// The scheduler as it is, of a version such as `1.36` or `1.36.4`, and its feature gates.
///
/// # Errors
///
/// If there is none of that version.
pub fn plain(version: &str) -> Result<Versioned> {
    of_version(&PLAIN, version)
}

/// The API server that this scheduler needs to schedule Pods as groups, and these, if it is not the test cluster's own: that of 1.36
/// does not serve the groups of 1.37.
pub fn apiserver_for_groups(scheduler: &Component) -> Option<(Component, &'static Groups)> {
    (scheduler.version == NEWEST.version).then_some((NEWEST_APISERVER, GROUPS_OF_GROUPS))
}

/// The versions of [`plain`].
pub fn plain_versions() -> impl Iterator<Item = &'static str> {
    PLAIN.into_iter().map(|(component, _)| component.version)
}

/// The scheduler that times each call of a plugin, of a version such as `1.36` or `1.36.4`, and its feature gates.
///
/// # Errors
///
/// If there is none of that version.
pub fn timed_version(version: &str) -> Result<Versioned> {
    of_version(&TIMED, version)
}

/// The scheduler with the plugin that fails on request, of a version such as `1.36` or `1.36.4`, and its feature gates.
///
/// # Errors
///
/// If there is none of that version.
pub fn troubled(version: &str) -> Result<Versioned> {
    of_version(&TROUBLE, version)
}

/// The versions of [`troubled`].
pub fn troubled_versions() -> impl Iterator<Item = &'static str> {
    TROUBLE.into_iter().map(|(component, _)| component.version)
}

/// The scheduler with spans of its own, of a version such as `1.36` or `1.36.4`, and its feature gates.
///
/// # Errors
///
/// If there is none of that version.
pub fn woven(version: &str) -> Result<Versioned> {
    of_version(&PEERS, version)
}

/// The same scheduler without its own spans.
pub fn unwoven(woven: &Component) -> Component {
    Component { name: SCHEDULER.name, shared: &[], kind: STRIPPED, ..*woven }
}

/// All schedulers with spans of their own.
pub fn all_woven() -> impl Iterator<Item = Component> {
    PEERS.into_iter().map(|(component, _)| component)
}

fn of_version(all: &[Versioned], version: &str) -> Result<Versioned> {
    all.iter().find(|(component, _)| versions::names(version, component)).copied().with_context(|| {
        let versions: Vec<_> = all.iter().map(|(component, _)| component.version).collect();
        format!("no scheduler of version `{version}`: there are {}", versions.join(", "))
    })
}

const fn kubernetes(version: &'static str, module: &'static str, go: Go) -> Component {
    Component { version, module, go, ..SCHEDULER }
}

#[derive(clap::Args)]
pub struct Options {
    /// Which schedulers [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Only list their names
    #[arg(long)]
    list: bool,
}

/// A row of the table.
#[derive(Clone)]
pub struct Scheduler {
    /// Its version, Go and kind, such as `1.36.4-go1.26.8-pie`.
    pub name: String,
    /// The version of its Go.
    pub go: String,
    pub component: Component,
}

pub fn main(options: &Options) -> Result<()> {
    let mut failed = Vec::new();
    for Scheduler { name, component, .. } in chosen(&options.names)? {
        if options.list {
            println!("{name}");
            continue;
        }
        match component.executable() {
            Ok(path) => println!("{name:<36} {}", path.display()),
            Err(error) => {
                eprintln!("error: {name}: {error:#}");
                failed.push(name);
            }
        }
    }
    ensure!(failed.is_empty(), "not built: {}", failed.join(", "));
    Ok(())
}

/// The schedulers of these names, or all.
///
/// # Errors
///
/// If there is no scheduler of a name, or the machine has no Go.
pub fn chosen(names: &[String]) -> Result<Vec<Scheduler>> {
    let mut all = named(&ALL)?;
    // The machine's Go may be the same release as another row's.
    all.dedup_by(|next, scheduler| next.name == scheduler.name);
    if names.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        let scheduler = all.iter().find(|scheduler| scheduler.name == *name).cloned();
        scheduler.with_context(|| format!("no scheduler `{name}`: `cargo xtask schedulers --list` names all"))
    };
    names.iter().map(find).collect()
}

/// The schedulers that `cargo xtask test` reads.
///
/// # Errors
///
/// If the machine has no Go.
pub fn few() -> Result<Vec<Scheduler>> {
    named(&FEW)
}

/// With their names.
///
/// # Errors
///
/// If the machine has no Go.
pub fn named(components: &[Component]) -> Result<Vec<Scheduler>> {
    let named = |component: &Component| {
        let Component { name, version, go, kind, .. } = component;
        let project = if *name == SCHEDULER.name { String::new() } else { format!("{name}-") };
        let kind = if kind.name == STRIPPED.name { String::new() } else { format!("-{}", kind.name) };
        let go = go.version()?;
        Ok(Scheduler { name: format!("{project}{version}-{go}{kind}"), go, component: *component })
    };
    components.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_version_go_and_kind() {
        let go = Release("1.27.3");
        let named = named(&[
            Component { go, ..SCHEDULER },
            Component { go, kind: PIE, ..SCHEDULER },
            Component { go, name: "other", version: "0.1.2", ..SCHEDULER },
        ]);
        let names: Vec<_> = named.unwrap().into_iter().map(|scheduler| scheduler.name).collect();
        assert_eq!(names, ["1.36.4-go1.27.3", "1.36.4-go1.27.3-pie", "other-0.1.2-go1.27.3"]);
    }

    #[test]
    fn every_scheduler_has_a_module_that_requires_its_version_and_a_pinned_go() {
        for Component { name, version, module, go, .. } in
            ALL.into_iter().chain(TROUBLE.map(|(component, _)| component)).chain(all_woven())
        {
            assert!(go.is_pinned(), "{module}: no hash of its Go is known");
            let path = xtask::paths::repository().join("tests").join(module).join("go.mod");
            let text = std::fs::read_to_string(&path).expect(module);
            let project = match name {
                "scheduler-plugins" => "sigs.k8s.io/scheduler-plugins",
                _ => "k8s.io/kubernetes",
            };
            assert!(text.contains(&format!("{project} v{version}\n")), "{module}");
        }
    }

    #[test]
    fn a_failing_scheduler_is_found_by_its_minor_or_full_version() {
        let version = |asked: &str| troubled(asked).map(|(component, _)| component.version);
        assert_eq!(version("1.33").unwrap(), "1.33.13");
        assert_eq!(version("1.36.4").unwrap(), "1.36.4");
        for none in ["1", "1.3", "1.30", "1.36.3", ""] {
            let error = version(none).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("no scheduler of version `{none}`: there are 1.28.15, ")),
                "{error}"
            );
        }
        assert_eq!(troubled("1.37").unwrap().1, NEWEST_GATES);
    }
}
