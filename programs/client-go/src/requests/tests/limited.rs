//! Requests that a rate limiter makes wait.

use super::*;

#[test]
fn waits_for_rate_limiters_are_those_of_the_request_that_is_answered_next() {
    let request = only([limited(30, 1, 7), answered([20, 90], 1, "a", 200), decoded(95, 1, "u-1")]);
    assert_eq!((request.start_ns, request.limited_ns, request.end_ns, request.events), (20, 7, 95, 3));
    let request = only([
        limited(30, 1, 7),
        answered([20, 60], 1, "a", 429),
        limited(65, 1, 8),
        limited(70, 1, 9),
        answered([20, 90], 1, "a", 200),
    ]);
    assert_eq!((request.attempts, request.limited_ns, request.events), (2, 24, 5));
}

#[test]
fn a_wait_before_a_request_or_on_another_goroutine_is_not_its_own() {
    let other = answered([25, 95], 2, "b", 200);
    let waits = [limited(15, 1, 7), limited(30, 2, 7), limited(31, 1, 5)];
    let request = only(waits.into_iter().chain([answered([20, 90], 1, "a", 200), other]));
    assert_eq!((request.limited_ns, request.events), (5, 2));
    let many = (0..MAX_WAITS as u64 + 3).map(|number| limited(30 + number, 1, 1));
    let request = only(many.chain([answered([20, 90], 1, "a", 200)]));
    assert_eq!((request.limited_ns, request.events), (16, 17));
}

#[test]
fn a_start_by_another_clock_is_never_after_the_answer() {
    let request = only([answered([95, 90], 1, "a", 200)]);
    assert_eq!((request.start_ns, request.end_ns), (90, 90));
}

#[test]
fn waits_that_lead_to_no_request_are_bounded_and_given_up() {
    const PROCESSES: u32 = 64;
    const HOUR: u64 = 3_600_000_000_000;
    let others = (2..=PROCESSES).map(|target| Event { target, ..limited(10, 7, 1) });
    let part = MAX_OPEN as u64 / u64::from(PROCESSES);
    let mut assembler = after(others.chain((0..part + 3).map(|goroutine| limited(20, 100 + goroutine, 1))));
    assert_eq!((assembler.stats().table_full, assembler.account().no_room), (3, 3));
    assembler.expire(HOUR + 15);
    assert_eq!(assembler.account().open(), part);
    assembler.exit(1);
    assert_eq!((assembler.account().open(), assembler.account().in_attempts), (0, 0));
}
