//! Ctrl-C and SIGTERM.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, Result};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

/// Turns Ctrl-C and SIGTERM into a flag.
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Sets the flag on the first signal. The second signal ends the process, in case it ignores the flag.
    ///
    /// # Errors
    ///
    /// If the handlers cannot be installed.
    pub fn catch() -> Result<Self> {
        let caught = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: at the first signal the flag is not set yet.
            flag::register_conditional_default(signal, Arc::clone(&caught))
                .and_then(|_| flag::register(signal, Arc::clone(&caught)))
                .context("cannot catch signals")?;
        }
        Ok(Self(caught))
    }

    /// Whether a signal has arrived.
    pub fn caught(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
