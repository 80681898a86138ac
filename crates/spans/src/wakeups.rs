//! Batches wake-ups: waking costs more than handling a watch event.

use std::{
    cell::Cell,
    pin::pin,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use tokio::time::timeout;

/// Interval between two wake-ups: the longest that a reader of live output does not notice.
const INTERVAL: Duration = Duration::from_millis(100);
/// The same where no output is read as it comes: each wake-up is a cold start, which takes longer than the work on an attempt. Shorter than
/// the time for which a part of the ring buffer is kept for processes that send little: four windows of `wire::WINDOW_SHIFT`.
const SELDOM: Duration = Duration::from_millis(500);
/// Longest time without pauses for one exchange, and from an answer to the next question. Most exchanges need some milliseconds; one that hangs
/// costs no wake-ups.
const PROMPT: Duration = Duration::from_secs(1);

static GUARDS: AtomicUsize = AtomicUsize::new(0);
static IS_SELDOM: AtomicBool = AtomicBool::new(false);
/// There is no throttling before this time.
static PROMPT_UNTIL: Mutex<Option<Instant>> = Mutex::new(None);
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

/// Sleeps until this interval after the last call, or until [`wake`], so that all events of that time are handled at once. Returns at
/// once while an [`Unthrottled`] exists, and for a second after [`prompt`]. Call it before the thread waits for events; only one thread may.
pub fn throttle() {
    thread_local! {
        static LAST: Cell<Instant> = Cell::new(Instant::now());
    }
    let _same = SLEEPER.get_or_init(thread::current);
    let until = *PROMPT_UNTIL.lock().unwrap_or_else(PoisonError::into_inner);
    if GUARDS.load(Relaxed) == 0 && until.is_none_or(|until| until <= Instant::now()) {
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

/// Suspends the throttling for a second: a client that was answered may ask again.
pub fn prompt() {
    *PROMPT_UNTIL.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + PROMPT);
}

/// Completes an exchange of several steps, the first second of it without throttling: each step would wait for the next wake-up.
pub async fn at_once<T>(exchange: impl Future<Output = T>) -> T {
    let unthrottled = unthrottled();
    let mut exchange = pin!(exchange);
    match timeout(PROMPT, &mut exchange).await {
        Ok(done) => done,
        Err(_) => {
            drop(unthrottled);
            exchange.await
        }
    }
}

/// Guard: no throttling while it exists.
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
