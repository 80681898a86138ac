//! What goes through all Nodes, once an attempt: their scores, or why they would not do. Bounded, and says how far it got.

use aya_ebpf::{
    bindings::BPF_RB_NO_WAKEUP,
    cty::{c_long, c_void},
    helpers::{bpf_loop, bpf_probe_read_user_buf},
};
use wire::{
    Cookie, Counter, MAX_CANDIDATES, MAX_GROUP, MAX_GROUPS, MAX_SCORED_PLUGINS, MAX_SCORES_CHUNKS,
    MAX_STATUSES, MAX_TABLES, NodeStatus, PLUGIN_NAME_LEN, SCORES_CHUNK, ScoresHit, ScoresLayout, Site,
    StatusesHit, StatusesLayout, TEXT_LEN,
};

use crate::{EVENTS, Head, begin, end, fault, read_header, read_word, regs::REGISTERS, site, store_word};

/// Nodes that one call of [`look_at`] looks at: the kernel calls it through a pointer, which costs more than to look.
const BATCH: u32 = 8;
/// Bytes of a `PluginScore`: name, score.
const PLUGIN_SCORE: usize = 24;
/// Slots of a group of a map, whose control bytes come first.
const SLOTS: usize = 8;
/// A control byte of a Swiss map's slot that is not used.
/// <https://github.com/golang/go/blob/go1.26.5/src/internal/runtime/maps/group.go#L16-L29>
const SWISS_UNUSED: u8 = 0x80;
/// The first control byte of a bucket's slot that is used.
/// <https://github.com/golang/go/blob/go1.23.4/src/runtime/map.go#L88-L99>
const BUCKET_USED: u8 = 5;

/// Sends the Nodes with the highest totals.
#[inline(always)]
pub(crate) fn scores(cookie: Cookie, registers: &[u64; REGISTERS], head: Head) -> Result<(), Counter> {
    let site = site(cookie)?;
    let layout = ScoresLayout::from(site.layout);
    let base = layout.base as usize & (REGISTERS - 1);
    let (list, count) = (registers[base], registers[(base + 1) & (REGISTERS - 1)]);
    let Some(mut entry) = EVENTS.reserve::<ScoresHit>(0) else { return Err(Counter::RingFull) };
    let Some(mut chunk) = EVENTS.reserve::<[u8; SCORES_CHUNK]>(0) else {
        entry.discard(BPF_RB_NO_WAKEUP.into());
        return Err(Counter::RingFull);
    };
    let scratch = chunk.as_mut_ptr().cast::<u8>();
    // SAFETY: the entry is a reserved ScoresHit; all of it is written before it is sent, or said not to be used.
    let record = unsafe { &mut *entry.as_mut_ptr() };
    // SAFETY: it is reserved memory of the ring buffer.
    unsafe { begin(&raw mut record.hit, cookie, head) };
    store_word(&mut record.hit, &site.reads[0], 0, registers);
    record.nodes = count as u32;
    record.looked_at = 0;
    record.ties = 0;
    record.best_len = 0;
    for candidate in &mut record.best {
        candidate.total = i64::MIN;
    }
    let mut context = Scan { record, scratch, list, count, site, before: 0, nodes: 0 };
    repeat(MAX_SCORES_CHUNKS as u32, look_at_chunk, &mut context);
    chunk.discard(BPF_RB_NO_WAKEUP.into());
    describe(record, &layout, list);
    end(&mut record.hit, cookie);
    entry.submit(BPF_RB_NO_WAKEUP.into());
    Ok(())
}

/// What is known while scores are looked at.
#[repr(C)]
struct Scan {
    record: *mut ScoresHit,
    scratch: *mut u8,
    list: u64,
    count: u64,
    site: &'static Site,
    /// Nodes of the chunks before this one.
    before: u32,
    /// Nodes of this one.
    nodes: u32,
}

/// Calls a function this many times: unlike a loop, the verifier follows it once.
#[inline(always)]
fn repeat<T>(times: u32, function: unsafe extern "C" fn(u32, *mut T) -> c_long, context: &mut T) {
    // SAFETY: the function has the signature that the kernel calls, with the context that it is given here.
    unsafe { bpf_loop(times, function as *mut c_void, (&raw mut *context).cast(), 0) };
}

/// Looks at the scores of as many Nodes as there is room for: 1 ends the repetition.
unsafe extern "C" fn look_at_chunk(_: u32, context: *mut Scan) -> c_long {
    // SAFETY: `repeat` hands over its context, whose pointers are to reserved memory of the ring buffer.
    let (context, record) = unsafe { (&mut *context, &mut *(*context).record) };
    let left = context.count - u64::from(context.before);
    let ScoresLayout { per_chunk, stride, .. } = context.site.layout.into();
    let nodes = if left < u64::from(per_chunk) { left as u32 } else { per_chunk };
    if nodes == 0 {
        return 1;
    }
    let bytes = (nodes * stride) as usize;
    let kept = if bytes > SCORES_CHUNK { SCORES_CHUNK } else { bytes };
    let from = context.list + u64::from(context.before) * u64::from(stride);
    // SAFETY: `kept` is at most the size of the scratch memory.
    let read = unsafe {
        let room = core::slice::from_raw_parts_mut(context.scratch, kept);
        bpf_probe_read_user_buf(from as *const u8, room)
    };
    if read.is_err() {
        fault(&mut record.hit, 0);
        return 1;
    }
    context.nodes = nodes;
    repeat(nodes.div_ceil(BATCH), look_at, context);
    context.before += nodes;
    record.looked_at = context.before;
    0
}

/// Looks at the total scores of the next Nodes of a chunk.
unsafe extern "C" fn look_at(batch: u32, context: *mut Scan) -> c_long {
    // SAFETY: as above.
    let (context, record) = unsafe { (&*context, &mut *(*context).record) };
    let ScoresLayout { stride, total: offset, .. } = context.site.layout.into();
    for place in 0..BATCH {
        let node = batch * BATCH + place;
        if node >= context.nodes {
            break;
        }
        // A number of eight bytes is where one may be.
        let at = (node * stride + offset) as usize & (SCORES_CHUNK - 8);
        // SAFETY: eight bytes from there are within the scratch memory.
        let total = unsafe { context.scratch.add(at).cast::<i64>().read_unaligned() };
        if total > record.best[0].total {
            record.ties = 1;
        } else if total == record.best[0].total {
            record.ties += 1;
        }
        if total > record.best[MAX_CANDIDATES - 1].total {
            insert(record, total, context.before + node);
        }
    }
    0
}

/// Puts a Node into the list of the best, behind those that are as good.
#[inline(always)]
fn insert(record: &mut ScoresHit, total: i64, index: u32) {
    let mut place = MAX_CANDIDATES - 1;
    for _ in 1..MAX_CANDIDATES {
        if place == 0 || record.best[place - 1].total >= total {
            break;
        }
        record.best[place].total = record.best[place - 1].total;
        record.best[place].index = record.best[place - 1].index;
        place -= 1;
    }
    record.best[place].total = total;
    record.best[place].index = index;
    if record.best_len < MAX_CANDIDATES as u32 {
        record.best_len += 1;
    }
}

/// Fills in what is known about the best: names, and the score of each plugin.
#[inline(always)]
fn describe(record: &mut ScoresHit, layout: &ScoresLayout, list: u64) {
    for place in 0..MAX_CANDIDATES {
        if place as u32 >= record.best_len {
            break;
        }
        let candidate = &mut record.best[place];
        let node = list + u64::from(candidate.index) * u64::from(layout.stride);
        candidate.name_length = 0;
        candidate.plugins = 0;
        candidate.reserved = 0;
        if let Some((pointer, length)) = read_header(node + u64::from(layout.name)) {
            let kept = if length as usize > TEXT_LEN { TEXT_LEN } else { length as usize };
            // SAFETY: `kept` is at most the array's length.
            let read = unsafe {
                let room = core::slice::from_raw_parts_mut((&raw mut candidate.name).cast::<u8>(), kept);
                bpf_probe_read_user_buf(pointer as *const u8, room)
            };
            if read.is_ok() {
                candidate.name_length = length as u32;
            }
        }
        if let Some((pointer, length)) = read_header(node + u64::from(layout.scores)) {
            let kept =
                if length as usize > MAX_SCORED_PLUGINS { MAX_SCORED_PLUGINS } else { length as usize };
            // SAFETY: `kept` elements are at most the array.
            let read = unsafe {
                let scores = (&raw mut candidate.scores).cast::<u8>();
                let room = core::slice::from_raw_parts_mut(scores, kept * PLUGIN_SCORE);
                bpf_probe_read_user_buf(pointer as *const u8, room)
            };
            if read.is_ok() {
                candidate.plugins = length as u32;
            }
        }
    }
    for plugin in 0..MAX_SCORED_PLUGINS {
        record.name_lengths[plugin] = 0;
        if record.best_len == 0 || plugin as u32 >= record.best[0].plugins {
            continue;
        }
        let [pointer, length, _] = record.best[0].scores[plugin];
        let kept = if length as usize > PLUGIN_NAME_LEN { PLUGIN_NAME_LEN } else { length as usize };
        // SAFETY: `kept` is at most the array's length.
        let read = unsafe {
            let room = core::slice::from_raw_parts_mut((&raw mut record.names[plugin]).cast::<u8>(), kept);
            bpf_probe_read_user_buf(pointer as *const u8, room)
        };
        if read.is_ok() {
            record.name_lengths[plugin] = length as u32;
        }
    }
}

/// Sends why Nodes would not do.
#[inline(always)]
pub(crate) fn statuses(cookie: Cookie, registers: &[u64; REGISTERS], head: Head) -> Result<(), Counter> {
    let site = site(cookie)?;
    let layout = StatusesLayout::from(site.layout);
    let Some(mut entry) = EVENTS.reserve::<StatusesHit>(0) else { return Err(Counter::RingFull) };
    // SAFETY: the entry is a reserved StatusesHit; what is not written is said not to be used.
    let record = unsafe { &mut *entry.as_mut_ptr() };
    // SAFETY: it is reserved memory of the ring buffer.
    unsafe { begin(&raw mut record.hit, cookie, head) };
    store_word(&mut record.hit, &site.reads[0], 0, registers);
    record.nodes = 0;
    record.len = 0;
    record.reserved = 0;
    record.absent = NodeStatus { code: 0, plugin: 0 };
    record.tables = [[0; 2]; MAX_TABLES];
    record.table = 0;
    record.next = 0;
    record.overflow = 0;
    let base = registers[layout.base as usize & (REGISTERS - 1)];
    if tables(record, &layout, base).is_none() {
        fault(&mut record.hit, 0);
    }
    let mut context = Groups { record, layout };
    repeat(MAX_GROUPS as u32, group, &mut context);
    // SAFETY: as above; the context that held it is over.
    let record = unsafe { &mut *entry.as_mut_ptr() };
    end(&mut record.hit, cookie);
    entry.submit(BPF_RB_NO_WAKEUP.into());
    Ok(())
}

/// Finds the tables of the map. `None` where memory cannot be read.
#[inline(always)]
fn tables(record: &mut StatusesHit, layout: &StatusesLayout, base: u64) -> Option<()> {
    if base == 0 {
        return Some(());
    }
    let map = if layout.within_struct == 0 {
        base
    } else {
        status(layout, read_word(base + 8)?, &mut record.absent);
        read_word(base)?
    };
    if map == 0 {
        return Some(());
    }
    record.nodes = read_word(map)?;
    if layout.swiss == 0 {
        // The flags and the binary logarithm of the number of buckets follow the count.
        let buckets_log = read_word(map + 8)? >> 8 & 63;
        record.tables[0] = [read_word(map + 16)?, 1 << buckets_log];
        return Some(());
    }
    let (directory, length) = (read_word(map + 16)?, read_word(map + 24)?);
    if length == 0 {
        record.tables[0] = [directory, 1];
        return Some(());
    }
    let mut last = 0;
    for number in 0..MAX_TABLES {
        if number as u64 >= length {
            break;
        }
        // A table may be there several times in a row.
        let table = read_word(directory + 8 * number as u64)?;
        if table != last {
            record.tables[number] = [read_word(table + 16)?, read_word(table + 24)? + 1];
        }
        last = table;
    }
    Some(())
}

/// What is known while a map is gone through.
#[repr(C)]
struct Groups {
    record: *mut StatusesHit,
    layout: StatusesLayout,
}

/// Goes through the next group, if there is one: 1 ends the repetition.
unsafe extern "C" fn group(_: u32, context: *mut Groups) -> c_long {
    // SAFETY: `repeat` hands over its context, whose pointer is to reserved memory of the ring buffer.
    let (layout, record) = unsafe { (&(*context).layout, &mut *(*context).record) };
    let from = if record.overflow == 0 {
        let [first, count] = record.tables[record.table as usize & (MAX_TABLES - 1)];
        if record.next >= count {
            record.table += 1;
            record.next = 0;
            return c_long::from(record.table >= MAX_TABLES as u64);
        }
        record.next += 1;
        first + (record.next - 1) * u64::from(layout.group)
    } else {
        record.overflow
    };
    let size = if layout.group as usize > MAX_GROUP { MAX_GROUP } else { layout.group as usize };
    let group = (&raw mut record.group).cast::<u8>();
    // SAFETY: `size` is at most the array's length.
    let read = unsafe {
        let room = core::slice::from_raw_parts_mut(group, size);
        bpf_probe_read_user_buf(from as *const u8, room)
    };
    if read.is_err() {
        return 1;
    }
    record.overflow = 0;
    if layout.swiss == 0 {
        // The last word of a bucket.
        let at = (size - 8) & (MAX_GROUP - 8);
        // SAFETY: eight bytes from there are within the array.
        record.overflow = unsafe { group.add(at).cast::<u64>().read_unaligned() };
    }
    for slot in 0..SLOTS {
        let control = record.group[slot];
        let used = if layout.swiss == 0 { control >= BUCKET_USED } else { control & SWISS_UNUSED == 0 };
        if !used || record.len as usize >= MAX_STATUSES {
            continue;
        }
        // A pointer is where a pointer may be.
        let at = (layout.values as usize + slot * layout.stride as usize) & (MAX_GROUP - 8);
        // SAFETY: eight bytes from there are within the array.
        let value = unsafe { group.add(at).cast::<u64>().read_unaligned() };
        status(layout, value, &mut record.statuses[record.len as usize & (MAX_STATUSES - 1)]);
        record.len += 1;
    }
    0
}

/// The code of a status and its plugin's name; zeros for a nil one, which is Success, and for one that cannot be read.
#[inline(always)]
fn status(layout: &StatusesLayout, address: u64, out: &mut NodeStatus) {
    word(address + u64::from(layout.code), &mut out.code);
    word(address + u64::from(layout.plugin), &mut out.plugin);
}

/// Reads a word; the kernel writes zeros where it cannot.
#[inline(always)]
fn word(address: u64, out: &mut u64) {
    // SAFETY: the word is as long as its bytes.
    let _zeros = unsafe {
        let room = core::slice::from_raw_parts_mut((&raw mut *out).cast::<u8>(), 8);
        bpf_probe_read_user_buf(address as *const u8, room)
    };
}
