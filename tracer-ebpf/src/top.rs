//! The elements of a slice that have the greatest keys, with their labels and parts.

use aya_ebpf::{bindings::BPF_RB_NO_WAKEUP, cty::c_long, helpers::bpf_probe_read_user_buf};
use wire::{
    Cookie, Counter, MAX_PARTS, MAX_TOP, MAX_TOP_CHUNKS, PART_NAME_LEN, PART_SIZE, Site, TEXT_LEN, TOP_CHUNK,
    TopHit, TopLayout,
};

use crate::{
    EVENTS, Head, begin, end, fault, read_header, regs::REGISTERS, repeat, reserve, site, store_word,
};

/// Elements per call of [`compare`]: the call, through a pointer, costs more than a comparison.
const BATCH: u32 = 8;

/// Sends a [`TopHit`].
#[inline(always)]
pub(crate) fn top(cookie: Cookie, registers: &[u64; REGISTERS], head: Head) -> Result<(), Counter> {
    let site = site(cookie)?;
    let layout = TopLayout::from(site.layout);
    let base = layout.base as usize & (REGISTERS - 1);
    let (slice, len) = (registers[base], registers[(base + 1) & (REGISTERS - 1)]);
    let mut entry = reserve::<TopHit>(head.target)?;
    let Some(mut chunk) = EVENTS.reserve::<[u8; TOP_CHUNK]>(0) else {
        entry.discard(BPF_RB_NO_WAKEUP.into());
        return Err(Counter::RingFull);
    };
    let scratch = chunk.as_mut_ptr().cast::<u8>();
    // SAFETY: the entry is a reserved TopHit. Each field is written before it is sent, or outside the lengths sent.
    let record = unsafe { &mut *entry.as_mut_ptr() };
    // SAFETY: reserved memory of the ring buffer.
    unsafe { begin(&raw mut record.hit, cookie, head) };
    store_word(&mut record.hit, &site.reads[0], 0, registers);
    record.len = len as u32;
    record.compared = 0;
    record.ties = 0;
    record.top_len = 0;
    for element in &mut record.top {
        element.key = i64::MIN;
    }
    let mut context = Scan { record, scratch, slice, len, site, before: 0, elements: 0 };
    repeat(MAX_TOP_CHUNKS as u32, compare_chunk, &mut context);
    chunk.discard(BPF_RB_NO_WAKEUP.into());
    describe(record, &layout, slice);
    end(&mut record.hit, cookie);
    entry.submit(BPF_RB_NO_WAKEUP.into());
    Ok(())
}

/// State of the scan.
#[repr(C)]
struct Scan {
    record: *mut TopHit,
    scratch: *mut u8,
    slice: u64,
    len: u64,
    site: &'static Site,
    /// Elements before the current chunk.
    before: u32,
    /// Elements in the current chunk.
    elements: u32,
}

/// Reads the next chunk and compares its elements. Returns 1 at the end of the slice.
unsafe extern "C" fn compare_chunk(_: u32, context: *mut Scan) -> c_long {
    // SAFETY: `repeat` passes on its context, whose pointers are to reserved memory of the ring buffer.
    let (context, record) = unsafe { (&mut *context, &mut *(*context).record) };
    let left = context.len - u64::from(context.before);
    let TopLayout { per_chunk, stride, .. } = context.site.layout.into();
    let elements = if left < u64::from(per_chunk) { left as u32 } else { per_chunk };
    if elements == 0 {
        return 1;
    }
    let bytes = (elements * stride) as usize;
    let kept = if bytes > TOP_CHUNK { TOP_CHUNK } else { bytes };
    let from = context.slice + u64::from(context.before) * u64::from(stride);
    // SAFETY: `kept` is at most the size of the scratch memory.
    let read = unsafe {
        let room = core::slice::from_raw_parts_mut(context.scratch, kept);
        bpf_probe_read_user_buf(from as *const u8, room)
    };
    if read.is_err() {
        fault(&mut record.hit, 0);
        return 1;
    }
    context.elements = elements;
    repeat(elements.div_ceil(BATCH), compare, context);
    context.before += elements;
    record.compared = context.before;
    0
}

/// Compares the keys of a batch of elements.
unsafe extern "C" fn compare(batch: u32, context: *mut Scan) -> c_long {
    // SAFETY: as above.
    let (context, record) = unsafe { (&*context, &mut *(*context).record) };
    let TopLayout { stride, key: offset, .. } = context.site.layout.into();
    for place in 0..BATCH {
        let element = batch * BATCH + place;
        if element >= context.elements {
            break;
        }
        // Keys are aligned to 8 bytes.
        let at = (element * stride + offset) as usize & (TOP_CHUNK - 8);
        // SAFETY: eight bytes from there are within the scratch memory.
        let key = unsafe { context.scratch.add(at).cast::<i64>().read_unaligned() };
        if key > record.top[0].key {
            record.ties = 1;
        } else if key == record.top[0].key {
            record.ties += 1;
        }
        if key > record.top[MAX_TOP - 1].key {
            insert(record, key, context.before + element);
        }
    }
    0
}

/// Inserts an element behind those whose keys are not less.
#[inline(always)]
fn insert(record: &mut TopHit, key: i64, index: u32) {
    let mut place = MAX_TOP - 1;
    for _ in 1..MAX_TOP {
        if place == 0 || record.top[place - 1].key >= key {
            break;
        }
        record.top[place].key = record.top[place - 1].key;
        record.top[place].index = record.top[place - 1].index;
        place -= 1;
    }
    record.top[place].key = key;
    record.top[place].index = index;
    if record.top_len < MAX_TOP as u32 {
        record.top_len += 1;
    }
}

/// Reads the labels and parts of the top elements, and the names of the first one's parts.
#[inline(always)]
fn describe(record: &mut TopHit, layout: &TopLayout, slice: u64) {
    for place in 0..MAX_TOP {
        if place as u32 >= record.top_len {
            break;
        }
        let element = &mut record.top[place];
        let address = slice + u64::from(element.index) * u64::from(layout.stride);
        element.label_length = 0;
        element.parts_len = 0;
        element.reserved = 0;
        if let Some((pointer, length)) = read_header(address + u64::from(layout.label)) {
            let kept = if length as usize > TEXT_LEN { TEXT_LEN } else { length as usize };
            // SAFETY: `kept` is at most the array's length.
            let read = unsafe {
                let room = core::slice::from_raw_parts_mut((&raw mut element.label).cast::<u8>(), kept);
                bpf_probe_read_user_buf(pointer as *const u8, room)
            };
            if read.is_ok() {
                element.label_length = length as u32;
            }
        }
        if let Some((pointer, length)) = read_header(address + u64::from(layout.parts)) {
            let kept = if length as usize > MAX_PARTS { MAX_PARTS } else { length as usize };
            // SAFETY: `kept` parts are at most the array.
            let read = unsafe {
                let parts = (&raw mut element.parts).cast::<u8>();
                let room = core::slice::from_raw_parts_mut(parts, kept * PART_SIZE);
                bpf_probe_read_user_buf(pointer as *const u8, room)
            };
            if read.is_ok() {
                element.parts_len = length as u32;
            }
        }
    }
    for part in 0..MAX_PARTS {
        record.name_lengths[part] = 0;
        if record.top_len == 0 || part as u32 >= record.top[0].parts_len {
            continue;
        }
        let [pointer, length, _] = record.top[0].parts[part];
        let kept = if length as usize > PART_NAME_LEN { PART_NAME_LEN } else { length as usize };
        // SAFETY: `kept` is at most the array's length.
        let read = unsafe {
            let room = core::slice::from_raw_parts_mut((&raw mut record.names[part]).cast::<u8>(), kept);
            bpf_probe_read_user_buf(pointer as *const u8, room)
        };
        if read.is_ok() {
            record.name_lengths[part] = length as u32;
        }
    }
}
