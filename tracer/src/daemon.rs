//! The daemon: the supervisor's thread, and the tasks that turn its messages into exported spans.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use api::{Daemon, health::Targets, queue::Board};
use futures::StreamExt as _;
use gotrace::{Detail, Program as _, discover::ProcessId, pipeline::Found, probe::Limits};
use kube_scheduler::{
    KubeScheduler,
    attempt_log::AttemptLog,
    configuration::{Configuration, reader},
    configurations::{self, Configurations},
    queue::Queues,
};
use pods::{
    context::{self, PodContexts},
    lifecycle::Lifecycles,
    node::NodePods,
    reinject::{self, Reinjector},
};
use spans::{
    Gatherer, Origin, Owners, Source, Trace,
    export::{Filter, Output, Resource, Sinks, SpoolOptions},
    identity::LifecycleTrace,
    sample::{self, Sampler},
    story::Extras,
    wakeups,
};
use status::Health;
use tokio::{
    io::AsyncReadExt as _,
    process::Command,
    signal::unix::{SignalKind, signal},
    sync::{Semaphore, mpsc, oneshot},
    time::{Instant, interval, sleep_until, timeout_at},
};
use tracing::{error, info, warn};
use trust::Rule;

use crate::{
    admission::Admission,
    metrics::Metrics,
    programs::{self, Worker},
    serve,
    supervisor::{Message, Supervisor},
};

/// Capacity of the queue between the supervisor and the exporters: some seconds of a busy scheduler.
pub(crate) const QUEUE: usize = 16_384;
/// Attempts that wait for their context concurrently. Their order is kept.
const WAITING: usize = 1_024;
/// Longest wait for the first list of Pods before tracing starts.
const FIRST_LIST: Duration = Duration::from_secs(5);
/// Time for the supervisor to end once it was asked to. Whatever it waits for then is not awaited.
const END: Duration = Duration::from_millis(1_500);
/// Time to export the last spans.
const FLUSH: Duration = Duration::from_secs(5);
/// Limit for reading the configuration of a scheduler, and for the wait until another is read.
const READ: Duration = Duration::from_secs(2);
/// Most processes that read configurations. One whose file system never answers stays.
const MAX_READERS: usize = 4;
/// Interval of the search for owners of which nothing comes any more.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Liveness interval without a supervisor.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Options of the daemon.
#[derive(Debug)]
pub struct Options {
    /// Destinations of spans.
    pub outputs: Vec<Output>,
    /// Whether waterfalls have one line for each plugin.
    pub wide: bool,
    /// Which attempts are printed.
    pub filter: Filter,
    /// Which traces are exported.
    pub sample: sample::Options,
    /// How the trace contexts of Pods are read.
    pub context: context::Options,
    /// Whether Pods get the context of their attempt.
    pub reinject: reinject::Options,
    /// Where spans wait for the Collector on disk.
    pub spool: SpoolOptions,
    /// Addresses of metrics and health.
    pub status: status::Options,
    /// Address of `/api/v1`; `None` switches it off.
    pub debug: Option<SocketAddr>,
    /// Number of attempts kept for `schedspan explain`; needs [`Options::debug`].
    pub history: usize,
    /// Path of an eBPF object instead of the built-in one.
    pub ebpf_object: Option<PathBuf>,
    /// Who is traced.
    pub trust: Vec<Rule>,
    /// Sizes of the ring buffer and of each process's part.
    pub limits: Limits,
    /// Names of the traced programs.
    pub programs: Vec<String>,
    /// Level of detail for all programs.
    pub detail: Detail,
    /// Whether stories become traces of which nothing came.
    pub idle: bool,
    /// Whether each stay in a queue is a span.
    pub queue_spans: bool,
    /// Whether Pod lifecycles are traced.
    pub lifecycle: bool,
    /// Whose traces they are in.
    pub lifecycle_trace: LifecycleTrace,
    /// Whether each span has its start and end by `CLOCK_MONOTONIC`.
    pub monotonic: bool,
}

/// Runs until SIGINT or SIGTERM.
///
/// # Errors
///
/// When the samplers are contradictory, probes cannot be loaded, the kubeconfig cannot be used, or the addresses of metrics or health cannot
/// be bound. With an address of health, a failure to load probes is not an error: `/readyz` reports it until the daemon is stopped.
pub async fn run(options: Options) -> Result<()> {
    let metrics = Metrics::default();
    let sampler = Sampler::new(&options.sample)?;
    let health = Health::default();
    let (sender, receiver) = mpsc::channel(QUEUE);
    let board = Board::default();
    let workers = workers(&options.programs, options.detail, options.idle, &board.queues);
    let node_pods = Arc::new(NodePods::default());
    let supervisor = Supervisor::new(
        options.ebpf_object.as_deref(),
        options.limits,
        Admission::new(options.trust, Arc::clone(&node_pods), &workers),
        workers,
        sender,
        metrics.clone(),
        health.clone(),
    );
    let supervisor = match (supervisor, options.status.health_listen) {
        (Ok(supervisor), _) => supervisor.with_idle(options.idle),
        (Err(error), None) => return Err(error.into()),
        (Err(error), Some(_)) => return refuse(error.into(), options.status, metrics, health).await,
    };
    let start = wakeups::unthrottled();
    let contexts =
        PodContexts::start(&options.context, sampler.selectors().to_vec(), true, metrics.pods.clone())
            .await?;
    // With a program that runs on every node, Pods are watched where another one is found that needs it.
    let at_once = options.programs.iter().all(|name| programs::need_pods(&[name]));
    if at_once {
        contexts.need();
    }
    let board = Board { contexts: Some(contexts.clone()), ..board };
    NodePods::follow(&node_pods, &contexts);
    let mut outlet =
        Outlet::start(&options.outputs, options.wide, &options.spool, options.filter, sampler, &metrics)?;
    outlet.owners = Owners::new(options.lifecycle_trace, metrics.spans.clone());
    if options.reinject.reinject {
        let reinjector =
            Reinjector::start(&options.reinject, &options.context, contexts.clone(), metrics.pods.clone())
                .await?;
        outlet.reinjector = Some(reinjector);
    }
    let (lifecycles, mut lives) = options
        .lifecycle
        .then(|| {
            let wait = options.context.context_wait;
            Lifecycles::start(&contexts, options.lifecycle_trace, wait, metrics.pods.clone())
        })
        .unzip();
    if lifecycles.is_some() {
        outlet.sinks.register(&Resource::of_schedspan());
    }
    let log = AttemptLog::new(if options.debug.is_some() { options.history } else { 0 });
    let targets = Targets::default();
    let refused = status::start(options.status, metrics.registry.clone(), health.clone()).await?;
    if let Some(address) = options.debug {
        let live = outlet.sinks.live().clone();
        let daemon = metrics.daemon(log.clone(), targets.clone(), live, health);
        serve::start(address, &Daemon { board: board.clone(), ..daemon }, refused).await;
    }
    drop(tokio::spawn(board.clone().watch(metrics.attempts.clone())));
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    if at_once {
        contexts.listed(FIRST_LIST).await;
    }
    node_pods.listed(FIRST_LIST).await;
    drop(start);
    let stop = Arc::new(AtomicBool::new(false));
    let supervisor = thread::Builder::new().name("supervisor".into()).spawn({
        let stop = Arc::clone(&stop);
        move || {
            allocator::keep_blocks();
            supervisor.run(&stop);
        }
    })?;

    // When the reader of stdout, such as `head`, goes away, the daemon stops.
    let for_reader = options.outputs.iter().any(|output| output.is_for_reader());
    if !for_reader {
        wakeups::seldom();
    }
    let wait = options.context.context_wait;
    let Options { queue_spans, monotonic, lifecycle_trace, .. } = options;
    let extras = Extras { queue_spans, monotonic, lifecycle: lifecycle_trace };
    let contexts = &contexts;
    let attempts = futures::stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|message| (message, receiver))
    })
    .map(|message| async move {
        match message {
            Message::Finished(story, anchor) => {
                let origin = match story.pod_uid() {
                    Some(uid) => contexts.lookup(uid, wait).await,
                    None => Origin::default(),
                };
                Step::Trace(story.trace(anchor, origin, extras))
            }
            Message::Found(found) => {
                if programs::need_pods(&found.programs) {
                    contexts.need();
                }
                let configuration = wakeups::at_once(configuration(&found)).await;
                Step::Found(found, configuration)
            }
            Message::Gone(target) => Step::Gone(target),
        }
    })
    .buffered(WAITING);
    let mut attempts = std::pin::pin!(attempts);
    let mut configurations = Configurations::default();
    let mut end = None;
    let mut looks = interval(LOOK_INTERVAL);
    let ended = loop {
        tokio::select! {
            step = attempts.next() => match step {
                Some(Step::Trace(mut trace)) => {
                    if let Some(told) = configurations.link(&mut trace) {
                        outlet.sinks.send(told);
                    }
                    log.add(&trace);
                    board.queues.attempt(&trace);
                    if let Some(lifecycles) = &lifecycles {
                        lifecycles.attempt(&trace);
                    }
                    outlet.trace(trace);
                    if for_reader && outlet.sinks.ended() {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                Some(Step::Found(found, configuration)) => {
                    for resource in resources(&found, configuration.as_ref()) {
                        outlet.sinks.register(&resource);
                    }
                    targets.found(&found);
                    if let Some(configuration) = configuration {
                        board.queues.configured(found.target, &configuration.profiles);
                        configurations.found(found.target, found.pid, configuration, found.already_ran);
                    }
                }
                Some(Step::Gone(target)) => {
                    for source in [Source::Process(target), Source::OtherProgram(target)] {
                        outlet.owners.gone(source).into_iter().for_each(|last| outlet.sinks.send(last));
                        outlet.sinks.forget(source);
                    }
                    targets.gone(target);
                    configurations.gone(target);
                }
                // The supervisor has ended, and all its messages are handled.
                None => break true,
            },
            Some(life) = next(&mut lives) => outlet.life(life),
            now = looks.tick() => outlet.owners.quiet(now.into_std()).into_iter().for_each(|last| outlet.sinks.send(last)),
            _ = interrupt.recv() => stop.store(true, Ordering::Relaxed),
            _ = terminate.recv() => stop.store(true, Ordering::Relaxed),
            () = over(end) => break false,
        }
        if end.is_none() && stop.load(Ordering::Relaxed) {
            end = Some(Instant::now() + END);
        }
    };
    if let (Some(lifecycles), Some(lives)) = (lifecycles, &mut lives) {
        let rest = lifecycles.rest(lives).await;
        rest.into_iter().for_each(|life| outlet.life(life));
    }
    if ended {
        supervisor.join().ok().context("the supervisor's thread has panicked")?;
    } else {
        error!(
            "the engine's loop does not end and is left; the kernel detaches the probes when this process ends"
        );
    }
    outlet.rest();
    outlet.sinks.shutdown(FLUSH).await;
    if let Some(reinjector) = outlet.reinjector {
        reinjector.finish(FLUSH).await;
    }
    for (cause, count) in metrics.losses() {
        if count > 0 {
            info!(cause, count, "lost");
        }
    }
    Ok(())
}

/// Reports on `/readyz` why nothing can be traced, until SIGINT or SIGTERM. A restart changes neither kernel nor
/// capabilities, and hides the reason in a crash loop.
async fn refuse(
    error: anyhow::Error,
    addresses: status::Options,
    metrics: Metrics,
    health: Health,
) -> Result<()> {
    error!("{error:#}");
    health.set_ready(Err(format!("{error:#}")));
    status::start(addresses, metrics.registry, health.clone()).await?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            () = tokio::time::sleep(ALIVE_INTERVAL) => health.alive(),
            _ = interrupt.recv() => return Err(error),
            _ = terminate.recv() => return Err(error),
        }
    }
}

/// Sampling, output and history of traces, live or replayed.
pub(crate) struct Outlet {
    pub(crate) sinks: Sinks,
    /// Writes the context of an attempt to its Pod; `None` when switched off.
    reinjector: Option<Reinjector>,
    filter: Filter,
    sampler: Sampler,
    metrics: Metrics,
    gatherer: Gatherer,
    owners: Owners,
}

impl Outlet {
    pub(crate) fn start(
        outputs: &[Output],
        wide: bool,
        spool: &SpoolOptions,
        filter: Filter,
        sampler: Sampler,
        metrics: &Metrics,
    ) -> Result<Self> {
        let sinks = Sinks::start(outputs, wide, spool, metrics.spans.clone())?;
        let metrics = metrics.clone();
        let owners = Owners::new(LifecycleTrace::Pod, metrics.spans.clone());
        Ok(Self { sinks, reinjector: None, filter, sampler, metrics, gatherer: Gatherer::default(), owners })
    }

    pub(crate) fn trace(&mut self, trace: Trace) {
        self.metrics.trace(&trace);
        let whole = self.gatherer.take(trace);
        self.send(whole);
    }

    pub(crate) fn life(&mut self, trace: Trace) {
        self.metrics.spans.clone().made(&trace);
        self.send(vec![trace]);
    }

    /// Sends parts of traces whose root will not arrive, and the last ones of owners.
    pub(crate) fn rest(&mut self) {
        let parts = self.gatherer.rest();
        self.send(parts);
        self.owners.rest().into_iter().for_each(|last| self.sinks.send(last));
    }

    fn send(&mut self, traces: Vec<Trace>) {
        for mut trace in traces {
            let is_kept = self.filter.keeps(&trace) && {
                // Who watches sees what is not exported as well.
                self.sinks.show(&trace);
                self.sampler.keep(&mut trace, &self.metrics.spans)
            };
            self.metrics.attempts.durations(&trace, is_kept);
            if is_kept {
                if let Some(reinjector) = &mut self.reinjector {
                    reinjector.offer(&trace);
                }
                let now = Instant::now().into_std();
                self.owners.take(trace, now).for_each(|trace| self.sinks.send(trace));
            }
        }
    }
}

/// Waits until this time; for ever if there is none.
async fn over(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// The next completed Pod lifecycle; `None` when lifecycles are not traced.
async fn next(lives: &mut Option<mpsc::Receiver<Trace>>) -> Option<Trace> {
    lives.as_mut()?.recv().await
}

enum Step {
    Found(Box<Found>, Option<Configuration>),
    Trace(Trace),
    Gone(u32),
}

/// Makes the workers of the named programs, with all that is `idle` or not. The moves of Pods go to `queues` as well.
pub(crate) fn workers(names: &[String], detail: Detail, idle: bool, queues: &Queues) -> Vec<Box<Worker>> {
    let worker = |program: &programs::Registration| {
        if program.name == KubeScheduler::NAME {
            kube_scheduler::worker(detail, queues)
        } else {
            (program.worker)(if idle { Detail::Idle } else { detail })
        }
    };
    names.iter().filter_map(|name| programs::named(name)).map(worker).collect()
}

/// The configuration of a scheduler; `None` when it cannot be read.
async fn configuration(found: &Found) -> Option<Configuration> {
    static READERS: Semaphore = Semaphore::const_new(MAX_READERS);
    let process = found.process.filter(|_| found.programs.contains(&KubeScheduler::NAME))?;
    let pid = found.pid;
    let end = Instant::now() + READ;
    let Ok(Ok(permit)) = timeout_at(end, READERS.acquire()).await else {
        warn!(
            pid,
            "the configuration in force is not read: those of {MAX_READERS} other processes do not answer within {READ:?}"
        );
        return None;
    };
    let (sender, receiver) = oneshot::channel();
    // This task stays with a reader that hangs: that one ends late, and is killed with the daemon.
    tokio::spawn(async move {
        // An error means that it comes too late.
        let _ = sender.send(read(process).await);
        drop(permit);
    });
    let why = match timeout_at(end, receiver).await {
        Ok(Ok(Ok(configuration))) => return Some(configuration),
        Ok(Ok(Err(error))) => error,
        Ok(Err(_)) => "its reader has panicked".to_owned(),
        Err(_) => format!("its file does not answer within {READ:?}"),
    };
    warn!(pid, "cannot read the configuration in force: {why}");
    None
}

/// Lets a process of its own read the configuration of another, and waits for its end.
async fn read(process: ProcessId) -> Result<Configuration, String> {
    let mut command = Command::new("/proc/self/exe");
    command.args(reader::arguments(process)).env_clear().kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let failed = |error: io::Error| format!("the process that reads it does not run: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let mut written = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(reader::MAX_ANSWER).read_to_end(&mut written).await.map_err(failed)?;
    }
    child.wait().await.map_err(failed)?;
    reader::answer(&written)
}

/// What a process is to those who receive its spans: a scheduler, another program, or both, as k3s is.
fn resources(found: &Found, configuration: Option<&Configuration>) -> Vec<Resource> {
    let has = |scheduler| found.programs.iter().any(|name| (*name == KubeScheduler::NAME) == scheduler);
    let configuration = || configuration.map(configurations::of).unwrap_or_default();
    let scheduler = has(true).then(|| resource(found).with(configuration()));
    scheduler.into_iter().chain(has(false).then(|| resource(found).of_other_program())).collect()
}

/// The resource of a scheduler's process.
pub(crate) fn resource(found: &Found) -> Resource {
    let Found { target, pid, executable, identity, process: _, programs: _, already_ran: _, sites: _ } =
        found;
    let kubernetes = identity.kubernetes_version.as_deref();
    Resource::of_process(*target, *pid, executable, &identity.go_version, kubernetes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_scheduler_and_another_program_by_what_it_runs() {
        let sources = |programs: &[&'static str]| {
            let found = Found { target: 7, programs: programs.to_vec(), ..Found::default() };
            resources(&found, None).iter().map(|resource| resource.source).collect::<Vec<_>>()
        };
        let (scheduler, other) = (Source::Process(7), Source::OtherProgram(7));
        assert_eq!(sources(&["kube-scheduler"]), [scheduler]);
        assert_eq!(sources(&["kube-scheduler", "kubelet", "client-go"]), [scheduler, other]);
        assert_eq!(sources(&["client-go"]), [other]);
    }
}
