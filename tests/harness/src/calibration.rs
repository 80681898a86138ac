//! How fast the machine is: the CPU time of a computation that is always the same, again and again while something is measured.

use std::{
    hint::black_box,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use rustix::time::{ClockId, clock_gettime};

/// Between two computations.
const PAUSE: Duration = Duration::from_millis(50);
/// Numbers that a computation sorts: few enough for a first-level cache, so that it shows how fast the CPU is, and not what others
/// left in its caches.
const NUMBERS: u64 = 1024;
/// How often it sorts them, always others.
const TURNS: u64 = 16;

/// A thread that computes until this is dropped.
pub struct Calibration(Arc<Mutex<Computed>>);

/// The computations since a calibration began.
#[derive(Clone, Copy, Default)]
pub struct Computed {
    pub computations: u64,
    /// Their CPU time.
    pub nanoseconds: u64,
}

impl Calibration {
    pub fn start() -> Self {
        let all = Arc::<Mutex<Computed>>::default();
        let weak = Arc::downgrade(&all);
        thread::spawn(move || {
            while let Some(all) = weak.upgrade() {
                let before = cpu_nanoseconds();
                compute();
                let nanoseconds = cpu_nanoseconds() - before;
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.computations += 1;
                all.nanoseconds += nanoseconds;
                drop(all);
                thread::sleep(PAUSE);
            }
        });
        Self(all)
    }

    pub fn computed(&self) -> Computed {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Computed {
    /// The mean CPU time of the computations after an earlier reading, in microseconds.
    ///
    /// # Errors
    ///
    /// If there was none.
    pub fn mean_us_since(&self, earlier: &Self) -> Result<f64> {
        let computations = self.computations - earlier.computations;
        ensure!(computations > 0, "nothing was computed while the round was measured: it was too short");
        Ok((self.nanoseconds - earlier.nanoseconds) as f64 / computations as f64 / 1e3)
    }
}

/// Sorts the same numbers each time.
fn compute() {
    let multiplied = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    for turn in 0..TURNS {
        let mut numbers: Vec<_> = (turn * NUMBERS..(turn + 1) * NUMBERS).map(multiplied).collect();
        numbers.sort_unstable();
        black_box(numbers);
    }
}

/// The CPU time of this thread.
fn cpu_nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computation_takes_cpu_time() {
        let calibration = Calibration::start();
        let earlier = calibration.computed();
        while calibration.computed().computations < earlier.computations + 2 {
            thread::sleep(PAUSE);
        }
        assert!(calibration.computed().mean_us_since(&earlier).unwrap() > 1.0);
        assert!(earlier.mean_us_since(&earlier).is_err());
    }

    #[test]
    fn its_thread_ends_when_it_is_dropped() {
        let calibration = Calibration::start();
        let weak = Arc::downgrade(&calibration.0);
        drop(calibration);
        while weak.upgrade().is_some() {
            thread::sleep(PAUSE);
        }
    }
}
