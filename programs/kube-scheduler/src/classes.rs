//! What a scheduler's functions say about a sample of its CPU time: the phase, and the plugin in it.

use std::borrow::Cow;

use gotrace::{code::Rank, program::Named};
use spans::{Cycle, Phase};

/// The work that a sample of the scheduler is part of, by the beginning of a function's name. The first that fits counts.
///
/// The innermost phase on a stack counts, so that the functions that call the phases need no exceptions. What is done for
/// many callers is a hint only: a Pod that is decoded is the client's or JSON's work, unless a phase asked for it.
const WORK: &[(&str, Rank, &str)] = &[
    // Go's own work. The first are the scheduler of goroutines: below them is the stack of one that has just stopped running.
    ("runtime.mcall", Rank::Whole, RUNTIME),
    ("runtime.mstart", Rank::Whole, RUNTIME),
    ("runtime.schedule", Rank::Whole, RUNTIME),
    ("runtime.findRunnable", Rank::Whole, RUNTIME),
    ("runtime.park_m", Rank::Whole, RUNTIME),
    ("runtime.goexit0", Rank::Whole, RUNTIME),
    ("runtime.gosched", Rank::Whole, RUNTIME),
    ("runtime.exitsyscall0", Rank::Whole, RUNTIME),
    ("runtime.sysmon", Rank::Whole, RUNTIME),
    ("runtime.sig", Rank::Whole, RUNTIME),
    ("runtime.gcBgMarkWorker", Rank::Whole, GARBAGE_COLLECTOR),
    ("runtime.bgsweep", Rank::Whole, GARBAGE_COLLECTOR),
    ("runtime.bgscavenge", Rank::Whole, GARBAGE_COLLECTOR),
    ("runtime.runFinalizers", Rank::Whole, GARBAGE_COLLECTOR),
    ("runtime.runfinq", Rank::Whole, GARBAGE_COLLECTOR),
    // Phases. Those of the framework are below.
    (
        "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).findNodesThatPassFilters",
        Rank::Whole,
        Phase::Filter.name(),
    ),
    ("k8s.io/kubernetes/pkg/scheduler.prioritizeNodes", Rank::Whole, Phase::Score.name()),
    ("k8s.io/kubernetes/pkg/scheduler/framework/preemption.", Rank::Whole, Phase::PostFilter.name()),
    ("k8s.io/kubernetes/pkg/scheduler.(*Scheduler).handleSchedulingFailure", Rank::Whole, "failureHandling"),
    ("k8s.io/kubernetes/pkg/scheduler.(*Scheduler).bindingCycle", Rank::Whole, Cycle::Binding.name()),
    ("k8s.io/kubernetes/pkg/scheduler.(*Scheduler).runBindingCycle", Rank::Whole, Cycle::Binding.name()),
    ("k8s.io/kubernetes/pkg/scheduler.(*Scheduler).schedul", Rank::Whole, Cycle::Scheduling.name()),
    ("k8s.io/kubernetes/pkg/scheduler.(*Scheduler).Schedule", Rank::Whole, Cycle::Scheduling.name()),
    ("k8s.io/kubernetes/pkg/scheduler/framework/parallelize.", Rank::Hint, WORKERS),
    ("k8s.io/client-go/util/workqueue.ParallelizeUntil", Rank::Whole, WORKERS),
    // The handlers of what the API server reports.
    ("k8s.io/kubernetes/pkg/scheduler.(*Scheduler).", Rank::Hint, "events"),
    ("k8s.io/kubernetes/pkg/scheduler/backend/queue.(*nominator)", Rank::Hint, "queue"),
    ("k8s.io/kubernetes/pkg/scheduler/internal/queue.(*nominator)", Rank::Hint, "queue"),
    ("k8s.io/kubernetes/pkg/scheduler/backend/queue.", Rank::Whole, "queue"),
    ("k8s.io/kubernetes/pkg/scheduler/internal/queue.", Rank::Whole, "queue"),
    (
        "k8s.io/kubernetes/pkg/scheduler/backend/cache.(*cacheImpl).UpdateSnapshot",
        Rank::Whole,
        Phase::Snapshot.name(),
    ),
    (
        "k8s.io/kubernetes/pkg/scheduler/internal/cache.(*cacheImpl).UpdateSnapshot",
        Rank::Whole,
        Phase::Snapshot.name(),
    ),
    ("k8s.io/kubernetes/pkg/scheduler/backend/cache.", Rank::Hint, "cache"),
    ("k8s.io/kubernetes/pkg/scheduler/internal/cache.", Rank::Hint, "cache"),
    // What many do.
    ("crypto/", Rank::Hint, "tls"),
    ("encoding/json.", Rank::Hint, "json"),
    ("sigs.k8s.io/json", Rank::Hint, "json"),
    ("k8s.io/api/", Rank::Hint, "protobuf"),
    ("k8s.io/apimachinery/pkg/runtime/serializer/protobuf.", Rank::Hint, "protobuf"),
    ("k8s.io/client-go/tools/cache.", Rank::Hint, "informers"),
    ("k8s.io/client-go/tools/events.", Rank::Hint, "events"),
    ("k8s.io/client-go/", Rank::Hint, "client"),
    ("net/http.", Rank::Hint, "client"),
    ("golang.org/x/net/http2.", Rank::Hint, "client"),
    ("k8s.io/component-base/metrics", Rank::Hint, "metrics"),
    ("github.com/prometheus/", Rank::Hint, "metrics"),
    ("k8s.io/klog/", Rank::Hint, "logging"),
];
const RUNTIME: &str = "runtime";
const GARBAGE_COLLECTOR: &str = "garbageCollector";
/// What the goroutines do that a phase runs on all Nodes, beside the phase itself.
pub(crate) const WORKERS: &str = "workers";

const FRAMEWORK: &str = "k8s.io/kubernetes/pkg/scheduler/framework/runtime.(*frameworkImpl).";
/// The extension points, by what follows `Run` or `run` in the names of the framework's methods. The first that fits counts.
const POINTS: &[(&str, Phase)] = &[
    ("PreFilter", Phase::PreFilter),
    ("Filter", Phase::Filter),
    ("PostFilter", Phase::PostFilter),
    ("PreScore", Phase::PreScore),
    ("Score", Phase::Score),
    ("ReservePluginsUnreserve", Phase::Unreserve),
    ("ReservePluginUnreserve", Phase::Unreserve),
    ("Reserve", Phase::Reserve),
    ("Permit", Phase::Permit),
    ("PreBindPreFlight", Phase::PreBindPreFlight),
    ("PreBind", Phase::PreBind),
    ("Bind", Phase::Bind),
    ("PostBind", Phase::PostBind),
    ("PlacementGenerate", Phase::PlacementGenerate),
    ("PlacementFeasible", Phase::PlacementFeasible),
    ("PlacementScore", Phase::PlacementScore),
    ("PodGroupPostFilter", Phase::PodGroupPostFilter),
];

/// The class of a function. A plugin's methods count as the plugin, whatever their phase.
pub(crate) fn of<'a>(function: &str, plugins: &'a [Named]) -> Option<(Rank, &'a str)> {
    if let Some(method) = function.strip_prefix(FRAMEWORK) {
        let point = method.strip_prefix("Run").or_else(|| method.strip_prefix("run"))?;
        let (_, phase) = POINTS.iter().find(|(name, _)| point.starts_with(name))?;
        return Some((Rank::Whole, phase.name()));
    }
    let plugin = plugins.iter().find(|plugin| is_method(function, &plugin.typ));
    if let Some(Named { name, .. }) = plugin {
        return Some((Rank::Part, name));
    }
    let (_, rank, name) = WORK.iter().find(|(prefix, ..)| function.starts_with(prefix))?;
    Some((*rank, name))
}

/// Whether work with this name, the whole of a sample, is done in scheduling cycles. Those are serial, so that the time of the
/// sample says in which. What is done beside them as well is not.
#[must_use]
pub fn is_of_scheduling_cycle(work: &str) -> bool {
    let Some(phase) = Phase::ALL.into_iter().find(|phase| phase.name() == work) else {
        return work == Cycle::Scheduling.name() || work == WORKERS;
    };
    match phase {
        Phase::Snapshot
        | Phase::PreFilter
        | Phase::Filter
        | Phase::PostFilter
        | Phase::DryRunPreemption
        | Phase::PreScore
        | Phase::Score
        | Phase::Reserve
        | Phase::Permit
        | Phase::PlacementGenerate
        | Phase::PlacementFeasible
        | Phase::PlacementScore
        | Phase::PodGroupPostFilter => true,
        // Binding cycles run beside them, and these two end either cycle.
        Phase::Unreserve
        | Phase::HandleSchedulingFailure
        | Phase::WaitOnPermit
        | Phase::PreBindPreFlight
        | Phase::PreBind
        | Phase::Bind
        | Phase::PostBind
        | Phase::PreEnqueue
        | Phase::Sign => false,
    }
}

/// Whether a function is a method of a type, `path.Name`, or a closure in one.
fn is_method(function: &str, typ: &str) -> bool {
    let Some((package, name)) = typ.rsplit_once('.') else { return false };
    let Some(rest) = function.strip_prefix(&*escaped(package)).and_then(|rest| rest.strip_prefix('.')) else {
        return false;
    };
    let rest = rest.strip_prefix("(*").unwrap_or(rest);
    let Some(rest) = rest.strip_prefix(name) else { return false };
    rest.starts_with(").") || rest.starts_with('.')
}

/// A package's path as the linker writes it in names of functions: with `%2e` for each dot in the last element
/// (<https://github.com/golang/go/blob/go1.26.5/src/cmd/internal/objabi/path.go>).
fn escaped(package: &str) -> Cow<'_, str> {
    match package.rsplit_once('/') {
        Some((path, last)) if last.contains('.') => format!("{path}/{}", last.replace('.', "%2e")).into(),
        Some(_) | None => package.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(name: &str, typ: &str) -> Named {
        Named {
            name: name.into(),
            typ: typ.into(),
            extension_points: Vec::new(),
            module: None,
            descriptor: 0,
            constant: None,
        }
    }

    #[test]
    fn a_method_of_a_plugin_is_its_part_and_the_framework_says_the_phase() {
        let plugins = [
            plugin("NodeResourcesFit", "k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.Fit"),
            plugin("Mine", "example.com/my.scheduler.Plugin"),
        ];
        let class = |function: &str| of(function, &plugins);
        let fit = "k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources.";
        for (function, is) in [
            ("(*Fit).Filter", true),
            ("(*Fit).Filter.func1", true),
            ("Fit.Filter", true),
            ("(*FitArgs).Filter", false),
            ("fitsRequest", false),
        ] {
            let wanted = is.then_some((Rank::Part, "NodeResourcesFit"));
            assert_eq!(class(&format!("{fit}{function}")), wanted, "{function}");
        }
        // The linker writes a dot in a path's last element as a number.
        assert_eq!(class("example.com/my%2escheduler.(*Plugin).Score"), Some((Rank::Part, "Mine")));
        for (method, phase) in [
            ("runFilterPlugin", Some("filter")),
            ("RunFilterPluginsWithNominatedPods", Some("filter")),
            ("RunPreFilterExtensionAddPod", Some("preFilter")),
            ("RunScorePlugins.func2", Some("score")),
            ("runPreBindPreFlight", Some("preBindPreFlight")),
            ("RunReservePluginsUnreserve", Some("unreserve")),
            ("ListPlugins", None),
        ] {
            let wanted = phase.map(|phase| (Rank::Whole, phase));
            assert_eq!(class(&format!("{FRAMEWORK}{method}")), wanted, "{method}");
        }
        assert_eq!(class("runtime.mallocgc"), None);
        assert_eq!(class("runtime.gcBgMarkWorker.func2"), Some((Rank::Whole, GARBAGE_COLLECTOR)));
    }

    #[test]
    fn work_of_a_scheduling_cycle_is_done_in_nothing_beside_it() {
        let works = WORK.iter().map(|(.., name)| *name).chain(POINTS.iter().map(|(_, phase)| phase.name()));
        let mut of_cycle: Vec<_> = works.filter(|work| is_of_scheduling_cycle(work)).collect();
        of_cycle.sort_unstable();
        of_cycle.dedup();
        let wanted = "filter permit placementFeasible placementGenerate placementScore podGroupPostFilter postFilter \
                      preFilter preScore reserve schedulingCycle score snapshot workers";
        assert_eq!(of_cycle.join(" "), wanted);
    }

    #[test]
    fn no_line_of_the_table_is_hidden_by_one_before_it() {
        for (at, (prefix, ..)) in WORK.iter().enumerate() {
            assert!(!WORK[..at].iter().any(|(before, ..)| prefix.starts_with(before)), "{prefix}");
        }
        for (at, (name, _)) in POINTS.iter().enumerate() {
            assert!(!POINTS[..at].iter().any(|(before, _)| name.starts_with(before)), "{name}");
        }
    }
}
