//! Batches wake-ups: waking costs more than handling a watch event.

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Shortest interval between two wake-ups.
const INTERVAL: Duration = Duration::from_millis(100);

static GUARDS: AtomicUsize = AtomicUsize::new(0);

/// Sleeps until a tenth of a second after the last call, so that all events of that time are handled at once. Returns at once
/// while an [`Unthrottled`] exists. Call it before the thread waits for events.
pub fn throttle() {
    thread_local! {
        static LAST: Cell<Instant> = Cell::new(Instant::now());
    }
    if GUARDS.load(Relaxed) == 0 {
        thread::sleep(INTERVAL.saturating_sub(LAST.get().elapsed()));
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
