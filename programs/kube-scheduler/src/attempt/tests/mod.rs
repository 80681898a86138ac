//! Tests of the assembler with possible schedules, with scenarios written by hand, and with arbitrary events; and of its
//! bounds.

mod any_events;
mod cuts;
mod limits;
mod panics;
mod scenarios;
mod schedules;

use gotrace::Role;
use proptest::prelude::ProptestConfig;

use super::Call;
use crate::{Event, Values, table::Function, values::Value};

/// The goroutine of the scheduling loop.
const LOOP: u64 = 1;

/// The number of cases in a release build. A debug build runs a twentieth of them. `PROPTEST_CASES` sets the number for
/// both.
fn config(cases: u32) -> ProptestConfig {
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return ProptestConfig::default();
    }
    ProptestConfig::with_cases(if cfg!(debug_assertions) { cases / 20 } else { cases })
}

pub(super) fn event(goroutine: u64, function: Function, role: Role, depth: u64, values: Values) -> Event {
    Event { target: 0, time_ns: 0, took_ns: 0, goroutine, depth, function, role, last_loss: 0, values }
}

fn status(code: i64) -> Values {
    Values::default().with(Value::StatusCode, code)
}

/// A call that returned, without a status.
pub(super) fn call(function: Function, start_ns: u64, end_ns: u64) -> Call {
    Call {
        function,
        start_ns,
        end_ns,
        plugin: None,
        code: None,
        reason: String::new(),
        extender: None,
        api_call: None,
        returned: true,
        events: 2,
    }
}
