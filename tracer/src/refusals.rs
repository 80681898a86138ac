//! Processes that cannot be traced, and when each is tried again.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use gotrace::discover::ProcessId;

/// Pause before the first new try. Each further pause is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST: Duration = Duration::from_secs(300);

/// Processes that are refused.
#[derive(Debug, Default)]
pub struct Refusals(HashMap<ProcessId, Refusal>);

#[derive(Debug)]
struct Refusal {
    again: Instant,
    pause: Duration,
    why: String,
}

impl Refusals {
    /// Whether a process may be tried now.
    pub fn is_due(&self, process: ProcessId, now: Instant) -> bool {
        self.0.get(&process).is_none_or(|refusal| refusal.again <= now)
    }

    /// Notes a refusal. Returns the pause if this is the first one for this reason, which is to be said.
    pub fn refuse(&mut self, process: ProcessId, why: &str, now: Instant) -> Option<Duration> {
        let before = self.0.get(&process);
        let pause = before.map_or(FIRST, |before| (before.pause * 2).min(LONGEST));
        let is_new = before.is_none_or(|before| before.why != why);
        self.0.insert(process, Refusal { again: now + pause, pause, why: why.to_owned() });
        is_new.then_some(pause)
    }

    /// Notes that a process is traced.
    pub fn accept(&mut self, process: ProcessId) {
        self.0.remove(&process);
    }

    /// Forgets the processes that have ended.
    pub fn retain(&mut self, running: &HashSet<ProcessId>) {
        self.0.retain(|process, _| running.contains(process));
    }

    /// How many are refused.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ProcessId = ProcessId { pid: 7, start_ticks: 1 };

    #[test]
    fn a_refusal_is_tried_again_ever_more_rarely_and_said_once() {
        let start = Instant::now();
        let (mut refusals, mut now, mut said, mut tries) = (Refusals::default(), start, 0, 0);
        while now < start + Duration::from_secs(1_000) {
            if refusals.is_due(PROCESS, now) {
                tries += 1;
                said += usize::from(refusals.refuse(PROCESS, "no room", now).is_some());
            }
            now += Duration::from_secs(1);
        }
        // After 0, 1, 3, 7, ..., 255, 511 and 811 seconds.
        assert_eq!((tries, said), (11, 1));
        assert!(refusals.refuse(PROCESS, "another reason", now).is_some());
    }

    #[test]
    fn who_is_accepted_or_gone_is_refused_no_more() {
        let now = Instant::now();
        let mut refusals = Refusals::default();
        refusals.refuse(PROCESS, "", now);
        assert!(!refusals.is_due(PROCESS, now));
        assert!(
            refusals.is_due(ProcessId { start_ticks: 2, ..PROCESS }, now),
            "another process with this pid"
        );
        refusals.accept(PROCESS);
        assert!(refusals.is_due(PROCESS, now));
        refusals.refuse(PROCESS, "", now);
        refusals.retain(&HashSet::new());
        assert_eq!(refusals.count(), 0);
    }
}
