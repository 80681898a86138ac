//! What is said of single starts.

use ::spans::NodeStep;
use gotrace::{Role, account::Account, program::Assemble as _};

use super::{Assembler, CREATE, Call, DELAY_NS, End, LIMIT_NS, MAX_CALLS, READY, Start};
use crate::{Event, Values, table::Function, values::Value};

const SECOND: u64 = 1_000_000_000;

fn event(
    time_ns: u64,
    goroutine: u64,
    depth: u64,
    (function, role): (Function, Role),
    values: Values,
) -> Event {
    Event { target: 1, time_ns, goroutine, depth, function, role, took_ns: 0, last_loss: 0, values }
}

fn of_pod() -> Values {
    Values::default()
        .with(Value::PodUid, "uid")
        .with(Value::PodName, "web")
        .with(Value::PodNamespace, "default")
}

fn entry(time_ns: u64, depth: u64, function: Function, values: Values) -> Event {
    event(time_ns, 7, depth, (function, Role::Entry), values)
}

fn end(time_ns: u64, depth: u64, function: Function) -> Event {
    event(time_ns, 7, depth, (function, Role::Ret), Values::default())
}

fn with(mut event: Event, value: Value, text: &str) -> Event {
    event.values.set(value, text);
    event
}

fn failed(event: Event, message: &str) -> Event {
    let mut event = with(event, Value::Message, message);
    event.values.set(Value::Failed, 1);
    event
}

fn status(time_ns: u64) -> Event {
    let values = of_pod().with(Value::Phase, "Running").with(Value::Conditions, 5);
    entry(time_ns, 90, Function::Status, values)
}

fn ready(time_ns: u64) -> Event {
    let mut event = status(time_ns);
    event.values.set(Value::ThirdType, READY.0);
    event.values.set(Value::ThirdStatus, READY.1);
    event
}

fn admitted() -> [Event; 2] {
    let mut end = end(20, 10, Function::Admit);
    end.values.set(Value::Admitted, true);
    [entry(10, 10, Function::Admit, of_pod()), end]
}

fn sync(time_ns: u64, sync_type: u64) -> Event {
    entry(time_ns, 10, Function::Sync, of_pod().with(Value::SyncType, sync_type))
}

/// A container is started from this time on, within 70 nanoseconds.
fn container(time_ns: u64, path: &str) -> [Event; 8] {
    let name = path.split(['{', '}']).nth(1).unwrap_or_default();
    let image = entry(time_ns + 10, 30, Function::Image, of_pod());
    let create = entry(time_ns + 30, 30, Function::CreateContainer, of_pod());
    let start = entry(time_ns + 50, 30, Function::StartContainer, Values::default());
    [
        entry(time_ns, 20, Function::Container, of_pod()),
        with(with(image, Value::FieldPath, path), Value::Image, "shop:1"),
        end(time_ns + 20, 30, Function::Image),
        with(create, Value::Container, name),
        with(end(time_ns + 40, 30, Function::CreateContainer), Value::Id, "c0ffee"),
        with(start, Value::Id, "c0ffee"),
        end(time_ns + 60, 30, Function::StartContainer),
        end(time_ns + 70, 20, Function::Container),
    ]
}

fn after(events: impl IntoIterator<Item = Event>) -> Assembler {
    let mut assembler = Assembler::default();
    events.into_iter().for_each(|event| assembler.on(event));
    assembler
}

fn one(assembler: &mut Assembler) -> Start {
    let mut starts = assembler.take_finished();
    assert_eq!(starts.len(), 1, "{starts:?}");
    starts.remove(0)
}

/// The calls by step, container, and the step around them.
fn calls(start: &Start) -> Vec<(NodeStep, Option<&str>, Option<NodeStep>)> {
    let around = |call: &Call| call.parent.map(|parent| start.calls[parent].step);
    start.calls.iter().map(|call| (call.step, call.container.as_deref(), around(call))).collect()
}

#[test]
fn a_start_is_from_the_admission_until_the_pod_is_ready() {
    let mut assembler = after(
        admitted()
            .into_iter()
            .chain([sync(100, CREATE)])
            .chain(container(110, "spec.initContainers{schema}"))
            .chain(container(200, "spec.containers{web}"))
            .chain([status(300), end(310, 10, Function::Sync), ready(400), ready(500)]),
    );
    let start = one(&mut assembler);
    let Start { start_ns, end_ns, end, incomplete, left_out, events, .. } = start.clone();
    assert_eq!((start_ns, end_ns, end, incomplete, left_out), (10, 400, End::Ready, false, 0));
    assert_eq!(
        (&*start.uid, start.name.as_deref(), start.namespace.as_deref()),
        ("uid", Some("web"), Some("default"))
    );
    use NodeStep::{Admission, Container, CreateContainer, Image, InitContainer, StartContainer, Sync};
    let (schema, web) = (Some("schema"), Some("web"));
    let expected = [
        (Admission, None, None),
        (Sync, None, None),
        (InitContainer, schema, Some(Sync)),
        (Image, schema, Some(InitContainer)),
        (CreateContainer, schema, Some(InitContainer)),
        (StartContainer, schema, Some(InitContainer)),
        (Container, web, Some(Sync)),
        (Image, web, Some(Container)),
        (CreateContainer, web, Some(Container)),
        (StartContainer, web, Some(Container)),
    ];
    assert_eq!(calls(&start), expected);
    let of_web = &start.calls[6];
    assert_eq!((of_web.image.as_deref(), of_web.id.as_deref()), (Some("shop:1"), Some("c0ffee")));
    // The first of three statuses said nothing, and the last came when it was over.
    assert_eq!(events, 21);
    let account = Account { events: 23, in_attempts: 21, unrelated: 2, ..Account::default() };
    assert_eq!(assembler.account(), account);
}

#[test]
fn a_start_waits_for_the_sync_in_which_the_pod_becomes_ready() {
    let events = [sync(100, CREATE)].into_iter().chain(container(110, "spec.containers{web}"));
    let mut assembler = after(events.chain([ready(300)]));
    assert_eq!(assembler.take_finished(), []);
    assembler.on(end(350, 10, Function::Sync));
    let start = one(&mut assembler);
    assert_eq!((start.end_ns, start.calls[0].end_ns, start.incomplete), (300, Some(350), false));
}

#[test]
fn syncs_of_a_pod_that_is_not_starting_are_counted() {
    let mut assembler =
        after([sync(100, 0), end(110, 10, Function::Sync), sync(200, 1), end(210, 10, Function::Sync)]);
    assembler.exit(1);
    assert_eq!(assembler.take_finished(), []);
    let counts: Vec<_> =
        assembler.counts().into_iter().map(|count| (count.counter, count.labels, count.total)).collect();
    let of_syncs = |counter, total| (counter, vec!["syncPod".to_owned()], total);
    assert_eq!(counts, [of_syncs("kubelet_calls", 2), of_syncs("kubelet_calls_outside_starts", 2)]);
    assert_eq!(assembler.account(), Account { events: 4, unrelated: 4, ..Account::default() });
}

#[test]
fn a_pod_that_runs_when_the_kubelet_starts_is_no_start() {
    let mut assembler =
        after(admitted().into_iter().chain([sync(100, CREATE), ready(110), end(120, 10, Function::Sync)]));
    assert_eq!(assembler.take_finished(), []);
    assert_eq!(assembler.account(), Account { events: 5, skipped: 5, ..Account::default() });
    assert_eq!(assembler.stats().skipped, 1);
}

fn refused() -> [Event; 2] {
    let [begin, mut end] = admitted();
    end.values.set(Value::Admitted, false);
    [begin, with(end, Value::Reason, "OutOfcpu")]
}

#[test]
fn a_pod_that_is_not_admitted_has_a_start_that_says_why() {
    let mut assembler = after(refused());
    assert_eq!(assembler.take_finished(), []);
    assembler.on(with(status(30), Value::Phase, "Failed"));
    let start = one(&mut assembler);
    assert_eq!(
        (start.end, start.end_ns, start.calls[0].failure.as_deref()),
        (End::Rejected, 20, Some("OutOfcpu"))
    );
}

#[test]
fn a_pod_that_runs_is_not_admitted_again_when_it_is_to_have_other_resources() {
    let deeper = |mut event: Event| {
        (event.time_ns, event.depth) = (event.time_ns + 100, 20);
        event
    };
    let resize = || refused().map(deeper);
    let [begin, refusal] = resize();
    let mut assembler = after([sync(100, 0), begin, refusal, ready(150), end(160, 10, Function::Sync)]);
    assert_eq!(assembler.take_finished(), []);
    assert_eq!(assembler.account(), Account { events: 5, unrelated: 5, ..Account::default() });

    // Its sync may be lost.
    let mut assembler = after(resize().into_iter().chain([ready(150)]));
    assert_eq!(assembler.take_finished(), []);
    assert_eq!(assembler.account(), Account { events: 3, skipped: 3, ..Account::default() });

    let events = admitted().into_iter().chain([sync(100, CREATE)]).chain(resize());
    let events = events.chain(container(130, "spec.containers{web}")).chain([end(300, 10, Function::Sync)]);
    let start = one(&mut after(events.chain([ready(400)])));
    let steps: Vec<_> = start.calls.iter().map(|call| call.step).take(3).collect();
    assert_eq!(
        (start.end, &steps[..]),
        (End::Ready, &[NodeStep::Admission, NodeStep::Sync, NodeStep::Container][..])
    );
}

#[test]
fn a_container_is_of_the_kind_whose_list_it_lies_in() {
    let of = |lists: [u64; 3], at: u64| {
        let [init, containers, ephemeral] = lists;
        let values = of_pod()
            .with(Value::Container, "web")
            .with(Value::Image, "shop:1")
            .with(Value::ContainerAt, at)
            .with(Value::InitContainersAt, init)
            .with(Value::ContainersAt, containers)
            .with(Value::EphemeralContainersAt, ephemeral);
        let events = [
            sync(100, CREATE),
            entry(110, 20, Function::Container, of_pod()),
            entry(120, 30, Function::Image, values),
            end(130, 30, Function::Image),
            end(140, 20, Function::Container),
            end(150, 10, Function::Sync),
        ];
        let start = one(&mut after(events.into_iter().chain([ready(160)])));
        let call = &start.calls[1];
        assert_eq!((call.container.as_deref(), call.image.as_deref()), (Some("web"), Some("shop:1")));
        call.step
    };
    let (init, other) = (NodeStep::InitContainer, NodeStep::Container);
    assert_eq!([of([100, 900, 0], 100), of([100, 900, 0], 500), of([100, 900, 0], 900)], [init, init, other]);
    assert_eq!([of([900, 100, 0], 500), of([900, 100, 0], 1_000)], [other, init]);
    assert_eq!(
        [of([0, 100, 0], 500), of([100, 900, 300], 300), of([100, 900, 300], 200)],
        [other, other, init]
    );
}

#[test]
fn a_pod_that_fails_or_succeeds_is_not_waited_for() {
    for (phase, expected) in [("Failed", End::Failed), ("Succeeded", End::Succeeded), ("Pending", End::Lost)]
    {
        let events = [sync(100, CREATE)].into_iter().chain(container(110, "spec.containers{web}"));
        let mut assembler =
            after(events.chain([end(190, 10, Function::Sync), with(status(200), Value::Phase, phase)]));
        assembler.exit(1);
        assert_eq!(one(&mut assembler).end, expected, "{phase}");
    }
}

#[test]
fn a_deleted_pod_is_not_waited_for() {
    let events = [sync(100, CREATE)].into_iter().chain(container(110, "spec.containers{web}"));
    let deleted = [end(190, 10, Function::Sync), entry(200, 10, Function::Terminate, of_pod())];
    let start = one(&mut after(events.chain(deleted)));
    assert_eq!((start.end, start.end_ns), (End::Deleted, 200));
}

#[test]
fn an_image_is_pulled_on_a_goroutine_of_its_own() {
    let pull = |time_ns, role| {
        let values =
            if role == Role::Entry { of_pod().with(Value::Image, "shop:1") } else { Values::default() };
        event(time_ns, 8, 40, (Function::PullImage, role), values)
    };
    let [begin, image, image_end, ..] = container(110, "spec.containers{web}");
    let fails = failed(end(190, 20, Function::Container), "ErrImagePull");
    let mut assembler = after([
        sync(100, CREATE),
        begin,
        image,
        pull(122, Role::Entry),
        failed(pull(125, Role::Ret), "no such host"),
        failed(image_end, "ErrImagePull"),
        fails,
        failed(end(195, 10, Function::Sync), ""),
    ]);
    assembler.expire(100 + LIMIT_NS);
    assert_eq!(assembler.take_finished(), []);
    assembler.expire(101 + LIMIT_NS);
    let start = one(&mut assembler);
    assert_eq!((start.end, start.end_ns, start.incomplete), (End::Unfinished, 101 + LIMIT_NS, false));
    assert_eq!(calls(&start)[3], (NodeStep::PullImage, None, Some(NodeStep::Image)));
    let failures: Vec<_> = start.calls.iter().map(|call| call.failure.as_deref()).collect();
    assert_eq!(failures, [Some(""), Some("ErrImagePull"), Some("ErrImagePull"), Some("no such host")]);
}

#[test]
fn a_start_that_a_call_outlasts_is_waited_for_a_minute() {
    let events = [sync(100, CREATE)].into_iter().chain(container(110, "spec.containers{web}"));
    let mut assembler = after(events.chain([ready(SECOND)]));
    assembler.expire(SECOND + DELAY_NS);
    assert_eq!(assembler.take_finished(), []);
    assembler.expire(SECOND + DELAY_NS + 1);
    let start = one(&mut assembler);
    assert_eq!((start.end, start.incomplete, start.calls[0].end_ns), (End::Ready, true, None));
    // Its end is not that of the next start.
    assembler.on(sync(2 * SECOND, CREATE));
    assembler.on(end(3 * SECOND, 10, Function::Sync));
    assembler.exit(1);
    assert_eq!(assembler.take_finished(), []);
    assert_eq!(assembler.account().open(), 0);
}

#[test]
fn readiness_is_a_condition_that_the_pod_has() {
    let of = |count: u64, (typ, status)| {
        let values = of_pod()
            .with(Value::Conditions, count)
            .with(Value::FourthType, typ)
            .with(Value::FourthStatus, status);
        super::end_of(&values)
    };
    assert_eq!(of(4, READY), Some(End::Ready));
    // The memory behind the list, `Initialized`, and `False`.
    assert_eq!([of(3, READY), of(4, (11, 4)), of(4, (5, 5))], [None; 3]);
}

#[test]
fn a_start_has_only_so_many_calls() {
    let probe = |number: usize| {
        let time_ns = 1_000 + 10 * number as u64;
        [entry(time_ns, 10, Function::Probe, of_pod()), end(time_ns + 5, 10, Function::Probe)]
    };
    let events = [sync(100, CREATE)].into_iter().chain(container(110, "spec.containers{web}"));
    let events = events.chain([end(190, 10, Function::Sync)]).chain((0..MAX_CALLS).flat_map(probe));
    let mut assembler = after(events.chain([ready(SECOND)]));
    let start = one(&mut assembler);
    assert_eq!((start.calls.len(), start.left_out), (MAX_CALLS, 5));
    assert_eq!((assembler.account().no_room, assembler.stats().table_full), (10, 10));
}
