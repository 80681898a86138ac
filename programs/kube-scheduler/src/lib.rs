//! Describes kube-scheduler to `gotrace`.
//!
//! # Layout
//!
//! * [`table`]: the probed functions. [`values`]: the values read there. `plugins`: the plugins in an
//!   executable. `classes`: what its functions say about a sample.
//! * [`attempt`]: assembles calls into attempts. [`spans`]: turns attempts into spans. Both are pure.
//! * [`configuration`], [`configurations`]: a scheduler's flags and configuration, and their trace.
//! * [`attempt_log`], [`explain`]: recent attempts, and the report about a Pod.
//! * [`queue`]: where each Pod without a Node waits, and schedulers that stand still.
//! * [`metrics`], [`last_minute`]: statistics of attempts, phases and plugins. [`terms`]: what terms of Pods cost.
//!   [`waits`]: what they waited for elsewhere.

#![forbid(unsafe_code)]

pub mod attempt;
pub mod attempt_log;
pub mod brief;
mod classes;
pub mod configuration;
pub mod configurations;
mod durations;
pub mod explain;
mod keys;
pub mod last_minute;
pub mod metrics;
mod plugins;
pub mod queue;
mod redact;
pub mod spans;
pub mod table;
pub mod terms;
pub mod values;
pub mod waits;

use ::spans::Story;
use goexe::{Executable, Functions, Types};
use gotrace::{
    account::Counter,
    code::Rank,
    governor::Cut,
    plan::{PlannedSite, Reading, Role},
    program::{Detail, Metric, Named, Program, SpelledOut, Turn},
    worker::{ProgramWorker, Worker},
};

pub use self::classes::is_of_scheduling_cycle;
use self::{attempt::Assembler, queue::Queues, table::Function, values::Value};

/// For tables that are bounded: randomly seeded as the standard hash, which took half of the CPU time of the assembler of attempts.
type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// An event of a kube-scheduler process.
pub type Event = gotrace::Event<KubeScheduler>;
/// Values read at a probe hit.
pub type Values = gotrace::Values<Value>;

/// kube-scheduler, and schedulers built from its packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KubeScheduler;

/// A worker of this program. It passes moves of Pods to `queues` as well. It is instantiated here, because every record runs its code, and
/// `tracer` is built for size.
#[must_use]
pub fn worker(detail: Detail, queues: &Queues) -> Box<dyn Worker<Box<dyn Story>>> {
    let worker = ProgramWorker::<KubeScheduler, _>::new(detail, |attempt| Box::new(attempt) as _);
    let mut feed = queues.feed();
    Box::new(worker.observed(Box::new(move |line| feed.take(&line))))
}

impl Program for KubeScheduler {
    const NAME: &'static str = "kube-scheduler";
    /// Function names of Kubernetes 1.30 and later, and up to 1.29.
    const MARKERS: &'static [&'static str] = &[
        "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).ScheduleOne",
        "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).scheduleOne",
    ];
    /// Some distributions have all components in one executable.
    const FILE_NAMES: &'static [&'static str] = &["scheduler", "k3s", "rke2", "k0s", "kubelite"];
    const CALLERS: &'static [&'static str] = &[
        table::SCHEDULER,
        table::QUEUES[0],
        table::QUEUES[1],
        "k8s.io/kubernetes/pkg/scheduler/framework/runtime.(*frameworkImpl)",
    ];
    const CALLS_INDIRECTLY: &'static str = table::SCHEDULER;
    const METRIC: Option<Metric<Value>> = Some(Metric {
        taken: "k8s.io/kubernetes/pkg/scheduler/metrics.SinceInSeconds",
        labelled: "k8s.io/component-base/metrics.(*HistogramVec).WithLabelValues",
        started: Value::StartedNs,
        panics: Value::Panics,
        result: Value::StatusCode,
        // <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/kube-scheduler/framework/interface.go#L80-L81>
        results: &[
            "Success",
            "Error",
            "Unschedulable",
            "UnschedulableAndUnresolvable",
            "Wait",
            "Skip",
            "Pending",
        ],
    });
    /// `framework.Success` and `framework.Skip`
    /// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/kube-scheduler/framework/interface.go#L51-L78>).
    const QUIET: &'static [(Value, &'static [u64])] = &[(Value::StatusCode, &[0, 5])];
    const SPELLED_OUT: SpelledOut =
        SpelledOut { interfaces: &[table::FRAMEWORK_METHODS], structs: &[(table::SCHEDULER, "Scheduler")] };
    const COUNTERS: &'static [Counter] =
        &[attempt::QUEUE_INCOMING_PODS, attempt::QUEUE_PHASE_CALLS, attempt::QUEUE_PHASE_NANOSECONDS];

    const TURN: Option<Turn<Function>> = Some(table::TURN);

    type Function = Function;
    type Value = Value;
    type Assembler = Assembler;

    fn names(
        executable: &Executable<'_>,
        functions: &Functions<'_>,
        types: &Types<'_>,
    ) -> Result<Vec<Named>, goexe::Error> {
        plugins::find(executable, functions, types)
    }

    fn most(sites: &[PlannedSite<Self>]) -> Cut {
        let mut binding = sites.iter().filter(|site| site.function == Function::BindingCycle);
        // Without the phases, the entry says which attempt it is of, and the end that the Pod was bound.
        let is_enough = binding.clone().any(|site| site.role == Role::Entry)
            && binding.all(|site| {
                let wanted = if site.role == Role::Entry { Value::PodUid } else { Value::StatusCode };
                site.values.iter().any(|(reading, _)| *reading == Reading::Value(wanted))
            });
        if is_enough { Cut::Phases } else { Cut::Plugins }
    }

    fn class<'a>(symbol: &str, names: &'a [Named]) -> Option<(Rank, &'a str)> {
        classes::of(symbol, names)
    }

    fn redact(values: &mut Values, replace: &mut dyn FnMut(&'static str, &mut String)) {
        redact::redact(values, replace);
    }
}
