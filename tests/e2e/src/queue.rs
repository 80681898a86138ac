//! Why Pods are not tried: what `schedspan queue` says of 200 Pods equals what the test made of them, and a scheduler that stands
//! still is said.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, is_bound, is_unschedulable, pod},
    schedspan::Schedspan,
    stage::Stage,
    wait::wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use xtask::process;

use crate::checks::{nothing_lost, text};

/// Nodes, of 32 CPUs each.
pub(super) const NODES: u32 = 6;
/// Pods in each state.
const PODS: usize = 50;
/// Pods that are made while the scheduler is stopped.
const NOT_SEEN: usize = 5;
/// Longer than the test needs: what is in backoff stays there.
const BACKOFF_SECONDS: u64 = 120;
/// The limit for the states to be reached.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The limit for a scheduler that stands still to be said.
const SAID: Duration = Duration::from_secs(30);
/// The resource of the Pod for which the scheduler asks an extender, which does not answer.
const HELD: &str = "schedspan.test/held";
const GATE: &str = "schedspan.test/wait";
/// The Pod that the scheduler is held in.
const HOLDER: &str = "holder";

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let silence = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", silence.local_addr()?);
    stage.cluster.configure_scheduler(|configuration| {
        configuration["podInitialBackoffSeconds"] = BACKOFF_SECONDS.into();
        configuration["podMaxBackoffSeconds"] = BACKOFF_SECONDS.into();
        configuration["extenders"] = json!([{
            "urlPrefix": url,
            "filterVerb": "filter",
            "httpTimeout": "90s",
            "managedResources": [{ "name": HELD, "ignoredByScheduler": true }],
        }]);
    })?;
    let schedspan = stage.trace()?;
    let asked = Asked { stage, schedspan: &schedspan };

    create_states(&api)?;
    let (held, since) = hold(&api, &silence)?;
    for number in 0..PODS {
        api.create_pod("default", &pod(&format!("active-{number}"), "10m"))?;
    }
    let answer =
        asked.until("all Pods to be where the test has put them, also for the API server", |answer| {
            let known_from_both = pods(answer).iter().all(|pod| text(pod, "/from") == "both");
            (known_from_both
                && counts(answer)
                    == states(&[
                        ("active", PODS),
                        ("backoff", PODS),
                        ("gated", PODS),
                        ("trying", 1),
                        ("unschedulable", PODS),
                    ]))
            .then_some(())
        })?;
    for waiting in pods(&answer) {
        check(waiting).with_context(|| format!("{}: {waiting}", text(waiting, "/pod")))?;
    }
    backoffs(&answer, &api)?;
    println!("         {} Pods are where the test has put them: {:?}", pods(&answer).len(), counts(&answer));

    asked.stall("in an attempt", PODS as u64, 0)?;
    println!(
        "         a scheduler that is held in an attempt is said to stand still after {:.0?}",
        since.elapsed()
    );
    asked.says(
        &["explain", "active-7"],
        &["stands still", "no attempt yet: ready, and in the active queue"],
    )?;
    asked.says(&["explain", "gated-7"], &["no attempt yet: gated by SchedulingGates", GATE])?;
    asked.says(&["explain", "backoff-7"], &["Now: in backoff until", "failed once"])?;
    asked.says(&["queue", "unschedulable-7"], &["Insufficient cpu", "Wakes it", "NodeResourcesFit, when"])?;
    asked.says(&["queue", "-A"], &["stands still", "UNSCHEDULABLE (50)", "GATED (50)", "BACKOFF (50)"])?;
    asked.says(&["top"], &["stands still", "unschedulable 50"])?;
    drop((held, silence));
    api.wait_for_pods("active Pods to be bound", |pods| {
        pods.iter().filter(|pod| is_bound(pod) && text(pod, "/metadata/name").starts_with("active-")).count()
            == PODS
    })?;
    asked.moves("the scheduler to go on")?;

    stopped(stage, &asked, &api)?;
    nothing_lost(&schedspan.metrics()?)?;
    schedspan.stop()?;
    restarted(stage)
}

/// Makes Pods that are gated, unschedulable, and in backoff after an error.
fn create_states(api: &Api) -> Result<()> {
    for number in 0..PODS {
        api.create_pod("default", &pod(&format!("unschedulable-{number}"), "1000"))?;
        let mut gated = pod(&format!("gated-{number}"), "10m");
        gated["spec"]["schedulingGates"] = json!([{ "name": GATE }]);
        api.create_pod("default", &gated)?;
        let mut failing = pod(&format!("backoff-{number}"), "10m");
        failing["metadata"]["annotations"] = json!({ "trouble.schedspan.test/PreFilter": "error" });
        api.create_pod("default", &failing)?;
    }
    api.wait_for_pods("Pods to fail", |pods| {
        pods.iter().filter(|pod| is_unschedulable(pod)).count() == PODS
            && pods.iter().filter(|pod| reason(pod) == "SchedulerError").count() == PODS
    })
}

/// Makes a Pod for which the scheduler asks the extender, and takes its request.
fn hold(api: &Api, silence: &TcpListener) -> Result<(std::net::TcpStream, Instant)> {
    silence.set_nonblocking(true)?;
    let mut holder = pod(HOLDER, "10m");
    let resources = &mut holder["spec"]["containers"][0]["resources"];
    resources["requests"][HELD] = "1".into();
    resources["limits"] = json!({ HELD: "1" });
    api.create_pod("default", &holder)?;
    let held = wait_until("the scheduler to ask the extender", TIMEOUT, || Ok(silence.accept().ok()))?;
    Ok((held.0, Instant::now()))
}

/// Stops the scheduler by a signal: it does not even see new Pods.
fn stopped(stage: &Stage, asked: &Asked<'_>, api: &Api) -> Result<()> {
    let scheduler = Pid::from_raw(stage.cluster.scheduler()?.pid).context("no scheduler")?;
    kill_process(scheduler, Signal::STOP)?;
    let went_on = Resumed(scheduler);
    let since = Instant::now();
    for number in 0..NOT_SEEN {
        api.create_pod("default", &pod(&format!("unseen-{number}"), "10m"))?;
    }
    asked.stall("by a signal", NOT_SEEN as u64, NOT_SEEN as u64)?;
    println!("         a scheduler that is stopped is said to stand still after {:.0?}", since.elapsed());
    let answer = asked.answer()?;
    let unseen = pods(&answer).iter().filter(|pod| text(pod, "/reason") == "unseen").count();
    ensure!(unseen == NOT_SEEN, "{unseen} Pods are not in a queue: {:?}", counts(&answer));
    drop(went_on);
    api.wait_for_pods("the Pods that it had not seen to be bound", |pods| {
        pods.iter().filter(|pod| is_bound(pod) && text(pod, "/metadata/name").starts_with("unseen-")).count()
            == NOT_SEEN
    })?;
    asked.moves("the stopped scheduler to go on")
}

/// Lets the scheduler go on, also after a failure.
struct Resumed(Pid);

impl Drop for Resumed {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// A daemon that starts later knows the Pods from their objects, and says so.
fn restarted(stage: &Stage) -> Result<()> {
    let schedspan = stage.trace()?;
    let asked = Asked { stage, schedspan: &schedspan };
    let of = |answer: &Value, reason: &str, plugin: &str| {
        pods(answer)
            .iter()
            .filter(|pod| {
                text(pod, "/reason") == reason
                    && text(pod, "/from") == "api"
                    && pod["plugins"] == json!([plugin])
            })
            .count()
    };
    asked.until("a new daemon to know the Pods from their objects", |answer| {
        let known = (of(answer, "gated", "SchedulingGates"), of(answer, "failed", "NodeResourcesFit"));
        (known == (PODS, PODS)).then_some(())
    })?;
    println!("         a new daemon knows {} Pods from their objects", 2 * PODS);
    schedspan.stop()
}

/// The daemon, asked as a user does.
struct Asked<'a> {
    stage: &'a Stage,
    schedspan: &'a Schedspan,
}

impl Asked<'_> {
    fn command(&self, arguments: &[&str]) -> Result<String> {
        let server = format!("http://{}", self.schedspan.address("debug"));
        process::output(Command::new(&self.stage.executable).args(arguments).args(["--server", &server]))
    }

    fn answer(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.command(&["queue", "--all-namespaces", "--output", "json"])?)?)
    }

    /// Waits for an answer.
    fn until(&self, what: &str, reached: impl Fn(&Value) -> Option<()>) -> Result<Value> {
        let mut last = Value::Null;
        let found = wait_until(what, TIMEOUT, || {
            last = self.answer()?;
            thread::sleep(Duration::from_millis(200));
            Ok(reached(&last))
        });
        found.with_context(|| format!("they are {:?}", counts(&last)))?;
        Ok(last)
    }

    /// Waits until the scheduler is said to stand still, with so many Pods that wait for it, and so many that it has not seen.
    fn stall(&self, how: &str, waiting: u64, not_queued: u64) -> Result<()> {
        let what = format!("the scheduler that is held {how} to be said to stand still");
        wait_until(&what, SAID, || {
            let metric = self.schedspan.metrics()?.sum("schedspan_scheduler_stalled_seconds", &[]);
            let answer = self.answer()?;
            let stall = &answer["schedulers"][0]["stall"];
            thread::sleep(Duration::from_millis(200));
            let expected = (Some(waiting), Some(not_queued));
            Ok((metric > 0.0 && (stall["pods"].as_u64(), stall["notQueued"].as_u64()) == expected)
                .then_some(()))
        })
    }

    /// Waits until no scheduler is said to stand still.
    fn moves(&self, what: &str) -> Result<()> {
        wait_until(what, SAID, || {
            let metric = self.schedspan.metrics()?.sum("schedspan_scheduler_stalled_seconds", &[]);
            Ok((metric == 0.0 && self.answer()?["schedulers"][0]["stall"].is_null()).then_some(()))
        })
    }

    /// Checks that a verb's text has these words, in any lines.
    fn says(&self, arguments: &[&str], words: &[&str]) -> Result<()> {
        let said = self.command(arguments)?;
        let one_line = said.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in words {
            ensure!(one_line.contains(word), "{arguments:?} does not say `{word}`:\n{said}");
        }
        Ok(())
    }
}

fn pods(answer: &Value) -> &[Value] {
    answer["pods"].as_array().map_or(&[], Vec::as_slice)
}

/// Pods by the reason why they are not tried.
fn counts(answer: &Value) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in pods(answer) {
        *counts.entry(text(pod, "/reason").to_owned()).or_default() += 1;
    }
    counts
}

fn states(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(reason, pods)| ((*reason).to_owned(), *pods)).collect()
}

/// The reason in a Pod's condition.
fn reason(pod: &Value) -> &str {
    let conditions = pod["status"]["conditions"].as_array();
    let scheduled = conditions.into_iter().flatten().find(|condition| condition["type"] == "PodScheduled");
    scheduled.map_or("", |condition| text(condition, "/reason"))
}

/// What is said of a Pod against its name, which says what the test made of it.
fn check(waiting: &Value) -> Result<()> {
    let name = text(waiting, "/pod");
    let (made, _) = name.split_once('-').unwrap_or(("trying", name));
    ensure!(text(waiting, "/reason") == made, "it was made to be {made}");
    ensure!(text(waiting, "/from") == "both", "it is known from {}", text(waiting, "/from"));
    ensure!(waiting["pid"].is_u64() && waiting["sinceUnixUs"].is_u64(), "where and since when is missing");
    let (plugins, attempts) = match made {
        "unschedulable" => (json!(["NodeResourcesFit"]), Some(1)),
        "gated" => (json!(["SchedulingGates"]), None),
        "backoff" => (json!(["Trouble"]), Some(1)),
        "trying" => (json!([]), Some(1)),
        _ => (json!([]), None),
    };
    ensure!(waiting["plugins"] == plugins, "its plugins are not {plugins}");
    let tried = waiting["attempts"].as_u64().filter(|attempts| *attempts > 0);
    ensure!(tried == attempts, "it has had {attempts:?} attempts");
    let wakes = waiting["wakes"].as_array().map_or(0, Vec::len);
    ensure!(wakes == usize::from(["unschedulable", "gated"].contains(&made)), "{wakes} plugins wake it");
    ensure!((waiting["gates"] == json!([GATE])) == (made == "gated"), "its gates are {}", waiting["gates"]);
    Ok(())
}

/// The ends of backoffs against the conditions, which the scheduler writes when it puts a Pod into the queue.
fn backoffs(answer: &Value, api: &Api) -> Result<()> {
    let objects = api.pods("default")?;
    let mut exact = 0;
    for waiting in pods(answer).iter().filter(|pod| text(pod, "/reason") == "backoff") {
        let name = text(waiting, "/pod");
        let object = objects.iter().find(|object| text(object, "/metadata/name") == name);
        let reason = object.map_or("", reason);
        ensure!(reason == "SchedulerError", "{name} failed by {reason}");
        let since = waiting["sinceUnixUs"].as_u64().context("it has no begin")?;
        let until =
            waiting["untilUnixUs"].as_u64().with_context(|| format!("{name} has no end of its backoff"))?;
        // The scheduler rounds down to a whole second. Up to 1.32 it does not keep the end, and its configuration is not read.
        if waiting["untilIsExact"] == true {
            let seconds = until.saturating_sub(since) as f64 / 1e6;
            let expected = BACKOFF_SECONDS as f64;
            ensure!(seconds > expected - 2.0 && seconds <= expected + 1.0, "{name} waits for {seconds} s");
            exact += 1;
        }
    }
    println!("         {exact} ends of backoffs were read from the scheduler");
    Ok(())
}
