//! The budget: with 1 % of the scheduler's CPU time, thousands of Pods that are tried again at once cost no more than that for longer
//! than a second. What is cut meanwhile is said, no attempt is missing, and it comes back.
//!
//! On many Nodes it suffices to cut plugins. On few Nodes attempts are so short that their phases alone cost more than the budget: there,
//! only attempts with their results are left.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, is_bound, pod},
    figures::Comparison,
    metrics::Metrics,
    processes::cpu_ms,
    schedspan::{Options, Schedspan},
    spans::Span,
    stage::Stage,
    wait::wait_until,
};
use serde_json::json;

use crate::{load::create_all, truth};

/// Nodes, of 32 CPUs each. Each attempt looks at all of them, and with fewer the attempts are so short that their phases exceed the
/// budget by themselves: at 2,000 Nodes these are 1.0 to 1.3 %.
pub(super) const NODES: u32 = 5_000;
/// Nodes of which phases are cut as well.
pub(super) const FEW_NODES: u32 = 200;
/// Pods that fit, which are created in the storm.
const FITTING: usize = 50;
/// The name of an attempt's span, and of the only span that is below it without the phases.
const ROOT: &str = "SchedulePod";
const BINDING_CYCLE: &str = "bindingCycle";
/// Pods that fit on no Node.
const PODS: usize = 5_000;
/// What each of them requests, CPUs.
const CPUS: &str = "1000";
const BUDGET: f64 = 0.01;
/// The cost of a period may be this part higher than the budget: the kernel reports the CPU time in hundredths of a second, and the
/// last decision was made half a second before.
const TOLERANCE: f64 = 0.1;
/// What tracing may cost in a second in which the scheduler is nearly idle, in which it is taken to use this part of a CPU.
const LEAST_CPUS: f64 = 0.1;
/// The daemon decides by CPU time in hundredths of a second.
const TICK_S: f64 = 0.01;
const SECOND: Duration = Duration::from_secs(1);
/// What tracing costs for longer than a second is within the budget. A single second may exceed it: a cut takes that long.
const PERIOD: Duration = Duration::from_secs(2);
/// The limit for all Pods to be tried.
const TRIED: Duration = Duration::from_secs(400);
/// The limit for what was cut to come back after the last attempt.
const BACK: Duration = Duration::from_secs(60);
/// The longest backoff of a Pod, and some more: Pods that are not in backoff are all tried at once.
const BACKOFF: Duration = Duration::from_secs(12);
/// Attempts that are under way at a change of what is cut, at most: one in its scheduling cycle, and others that are being bound.
const UNDER_WAY: usize = 4;
const ATTEMPTS: &str = "scheduler_schedule_attempts_total";

/// What was measured at one moment.
struct Reading {
    at: Instant,
    /// Hits so far, by class, as the eBPF programs have counted them, and what one costs at this time, seconds.
    hits: [(f64, f64); 2],
    /// What is no hit at a site has cost so far, seconds, as the daemon has measured it.
    others: f64,
    /// CPU time of the scheduler so far, seconds.
    cpu: f64,
    metrics: Metrics,
}

/// A storm of attempts that last long.
pub(super) fn run(stage: &mut Stage) -> Result<()> {
    storm(stage, false)
}

/// A storm of short attempts.
pub(super) fn run_short(stage: &mut Stage) -> Result<()> {
    storm(stage, true)
}

/// A storm; whether it is to prove something about the cut of phases.
fn storm(stage: &mut Stage, is_short: bool) -> Result<()> {
    let api = stage.cluster.api()?;
    let arguments = &["--budget=1%", "--exact-windows=200"];
    let schedspan = Schedspan::start(&Options { arguments, ..stage.options()? })?;
    let comparison = Comparison::begin(&stage.cluster)?;
    create_all(&api, PODS, |number| ("default", pod(&format!("storm-{number}"), CPUS)))?;
    let tried = || -> Result<f64> { Ok(stage.cluster.scheduler_metrics()?.sum(ATTEMPTS, &[])) };
    wait_until("all Pods to be tried", TRIED, || {
        thread::sleep(SECOND);
        Ok((tried()? >= PODS as f64).then_some(()))
    })?;
    comes_back(&schedspan)?;
    thread::sleep(BACKOFF);

    let pid = stage.cluster.scheduler()?.pid;
    let before = tried()?;
    let mut readings = vec![reading(&schedspan, pid)?];
    // The scheduler moves all Pods that could fit there.
    let larger = json!({ "status": { "allocatable": { "cpu": CPUS }, "capacity": { "cpu": CPUS } } });
    api.patch(&format!("/api/v1/nodes/{}/status", first_node(&api)?), &larger)?;
    create_all(&api, FITTING, |number| ("default", pod(&format!("fits-{number}"), "10m")))?;
    wait_until("all Pods to be tried again", TRIED, || {
        thread::sleep(SECOND / 2);
        readings.push(reading(&schedspan, pid)?);
        Ok((tried()? - before >= (PODS + FITTING) as f64).then_some(()))
    })?;
    stays_within(&readings)?;
    comes_back(&schedspan)?;

    api.create_pod("default", &pod("calm", "10m"))?;
    wait_until("a Pod to be bound after the storm", BACK, || {
        Ok(is_bound(&api.get("/api/v1/namespaces/default/pods/calm")?).then_some(()))
    })?;
    let figures = comparison.end()?;
    let changes = schedspan.metrics()?.sum("schedspan_cuts_total", &[]) as usize;
    let cuts = says_what_is_cut(&figures.spans, changes)?;
    let phases = cuts.contains("phases");
    ensure!(!cuts.is_empty() && (phases || !is_short), "only {cuts:?} was cut: the test proves nothing");
    let is_never_cut =
        |wrong: &String| if phases { wrong.starts_with(ROOT) } else { !wrong.starts_with("plugin: ") };
    let wrong: Vec<_> = truth::counts(&figures).into_iter().filter(is_never_cut).collect();
    ensure!(wrong.is_empty(), "spans and the scheduler's metrics differ: {}", wrong.join(", "));
    truth::trees(&figures.spans)?;
    nothing_lost(&schedspan.metrics()?)?;
    schedspan.stop()
}

/// The name of a Node.
fn first_node(api: &Api) -> Result<String> {
    let nodes = api.get("/api/v1/nodes?limit=1")?;
    Ok(nodes["items"][0]["metadata"]["name"].as_str().context("there is no Node")?.to_owned())
}

fn reading(schedspan: &Schedspan, pid: i32) -> Result<Reading> {
    let (metrics, at) = (schedspan.metrics()?, Instant::now());
    let cost = |class| metrics.sum("schedspan_hit_nanoseconds", &[("class", class)]) / 1e9;
    let stepped = metrics.sum("schedspan_class_hits_total", &[("class", "single_stepped")]);
    let hits = metrics.sum("schedspan_hits_total", &[]);
    let parts = ["exact_windows", "samples"];
    let others: f64 =
        parts.iter().map(|part| metrics.sum("schedspan_overhead_seconds_total", &[("part", part)])).sum();
    let hits = [(hits - stepped, cost("emulated")), (stepped, cost("single_stepped"))];
    let cpu = cpu_ms(pid.cast_unsigned())? / 1e3;
    Ok(Reading { at, hits, others, cpu, metrics })
}

impl Reading {
    /// What tracing has cost since an earlier one, seconds.
    fn cost_since(&self, before: &Self) -> f64 {
        let of_class = |((now, each), (earlier, _)): (&(f64, f64), &(f64, f64))| (now - earlier) * each;
        let hits: f64 = self.hits.iter().zip(&before.hits).map(of_class).sum();
        hits + self.others - before.others
    }
}

/// Checks that no two seconds after the first cost more than the budget together, and that something was cut.
///
/// # Errors
///
/// If two did.
fn stays_within(readings: &[Reading]) -> Result<()> {
    let begin = readings.first().context("nothing was measured")?.at;
    println!("         {:>6} {:>8} {:>8} {:>7}  CUT", "TIME", "CPU s", "COST ms", "RATIO");
    let (mut exceeded, mut most) = (Vec::new(), 0.0);
    for (index, now) in readings.iter().enumerate() {
        let Some(before) = readings[..index].iter().rev().find(|before| now.at - before.at >= PERIOD) else {
            continue;
        };
        let (cost, cpu) = (now.cost_since(before), now.cpu - before.cpu);
        let elapsed = (now.at - before.at).as_secs_f64();
        let allowed = BUDGET * f64::max(cpu + TICK_S, LEAST_CPUS * elapsed);
        let cut: Vec<_> =
            now.metrics.by("schedspan_cut", ["what"]).into_iter().filter(|(_, cut)| *cut > 0.0).collect();
        let cut: Vec<&str> = cut.iter().map(|([what], _)| what.as_str()).collect();
        println!(
            "         {:>5.1}s {cpu:>8.2} {:>8.2} {:>6.2}%  {}",
            (now.at - begin).as_secs_f64(),
            cost * 1e3,
            cost / cpu.max(TICK_S) * 100.0,
            cut.join(" ")
        );
        // The first second is that in which the storm is noticed.
        if before.at - begin >= SECOND {
            most = f64::max(most, cost / cpu.max(LEAST_CPUS * elapsed));
            if cost > allowed * (1.0 + TOLERANCE) {
                exceeded.push(format!("{:.2} % after {:.1?}", cost / cpu * 100.0, now.at - begin));
            }
        }
    }
    ensure!(exceeded.is_empty(), "tracing costs more than {} %: {}", BUDGET * 100.0, exceeded.join(", "));
    let cuts = readings.last().map_or(0.0, |last| last.metrics.sum("schedspan_cuts_total", &[]));
    ensure!(cuts > 0.0, "nothing was cut: the test proves nothing");
    println!("         at most {:.2} % after the first second", most * 100.0);
    Ok(())
}

/// Waits until nothing is cut.
fn comes_back(schedspan: &Schedspan) -> Result<()> {
    let since = Instant::now();
    wait_until("what was cut to come back", BACK, || {
        thread::sleep(SECOND / 4);
        Ok((schedspan.metrics()?.sum("schedspan_cut", &[]) == 0.0).then_some(()))
    })?;
    println!("         nothing is cut {:.1?} after the last attempt", since.elapsed());
    Ok(())
}

/// Checks that attempts say what was cut, that those show nothing that was, and that one after the storm is whole. Returns what was cut.
///
/// # Errors
///
/// If one does not.
fn says_what_is_cut(spans: &[Span], changes: usize) -> Result<BTreeSet<String>> {
    let mut traces: BTreeMap<&str, (Option<&Span>, usize, usize)> = BTreeMap::new();
    for span in spans {
        let (root, plugins, phases) = traces.entry(&span.trace_id).or_default();
        if span.is_root() {
            *root = Some(span);
        }
        *plugins += usize::from(span.name.starts_with("plugin"));
        *phases += usize::from(!span.is_root() && span.name != BINDING_CYCLE);
    }
    let (mut by_cut, mut calm, mut begun_before) = (BTreeMap::<String, usize>::new(), false, 0);
    for (id, (root, plugins, phases)) in traces {
        let root = root.with_context(|| format!("trace {id} has no root"))?;
        ensure!(!root.is_incomplete(), "the attempt of {} is incomplete", root.pod());
        let cut = root.attribute("schedspan.cut");
        if root.pod().ends_with("calm") {
            calm = true;
            ensure!(cut.is_empty() && plugins > 0, "after the storm `{cut}` is cut, with {plugins} plugins");
        }
        if cut == "phases" {
            // What was seen before the cut stays.
            begun_before += usize::from(phases > 0);
            let bound = root.attribute("k8s.scheduler.result") == "Success";
            let node = root.attribute("k8s.scheduler.selected_node");
            ensure!(!bound || !node.is_empty(), "the attempt of {} does not say its Node", root.pod());
        }
        *by_cut.entry(cut).or_default() += 1;
    }
    println!("         attempts by what was cut: {by_cut:?}; {begun_before} had begun before phases were");
    let allowed = UNDER_WAY * changes;
    ensure!(
        begun_before <= allowed,
        "{begun_before} attempts have spans of what was cut, and not {allowed} at most"
    );
    ensure!(calm, "the Pod after the storm has no attempt");
    Ok(by_cut.into_keys().filter(|cut| !cut.is_empty()).collect())
}

/// Checks that no record is lost. An end may come whose begin was cut.
fn nothing_lost(metrics: &Metrics) -> Result<()> {
    let lost: BTreeMap<_, _> =
        metrics.by("schedspan_losses_total", ["cause"]).into_iter().filter(|(_, lost)| *lost > 0.0).collect();
    ensure!(lost.is_empty(), "schedspan has lost something: {lost:?}");
    Ok(())
}
