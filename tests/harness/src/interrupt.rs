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

/// Turns Ctrl-C and SIGTERM from an end into a question.
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on neither ends xtask at once; the second of them does, in case the first is not heeded.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn catch() -> Result<Self> {
        let caught = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first one finds the flag not yet set.
            flag::register_conditional_default(signal, Arc::clone(&caught))
                .and_then(|_| flag::register(signal, Arc::clone(&caught)))
                .context("cannot catch signals")?;
        }
        Ok(Self(caught))
    }

    /// Whether one of them came.
    pub fn caught(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
