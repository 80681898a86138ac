//! Which plugin takes the time of `filter` and `score`: the shares by samples, and the calls of exact windows, are those that a
//! scheduler says that times each call itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, pod},
    metrics::Metrics,
    schedspan::{Options, Schedspan},
    spans::{self, Span},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};

use crate::checks::text;

const TIMEOUT: Duration = Duration::from_secs(30);
/// So many that Filter and Score have something to do.
pub(crate) const NODES: u32 = 100;
pub(crate) const PODS: u32 = 500;
/// Pods created in a second: the scheduler is never late.
pub(crate) const PACE: u32 = 25;
/// One Pod of so many makes a plugin panic.
const PANICS: u32 = 5;
/// The attempts with a window, at most one of so many; and the fewest that the test needs.
pub(crate) const EVERY: &str = "4";
/// Most rounds, if the machine does other work.
const ROUNDS: u32 = 5;
const FEWEST: usize = 30;
/// The difference that is allowed between the two shares of a plugin, in points, beside what chance explains.
const LIMIT: f64 = 5.0;
/// Standard errors that chance explains.
const CHANCE: f64 = 3.0;
/// The difference that is allowed between the two times of a plugin's calls: the greater of a part of the time and nanoseconds a call.
pub(crate) struct Allowed {
    part: f64,
    per_call_ns: f64,
}

/// The time of a call's two probes is taken off.
const ALONE: Allowed = Allowed { part: 0.02, per_call_ns: 200.0 };
/// Where other containers take processors and caches, a probe takes longer than what is taken off, as a call does.
pub(crate) const ON_NODE: Allowed = Allowed { part: 0.1, per_call_ns: 1_000.0 };
/// The scheduler reads its clock three times within our two, and a clock gives the time of the middle of its reading: so much of
/// these readings is not in the scheduler's time.
const OUTSIDE: f64 = 2.0;
/// The plugin that waits, and what it has at most by samples, and at least by its calls.
const SLEEPER: &str = "Sleeper";
const SEEN: f64 = 0.1;
const TRUE: f64 = 0.5;
const PANICKER: &str = "Panicker";
const UNWOUND: &str = "did not return";

/// The plugins beside the default ones.
pub(crate) fn profiles() -> Vec<Value> {
    let enabled = ["Burner", SLEEPER, "Halver", PANICKER].map(|name| json!({ "name": name }));
    vec![json!({ "schedulerName": "default-scheduler", "plugins": { "multiPoint": { "enabled": enabled } } })]
}

/// Extension point and plugin.
type Key = (String, String);

/// The calls of a plugin.
#[derive(Clone, Debug, Default, PartialEq)]
struct Calls {
    by_result: BTreeMap<String, u64>,
    ns: f64,
    /// What the scheduler's readings of its clock take that are not in `ns`.
    clocks_ns: f64,
}

impl Calls {
    fn count(&self) -> u64 {
        self.by_result.values().sum()
    }
}

/// The times of some calls differ by more than is allowed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct OtherTimes(String);

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    for round in 1..ROUNDS {
        match compare_round(stage, round) {
            Err(error) if error.is::<OtherTimes>() => {
                println!("         {error}: once more, since other work of the machine makes calls longer");
            }
            result => return result,
        }
    }
    compare_round(stage, ROUNDS)
}

fn compare_round(stage: &Stage, round: u32) -> Result<()> {
    let api = stage.cluster.api()?;
    let scheduler = stage.cluster.scheduler()?;
    let (file, pid) = (stage.cluster.spans_file(), scheduler.pid.to_string());
    let [spans_before, log_before] =
        [&file, &scheduler.log].map(|path| fs::metadata(path).map_or(0, |file| file.len()));
    let schedspan =
        Schedspan::start(&Options { arguments: &["--exact-windows", EVERY], ..stage.options()? })?;
    let name = |number| format!("timed-{round}-{number}");
    api.create_pods(PACE, (0..PODS).map(|number| timed(number, pod(&name(number), "10m"))))?;
    api.wait_for_pods("all Pods to be bound", |pods| {
        pods.len() == (round * PODS) as usize && pods.iter().all(is_bound)
    })?;
    let metrics = wait_until("every attempt to be counted", TIMEOUT, || {
        let metrics = schedspan.metrics()?;
        Ok((metrics.sum("schedspan_attempts_total", &[]) >= f64::from(PODS)).then_some(metrics))
    })?;
    schedspan.stop()?;

    let mut spans = spans::read(&file, spans_before)?;
    spans.retain(|span| span.pid == pid);
    let log = fs::read_to_string(scheduler.log)?;
    let log = log.get(usize::try_from(log_before)?..).unwrap_or_default();
    compare(log, &spans, &metrics, &ALONE)
}

/// A Pod that may make [`PANICKER`] panic.
pub(crate) fn timed(number: u32, mut pod: Value) -> Value {
    if number.is_multiple_of(PANICS) {
        pod["metadata"]["annotations"] = json!({ "timed.schedspan.test/panics": "" });
    }
    pod
}

/// Compares the log of the scheduler that times its plugins with its spans and the daemon's metrics.
///
/// # Errors
///
/// If a count differs, a share or a time differs by more than is allowed, or there are too few windows.
pub(crate) fn compare(log: &str, spans: &[Span], metrics: &Metrics, allowed: &Allowed) -> Result<()> {
    let theirs = logged(log)?;
    let ours = windows(spans)?;
    compare_windows(&ours, &theirs, allowed)?;
    compare_shares(metrics, &ours, &theirs)
}

/// What the scheduler logged of Pods that it tried once, by UID.
fn logged(log: &str) -> Result<BTreeMap<String, BTreeMap<Key, Calls>>> {
    let mut cycles = BTreeMap::new();
    let mut again = BTreeSet::new();
    for line in log.lines().filter_map(|line| line.strip_prefix("timed ")) {
        let cycle: Value = serde_json::from_str(line).context("the scheduler's log")?;
        ensure!(cycle["lost"] == 0, "the scheduler has lost {} calls", cycle["lost"]);
        let pod = text(&cycle, "/pod").to_owned();
        let mut of_cycle = BTreeMap::<Key, Calls>::new();
        for sum in cycle["sums"].as_array().context("a cycle without sums")? {
            let [point, plugin, code] = ["/point", "/plugin", "/code"].map(|key| text(sum, key).to_owned());
            let of = of_cycle.entry((point, plugin)).or_default();
            of.by_result.insert(code, sum["calls"].as_u64().unwrap_or_default());
            of.ns += sum["ns"].as_f64().unwrap_or_default();
            of.clocks_ns += OUTSIDE * sum["clock"].as_f64().unwrap_or_default();
        }
        if cycles.insert(pod.clone(), of_cycle).is_some() {
            again.insert(pod);
        }
    }
    cycles.retain(|pod, _| !again.contains(pod));
    ensure!(cycles.len() >= PODS as usize / 2, "the scheduler logged {} cycles", cycles.len());
    Ok(cycles)
}

/// The calls of the attempts with a complete window, by the Pod's UID.
fn windows(all: &[Span]) -> Result<BTreeMap<String, BTreeMap<Key, Calls>>> {
    let with = |says: &str| {
        let roots = all.iter().filter(|span| span.is_root());
        roots.filter(|root| root.attribute("k8s.scheduler.exact_window") == says).collect::<Vec<_>>()
    };
    let (complete, incomplete) = (with("complete"), with("incomplete"));
    println!("         {} complete windows, {} incomplete", complete.len(), incomplete.len());
    let mut windows = BTreeMap::new();
    for root in complete {
        let of_trace = all.iter().filter(|span| span.trace_id == root.trace_id);
        let exact = of_trace.filter(|span| span.attribute("k8s.scheduler.plugin.share.basis") == "exact");
        let mut plugins = BTreeMap::<Key, Calls>::new();
        for span in exact {
            let key =
                ["extension_point", "name"].map(|key| span.attribute(&format!("k8s.scheduler.plugin.{key}")));
            let mut calls = Calls::default();
            for result in span.list("k8s.scheduler.plugin.calls.results") {
                let (code, count) =
                    result.split_once(": ").with_context(|| format!("a result `{result}`"))?;
                calls.by_result.insert(code.to_owned(), count.parse()?);
            }
            let ms: f64 = span.attribute("k8s.scheduler.plugin.calls.total_ms").parse()?;
            calls.ns = ms * 1e6;
            let [point, plugin] = key;
            plugins.insert((point, plugin), calls);
        }
        windows.insert(root.attribute("k8s.pod.uid"), plugins);
    }
    ensure!(windows.len() >= FEWEST, "only {} attempts have a window: that proves nothing", windows.len());
    Ok(windows)
}

/// The calls are the same, by result. The times are, in most windows: in some, a thread does not run for a while between the two
/// clocks.
fn compare_windows(
    ours: &BTreeMap<String, BTreeMap<Key, Calls>>,
    theirs: &BTreeMap<String, BTreeMap<Key, Calls>>,
    allowed: &Allowed,
) -> Result<()> {
    let (mut differences, mut unwound, mut calls) = (BTreeMap::<Key, Vec<(f64, f64)>>::new(), 0, 0);
    for (pod, ours) in ours {
        let Some(theirs) = theirs.get(pod) else { continue };
        let keys = |of: &BTreeMap<Key, Calls>| of.keys().cloned().collect::<Vec<_>>();
        ensure!(keys(ours) == keys(theirs), "other plugins: {:?}, and not {:?}", keys(ours), keys(theirs));
        for (key, ours) in ours {
            let (mut same, theirs) = (ours.clone(), &theirs[key]);
            // The scheduler cannot tell that a call panics.
            let left = same.by_result.remove(UNWOUND).unwrap_or_default();
            if left > 0 {
                ensure!(key.1 == PANICKER, "{key:?} did not return");
                *same.by_result.entry("Success".to_owned()).or_default() += left;
                unwound += left;
            }
            ensure!(
                same.by_result == theirs.by_result,
                "{key:?}: {:?}, and not {:?}",
                ours,
                theirs.by_result
            );
            calls += same.count();
            let count = same.count() as f64;
            differences
                .entry(key.clone())
                .or_default()
                .push(((ours.ns - theirs.ns - theirs.clocks_ns) / count, theirs.ns / count));
        }
    }
    ensure!(unwound > 0, "no window has a call that panics: that proves nothing");
    let mut worst = (0.0, String::new());
    for ((point, plugin), mut list) in differences {
        list.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (difference, per_call) = list[list.len() / 2];
        println!("         {point} {plugin}: {per_call:.0} ns a call, {difference:+.0} ns in windows");
        // A call that panics has a time in the scheduler only.
        let allowed = allowed.per_call_ns.max(allowed.part * per_call);
        ensure!(
            difference.abs() <= allowed || plugin == PANICKER,
            OtherTimes(format!("{point} {plugin}: {difference:+.0} ns a call of {per_call:.0} ns"))
        );
        if difference.abs() > worst.0 {
            worst = (difference.abs(), format!("{plugin} ({point})"));
        }
    }
    println!(
        "         {calls} calls in windows are the scheduler's, {unwound} of them panicked; {:.0} ns a call at most, {}",
        worst.0, worst.1
    );
    Ok(())
}

/// The shares by samples are those of the calls, but for the plugin that waits.
fn compare_shares(
    metrics: &Metrics,
    ours: &BTreeMap<String, BTreeMap<Key, Calls>>,
    theirs: &BTreeMap<String, BTreeMap<Key, Calls>>,
) -> Result<()> {
    const PERIOD: f64 = 1.0 / 199.0;
    let mut timed = BTreeMap::<Key, f64>::new();
    // The scheduler's clocks are in each call's time, and in no sample of a plugin. The shortest call is little else.
    let clocks =
        theirs.values().flatten().map(|(_, calls)| calls.ns / calls.count() as f64).fold(f64::MAX, f64::min);
    for (key, calls) in theirs.values().flatten() {
        *timed.entry(key.clone()).or_default() += calls.ns - clocks * calls.count() as f64;
    }
    let sampled = metrics.by("schedspan_scheduler_cpu_seconds_total", ["phase", "plugin"]);
    for point in ["filter", "score"] {
        let of_point = |key: &Key| key.0 == point && key.1 != SLEEPER && key.1 != PANICKER;
        let plugins: Vec<&Key> = timed.keys().filter(|key| of_point(key)).collect();
        let seconds = |key: &Key| sampled.get(&[key.0.clone(), key.1.clone()]).copied().unwrap_or_default();
        let (all, all_timed) = (
            plugins.iter().map(|key| seconds(key)).sum::<f64>(),
            plugins.iter().map(|key| timed[*key]).sum::<f64>(),
        );
        let (samples, mut most) = (all / PERIOD, 0.0);
        for key in plugins {
            let (share, true_share) = (seconds(key) / all, timed[key] / all_timed);
            let error = 100.0 * (true_share * (1.0 - true_share) / samples.max(1.0)).sqrt();
            let points = 100.0 * (share - true_share);
            ensure!(
                points.abs() <= LIMIT + CHANCE * error,
                "{key:?} has {:.1} % by {samples:.0} samples, and {:.1} % of the time of its calls",
                100.0 * share,
                100.0 * true_share
            );
            most = f64::max(most, points.abs());
        }
        println!(
            "         {point}: the shares by {samples:.0} samples are at most {most:.1} points from those of all calls"
        );
    }
    let sleeper = ("filter".to_owned(), SLEEPER.to_owned());
    let all: f64 =
        sampled.iter().filter(|([phase, _], _)| phase == "filter").map(|(_, seconds)| seconds).sum();
    let seen = sampled.get(&["filter".to_owned(), SLEEPER.to_owned()]).copied().unwrap_or_default() / all;
    let (mut own, mut whole) = (0.0, 0.0);
    for (key, calls) in ours.values().flatten().filter(|((point, _), _)| point == "filter") {
        whole += calls.ns;
        own += if *key == sleeper { calls.ns } else { 0.0 };
    }
    ensure!(seen < SEEN, "{SLEEPER} has {:.0} % of the samples", 100.0 * seen);
    ensure!(own / whole > TRUE, "{SLEEPER} has {:.0} % of the time of calls in windows", 100.0 * own / whole);
    println!(
        "         {SLEEPER}, which waits: {:.1} % of the CPU time of `filter` by samples, {:.0} % of its calls' time in windows",
        100.0 * seen,
        100.0 * own / whole
    );
    Ok(())
}
