//! A case is a list of events of API servers: of few goroutines, with few different values, so that some belong together.

use std::{hint::black_box, sync::Arc};

use arbitrary::{Result, Unstructured};
use gotrace::{
    Event, Role, Values,
    program::{Assemble as _, Function as _},
};
use kube_apiserver::{
    KubeApiserver,
    storage::{Assembler, Stored},
    table::Function,
    values::Value,
};
use spans::{Anchor, Origin, Story as _, export::waterfall, identity::LifecycleTrace, story::Extras};

use crate::recording::{STYLE, check};

/// Numbers of the processes.
const TARGETS: [u32; 2] = [0, 1];
/// Numbers of the goroutines, which start each other.
const GOROUTINES: [u64; 4] = [1, 2, 3, 4];
const ROLES: [Role; 6] =
    [Role::Entry, Role::ReturnSite, Role::NextEntry, Role::Ret, Role::InTurn, Role::Metric];
/// From one event to the next, nanoseconds. The last one is longer than the API server has for a request.
const PAUSES: [u64; 4] = [10, 0, 1_000_000, 61_000_000_000];
const NUMBERS: [(Value, &[u64]); 8] = [
    (Value::ResourceLength, &[4, 6]),
    (Value::SubresourceLength, &[0, 6]),
    (Value::StepLength, &[5, 8, 0]),
    (Value::Elapsed, &[5, 0, 61_000_000_000, u64::MAX]),
    (Value::Code, &[200, 0, 500]),
    (Value::Parent, &GOROUTINES),
    (Value::VersionLength, &[3, 0]),
    (Value::Failed, &[0, 1]),
];
const FLAGS: [Value; 2] = [Value::Rejected, Value::Created];
const TEXTS: [(Value, &[&str]); 10] = [
    (Value::Operation, &["CREATE", "UPDATE"]),
    (Value::Resource, &["pods", "jobs"]),
    (Value::User, &["alice", "", "\u{0}"]),
    (Value::Webhook, &["changes", "checks"]),
    (Value::Key, &["/pods/shop/web-0", "/jobs/shop/once", "/pods/", ""]),
    (Value::ObjectUid, &["uid-1", "uid-2", ""]),
    (Value::OwnerUid, &["owner", ""]),
    (Value::Namespace, &["shop", ""]),
    (Value::Name, &["web-0", ""]),
    (Value::Manager, &["kubectl", ""]),
];
const TYPES: [&str; 2] = ["*core.Pod", "*core.Lease"];

/// Puts the events together, and makes of Pods that are stored whatever the daemon makes of them.
///
/// # Panics
///
/// If an event is unaccounted for, or a trace is not well formed.
pub fn run(case: &[u8]) {
    let (mut assembler, mut stored, mut events) = (Assembler::default(), Vec::new(), 0);
    // A case that is too short has fewer events.
    let _short = feed(&mut Unstructured::new(case), &mut assembler, &mut stored, &mut events);
    TARGETS.into_iter().for_each(|target| assembler.exit(target));
    stored.extend(assembler.take_finished());
    let account = assembler.account();
    assert_eq!((account.events, account.open()), (events, 0), "{account:?}");
    assert_eq!(account.in_attempts, stored.iter().map(|stored| stored.events).sum::<u64>());
    black_box(assembler.counts());
    for stored in stored {
        for lifecycle in [LifecycleTrace::Pod, LifecycleTrace::Owner] {
            let extras = Extras { monotonic: true, lifecycle, ..Extras::default() };
            let trace = stored.trace(Anchor::default(), Origin::default(), extras);
            check(&trace);
            black_box(waterfall(&trace, &STYLE));
        }
    }
}

fn feed(
    case: &mut Unstructured<'_>,
    assembler: &mut Assembler,
    stored: &mut Vec<Stored>,
    events: &mut u64,
) -> Result<()> {
    let mut time_ns = 0_u64;
    while !case.is_empty() {
        match case.int_in_range(0..=15)? {
            0 => assembler.expire(time_ns),
            1 => assembler.exit(*case.choose(&TARGETS)?),
            // The clocks of two CPUs may disagree.
            2 => time_ns = case.arbitrary()?,
            3 => time_ns = time_ns.wrapping_add(*case.choose(&PAUSES)?),
            _ => {
                time_ns = time_ns.wrapping_add(PAUSES[0]);
                assembler.on(event(case, time_ns)?);
                *events += 1;
            }
        }
        stored.extend(assembler.take_finished());
    }
    Ok(())
}

fn event(case: &mut Unstructured<'_>, time_ns: u64) -> Result<Event<KubeApiserver>> {
    let function = *case.choose(Function::ALL)?;
    let (target, goroutine) = (*case.choose(&TARGETS)?, *case.choose(&GOROUTINES)?);
    let (role, depth) = (*case.choose(&ROLES)?, case.int_in_range(0..=1)?);
    let last_loss = u64::from(case.int_in_range(0..=15)? == 15);
    let mut values = Values::default();
    for (value, few) in NUMBERS {
        match case.int_in_range(0..=15)? {
            0 => {}
            1 => values.set(value, case.arbitrary::<u64>()?),
            place => values.set(value, few[(place - 2) % few.len()]),
        }
    }
    for value in FLAGS {
        match case.int_in_range(0..=3)? {
            0 => {}
            other => values.set(value, other == 3),
        }
    }
    for (value, few) in TEXTS {
        match case.int_in_range(0..=15)? {
            0 => {}
            1 => values.set(value, case.arbitrary::<&str>()?),
            place => values.set(value, few[(place - 2) % few.len()]),
        }
    }
    if let Some(typ) = TYPES.get(case.int_in_range(0..=2)?) {
        values.set(Value::ObjectType, Arc::<str>::from(*typ));
    }
    Ok(Event { target, time_ns, goroutine, depth, function, role, took_ns: 0, last_loss, values })
}
