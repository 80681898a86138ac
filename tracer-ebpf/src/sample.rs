//! Where traced processes spend their CPU time.
//!
//! The clock of each CPU runs this program a few hundred times a second. It ends at once if the process is not traced. A
//! stack is folded here to the classes of its code, so that a sample costs a walk, a binary search per frame, and a short
//! record, whose time says which of the daemon's events it is between. No sample wakes up the daemon.

use aya_ebpf::{
    EbpfContext as _, Global,
    bindings::{BPF_F_USER_STACK, BPF_RB_NO_WAKEUP},
    cty::c_long,
    helpers::generated::bpf_get_stack,
    macros::{map, perf_event},
    maps::{Array, PerCpuArray},
    programs::PerfEventContext,
};
use wire::{
    CUT, Code, CodeRange, Counter, HINT, MAX_FRAMES, MAX_RANGES, MAX_TARGETS, NO_CLASS, NO_SITE, OUTSIDE,
    PART, RANGES_PER_TABLE, Sample, StackSample, Target, UNREADABLE,
};

use crate::{
    EVENTS, add, count, is_crowded, now, place,
    regs::{self, Leaf},
    repeat,
};

/// Steps of a binary search in one table: one more than halve it to nothing.
const STEPS: u32 = RANGES_PER_TABLE.trailing_zeros() + 1;
/// Bytes of a function without a frame: those of the runtime that copy and compare memory are the longest.
const LONGEST_LEAF: u64 = 4096;
const STACK_BYTES: u32 = 8 * MAX_FRAMES as u32;

/// The code of each target, at its place.
#[map]
static CODES: Array<Code> = Array::with_max_entries(MAX_TARGETS, 0);
/// Code ranges, in a table for each executable.
#[map]
static RANGES: Array<CodeRange> = Array::with_max_entries(MAX_RANGES, 0);
/// The stack of the current sample: the program's own stack has no room for it.
#[map]
static STACK: PerCpuArray<[u64; MAX_FRAMES]> = PerCpuArray::with_max_entries(1, 0);
/// Whether whole stacks are sent, without classes; the daemon sets it.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
static STACKS: Global<u8> = Global::new(0);

#[perf_event]
#[expect(clippy::needless_pass_by_value, reason = "the macro passes the context by value")]
fn on_sample(ctx: PerfEventContext) -> u32 {
    let Some((place, target)) = place() else { return 0 };
    let Some(code) = CODES.get(place) else { return 0 };
    if code.text_len == 0 {
        return 0;
    }
    let began = now();
    count(Counter::Samples);
    let sent = if STACKS.load() == 0 { folded(&ctx, code, target) } else { whole(&ctx, target) };
    if sent.is_none() {
        count(Counter::SampleRingFull);
    }
    add(Counter::SampleNs, now() - began);
    0
}

/// Sends a [`Sample`] with the classes of the stack.
#[inline(always)]
fn folded(ctx: &PerfEventContext, code: &Code, target: *mut Target) -> Option<()> {
    if is_crowded() {
        return None;
    }
    let stack = STACK.get_ptr_mut(0)?;
    let mut sample = of(ctx, target);
    // SAFETY: the map's value has the size that is passed, and is this CPU's own: samples do not interrupt one another.
    let frames = unsafe { read(ctx, stack.cast()) };
    match frames {
        Some(frames) => {
            sample.frames = frames;
            // SAFETY: as above.
            fold(code, unsafe { &*stack }, &mut sample);
        }
        None => {
            count(Counter::SampleFault);
            sample.flags = UNREADABLE;
        }
    }
    EVENTS.reserve::<Sample>(0).map(|mut entry| {
        entry.write(sample);
        entry.submit(BPF_RB_NO_WAKEUP.into());
    })
}

/// Sends a [`StackSample`].
#[inline(always)]
fn whole(ctx: &PerfEventContext, target: *mut Target) -> Option<()> {
    let mut entry = EVENTS.reserve::<StackSample>(0)?;
    let record = entry.as_mut_ptr();
    let mut sample = of(ctx, target);
    // SAFETY: the record is reserved, and its stack has the size that is passed.
    unsafe {
        match read(ctx, (&raw mut (*record).stack).cast()) {
            Some(frames) => sample.frames = frames,
            None => {
                count(Counter::SampleFault);
                sample.flags = UNREADABLE;
            }
        }
        (&raw mut (*record).sample).write(sample);
    }
    entry.submit(BPF_RB_NO_WAKEUP.into());
    Some(())
}

#[inline(always)]
fn of(ctx: &PerfEventContext, target: *mut Target) -> Sample {
    // SAFETY: the map's value is aligned and outlives the program; the field is read in one load.
    let number = unsafe { (&raw const (*target).number).read_volatile() };
    Sample {
        time_ns: now(),
        target: number,
        whole: NO_CLASS,
        part: NO_CLASS,
        flags: 0,
        frames: 0,
        site: NO_SITE,
        reserved: 0,
        caller: regs::leaf(ctx).and_then(caller).unwrap_or(0),
    }
}

/// The return address of a function that has no frame, or not yet: the walk by frame pointers would miss its caller. It is one
/// if the instruction before it calls an address that is at the code's own or shortly before.
#[inline(always)]
fn caller(Leaf { pc, back }: Leaf) -> Option<u64> {
    let target = regs::called(back)?;
    if pc.wrapping_sub(target) < LONGEST_LEAF { Some(back) } else { None }
}

/// Reads the user's stack by frame pointers, and returns the number of frames. The kernel does the walk: also where the sample is in a
/// system call.
///
/// # Safety
///
/// `to` has room for [`STACK_BYTES`].
#[inline(always)]
unsafe fn read(ctx: &PerfEventContext, to: *mut core::ffi::c_void) -> Option<u32> {
    // SAFETY: the context is the one that the kernel passed in, and the caller says that there is room.
    let bytes = unsafe { bpf_get_stack(ctx.as_ptr(), to, STACK_BYTES, BPF_F_USER_STACK.into()) };
    if bytes >= 8 { Some((bytes as u32) / 8) } else { None }
}

/// Finds the classes of a stack. `gotrace::code` does the same, for whole stacks.
#[inline(always)]
fn fold(code: &Code, stack: &[u64; MAX_FRAMES], sample: &mut Sample) {
    if stack[0].wrapping_sub(code.text) >= u64::from(code.text_len) && code.believes_outside == 0 {
        sample.flags = OUTSIDE;
        return;
    }
    let caller = sample.caller;
    let mut walk = Walk { code, stack, caller, part: NO_CLASS, hint: NO_CLASS, whole: NO_CLASS };
    repeat(sample.frames, frame, &mut walk);
    let Walk { part, hint, whole, .. } = walk;
    if whole == NO_CLASS {
        sample.whole = hint;
        sample.flags = if sample.frames < MAX_FRAMES as u32 { 0 } else { CUT };
    } else {
        sample.whole = whole;
        sample.part = part;
    }
}

/// The state of a walk over the frames of a stack.
struct Walk<'a> {
    code: &'a Code,
    stack: &'a [u64; MAX_FRAMES],
    caller: u64,
    part: u16,
    hint: u16,
    whole: u16,
}

/// Looks at one frame; ends the walk at a whole.
unsafe extern "C" fn frame(index: u32, walk: *mut Walk<'_>) -> c_long {
    // SAFETY: `repeat` passes the context that it was given.
    let walk = unsafe { &mut *walk };
    // A return address may be behind the last instruction of its function.
    let address = walk.stack[index as usize & (MAX_FRAMES - 1)].wrapping_sub(u64::from(index > 0));
    if is_whole(walk, address) {
        return 1;
    }
    if index == 0 && walk.caller != 0 && is_whole(walk, walk.caller - 1) {
        return 1;
    }
    0
}

/// Takes the class of one frame into account. Returns whether it is a whole.
#[inline(always)]
fn is_whole(walk: &mut Walk<'_>, address: u64) -> bool {
    let code = walk.code;
    let offset = address.wrapping_sub(code.text);
    if offset >= u64::from(code.text_len) {
        return false;
    }
    let Some(range) = find(code, offset as u32) else { return false };
    match range.rank {
        PART => walk.part = range.class,
        HINT => {
            if walk.hint == NO_CLASS {
                walk.hint = range.class;
            }
        }
        _ => {
            walk.whole = range.class;
            return true;
        }
    }
    false
}

/// The range that holds this code.
#[inline(always)]
fn find(code: &Code, offset: u32) -> Option<&'static CodeRange> {
    let (mut low, mut high) = (0, code.len);
    for _ in 0..STEPS {
        if low >= high {
            return None;
        }
        let middle = (low + high) / 2;
        let range = RANGES.get(code.first + middle)?;
        if offset < range.start {
            high = middle;
        } else if offset >= range.end {
            low = middle + 1;
        } else {
            return Some(range);
        }
    }
    None
}
