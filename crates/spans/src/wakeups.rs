//! Batches wake-ups: waking costs more than handling a watch event.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Interval between two wake-ups: the longest that a reader of live output does not notice.
const INTERVAL: Duration = Duration::from_millis(100);
/// The same where no output is read as it comes: each wake-up is a cold start, which takes longer than the work on an attempt. Shorter than
/// the time for which a part of the ring buffer is kept for processes that send little: four windows of `wire::WINDOW_SHIFT`.
const SELDOM: Duration = Duration::from_millis(250);

static GUARDS: AtomicUsize = AtomicUsize::new(0);
static IS_SELDOM: AtomicBool = AtomicBool::new(false);

/// From here on wake-ups are fewer. For a daemon whose output has no reader.
pub fn seldom() {
    IS_SELDOM.store(true, Relaxed);
}

/// Shortest interval between two wake-ups.
#[must_use]
pub fn interval() -> Duration {
    if IS_SELDOM.load(Relaxed) { SELDOM } else { INTERVAL }
}

/// Sleeps until this interval after the last call, so that all events of that time are handled at once. Returns at once
/// while an [`Unthrottled`] exists. Call it before the thread waits for events.
pub fn throttle() {
    thread_local! {
        static LAST: Cell<Instant> = Cell::new(Instant::now());
    }
    if GUARDS.load(Relaxed) == 0 {
        thread::sleep(interval().saturating_sub(LAST.get().elapsed()));
    }
    LAST.set(Instant::now());
}

/// Guard: no throttling while it exists, for request/response exchanges.
#[derive(Debug)]
#[must_use]
pub struct Unthrottled(());

/// Suspends the throttling until the guard is dropped.
pub fn unthrottled() -> Unthrottled {
    GUARDS.fetch_add(1, Relaxed);
    Unthrottled(())
}

impl Drop for Unthrottled {
    fn drop(&mut self) {
        GUARDS.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_reader_wake_ups_are_fewer() {
        assert_eq!(interval(), INTERVAL);
        seldom();
        assert!(interval() > INTERVAL);
    }
}
