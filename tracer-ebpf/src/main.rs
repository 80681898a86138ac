//! schedspan's eBPF programs: one for words and strings, one for the top elements of a slice, one for the values of a map,
//! one for samples, one for the timed calls of a window, and one that counts executions. What to read at a site is data ([`Site`]), and so is which code belongs together; what it means is
//! the daemon's business.

#![no_std]
#![no_main]

mod executions;
mod log;
mod map;
mod regs;
mod sample;
mod top;
mod window;

use core::mem::MaybeUninit;

use aya_ebpf::{
    EbpfContext as _, Global,
    bindings::{
        BPF_RB_AVAIL_DATA, BPF_RB_CONS_POS, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP, BPF_RB_PROD_POS,
        bpf_pidns_info,
    },
    cty::{c_long, c_void},
    helpers::{
        bpf_get_attach_cookie, bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_ktime_get_ns,
        bpf_loop, bpf_probe_read_user, bpf_probe_read_user_buf,
        generated::{self, bpf_get_ns_current_pid_tgid},
    },
    macros::{map, uprobe},
    maps::{Array, PerCpuArray, RingBuf, ring_buf::RingBufEntry},
    programs::ProbeContext,
};
use wire::{
    BURST, Cookie, Counter, FIRST_AND_LAST, Hit, INITIAL_PID_NAMESPACE, LAST, LONG_TEXT, LONG_TEXT_LEN,
    LongTextHit, MAX_PID_NAMESPACES, MAX_READS, MAX_SITES, MAX_STEPS, MAX_TARGETS, MAX_TEXTS, MAX_WORDS,
    NO_POINTER, NO_TEXTS, PidNamespace, READ_TEXT, READ_TEXT_IN_REGISTERS, READ_WORD, RECORD_LIMIT,
    RING_BYTES, Read, Site, TEXT_LEN, TEXTS, TEXTS_UNLESS, TIMED_HITS, Target, TextHit, WINDOW_SHIFT,
};

use crate::regs::REGISTERS;

/// `runtime.g` begins with `stack.lo`, `stack.hi`
/// (<https://github.com/golang/go/blob/go1.26.5/src/runtime/runtime2.go#L394-L402>).
const G_STACK_HI: u64 = 8;
/// Words from there up to `goid`, at its greatest offset so far: it is at 152, in Go 1.23 and 1.24 at 160.
const GOID_WORDS: usize = 20;

#[map]
static SITES: Array<Site> = Array::with_max_entries(MAX_SITES, 0);
#[map]
static NAMESPACES: Array<PidNamespace> = Array::with_max_entries(MAX_PID_NAMESPACES, 0);
/// The traced processes. A linear search of few is faster than a look-up in a hash map.
#[map]
static TARGETS: Array<Target> = Array::with_max_entries(MAX_TARGETS, 0);
#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);
/// Wake-up threshold in bytes of the ring buffer; the daemon sets it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
static WAKE_BYTES: Global<u64> = Global::new(0);
/// One value: the reader's position at the last wake-up, plus 1.
#[map]
static WOKEN: Array<u64> = Array::with_max_entries(1, 0);
/// Bytes of records that a process may send in a window, whatever the others do; the daemon sets it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
static SHARE: Global<u64> = Global::new(0);
/// Bytes of records that a process may send in each window on average while the ring buffer has room; the daemon sets it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
static LIMIT: Global<u64> = Global::new(RECORD_LIMIT);
/// One value: bytes in the ring buffer from which on there is no room for more than a share. The daemon sets it.
#[map]
static CROWDED: Array<u64> = Array::with_max_entries(1, 0);
#[map]
static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Counter::ALL.len() as u32, 0);

/// Declares the two programs of a kind of record: one for `uprobe.multi` (kernel 6.6 and later), one for single uprobes.
macro_rules! programs {
    ($multi:ident, $single:ident, $goroutine:path, $record:path, $walks:literal) => {
        #[uprobe(multi)]
        fn $multi(ctx: ProbeContext) -> u32 {
            on_hit(&ctx, $goroutine, $record, $walks);
            0
        }

        #[uprobe]
        fn $single(ctx: ProbeContext) -> u32 {
            on_hit(&ctx, $goroutine, $record, $walks);
            0
        }
    };
}

programs!(on_hit_multi, on_hit_single, goroutine_at_once, hit, false);
// Separate programs, because the verifier follows every path through a program. Their hits are rare, and their stack has
// no room for `goroutine_at_once`.
programs!(on_top_multi, on_top_single, goroutine, top::top, true);
programs!(on_map_multi, on_map_single, goroutine, map::map, true);

/// Reads `goid` and `stack.hi` of a goroutine.
type Goroutine = fn(g: u64, Cookie) -> Option<(u64, u64)>;

/// Sends the record of a hit.
type Record = fn(Cookie, &[u64; REGISTERS], Head) -> Result<(), Counter>;

/// The part of a [`Hit`] that does not depend on the site.
#[derive(Clone, Copy)]
struct Head {
    time_ns: u64,
    goroutine: u64,
    depth: u64,
    /// Points into [`TARGETS`].
    target: *mut Target,
    /// Initial value of the words. It is 0 if [`Cookie::pointer`] is null, when nothing is read.
    word: u64,
}

#[inline(always)]
fn on_hit(ctx: &ProbeContext, goroutine: Goroutine, record: Record, walks: bool) {
    // SAFETY: the context is the one that the kernel passed in.
    let cookie = Cookie::from(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    let time_ns = if u32::from(cookie.time) == LAST { 0 } else { now() };
    let Some(target) = target() else { return };
    let hits = add(Counter::Hits, 1);
    // What a hit costs is measured, and the clock costs as much as a read.
    let is_timed = walks || hits & (TIMED_HITS - 1) == 0;
    let began = if is_timed { now() } else { 0 };
    if let Err(loss) = try_record(ctx, cookie, time_ns, target, goroutine, record) {
        lose(loss, cookie.site, target);
    }
    if is_timed {
        took(walks, began);
    }
}

/// Adds the time of a program. Not inlined, because it is rare.
#[inline(never)]
fn took(walks: bool, began: u64) {
    let ns = now() - began;
    if walks {
        add(Counter::WalkNs, ns);
    } else {
        add(Counter::TimedNs, ns);
        count(Counter::TimedHits);
    }
}

/// Counts a lost hit. Not inlined, because it is rare, as [`fault`].
#[inline(never)]
fn lose(loss: Counter, site: u16, target: *mut Target) {
    count(loss);
    // Stable Rust has no atomic addition for BPF. A time with the CPU's number in its highest bits is unique too.
    // SAFETY: the helper reads the number of the CPU and touches nothing else.
    let cpu = u64::from(unsafe { bpf_get_smp_processor_id() });
    // SAFETY: the map's value is aligned and outlives the program; each field is written in one store.
    let number = unsafe {
        (&raw mut (*target).last_loss).write_volatile(now() ^ cpu << 48);
        if loss as u32 == Counter::OverLimit as u32 {
            let lost = &raw mut (*target).over_limit;
            lost.write_volatile(lost.read_volatile() + 1);
        }
        (*target).number
    };
    log::loss(loss, site, number);
}

/// The current process; `None` when it is not traced.
#[inline(always)]
fn target() -> Option<*mut Target> {
    Some(place()?.1)
}

/// The place of the current process among the targets; `None` when it is not traced.
#[inline(always)]
fn place() -> Option<(u32, *mut Target)> {
    let key = current_key()?;
    for place in 0..MAX_TARGETS {
        let target = TARGETS.get_ptr_mut(place)?;
        // SAFETY: the map's value is aligned and outlives the program; it is read in one load.
        let found = unsafe { (&raw const (*target).key).read_volatile() };
        if found == 0 {
            return None;
        }
        if found == key {
            return Some((place, target));
        }
    }
    None
}

/// Reserves a record of a process, within its limit.
#[inline(always)]
fn reserve<T: 'static>(target: *mut Target) -> Result<RingBufEntry<T>, Counter> {
    let bytes = size_of::<T>() as u64;
    // SAFETY: the map's value is aligned and outlives the program; the field is read in one load and written in one store.
    let spent = unsafe {
        let spent = &raw mut (*target).spent;
        spent.write_volatile(spent.read_volatile() + bytes);
        spent.read_volatile()
    };
    if spent > SHARE.load() && is_over_limit(target, spent, bytes) {
        return Err(Counter::OverLimit);
    }
    EVENTS.reserve::<T>(0).ok_or(Counter::RingFull)
}

/// Whether a process that has had its share may send no more. The clock is asked only here: most windows end unnoticed.
#[inline(never)]
fn is_over_limit(target: *mut Target, spent: u64, bytes: u64) -> bool {
    let window = now() >> WINDOW_SHIFT;
    let crowded = is_crowded();
    // SAFETY: as above, for each field.
    unsafe {
        let current = &raw mut (*target).window;
        let before = current.read_volatile();
        let owed = &raw mut (*target).owed;
        if before == window {
            return owed.read_volatile() + spent > LIMIT.load() * BURST || crowded;
        }
        // A daemon that does not read for some windows would find the buffer full of this process's shares.
        let share = &raw mut (*target).share;
        if crowded && EVENTS.query(BPF_RB_CONS_POS.into()) < share.read_volatile() {
            return true;
        }
        share.write_volatile(EVENTS.query(BPF_RB_PROD_POS.into()));
        let total = owed.read_volatile() + spent - bytes;
        let left = total.saturating_sub(LIMIT.load().wrapping_mul(window - before));
        owed.write_volatile(left.min(LIMIT.load() * BURST));
        current.write_volatile(window);
        (&raw mut (*target).spent).write_volatile(bytes);
    }
    false
}

/// Whether the rest of the ring buffer is for processes that have not had their share.
#[inline(always)]
fn is_crowded() -> bool {
    CROWDED.get(0).is_some_and(|crowded| EVENTS.query(BPF_RB_AVAIL_DATA.into()) >= *crowded)
}

/// The current process's [`Target::key`]; `None` when none of the namespaces is its own.
///
/// If the daemon runs in the host's PID namespace, the key has the kernel's own id. Otherwise it has the id in the
/// process's namespace, because that is the only one for which the helper answers.
/// <https://github.com/torvalds/linux/blob/v6.18/kernel/bpf/helpers.c#L632-L670>
#[inline(always)]
fn current_key() -> Option<u32> {
    for namespace in 0..MAX_PID_NAMESPACES {
        let PidNamespace { device, inode } = *NAMESPACES.get(namespace)?;
        if inode == 0 {
            return None;
        }
        if let Some(pid) = current_pid(device, inode) {
            return Some(Target::key(namespace, pid));
        }
    }
    None
}

/// The current process's id in a namespace; `None` if that is not its own.
#[inline(always)]
fn current_pid(device: u64, inode: u64) -> Option<u32> {
    if inode == INITIAL_PID_NAMESPACE {
        return Some((bpf_get_current_pid_tgid() >> 32) as u32);
    }
    let mut ids = bpf_pidns_info { pid: 0, tgid: 0 };
    // SAFETY: the helper writes `ids`, of the size that is passed, and keeps no pointer to it.
    let status = unsafe {
        bpf_get_ns_current_pid_tgid(device, inode, &raw mut ids, size_of::<bpf_pidns_info>() as u32)
    };
    (status == 0).then_some(ids.tgid)
}

#[inline(always)]
fn try_record(
    ctx: &ProbeContext,
    cookie: Cookie,
    time_ns: u64,
    target: *mut Target,
    goroutine: Goroutine,
    record: Record,
) -> Result<(), Counter> {
    // Before the registers, which can then reuse its place on the small stack.
    let (goroutine, stack_hi) = goroutine(regs::g(ctx), cookie).ok_or(Counter::GoroutineFault)?;
    let registers = regs::registers(ctx);
    let depth = stack_hi - registers[REGISTERS - 1];
    let word = registers[cookie.pointer as usize & (REGISTERS - 1)];
    let head = Head { time_ns, goroutine, depth, target, word };
    record(cookie, &registers, head)
}

#[inline(always)]
fn goroutine(g: u64, cookie: Cookie) -> Option<(u64, u64)> {
    Some((read_word(g + u64::from(cookie.goid_offset))?, read_word(g + G_STACK_HI)?))
}

/// As [`goroutine`], with one read for both if `goid` is at a known offset: many words cost little more than one.
#[inline(always)]
fn goroutine_at_once(g: u64, cookie: Cookie) -> Option<(u64, u64)> {
    let mut words = MaybeUninit::<[u64; GOID_WORDS]>::uninit();
    let (from, size) = ((g + G_STACK_HI) as *const c_void, size_of_val(&words) as u32);
    // SAFETY: `size` is that of `words`, and the helper writes all of it: zeros if it fails.
    let (status, words) = unsafe {
        let status = generated::bpf_probe_read_user(words.as_mut_ptr().cast(), size, from);
        (status, words.assume_init_ref())
    };
    match cookie.goid_offset {
        152 if status == 0 => Some((words[GOID_WORDS - 2], words[0])),
        160 if status == 0 => Some((words[GOID_WORDS - 1], words[0])),
        _ => goroutine(g, cookie),
    }
}

/// The site that a cookie names.
#[inline(always)]
fn site(cookie: Cookie) -> Result<&'static Site, Counter> {
    SITES.get(u32::from(cookie.site)).ok_or(Counter::UnknownSite)
}

/// Sends a [`Hit`], [`TextHit`] or [`LongTextHit`].
#[inline(always)]
fn hit(cookie: Cookie, registers: &[u64; REGISTERS], head: Head) -> Result<(), Counter> {
    // Values go straight into the ring buffer: of values on the stack, the verifier would follow every combination.
    let null = cookie.pointer != NO_POINTER && head.word == 0;
    if null || cookie.reads_len == 0 {
        let mut entry = reserve::<Hit>(head.target)?;
        // SAFETY: the entry is a reserved Hit.
        let hit = unsafe { begin(entry.as_mut_ptr(), cookie, head) };
        end(hit, cookie);
        entry.submit(BPF_RB_NO_WAKEUP.into());
        return Ok(());
    }
    let site = site(cookie)?;
    let reads = u32::from(cookie.reads_len);
    match kind(cookie, site, registers) {
        (NO_TEXTS, None) => words(cookie, site, registers, head, 0)?,
        // The first word is the initial value of all words.
        (NO_TEXTS, Some(word)) => words(cookie, site, registers, Head { word, ..head }, 1)?,
        (LONG_TEXT, _) => {
            let mut entry = reserve::<LongTextHit>(head.target)?;
            let record = entry.as_mut_ptr();
            // SAFETY: `record` points to a reserved LongTextHit.
            let (hit, length, text) = unsafe {
                (*record).reserved = 0;
                let text = (&raw mut (*record).text).cast::<u8>();
                (begin(&raw mut (*record).hit, cookie, head), &mut (*record).length, text)
            };
            // The string is the first read.
            if read_text(&site.reads[0], registers, text, LONG_TEXT_LEN, length).is_none() {
                fault(hit, 0);
            }
            end(hit, cookie);
            send(entry);
        }
        _ => {
            let mut entry = reserve::<TextHit>(head.target)?;
            let record = entry.as_mut_ptr();
            // SAFETY: `record` points to a reserved TextHit.
            let hit = unsafe { begin(&raw mut (*record).hit, cookie, head) };
            for i in 0..MAX_READS {
                if i as u32 >= reads {
                    break;
                }
                let read = &site.reads[i];
                if read.kind == READ_WORD {
                    store_word(hit, read, i, registers);
                    continue;
                }
                let slot = read.slot as usize & (MAX_TEXTS - 1);
                // SAFETY: `record` points to a reserved TextHit, and the slot is masked to the arrays' length.
                let (length, text) = unsafe {
                    let texts = (&raw mut (*record).texts).cast::<u8>();
                    (&mut (*record).lengths[slot], texts.add(slot * TEXT_LEN))
                };
                if read_text(read, registers, text, TEXT_LEN, length).is_none() {
                    fault(hit, i);
                }
            }
            end(hit, cookie);
            send(entry);
        }
    }
    Ok(())
}

/// Sends a record with strings, and wakes the reader up if the ring buffer is filled to the threshold and the reader has
/// moved since the last wake-up. Otherwise the reader polls: waking it up costs the traced process more than the record.
#[inline(always)]
fn send<T>(entry: RingBufEntry<T>) {
    let much = EVENTS.query(BPF_RB_AVAIL_DATA.into()) >= WAKE_BYTES.load();
    entry.submit(if much && is_asleep() { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP }.into());
}

/// Whether the reader has not been woken up at its current position. Two CPUs may both wake it up, which does no harm.
#[inline(always)]
fn is_asleep() -> bool {
    // The initial position is 0, and the map's initial value means no wake-up.
    let behind = EVENTS.query(BPF_RB_CONS_POS.into()) + 1;
    let Some(woken) = WOKEN.get_ptr_mut(0) else { return false };
    // SAFETY: the map's value is aligned and outlives the program; it is read in one load and written in one store.
    unsafe {
        let asleep = woken.read_volatile() != behind;
        if asleep {
            woken.write_volatile(behind);
        }
        asleep
    }
}

/// Sends a [`Hit`] with the words of the reads from this one on, without the strings.
#[inline(always)]
fn words(
    cookie: Cookie,
    site: &Site,
    registers: &[u64; REGISTERS],
    head: Head,
    from: usize,
) -> Result<(), Counter> {
    let mut entry = reserve::<Hit>(head.target)?;
    // SAFETY: the entry is a reserved Hit.
    let hit = unsafe { begin(entry.as_mut_ptr(), cookie, head) };
    for i in from..MAX_READS {
        if i as u32 >= u32::from(cookie.reads_len) {
            break;
        }
        if site.reads[i].kind == READ_WORD {
            store_word(hit, &site.reads[i], i, registers);
        }
    }
    end(hit, cookie);
    entry.submit(BPF_RB_NO_WAKEUP.into());
    Ok(())
}

/// The kind of record; and the first word, if it decides that strings are not read.
#[inline(always)]
fn kind(cookie: Cookie, site: &Site, registers: &[u64; REGISTERS]) -> (u32, Option<u64>) {
    let texts = u32::from(cookie.texts);
    if texts != TEXTS_UNLESS {
        return (texts, None);
    }
    match walk(&site.reads[0], registers) {
        Some(word) if word >= u32::BITS.into() || site.unless >> word & 1 == 0 => (TEXTS, None),
        word => (NO_TEXTS, word),
    }
}

/// Initializes a record.
///
/// # Safety
///
/// `hit` points to reserved memory of the ring buffer.
#[inline(always)]
unsafe fn begin<'a>(hit: *mut Hit, cookie: Cookie, head: Head) -> &'a mut Hit {
    let Head { time_ns, goroutine, depth, target, word } = head;
    let site = u32::from(cookie.site);
    // SAFETY: the map's value is aligned and outlives the program; each field is read in one load.
    let (target, last_loss) = unsafe { ((*target).number, (&raw const (*target).last_loss).read_volatile()) };
    // Not zeros: the compiler would write them with a loop, byte for byte.
    let words = [word; MAX_WORDS];
    // SAFETY: the caller reserved it.
    unsafe {
        hit.write(Hit { time_ns, goroutine, depth, site, target, faults: 0, took: 0, last_loss, words });
        &mut *hit
    }
}

/// Completes a record with the times that are taken last.
#[inline(always)]
fn end(hit: &mut Hit, cookie: Cookie) {
    match u32::from(cookie.time) {
        LAST => hit.time_ns = now(),
        FIRST_AND_LAST => hit.took = (now() - hit.time_ns) as u32,
        _ => {}
    }
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: the helper reads the clock and touches nothing else.
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
fn store_word(hit: &mut Hit, read: &Read, index: usize, registers: &[u64; REGISTERS]) {
    match walk(read, registers) {
        Some(value) => hit.words[read.slot as usize & (MAX_WORDS - 1)] = value,
        None => fault(hit, index),
    }
}

/// Counts a read that failed.
#[inline(never)]
fn fault(hit: &mut Hit, index: usize) {
    hit.faults |= 1 << index;
    count(Counter::ReadFault);
    log::fault(index as u32, hit.site, hit.target);
}

/// Follows the pointers of a read. Returns `None` if memory cannot be read, 0 behind a null pointer.
#[inline(always)]
fn walk(read: &Read, registers: &[u64; REGISTERS]) -> Option<u64> {
    let mut value = registers[read.base as usize & (REGISTERS - 1)];
    for step in 0..MAX_STEPS {
        if step >= read.steps as usize || value == 0 {
            break;
        }
        value = read_word(value + u64::from(read.offsets[step]))?;
    }
    Some(value)
}

/// Reads the length of a Go string and up to `room` bytes, the size of `text`. A null pointer on the way gives the empty
/// string.
#[inline(always)]
fn read_text(
    read: &Read,
    registers: &[u64; REGISTERS],
    text: *mut u8,
    room: usize,
    written: &mut u32,
) -> Option<()> {
    let (pointer, length) = if read.kind == READ_TEXT_IN_REGISTERS {
        (walk(read, registers)?, registers[(read.base as usize + 1) & (REGISTERS - 1)])
    } else if read.kind == READ_TEXT {
        let header = walk(read, registers)?;
        if header == 0 { (0, 0) } else { read_header(header + u64::from(read.last))? }
    } else {
        return None;
    };
    let length = if length > u64::from(u32::MAX) { u32::MAX } else { length as u32 };
    let kept = if length as usize > room { room } else { length as usize };
    *written = length;
    // SAFETY: `kept` is at most `room`.
    unsafe { bpf_probe_read_user_buf(pointer as *const u8, core::slice::from_raw_parts_mut(text, kept)).ok() }
}

/// Pointer and length of a string or slice.
#[inline(always)]
fn read_header(address: u64) -> Option<(u64, u64)> {
    // SAFETY: the helper checks the address and reports a fault.
    let [pointer, length] = unsafe { bpf_probe_read_user(address as *const [u64; 2]) }.ok()?;
    Some((pointer, length))
}

#[inline(always)]
fn read_word(address: u64) -> Option<u64> {
    // SAFETY: as above.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}

/// Calls a function this many times, or until it returns 1. The verifier follows it once, unlike the body of a loop.
#[inline(always)]
fn repeat<T>(times: u32, function: unsafe extern "C" fn(u32, *mut T) -> c_long, context: &mut T) {
    // SAFETY: the function has the signature that the kernel calls, with the context that is passed in here.
    unsafe { bpf_loop(times, function as *mut c_void, (&raw mut *context).cast(), 0) };
}

#[inline(always)]
fn count(counter: Counter) {
    add(counter, 1);
}

/// Adds to a counter, and returns its value on this CPU.
#[inline(always)]
fn add(counter: Counter, more: u64) -> u64 {
    let Some(value) = COUNTERS.get_ptr_mut(counter as u32) else { return 0 };
    // SAFETY: the slot is this CPU's own. Uprobe programs on one CPU do not interrupt one another, and samples and
    // executions have counters of their own.
    unsafe {
        *value += more;
        *value
    }
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The helpers that read user memory are for GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
