//! The followed Pods, and which of them are complete. Pure, and bounded in number and bytes.

use std::collections::HashMap;

use spans::Trace;

use super::{
    attempt::Attempt,
    pod::Pod,
    progress::{Common, Progress},
};
use crate::{LifecycleEnd, Loss, Metrics};

/// Most Pods that are followed at once; some 2 kB each.
const MAX_PODS: usize = 20_000;
/// Most bytes of all of them.
const MAX_BYTES: usize = 64 << 20;
/// Delay from the end of a Pod whose binding was traced to its export: attempts arrive seconds after their end.
const SETTLE_NS: u64 = 3_000_000_000;
/// The same delay where the binding was not traced, or where only attempts of the Pod are known.
const LATE_NS: u64 = 15_000_000_000;

/// The followed Pods by UID. Times are nanoseconds since the Unix epoch.
#[derive(Debug)]
pub(super) struct Table {
    /// Boxed: half of a table is empty at times, and it does not shrink.
    table: HashMap<Box<str>, Box<Progress>>,
    /// What the followed Pods have in common.
    common: Common,
    bytes: usize,
    /// Number of the current or last list.
    list: u64,
    /// Whether that list is incomplete, as it is at first: which Pods exist is unknown until then.
    listing: bool,
    metrics: Metrics,
}

impl Table {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { table: HashMap::new(), common: Common::default(), bytes: 0, list: 0, listing: true, metrics }
    }

    /// A Pod was created or has changed. Returns whether it is followed from now on: a Pod that runs already when it is first seen
    /// is not, since the time of its readiness is unknown.
    pub(super) fn seen(&mut self, pod: &Pod, now_ns: u64) -> bool {
        let Some(uid) = pod.metadata.uid.as_deref() else { return false };
        let pending = ["", "Pending"].contains(&pod.status.phase.as_str());
        let (list, mut new) = (self.list, false);
        self.change(uid, now_ns, pending, |progress, common, _| {
            new = progress.about.is_none();
            progress.list = list;
            progress.see(pod, now_ns, common);
        });
        new
    }

    /// A Pod is deleted.
    pub(super) fn gone(&mut self, pod: &Pod, now_ns: u64) {
        let Some(uid) = pod.metadata.uid.as_deref() else { return };
        // The event of the deletion may carry a newer status.
        self.change(uid, now_ns, false, |progress, common, _| {
            progress.see(pod, now_ns, common);
            progress.gone(now_ns);
        });
    }

    /// An attempt was traced.
    pub(super) fn attempt(&mut self, trace: &Trace, now_ns: u64) {
        if let Some((uid, attempt)) = Attempt::of(trace) {
            self.change(uid, now_ns, true, |progress, _, room| progress.attempt(attempt, room));
        }
    }

    /// A new list begins.
    pub(super) fn list_begins(&mut self) {
        self.list += 1;
        self.listing = true;
    }

    /// A list is complete: Pods that are not in it are deleted.
    pub(super) fn list_ends(&mut self, now_ns: u64) {
        self.listing = false;
        for progress in self.table.values_mut() {
            if progress.about.is_none() {
                // An attempt during the list: its Pod may follow by the watch.
                progress.last_ns = now_ns;
            } else if progress.list < self.list {
                progress.gone(now_ns);
            }
        }
    }

    /// No list is possible, maybe for long: Pods of which only attempts are known are no longer kept for it.
    pub(super) fn list_fails(&mut self) {
        self.listing = false;
    }

    /// Removes and returns the complete Pods; with `last` without the delay.
    pub(super) fn due(&mut self, now_ns: u64, last: bool) -> Vec<(Box<str>, Box<Progress>)> {
        let due = self.table.extract_if(|_, progress| {
            let lacking = progress.about.is_none() || progress.binding().is_none() && progress.node.is_some();
            let wait = if lacking { LATE_NS } else { SETTLE_NS };
            let over = progress.end.is_some() || progress.about.is_none() && !self.listing;
            over && (last || now_ns.saturating_sub(progress.last_ns) >= wait)
        });
        let due: Vec<_> = due.collect();
        let mut complete = Vec::new();
        for (uid, progress) in due {
            self.bytes -= uid.len() + progress.bytes();
            let Some((end, _)) = progress.end else {
                self.metrics.lost(Loss::Unknown);
                continue;
            };
            // A Pod with a Node was bound by a scheduler that this daemon does not trace, or by hand.
            let ours =
                progress.binding().is_some() || progress.node.is_none() && !progress.attempts.is_empty();
            self.metrics.ended(if ours { end } else { LifecycleEnd::Elsewhere });
            if ours {
                complete.push((uid, progress));
            }
        }
        self.metrics.set_followed(self.table.len());
        complete
    }

    /// Changes what is known of a Pod and keeps count of the bytes. An unknown Pod is added only if `new`. `change` gets whether
    /// there is room for more than what is necessary.
    fn change(
        &mut self,
        uid: &str,
        now_ns: u64,
        new: bool,
        change: impl FnOnce(&mut Progress, &mut Common, bool),
    ) {
        let room = self.bytes < MAX_BYTES;
        if !self.table.contains_key(uid) {
            if !new {
                return;
            }
            if !room || self.table.len() == MAX_PODS {
                self.metrics.lost(Loss::TableFull);
                return;
            }
            let progress = Box::new(Progress::new(now_ns));
            self.bytes += uid.len() + progress.bytes();
            self.table.insert(uid.into(), progress);
        }
        if let Some(progress) = self.table.get_mut(uid) {
            let before = progress.bytes();
            change(progress, &mut self.common, room);
            self.bytes = self.bytes + progress.bytes() - before;
        }
    }
}
