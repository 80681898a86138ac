//! Calls that are timed one by one for one turn of a process.
//!
//! The daemon attaches this program between two turns and arms the window. The next turn opens it, and the end of that turn
//! closes it: however long attaching takes, exactly one turn is covered. The sums stay here until the daemon reads them.
//!
//! A hit takes longer than many of the calls. What is between the end of one program and the begin of the next one belongs to the
//! probes, too. Between the end of a call and the begin of the next one the process does next to nothing else: what that takes
//! is measured on each CPU, and taken off the calls, with what a probe on a begin takes more than one on an end.

use aya_ebpf::{
    EbpfContext as _,
    helpers::bpf_get_attach_cookie,
    macros::{map, uprobe},
    maps::{Array, HashMap, PerCpuArray, PerCpuHashMap},
    programs::ProbeContext,
};
use wire::window::{
    ARMED, BROKEN, Caller, Kind, MAX_CALLERS, MAX_MARKS, MAX_SUMS, Mark, NO_END, OPEN, OVER, OpenCall, SLOTS,
    Sum, SumKey, TimedSite, Window,
};

use crate::{
    G_STACK_HI, SITES, now, read_word,
    regs::{self, REGISTERS},
    target, walk,
};

/// The longest time between two calls that counts as that of a probe: a longer one was interrupted, or the process did something.
const LONGEST_PROBE_NS: u64 = 16_384;
/// Hits of a call.
const HITS_PER_CALL: u64 = 2;
/// What a probe is known to take comes nearer to what the last one took by so many nanoseconds, so that it is about the median: a
/// longer way between two calls does not count for more than any other.
const STEP_NS: u64 = 4;
/// Downwards, it comes nearer by this part of the difference at least: the first one may have been interrupted.
const PART: u64 = 16;

/// One value: the window.
#[map]
static WINDOW: Array<Window> = Array::with_max_entries(1, 0);
/// Calls that have begun, by goroutine.
#[map]
static OPEN_CALLS: HashMap<Caller, OpenCall> = HashMap::with_max_entries(MAX_CALLERS, 0);
/// The sums of calls that have ended.
#[map]
static SUMS: PerCpuHashMap<SumKey, Sum> = PerCpuHashMap::with_max_entries(MAX_SUMS, 0);
/// The probes' time on this CPU.
#[map]
static PROBE_TIME: PerCpuArray<ProbeTime> = PerCpuArray::with_max_entries(1, 0);

/// How long a probe takes outside of this program.
#[derive(Clone, Copy)]
struct ProbeTime {
    /// The goroutine whose call has ended last.
    g: u64,
    /// End of that hit.
    end_ns: u64,
    /// What a probe takes, nanoseconds; 0 as long as that is not known.
    known_ns: u64,
}

#[uprobe(multi)]
#[expect(clippy::needless_pass_by_value, reason = "the macro passes the context by value")]
fn on_timed(ctx: ProbeContext) -> u32 {
    // The probe's own time is not part of a call that ends here.
    let time_ns = now();
    if let Some(window) = WINDOW.get_ptr_mut(0) {
        timed(&ctx, window, time_ns);
    }
    0
}

#[inline(always)]
fn timed(ctx: &ProbeContext, window: *mut Window, time_ns: u64) -> Option<()> {
    // SAFETY: the context is the one that the kernel passed in.
    let site = TimedSite::of(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) })?;
    // SAFETY: the map's value is aligned and outlives the program; each field is read in one load.
    let (state, wanted) = unsafe {
        ((&raw const (*window).state).read_volatile(), (&raw const (*window).target).read_volatile())
    };
    if state != OPEN && (state != ARMED || site.kind != Kind::TurnBegins) {
        return None;
    }
    // SAFETY: as above.
    let number = unsafe { (&raw const (*target()?).number).read_volatile() };
    if number != wanted {
        return None;
    }
    match site.kind {
        Kind::TurnBegins => {
            // SAFETY: the map's value is aligned and outlives the program; turns are serial, so that one CPU writes it.
            unsafe {
                let next = if state == ARMED { OPEN } else { BROKEN };
                (&raw mut (*window).begin_ns).write_volatile(time_ns);
                (&raw mut (*window).state).write_volatile(next);
            }
        }
        Kind::TurnEnds => {
            // SAFETY: as above.
            unsafe {
                (&raw mut (*window).end_ns).write_volatile(time_ns);
                (&raw mut (*window).state).write_volatile(OVER);
            }
        }
        Kind::PhaseEnds => {
            // SAFETY: as above; the phases of a turn are serial. The index is masked to the length of the list.
            unsafe {
                let len = (&raw const (*window).marks_len).read_volatile();
                if len >= MAX_MARKS as u32 {
                    lose(window);
                } else {
                    let mark = &raw mut (*window).marks[len as usize & (MAX_MARKS - 1)];
                    mark.write_volatile(Mark { time_ns, function: site.function.into() });
                    (&raw mut (*window).marks_len).write_volatile(len + 1);
                }
            }
        }
        Kind::CallBegins => begin(ctx, site, window, time_ns)?,
        Kind::CallEnds => end(ctx, site, window, time_ns)?,
    }
    Some(())
}

#[inline(always)]
fn begin(ctx: &ProbeContext, site: TimedSite, window: *mut Window, time_ns: u64) -> Option<()> {
    let g = regs::g(ctx);
    let probe_ns = probe_time(g, time_ns)?;
    let Some((value, depth)) = read(ctx, site, g) else {
        lose(window);
        return None;
    };
    let caller = Caller { g, function: site.function.into() };
    if OPEN_CALLS.get_ptr_mut(&caller).is_none()
        && OPEN_CALLS.insert(&caller, &OpenCall::default(), 0).is_err()
    {
        lose(window);
        return None;
    }
    let open = OPEN_CALLS.get_ptr_mut(&caller)?;
    // SAFETY: the map's value is aligned and is not removed while the window is open; the entry is this goroutine's own.
    let before = unsafe { *open };
    if before.begin_ns != 0 {
        // A panic has left it.
        let sum = sum_of(window, site, before.begin, NO_END)?;
        // SAFETY: as in `end`.
        unsafe {
            (*sum).calls += 1;
            (*sum).probes_ns += (HITS_PER_CALL - 1) * before.probe_ns + before.program_ns;
        }
    }
    // SAFETY: as above. The time is taken last.
    unsafe {
        (&raw mut (*open).begin).write_volatile(value);
        (&raw mut (*open).depth).write_volatile(depth);
        (&raw mut (*open).probe_ns).write_volatile(probe_ns);
        let begin_ns = now();
        (&raw mut (*open).program_ns).write_volatile(begin_ns - time_ns);
        (&raw mut (*open).begin_ns).write_volatile(begin_ns);
    }
    Some(())
}

#[inline(always)]
fn end(ctx: &ProbeContext, site: TimedSite, window: *mut Window, time_ns: u64) -> Option<()> {
    let g = regs::g(ctx);
    let open = OPEN_CALLS.get_ptr_mut(&Caller { g, function: site.function.into() })?;
    // SAFETY: as in `begin`.
    let OpenCall { begin_ns, begin, depth, probe_ns, program_ns } = unsafe { *open };
    let read = read(ctx, site, g);
    if begin_ns == 0 || read.is_some_and(|(_, here)| here != depth) {
        // The code comes here on other ways too.
        return None;
    }
    // SAFETY: as in `begin`.
    unsafe { (&raw mut (*open).begin_ns).write_volatile(0) };
    let Some((value, _)) = read else {
        lose(window);
        return None;
    };
    // SAFETY: the map's value is aligned and outlives the program; the field is read in one load.
    let more_ns = unsafe { (&raw const (*window).begin_more_ns).read_volatile() };
    let took_ns = (time_ns - begin_ns).wrapping_sub(probe_ns + u64::from(more_ns));
    let sum = sum_of(window, site, begin, value)?;
    let probe = PROBE_TIME.get_ptr_mut(0)?;
    // SAFETY: the values are this CPU's own, are not removed while the window is open, and uprobe programs on one CPU do not
    // interrupt one another. The slot is masked to the length of the list.
    unsafe {
        (*sum).calls += 1;
        (*sum).total_ns = (*sum).total_ns.wrapping_add(took_ns);
        (*sum).slots[slot(took_ns) & (SLOTS - 1)] += 1;
        (*probe).g = g;
        let end_ns = now();
        (*probe).end_ns = end_ns;
        (*sum).probes_ns += HITS_PER_CALL * probe_ns + u64::from(more_ns) + program_ns + (end_ns - time_ns);
    }
    Some(())
}

/// What a probe takes on this CPU, with what it took at this hit, if a call of the same goroutine ended there just before.
#[inline(always)]
fn probe_time(g: u64, time_ns: u64) -> Option<u64> {
    let probe = PROBE_TIME.get_ptr_mut(0)?;
    // SAFETY: the slot is this CPU's own.
    let probe = unsafe { &mut *probe };
    let took = time_ns.wrapping_sub(probe.end_ns);
    if probe.g == g && took < LONGEST_PROBE_NS {
        probe.known_ns = match probe.known_ns {
            0 => took,
            known if took < known => known.saturating_sub(STEP_NS.max((known - took) / PART)).max(took),
            known => (known + STEP_NS).min(took),
        };
    }
    Some(probe.known_ns)
}

/// The first value of a site, and the stack depth of the call.
#[inline(always)]
fn read(ctx: &ProbeContext, TimedSite { site, above, .. }: TimedSite, g: u64) -> Option<(u64, u64)> {
    let registers = regs::registers(ctx);
    let stack_hi = read_word(g + G_STACK_HI)?;
    let site = SITES.get(site.into())?;
    let value = walk(&site.reads[0], &registers)?;
    Some((value, stack_hi - registers[REGISTERS - 1] + u64::from(above)))
}

/// The sum of calls with these values, on this CPU.
#[inline(always)]
fn sum_of(window: *mut Window, site: TimedSite, begin: u64, end: u64) -> Option<*mut Sum> {
    // SAFETY: the map's value is aligned and outlives the program; the field is read in one load.
    let marks = unsafe { (&raw const (*window).marks_len).read_volatile() };
    let key = SumKey { begin, end, function: site.function.into(), marks };
    if SUMS.get_ptr_mut(&key).is_none() && SUMS.insert(&key, &Sum::default(), 0).is_err() {
        lose(window);
        return None;
    }
    let sum = SUMS.get_ptr_mut(&key);
    if sum.is_none() {
        lose(window);
    }
    sum
}

/// The slot of a call in the histogram. The estimate that was taken off may be longer than the call.
#[inline(always)]
fn slot(took_ns: u64) -> usize {
    if (took_ns as i64) < 0 {
        return 0;
    }
    let bits = (u64::BITS - took_ns.leading_zeros()) as usize;
    if bits < SLOTS { bits } else { SLOTS - 1 }
}

/// Counts what is missing. Of two CPUs at once one may not be counted: the window is not complete either way.
#[inline(always)]
fn lose(window: *mut Window) {
    // SAFETY: the map's value is aligned and outlives the program.
    unsafe {
        let lost = &raw mut (*window).lost;
        lost.write_volatile(lost.read_volatile() + 1);
    }
}
