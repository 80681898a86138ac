//! Registry of the traced programs.

use std::sync::{Arc, Mutex};

use client_go::ClientGo;
use controller_runtime::ControllerRuntime;
use goexe::Source;
use gotrace::{
    Detail, Program,
    account::Counter,
    pipeline::Output,
    plan::{self, report::Report},
    profiler::{Profile, Profiler},
    program::Assemble,
    worker::{ProgramWorker, Worker as WorkerOf},
};
use kube_apiserver::KubeApiserver;
use kube_scheduler::KubeScheduler;
use kubelet::Kubelet;
use spans::Story;

/// A program's worker, with the output type that all workers share.
pub type Worker = dyn WorkerOf<Box<dyn Story>>;

/// A supported program.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// Value of `--program`.
    pub name: &'static str,
    /// Whether its traces are linked to contexts that Pods carry.
    pub needs_pods: bool,
    /// Counters of the program's own.
    pub counters: &'static [Counter],
    /// Makes its worker.
    pub worker: fn(Detail) -> Box<Worker>,
    /// Makes a worker that collects a profile instead.
    pub profiler: fn(Arc<Mutex<Profile>>) -> Box<Worker>,
    /// Plans the probes for an executable.
    pub report: fn(Source<'_>) -> Result<Report, plan::Error>,
    /// Renders the machine code around the sites of a function.
    pub explain: fn(Source<'_>, &str) -> Result<String, plan::Error>,
}

/// All supported programs.
pub const PROGRAMS: &[Registration] = &[
    of::<KubeScheduler>(true),
    of::<ControllerRuntime>(false),
    of::<Kubelet>(false),
    of::<ClientGo>(false),
    of::<KubeApiserver>(false),
];
/// The default of `--program`.
pub const DEFAULT: &str = KubeScheduler::NAME;

const fn of<P: Program<Assembler: Assemble<P, Output: Story>>>(needs_pods: bool) -> Registration {
    Registration {
        name: P::NAME,
        needs_pods,
        counters: P::COUNTERS,
        worker: worker::<P>,
        profiler: |profile| Box::new(Profiler::<P>::new(profile)),
        report: Report::of::<P>,
        explain: plan::explain::<P>,
    }
}

fn worker<P: Program<Assembler: Assemble<P, Output: Story>>>(detail: Detail) -> Box<Worker> {
    Box::new(ProgramWorker::<P, _>::new(detail, story::<P>))
}

/// Boxes the output of a program's assembler for the daemon.
pub(crate) fn story<P: Program<Assembler: Assemble<P, Output: Story>>>(output: Output<P>) -> Box<dyn Story> {
    Box::new(output)
}

/// Whether traces of one of these programs are linked to contexts that Pods carry.
pub(crate) fn need_pods<T: AsRef<str>>(names: &[T]) -> bool {
    names.iter().filter_map(|name| named(name.as_ref())).any(|program| program.needs_pods)
}

/// The program of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Registration> {
    PROGRAMS.iter().find(|program| program.name == name)
}
