//! Log points, for what the counters only count. The daemon switches them on when it loads the programs; otherwise the
//! verifier removes them, because [`LOG`] is a constant to it.

use aya_ebpf::{Global, macros::map, maps::Array};
use aya_log_ebpf::debug;
use wire::Counter;

use crate::now;

/// Whether to log; the daemon sets it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
static LOG: Global<u8> = Global::new(0);
/// Least time between two lines about the same counter, in nanoseconds: the thread that writes the log is the one that
/// empties the ring buffer.
const INTERVAL_NS: u64 = 10_000_000;
/// The time of the last line about each counter.
#[map]
static LOGGED: Array<u64> = Array::with_max_entries(Counter::ALL.len() as u32, 0);

/// Logs that a hit was lost.
#[inline(always)]
pub(crate) fn loss(loss: Counter, site: u16, target: u32) {
    if LOG.load() == 0 || !is_due(loss) {
        return;
    }
    match loss {
        Counter::RingFull => {
            debug!((), "site {}, target {}: lost a hit, the ring buffer is full", site, target);
        }
        Counter::GoroutineFault => {
            debug!((), "site {}, target {}: lost a hit, its goroutine cannot be read", site, target);
        }
        Counter::OverLimit => {
            debug!((), "site {}, target {}: lost a hit, the process is over its limit", site, target);
        }
        _ => debug!((), "site {}, target {}: lost a hit, there is no such site", site, target),
    }
}

/// Logs that a read met memory that is not resident.
#[inline(always)]
pub(crate) fn fault(read: u32, site: u32, target: u32) {
    if LOG.load() == 0 || !is_due(Counter::ReadFault) {
        return;
    }
    debug!((), "site {}, target {}: read {} met memory that is not resident", site, target, read);
}

/// Whether the last line about this counter is long enough ago.
#[inline(always)]
fn is_due(counter: Counter) -> bool {
    let Some(logged) = LOGGED.get_ptr_mut(counter as u32) else { return false };
    let now = now();
    // SAFETY: the map's value is aligned and outlives the program; it is read in one load and written in one store.
    unsafe {
        let due = now - logged.read_volatile() >= INTERVAL_NS;
        if due {
            logged.write_volatile(now);
        }
        due
    }
}
