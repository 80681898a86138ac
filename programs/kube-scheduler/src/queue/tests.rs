//! Moves in, answers out.

use std::{borrow::Cow, cell::RefCell};

use gotrace::{
    Role,
    governor::Cut,
    pipeline::{Clocks, Found},
};
use proptest::{collection::vec, prelude::*, sample::select};
use spans::{
    Condition, Status,
    fixtures::{scheduled, unschedulable},
};

use super::{model::MAX_PODS, words::stall, *};
use crate::{Event, Values, table::Function, values::Value};

/// The target, and the Pod, of the traces in `spans::fixtures`.
const TARGET: u32 = 7;
const UID: &str = "3f2a7c1e-0001-4b4b-8b8b-0123456789ab";
/// `CLOCK_REALTIME` at the zero of `CLOCK_MONOTONIC`: 2026-11-21T00:00:00Z.
const ZERO_UNIX_S: u64 = 1_795_219_200;
const SECOND: u64 = 1_000_000_000;

/// Schedulers whose moves are given in seconds.
struct Bench(Queues, RefCell<Feed>);

impl Default for Bench {
    fn default() -> Self {
        let queues = Queues::default();
        let feed = queues.feed().into();
        Self(queues, feed)
    }
}

impl Bench {
    fn new() -> Self {
        let bench = Self::default();
        bench.found(TARGET);
        bench.tick(0);
        bench
    }

    fn take(&self, line: &Line<'_, KubeScheduler>) {
        self.1.borrow_mut().take(line);
    }

    fn found(&self, target: u32) {
        let found = Found { target, pid: target + 1000, ..Found::default() };
        self.take(&Line::Found(Cow::Owned(found)));
    }

    fn tick(&self, seconds: u64) {
        self.take(&Line::Clocks(Clocks {
            monotonic_ns: seconds * SECOND,
            unix_ns_at_zero: ZERO_UNIX_S * SECOND,
        }));
    }

    fn event(&self, seconds: u64, goroutine: u64, function: Function, values: Values) -> &Self {
        self.send(TARGET, seconds, goroutine, function, values, 0)
    }

    fn send(
        &self,
        target: u32,
        seconds: u64,
        goroutine: u64,
        function: Function,
        values: Values,
        last_loss: u64,
    ) -> &Self {
        let role = if function == Function::Pop { Role::ReturnSite } else { Role::Entry };
        let time_ns = seconds * SECOND;
        let event =
            Event { target, time_ns, took_ns: 0, goroutine, depth: 0, function, role, last_loss, values };
        self.take(&Line::Event(Cow::Owned(event)));
        self
    }

    /// A Pod enters the active queue, and the scheduler counts it.
    fn active(&self, seconds: u64, uid: &str) -> &Self {
        self.event(seconds, 5, Function::Enqueue, pod(uid));
        self.event(seconds, 5, Function::QueueMove, counted("active", "UnscheduledPodAdd"))
    }

    fn pop(&self, seconds: u64, uid: &str, attempts: u64) -> &Self {
        let values = pod(uid).with(Value::Attempts, attempts).with(Value::Profile, "default-scheduler");
        self.event(seconds, 1, Function::Pop, values)
    }

    /// What a look says is the same, in all tests.
    fn answer(&self, seconds: u64, pending: Option<&[Pending]>) -> Answer {
        let now = (ZERO_UNIX_S + seconds) * 1_000_000;
        let pending: Option<Vec<_>> = pending.map(|pods| pods.iter().cloned().map(Arc::new).collect());
        let pending = pending.as_deref();
        let answer = self.0.answer(now, pending);
        let Look { answer: without, counts } = self.0.look(now, pending);
        assert_eq!(Answer { pods: answer.pods.clone(), left_out: answer.left_out, ..without }, answer);
        assert_eq!(counts.values().sum::<usize>() as u64, answer.pods.len() as u64 + answer.left_out);
        assert!(answer.left_out > 0 || counts == answer.counts());
        answer
    }

    /// The only Pod of an answer.
    fn only(&self, seconds: u64, pending: Option<&[Pending]>) -> Waiting {
        let answer = self.answer(seconds, pending);
        assert_eq!(answer.pods.len(), 1, "{answer:?}");
        answer.pods.into_iter().next().unwrap()
    }
}

fn pod(uid: &str) -> Values {
    Values::default()
        .with(Value::QueuedPodInfo, 1)
        .with(Value::PodUid, uid)
        .with(Value::PodName, format!("pod-{}", uid.len()).as_str())
        .with(Value::PodNamespace, "shop")
}

fn counted(queue: &str, event: &str) -> Values {
    Values::default().with(Value::Labels, 2).with(Value::Queue, queue).with(Value::QueueEvent, event)
}

fn pending(uid: &str) -> Pending {
    Pending {
        uid: uid.into(),
        namespace: "shop".into(),
        name: format!("pod-{}", uid.len()).into(),
        scheduler: "default-scheduler".into(),
        created_unix_us: ZERO_UNIX_S * 1_000_000,
        ..Pending::default()
    }
}

fn tried(uid: &str) -> Pending {
    let message = "0/3 nodes are available: 3 Insufficient cpu.".into();
    let condition = Condition { reason: "Unschedulable".into(), message, since_unix_us: 1 };
    Pending { condition: Some(condition), ..pending(uid) }
}

#[test]
fn a_pod_goes_from_the_active_queue_through_an_attempt_to_the_unschedulable_pods() {
    let bench = Bench::new();
    bench.active(1, UID);
    let waiting = bench.only(4, None);
    assert_eq!((waiting.reason, waiting.from), (Reason::Active, From::Scheduler));
    assert_eq!(
        sentence(&waiting, (ZERO_UNIX_S + 4) * 1_000_000),
        "no attempt yet: ready, and in the active queue for 3 s"
    );
    bench.pop(5, UID, 1);
    assert_eq!(bench.only(6, None).reason, Reason::Trying);
    bench.event(
        6,
        1,
        Function::EnqueueUnschedulable,
        pod(UID).with(Value::Attempts, 1).with(Value::Gate, ""),
    );
    bench.event(6, 1, Function::QueueMove, counted("unschedulable", "ScheduleAttemptFailure"));
    let mut failed = unschedulable();
    let message = "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.";
    failed.spans[0].status = Status::Error(message.to_owned());
    bench.0.attempt(&failed);
    let waiting = bench.only(66, Some(&[pending(UID)]));
    assert_eq!(
        (waiting.reason, waiting.from, waiting.attempts),
        (Reason::Unschedulable, From::Both, Some(1))
    );
    assert_eq!((waiting.plugins.as_slice(), waiting.wakes.len()), (&["NodeResourcesFit".to_owned()][..], 1));
    let text = sentence(&waiting, (ZERO_UNIX_S + 66) * 1_000_000);
    assert!(text.starts_with("unschedulable for 60 s; failed once, by "), "{text}");
    bench.active(70, UID);
    bench.pop(71, UID, 2);
    bench.0.attempt(&scheduled());
    assert!(bench.answer(72, None).pods.is_empty());
}

#[test]
fn a_gated_pod_says_its_plugin_and_since_when_however_often_it_is_looked_at() {
    let bench = Bench::new();
    for seconds in [3, 8, 20] {
        let values = pod(UID).with(Value::Gate, "SchedulingGates");
        bench.event(seconds, 5, Function::EnqueueUnschedulable, values);
    }
    let gates = Pending { gates: vec!["example.com/wait".to_owned()], ..pending(UID) };
    let waiting = bench.only(63, Some(&[gates]));
    assert_eq!((waiting.reason, waiting.gates.len()), (Reason::Gated, 1));
    assert_eq!(
        sentence(&waiting, (ZERO_UNIX_S + 63) * 1_000_000),
        "no attempt yet: gated by SchedulingGates for 60 s"
    );
    bench.active(70, UID);
    let waiting = bench.only(70, None);
    assert_eq!((waiting.reason, waiting.plugins.len()), (Reason::Active, 0));
    assert_eq!(waiting.since_unix_us, Some((ZERO_UNIX_S + 70) * 1_000_000));
}

#[test]
fn up_to_1_32_a_pod_that_is_not_counted_as_active_is_gated() {
    let bench = Bench::new();
    bench.active(1, "another").pop(1, "another", 1);
    bench.event(2, 5, Function::Enqueue, pod(UID));
    let reason = |seconds, gates: &[&str]| {
        let gates = gates.iter().map(|gate| (*gate).to_owned()).collect();
        let answer = bench.answer(seconds, Some(&[Pending { gates, ..pending(UID) }]));
        let waiting = answer.pods.into_iter().find(|pod| pod.uid == UID).unwrap();
        (waiting.reason, waiting.plugins)
    };
    assert_eq!(reason(2, &[]).0, Reason::Active);
    assert_eq!(reason(9, &["wait"]), (Reason::Gated, vec!["SchedulingGates".to_owned()]));
    assert_eq!(reason(9, &[]), (Reason::Gated, vec![]));
    bench.active(10, UID);
    assert_eq!(reason(12, &[]).0, Reason::Active);
}

#[test]
fn pods_of_an_incomplete_group_wait_for_it() {
    let bench = Bench::new();
    bench.event(1, 5, Function::EnqueueUnschedulable, pod(UID).with(Value::Gate, "GangScheduling"));
    let waiting = bench.only(4, Some(&[Pending { group: Some("crew".into()), ..pending(UID) }]));
    assert_eq!((waiting.reason, waiting.group.as_deref()), (Reason::Group, Some("crew")));
    assert_eq!(
        sentence(&waiting, (ZERO_UNIX_S + 4) * 1_000_000),
        "no attempt yet: it waits for 3 s until its group `crew` is complete"
    );
}

#[test]
fn a_backoff_ends_when_the_scheduler_says_or_by_its_defaults() {
    let until = |values: Values| {
        let bench = Bench::new();
        bench.event(1, 5, Function::EnqueueBackoff, values.with(Value::PodUid, UID).with(Value::Attempts, 3));
        bench.event(1, 5, Function::QueueMove, counted("backoff", "NodeAdd"));
        let waiting = bench.only(2, None);
        assert_eq!(waiting.reason, Reason::Backoff);
        let until = waiting.until_unix_us.map(|until| until / 1_000_000 - ZERO_UNIX_S);
        (until, waiting.until_is_exact)
    };
    // Seconds since year 1 to 2026-11-21T00:00:00Z.
    let year_1 = 62_135_596_800 + ZERO_UNIX_S;
    assert_eq!(until(pod(UID).with(Value::BackoffExpirationSeconds, year_1 + 9)), (Some(9), true));
    let both = pod(UID)
        .with(Value::BackoffExpirationSeconds, 30 * SECOND)
        .with(Value::BackoffExpiration, (ZERO_UNIX_S + 8) * SECOND);
    assert_eq!(until(both), (Some(8), true));
    // 4 s after three failures, from its last attempt or from now on.
    assert_eq!(until(pod(UID)), (Some(5), false));
    assert_eq!(until(pod(UID).with(Value::QueueTimestamp, ZERO_UNIX_S * SECOND)), (Some(4), false));
    assert_eq!(until(pod(UID).with(Value::BackoffExpirationSeconds, u64::MAX)), (Some(5), false));
}

#[test]
fn a_pod_that_was_in_the_queue_before_is_known_by_its_object() {
    let bench = Bench::new();
    bench.active(1, "a").pop(1, "a", 1);
    let gated = Pending {
        gates: vec!["wait".to_owned()],
        condition: Some(Condition { reason: "SchedulingGated".into(), ..Condition::default() }),
        ..pending("gated")
    };
    let foreign = Pending { scheduler: "volcano".into(), ..pending("foreign") };
    let grouped = Pending { group: Some("crew".into()), ..pending("grouped-pod") };
    let answer = bench.answer(9, Some(&[tried("tried"), gated, foreign, grouped, pending("unseen-by-it")]));
    let told: Vec<_> = answer.pods.iter().map(|pod| (&*pod.uid, pod.reason, pod.from)).collect();
    assert_eq!(
        told,
        [
            ("tried", Reason::Failed, From::Api),
            ("gated", Reason::Gated, From::Api),
            ("grouped-pod", Reason::Group, From::Api),
            ("unseen-by-it", Reason::Unseen, From::Api),
            ("foreign", Reason::Foreign, From::Api),
        ]
    );
    assert_eq!(answer.pods[0].plugins, ["NodeResourcesFit"]);
    assert_eq!(answer.counts().values().sum::<usize>(), 5);
}

#[test]
fn a_deleted_pod_is_forgotten_unless_the_watch_is_behind() {
    let bench = Bench::new();
    bench.active(10, UID);
    assert_eq!(bench.answer(12, Some(&[])).pods.len(), 1);
    assert_eq!(bench.answer(20, None).pods.len(), 1);
    assert_eq!(bench.answer(20, Some(&[])).pods.len(), 0);
    assert_eq!(bench.answer(20, None).pods.len(), 0);
}

fn stalls(bench: &Bench, seconds: u64, pending: Option<&[Pending]>) -> Vec<(u64, u64, u64)> {
    let answer = bench.answer(seconds, pending);
    answer
        .stalls()
        .map(|(_, stall)| (stall.since_unix_us / 1_000_000 - ZERO_UNIX_S, stall.pods, stall.not_queued))
        .collect()
}

#[test]
fn a_scheduler_that_takes_nothing_from_its_queue_stands_still() {
    let bench = Bench::new();
    bench.active(1, "a").pop(2, "a", 1).active(3, UID).active(4, "second");
    for api in [None, Some(&[pending("a"), pending(UID), pending("second")][..])] {
        assert!(stalls(&bench, 17, api).is_empty());
        assert_eq!(stalls(&bench, 18, api), [(3, 2, 0)]);
    }
    let answer = bench.answer(100, None);
    assert_eq!(answer.stalled_seconds(), 97);
    let (scheduler, standing) = answer.stalls().next().unwrap();
    assert_eq!(
        stall(scheduler, standing, answer.now_unix_us),
        "The scheduler with pid 1007 stands still for 97 s, since 00:00:03 UTC: 2 Pods wait, and it takes none. The last \
         that it took is shop/pod-1, at 00:00:02 UTC."
    );
    bench.pop(101, UID, 1);
    assert!(stalls(&bench, 101, None).is_empty());
    // Since it took the last one.
    assert_eq!(stalls(&bench, 120, None), [(101, 1, 0)]);
}

#[test]
fn a_scheduler_that_does_not_even_see_its_pods_stands_still() {
    let bench = Bench::new();
    bench.active(1, "a").pop(2, "a", 1);
    let new = Pending { created_unix_us: (ZERO_UNIX_S + 30) * 1_000_000, ..pending("new") };
    let (waits, others) =
        (pending("a"), [tried("tried"), Pending { scheduler: "other".into(), ..pending("o") }]);
    assert!(stalls(&bench, 60, Some(&[waits.clone(), others[0].clone(), others[1].clone()])).is_empty());
    assert_eq!(stalls(&bench, 60, Some(&[waits, new.clone()])), [(30, 1, 1)]);
    assert!(stalls(&bench, 44, Some(&[new])).is_empty());
}

#[test]
fn a_scheduler_that_has_not_begun_stands_still_only_if_no_other_takes_its_pods() {
    let bench = Bench::new();
    bench.active(1, UID);
    assert!(stalls(&bench, 60, None).is_empty(), "it may stand by");
    assert_eq!(stalls(&bench, 60, Some(&[pending(UID)])), [(1, 1, 0)]);
    let answer = bench.answer(60, Some(&[pending(UID)]));
    let (scheduler, standing) = answer.stalls().next().unwrap();
    assert!(stall(scheduler, standing, answer.now_unix_us).contains("its start is not over"));
    // Another one has tried it.
    assert!(stalls(&bench, 61, Some(&[tried(UID)])).is_empty());
    bench.active(62, "second");
    assert!(stalls(&bench, 90, Some(&[tried(UID), pending("second")])).is_empty(), "it stands by");
    bench.pop(91, UID, 1);
    assert_eq!(stalls(&bench, 120, Some(&[pending("second")])), [(91, 1, 0)]);
}

#[test]
fn what_was_known_before_a_loss_is_no_evidence() {
    let bench = Bench::new();
    bench.active(1, "a").pop(2, "a", 1).active(3, UID);
    bench.send(TARGET, 4, 1, Function::Filter, Values::default(), 9);
    assert!(stalls(&bench, 60, None).is_empty());
}

#[test]
fn where_a_pod_waits_is_not_known_while_queue_moves_are_cut_nor_after_that_until_it_moves() {
    let bench = Bench::new();
    let cut = |seconds: u64, cut| bench.take(&Line::Cut { target: TARGET, time_ns: seconds * SECOND, cut });
    let fails = |seconds| {
        bench.pop(seconds, UID, 1);
        bench.event(seconds, 1, Function::EnqueueUnschedulable, pod(UID).with(Value::Attempts, 1));
        bench.event(seconds, 1, Function::QueueMove, counted("unschedulable", "ScheduleAttemptFailure"));
    };
    fails(1);
    cut(2, Cut::Samples);
    assert_eq!(bench.only(3, None).reason, Reason::Unschedulable);
    cut(3, Cut::Plugins);
    assert_eq!(bench.only(4, None).reason, Reason::Failed, "it may be in backoff by now");
    // What is on its way is not taken, and attempts are.
    fails(5);
    assert_eq!(bench.only(6, None).reason, Reason::Trying);
    cut(7, Cut::Nothing);
    fails(8);
    assert_eq!(bench.only(9, None).reason, Reason::Unschedulable);
}

#[test]
fn a_pod_that_was_held_may_have_entered_while_phases_were_cut_and_an_attempt_has_its_result() {
    let bench = Bench::new();
    let cut = |seconds: u64, cut| bench.take(&Line::Cut { target: TARGET, time_ns: seconds * SECOND, cut });
    let gated = pod(UID).with(Value::Gate, "SchedulingGates".to_owned());
    bench.event(1, 5, Function::EnqueueUnschedulable, gated);
    bench.event(1, 5, Function::QueueMove, counted("unschedulable", "PodAdd"));
    cut(2, Cut::Plugins);
    assert_eq!(bench.only(3, None).reason, Reason::Gated);
    cut(3, Cut::Phases);
    bench.active(4, UID);
    assert_eq!(bench.only(5, None).reason, Reason::Failed, "where it is was not seen");
    bench.pop(6, UID, 1);
    assert_eq!(bench.only(7, None).reason, Reason::Trying);
    cut(8, Cut::Plugins);
    bench.active(9, UID);
    assert_eq!(bench.only(10, None).reason, Reason::Active);
}

#[test]
fn of_two_schedulers_the_one_that_takes_pods_knows() {
    let bench = Bench::new();
    bench.found(8);
    bench.active(1, UID);
    bench.send(8, 2, 5, Function::Enqueue, pod(UID), 0);
    bench.pop(3, UID, 1);
    bench.send(8, 9, 5, Function::Enqueue, pod(UID), 0);
    let waiting = bench.only(10, None);
    assert_eq!((waiting.reason, waiting.pid), (Reason::Trying, Some(1007)));
    bench.take(&Line::Gone { target: TARGET });
    assert_eq!(bench.only(10, None).pid, Some(1008));
}

#[test]
fn of_several_daemons_that_of_the_scheduler_at_work_counts() {
    let (works, stands_by) = (Bench::new(), Bench::new());
    works.active(1, "a").pop(2, "a", 1);
    stands_by.active(1, "a").active(2, "other");
    let objects = [pending("a"), Pending { scheduler: "second".into(), ..pending("other") }];
    let answers = [&stands_by, &works].map(|bench| bench.answer(4, Some(&objects)));
    let merged = Answer::merged(answers.to_vec()).unwrap();
    let reasons: Vec<_> = merged.pods.iter().map(|pod| (&*pod.uid, pod.reason)).collect();
    assert_eq!(reasons, [("other", Reason::Active), ("a", Reason::Trying)]);
    assert_eq!(merged.schedulers.len(), 2);
    assert_eq!(Answer::merged(Vec::new()), None);
}

#[test]
fn the_number_of_pods_is_bounded() {
    let bench = Bench::new();
    for number in 0..MAX_PODS + 10 {
        bench.event(1, 5, Function::Enqueue, pod(&format!("uid-{number}")));
    }
    assert_eq!(bench.0.left_out(), 10);
    let answer = bench.answer(1, None);
    assert_eq!(answer.pods.len() as u64 + answer.left_out, MAX_PODS as u64);
}

#[test]
fn a_group_in_the_place_of_a_pod_is_none() {
    let bench = Bench::new();
    for (uid, name) in [("", "web"), ("a b", "web"), ("uid", "\u{1b}[31m"), ("\u{fffd}", "web")] {
        bench.event(1, 5, Function::Enqueue, pod(uid).with(Value::PodUid, uid).with(Value::PodName, name));
        bench.event(1, 5, Function::QueueMove, counted("active", "NodeAdd"));
    }
    assert!(bench.answer(2, None).pods.is_empty());
}

#[test]
fn texts_name_what_an_operator_needs() {
    let bench = Bench::new();
    bench.active(1, "a").pop(2, "a", 1);
    bench.event(
        2,
        1,
        Function::EnqueueUnschedulable,
        pod("bb").with(Value::Attempts, 2).with(Value::Gate, ""),
    );
    bench.event(2, 1, Function::QueueMove, counted("unschedulable", "ScheduleAttemptFailure"));
    let api = [pending("a"), tried("bb"), Pending { gates: vec!["g\u{1b}[2J".to_owned()], ..pending("ccc") }];
    let answer = bench.answer(32, Some(&api));
    let text = table(&answer);
    assert_eq!(
        text,
        "\
3 Pods wait: 1 being tried, 1 unschedulable, 1 gated

BEING TRIED (1): taken from the queue, and being tried or bound
NAMESPACE  POD    FOR   TRIED  KNOWN BY    WHY
shop       pod-1  30 s  1      queue, API

UNSCHEDULABLE (1): plugins rejected them; tried again after an event, or after 5 minutes without any
NAMESPACE  POD    FOR   TRIED  KNOWN BY    WHY
shop       pod-2  30 s  2      queue, API  NodeResourcesFit: 0/3 nodes are available: 3 Insufficient cpu.
  NodeResourcesFit wakes them when a Pod on a Node is deleted or asks for less, or a Node is added or offers more

GATED (1): a PreEnqueue plugin does not let them into the queue
NAMESPACE  POD    FOR   TRIED  KNOWN BY  WHY
shop       pod-3  32 s  -      API       SchedulingGates: g?[2J
  SchedulingGates wakes them when the last of the Pod's scheduling gates is removed
"
    );
    let of_one = one(&answer.pods[1], answer.now_unix_us, 60);
    assert!(
        of_one.starts_with("shop/pod-2: unschedulable for 30 s; failed 2 times, last by\nNodeResourcesFit\n"),
        "{of_one}"
    );
    assert!(of_one.contains("Known from"), "{of_one}");
    for text in [text, of_one] {
        assert!(text.lines().all(|line| !line.contains(char::is_control)));
    }
    assert_eq!(table(&Bench::new().answer(1, Some(&[]))), "No Pod waits\n");
    assert_eq!(answer.clone().only(Some("shop"), Some("pod-3")).pods.len(), 1);
    assert!(answer.only(Some("other"), None).pods.is_empty());
}

/// A move of one of a few Pods, as a scheduler of 1.33 and later makes it.
#[derive(Clone, Copy, Debug)]
enum Step {
    Active,
    Backoff,
    Unschedulable,
    Gated,
    Pop,
}

proptest! {
    #[test]
    fn each_pod_is_where_it_went_last(
        steps in vec((0..6usize, select(&[Step::Active, Step::Backoff, Step::Unschedulable, Step::Gated, Step::Pop][..]), 0..4u64), 0..80),
        counts in any::<bool>(),
    ) {
        let bench = Bench::new();
        let mut last = BTreeMap::new();
        for (at, (pod_number, step, goroutine)) in steps.into_iter().enumerate() {
            let seconds = at as u64 + 1;
            let uid = "u".repeat(pod_number + 1);
            let year_1 = 62_135_596_800 + ZERO_UNIX_S + 500;
            let (function, values, queue) = match step {
                Step::Active => (Function::Enqueue, pod(&uid), Some("active")),
                Step::Backoff => (Function::EnqueueBackoff, pod(&uid).with(Value::BackoffExpirationSeconds, year_1), Some("backoff")),
                Step::Unschedulable => (Function::EnqueueUnschedulable, pod(&uid).with(Value::Gate, ""), Some("unschedulable")),
                Step::Gated => (Function::EnqueueUnschedulable, pod(&uid).with(Value::Gate, "P"), Some("unschedulable")),
                Step::Pop => (Function::Pop, pod(&uid), None),
            };
            bench.event(seconds, goroutine, function, values);
            if let Some(queue) = queue.filter(|queue| counts || *queue == "active") {
                bench.event(seconds, goroutine, Function::QueueMove, counted(queue, "NodeAdd"));
            }
            let reason = match step {
                Step::Active => Reason::Active,
                Step::Backoff => Reason::Backoff,
                Step::Unschedulable => Reason::Unschedulable,
                Step::Gated => Reason::Gated,
                Step::Pop => Reason::Trying,
            };
            let since = match last.get(&uid) {
                Some((before, since)) if *before == reason => *since,
                _ => seconds,
            };
            last.insert(uid, (reason, since));
        }
        let answer = bench.answer(1_000, None);
        let told: BTreeMap<_, _> = answer
            .pods
            .iter()
            .map(|pod| (pod.uid.clone(), (pod.reason, pod.since_unix_us.unwrap() / 1_000_000 - ZERO_UNIX_S)))
            .collect();
        prop_assert_eq!(&told, &last);
        prop_assert_eq!(told.len(), answer.pods.len());
        let pods: Vec<Pending> = last.keys().map(|uid| pending(uid)).collect();
        let again = bench.answer(1_000, Some(&pods));
        prop_assert_eq!(again.pods.len(), pods.len());
        prop_assert!(bench.answer(1_000, Some(&[])).pods.is_empty());
    }

    #[test]
    fn any_events_make_an_answer(
        raw in vec((0u32..3, 0u64..4, select(gotrace_functions()), 0u64..3, select(&["", "u", "uid-1"][..]), select(&["active", "backoff", "x"][..]), any::<u64>()), 0..100),
    ) {
        let bench = Bench::default();
        for (target, goroutine, function, loss, uid, queue, number) in raw {
            let values = pod(uid)
                .with(Value::Labels, 2)
                .with(Value::Queue, queue)
                .with(Value::QueueEvent, "NodeAdd")
                .with(Value::Attempts, number)
                .with(Value::QueueTimestamp, number)
                .with(Value::BackoffExpirationSeconds, number);
            bench.send(target, number % 5_000, goroutine, function, values, loss);
        }
        let answer = bench.answer(u64::MAX / 1_000_000 - ZERO_UNIX_S, None);
        prop_assert!(!table(&answer).is_empty());
        for pod in &answer.pods {
            prop_assert!(one(pod, answer.now_unix_us, 80).contains("Known from"));
        }
    }
}

fn gotrace_functions() -> &'static [Function] {
    use gotrace::program::Function as _;
    Function::ALL
}
