//! Batches wake-ups: waking costs more than handling a watch event.

use std::{
    cell::Cell,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// Interval between two wake-ups: the longest that a reader of live output does not notice.
const INTERVAL: Duration = Duration::from_millis(100);
/// The same where no output is read as it comes: each wake-up is a cold start, which takes longer than the work on an attempt. Shorter than
/// the time for which a part of the ring buffer is kept for processes that send little: four windows of `wire::WINDOW_SHIFT`.
///
/// Three of them are less than a second and a half: an attempt is complete at the second wake-up after its end at the latest, and its batch is
/// sent at the next.
const SELDOM: Duration = Duration::from_millis(480);

static GUARDS: AtomicUsize = AtomicUsize::new(0);
static IS_SELDOM: AtomicBool = AtomicBool::new(false);
/// The thread that [`throttle`] lets sleep.
static SLEEPER: OnceLock<Thread> = OnceLock::new();

/// From here on wake-ups are fewer. For a daemon whose output has no reader.
pub fn seldom() {
    IS_SELDOM.store(true, Relaxed);
}

/// Shortest interval between two wake-ups.
#[must_use]
pub fn interval() -> Duration {
    if IS_SELDOM.load(Relaxed) { SELDOM } else { INTERVAL }
}

/// Whether what happens at such intervals is due: at the wake-up that is nearest, and a little earlier rather than one later.
#[must_use]
pub fn is_due(last: Instant, every: Duration) -> bool {
    last.elapsed() + interval() / 10 >= every
}

/// Sleeps until this interval after the last call, or until [`wake`], so that all events of that time are handled at once. Returns at
/// once while an [`Unthrottled`] exists. Call it before the thread waits for events; only one thread may.
pub fn throttle() {
    thread_local! {
        static LAST: Cell<Instant> = Cell::new(Instant::now());
    }
    let _same = SLEEPER.get_or_init(thread::current);
    if GUARDS.load(Relaxed) == 0 {
        thread::park_timeout(interval().saturating_sub(LAST.get().elapsed()));
    }
    LAST.set(Instant::now());
}

/// Ends the sleep of [`throttle`]: what another thread has batched need not wait for a second batch.
pub fn wake() {
    if let Some(sleeper) = SLEEPER.get() {
        sleeper.unpark();
    }
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
