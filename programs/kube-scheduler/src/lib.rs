//! kube-scheduler, described to `gotrace`.
//!
//! # Layout
//!
//! * [`table`]: the functions that are probed. [`values`]: what is read there. `plugins`: the names in an executable.
//! * [`attempt`]: which calls make up which attempt. [`spans`]: attempts as spans. Pure.
//! * [`configuration`], [`configurations`]: a scheduler's flags and configuration, and their trace.
//! * [`attempt_log`], [`explain`]: the attempts of the last minutes, and what they say of a Pod.
//! * [`metrics`], [`last_minute`]: figures of attempts, phases and plugins.

#![forbid(unsafe_code)]

pub mod attempt;
pub mod attempt_log;
pub mod configuration;
pub mod configurations;
pub mod explain;
pub mod last_minute;
pub mod metrics;
mod plugins;
mod redact;
pub mod spans;
pub mod table;
pub mod values;

use goexe::{Executable, Functions, Types};
use gotrace::{
    Detail,
    assemble::Counter,
    plan::Row,
    program::{Metric, Named, Program, SpelledOut},
};

use self::{attempt::Assembler, table::Function, values::Value};

/// An event of a scheduler.
pub type Event = gotrace::Event<KubeScheduler>;
/// What a hit read.
pub type Values = gotrace::Values<Value>;

/// kube-scheduler, and every scheduler that is built from its packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KubeScheduler;

impl Program for KubeScheduler {
    const NAME: &'static str = "kube-scheduler";
    /// By its names from 1.30 on and in 1.29.
    const MARKERS: &'static [&'static str] = &[
        "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).ScheduleOne",
        "k8s.io/kubernetes/pkg/scheduler.(*Scheduler).scheduleOne",
    ];
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
    const QUIET: Option<(Value, &'static [u64])> = Some((Value::StatusCode, &[0, 5]));
    const SPELLED_OUT: SpelledOut =
        SpelledOut { interfaces: &[table::FRAMEWORK_METHODS], structs: &[(table::SCHEDULER, "Scheduler")] };
    const COUNTERS: &'static [Counter] = &[attempt::QUEUE_INCOMING_PODS];

    type Function = Function;
    type Value = Value;
    type Assembler = Assembler;

    fn rows(function: Function) -> &'static [Row<Value>] {
        function.rows()
    }

    fn detail(function: Function) -> Detail {
        function.detail()
    }

    fn names(
        executable: &Executable<'_>,
        functions: &Functions<'_>,
        types: &Types<'_>,
    ) -> Result<Vec<Named>, goexe::Error> {
        plugins::find(executable, functions, types)
    }

    fn redact(values: &mut Values, replace: &mut dyn FnMut(&'static str, &mut String)) {
        redact::redact(values, replace);
    }
}
