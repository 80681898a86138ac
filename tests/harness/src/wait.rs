//! Polling.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

const INTERVAL: Duration = Duration::from_millis(50);

/// Calls `probe` until it returns a value.
///
/// # Errors
///
/// If `probe` fails, or returns nothing within `timeout`: the error then names `what`.
pub fn wait_until<T>(
    what: &str,
    timeout: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = probe()? {
            return Ok(answer);
        }
        ensure!(start.elapsed() < timeout, "timed out after {} s waiting for {what}", timeout.as_secs());
        thread::sleep(INTERVAL);
    }
}
