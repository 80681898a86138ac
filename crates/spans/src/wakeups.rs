//! How often the daemon wakes up: an event of a watch takes it microseconds, to wake up for one a multiple of that.

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// Between two times that it looks for what has come over the network.
const PAUSE: Duration = Duration::from_millis(100);

static HURRIES: AtomicUsize = AtomicUsize::new(0);

/// Waits until the last call is a tenth of a second ago, so that what comes meanwhile is dealt with in one go; not at all where
/// somebody is in a [`hurry`]. To be called before the thread waits for events.
pub fn pause() {
    thread_local! {
        static LAST: Cell<Instant> = Cell::new(Instant::now());
    }
    if HURRIES.load(Relaxed) == 0 {
        thread::sleep(PAUSE.saturating_sub(LAST.get().elapsed()));
    }
    LAST.set(Instant::now());
}

/// As long as it lives, there are no pauses: for what goes to and fro before it is done.
#[derive(Debug)]
#[must_use]
pub struct Hurry(());

/// Ends the pauses for a time.
pub fn hurry() -> Hurry {
    HURRIES.fetch_add(1, Relaxed);
    Hurry(())
}

impl Drop for Hurry {
    fn drop(&mut self) {
        HURRIES.fetch_sub(1, Relaxed);
    }
}
