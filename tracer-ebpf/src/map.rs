//! The entries of a Go map from strings to pointers to structs.

use aya_ebpf::{bindings::BPF_RB_NO_WAKEUP, cty::c_long, helpers::bpf_probe_read_user_buf};
use wire::{
    BASE_BITS, Cookie, Counter, MAP_CHUNK, MAX_ENTRY_BYTES, MAX_GROUP, MAX_MAP_CHUNKS, MAX_MAP_ENTRIES,
    MAX_PLAIN_ENTRIES, MAX_SLOTS, MAX_TABLES, MAX_VALUE, MAX_VALUE_TEXTS, MapChunk, MapEntry, MapHit,
    MapLayout, NO_TEXTS, Site, TEXT_LEN, TEXTS_PAUSE, ValueText,
};

use crate::{
    EVENTS, Head, begin, count, end, fault, lose, now, read_word, regs::REGISTERS, repeat, reserve, site,
    store_word, words,
};

/// Slots of a group or bucket. It begins with a control byte for each.
const SLOTS: usize = 8;
/// Bit of the control byte of an unused slot in a Swiss map.
/// <https://github.com/golang/go/blob/go1.26.5/src/internal/runtime/maps/group.go#L16-L29>
const SWISS_UNUSED: u8 = 0x80;
/// Least control byte of a used slot in a bucket.
/// <https://github.com/golang/go/blob/go1.23.4/src/runtime/map.go#L88-L99>
const BUCKET_USED: u8 = 5;
/// Bit of a map's flags: the buckets that it moves to are as many as the old ones.
/// <https://github.com/golang/go/blob/go1.23.4/src/runtime/map.go#L81-L86>
const SAME_SIZE: u64 = 8;
/// Texts that a walk remembers, each at the place that its address gives.
const KNOWN: usize = 16;

/// State of a walk: in the ring buffer, because the program's stack has no room for it, and never sent.
#[repr(C)]
struct Walk {
    /// First group and number of groups of each table.
    tables: [[u64; 2]; MAX_TABLES],
    entries_in_map: u64,
    absent: MapEntry,
    /// Current table.
    table: u64,
    /// Next group of the table.
    next: u64,
    /// Overflow bucket of the bucket before, or 0.
    overflow: u64,
    /// Next slot of the current group; [`SLOTS`] behind the last.
    slot: u32,
    /// Entries that may still be read.
    left: u32,
    /// Whether texts are read.
    with_texts: u32,
    /// Whether the walk is over.
    over: u32,
    /// The current group. A word at any masked offset, and the next, are within.
    group: [u8; MAX_GROUP + 8],
    /// The current value, likewise.
    value: [u8; MAX_VALUE + 8],
    /// Address and length of its texts.
    headers: [[u64; 2]; MAX_VALUE_TEXTS],
    /// Address and length of texts that were sent.
    known: [[u64; 2]; KNOWN],
}

/// What [`walk_chunk`] needs.
#[repr(C)]
struct Chunks {
    walk: *mut Walk,
    site: &'static Site,
    cookie: Cookie,
    head: Head,
    /// [`MapHit::walk`].
    id: u64,
}

/// What [`walk_slot`] needs.
#[repr(C)]
struct Slots {
    walk: *mut Walk,
    chunk: *mut MapChunk,
    site: &'static Site,
}

/// Sends a [`MapHit`] behind its [`MapChunk`]s.
#[inline(always)]
pub(crate) fn map(cookie: Cookie, registers: &[u64; REGISTERS], head: Head) -> Result<(), Counter> {
    let site = site(cookie)?;
    if site.texts == NO_TEXTS {
        // The daemon has taken the map off the site.
        return words(cookie, site, registers, head, 0);
    }
    let mut state = EVENTS.reserve::<Walk>(0).ok_or(Counter::RingFull)?;
    // SAFETY: the entry is a reserved Walk. Each field is written before it is read, but for the arrays of bytes, whose
    // content is not trusted.
    let walk = unsafe { &mut *state.as_mut_ptr() };
    let id = now();
    // SAFETY: the map's value is aligned and outlives the program; it is read in one load.
    let with_texts = id >= unsafe { (&raw const (*head.target).texts_after).read_volatile() };
    walk.tables = [[0; 2]; MAX_TABLES];
    walk.entries_in_map = 0;
    walk.absent = MapEntry { first: 0, second: 0, key_len: 0, texts: 0 };
    walk.table = 0;
    walk.next = 0;
    walk.overflow = 0;
    walk.slot = SLOTS as u32;
    walk.left = if with_texts { MAX_MAP_ENTRIES } else { MAX_PLAIN_ENTRIES };
    walk.with_texts = with_texts.into();
    walk.over = 0;
    walk.known = [[0; 2]; KNOWN];
    let register = registers[site.layout[0] as usize & (REGISTERS - 1)];
    let base = match site.layout[0] >> BASE_BITS {
        0 => Some(register),
        offset => read_word(register + u64::from(offset)),
    };
    let found = base.and_then(|base| tables(walk, &MapLayout::from(site.layout), base)).is_some();
    if found && walk.entries_in_map != 0 {
        let mut context = Chunks { walk, site, cookie, head, id };
        repeat(MAX_MAP_CHUNKS, walk_chunk, &mut context);
    }
    // Behind the chunks.
    let mut entry = match reserve::<MapHit>(head.target) {
        Ok(entry) => entry,
        Err(loss) => {
            state.discard(BPF_RB_NO_WAKEUP.into());
            return Err(loss);
        }
    };
    // SAFETY: both entries are reserved; `context`, which held one, is not used any more.
    let (walk, record) = unsafe { (&mut *state.as_mut_ptr(), &mut *entry.as_mut_ptr()) };
    // SAFETY: reserved memory of the ring buffer.
    unsafe { begin(&raw mut record.hit, cookie, head) };
    store_word(&mut record.hit, &site.reads[0], 0, registers);
    record.entries_in_map = walk.entries_in_map;
    record.walk = id;
    record.absent = walk.absent;
    if !found {
        fault(&mut record.hit, 0);
    }
    state.discard(BPF_RB_NO_WAKEUP.into());
    if with_texts {
        let after = now();
        // SAFETY: as above; it is written in one store.
        unsafe {
            (&raw mut (*head.target).texts_after).write_volatile(after + (after - id) * TEXTS_PAUSE);
        }
    }
    end(&mut record.hit, cookie);
    entry.submit(BPF_RB_NO_WAKEUP.into());
    Ok(())
}

/// Finds the tables of the map. Returns `None` if memory cannot be read.
#[inline(always)]
fn tables(walk: &mut Walk, layout: &MapLayout, base: u64) -> Option<()> {
    if base == 0 {
        return Some(());
    }
    let map = if layout.has_holder == 0 {
        base
    } else {
        let value = read_word(base + 8)?;
        read_word_or_zero(value + u64::from(layout.first), &mut walk.absent.first);
        read_word_or_zero(value + u64::from(layout.second), &mut walk.absent.second);
        read_word(base)?
    };
    if map == 0 {
        return Some(());
    }
    walk.entries_in_map = read_word(map)?;
    if layout.swiss == 0 {
        // `hmap`: behind the count are the flags and the binary logarithm of the number of buckets.
        // <https://github.com/golang/go/blob/go1.23.4/src/runtime/map.go#L116-L130>
        let flags = read_word(map + 8)?;
        let buckets_log = flags >> 8 & 63;
        walk.tables[0] = [read_word(map + 16)?, 1 << buckets_log];
        // A map that grows has buckets that it has not moved yet: half as many, or as many. In those that it has moved no slot is used.
        let old = read_word(map + 24)?;
        if old != 0 {
            let less = u64::from(flags & SAME_SIZE == 0);
            walk.tables[1] = [old, 1 << (buckets_log.wrapping_sub(less) & 63)];
        }
        return Some(());
    }
    let (directory, length) = (read_word(map + 16)?, read_word(map + 24)?);
    if length == 0 {
        walk.tables[0] = [directory, 1];
        return Some(());
    }
    let mut last = 0;
    for number in 0..MAX_TABLES {
        if number as u64 >= length {
            break;
        }
        // A table may fill several entries of the directory, in a row.
        let table = read_word(directory + 8 * number as u64)?;
        if table != last {
            walk.tables[number] = [read_word(table + 16)?, read_word(table + 24)? + 1];
        }
        last = table;
    }
    Some(())
}

/// Sends the next entries. Returns 1 if there are no more.
unsafe extern "C" fn walk_chunk(_: u32, context: *mut Chunks) -> c_long {
    // SAFETY: `repeat` passes on its context.
    let context = unsafe { &*context };
    count(Counter::Hits);
    let mut entry = match reserve::<MapChunk>(context.head.target) {
        Ok(entry) => entry,
        Err(loss) => {
            lose(loss, context.cookie.site, context.head.target);
            return 1;
        }
    };
    let chunk = entry.as_mut_ptr();
    // SAFETY: `chunk` points to a reserved MapChunk; its bytes are written before they are counted in `used`.
    unsafe {
        begin(&raw mut (*chunk).hit, context.cookie, context.head);
        (*chunk).walk = context.id;
        (*chunk).len = 0;
        (*chunk).used = 0;
    }
    let mut slots = Slots { walk: context.walk, chunk, site: context.site };
    repeat(MAX_SLOTS, walk_slot, &mut slots);
    entry.submit(BPF_RB_NO_WAKEUP.into());
    // SAFETY: the context's pointer is to reserved memory of the ring buffer.
    unsafe { c_long::from((*context.walk).over != 0) }
}

/// Reads the next slot, or the next group. Returns 1 behind the last, and where the chunk is full.
unsafe extern "C" fn walk_slot(_: u32, context: *mut Slots) -> c_long {
    // SAFETY: `repeat` passes on its context, whose pointers are to reserved memory of the ring buffer.
    let (site, walk, chunk) = unsafe { ((*context).site, &mut *(*context).walk, &mut *(*context).chunk) };
    let layout = MapLayout::from(site.layout);
    if walk.slot >= SLOTS as u32 {
        let goes_on = next_group(walk, &layout);
        walk.over = u32::from(!goes_on);
        return c_long::from(!goes_on);
    }
    let slot = walk.slot as usize & (SLOTS - 1);
    let control = walk.group[slot];
    let used = if layout.swiss == 0 { control >= BUCKET_USED } else { control & SWISS_UNUSED == 0 };
    if used {
        if walk.left == 0 {
            walk.over = 1;
            return 1;
        }
        if chunk.used as usize > MAP_CHUNK - MAX_ENTRY_BYTES {
            return 1;
        }
        walk.left -= 1;
        append(walk, chunk, &layout, slot);
    }
    walk.slot += 1;
    0
}

/// Reads the next group, or goes to the next table. Returns whether there may be more.
#[inline(always)]
fn next_group(walk: &mut Walk, layout: &MapLayout) -> bool {
    let from = if walk.overflow == 0 {
        let [first, count] = walk.tables[walk.table as usize & (MAX_TABLES - 1)];
        if walk.next >= count {
            walk.table += 1;
            walk.next = 0;
            return walk.table < MAX_TABLES as u64;
        }
        walk.next += 1;
        first + (walk.next - 1) * u64::from(layout.group)
    } else {
        walk.overflow
    };
    let size = if layout.group as usize > MAX_GROUP { MAX_GROUP } else { layout.group as usize };
    if !read_bytes(from, (&raw mut walk.group).cast(), size) {
        count(Counter::ReadFault);
        return false;
    }
    walk.overflow = 0;
    if layout.swiss == 0 {
        // The last word of a bucket.
        walk.overflow = word(&walk.group, (size - 8) & (MAX_GROUP - 8));
    }
    walk.slot = 0;
    true
}

/// Appends the entry of a slot. The chunk has room for the longest.
#[inline(always)]
fn append(walk: &mut Walk, chunk: &mut MapChunk, layout: &MapLayout, slot: usize) {
    let data = (&raw mut chunk.data).cast::<u8>();
    // Keys, values and words are aligned to 8 bytes.
    let key = (layout.keys as usize + slot * layout.key_stride as usize) & (MAX_GROUP - 8);
    let value = (layout.values as usize + slot * layout.stride as usize) & (MAX_GROUP - 8);
    let size = if layout.size as usize > MAX_VALUE { MAX_VALUE } else { layout.size as usize };
    // Zeros if it is null or cannot be read.
    read_bytes(word(&walk.group, value), (&raw mut walk.value).cast(), size);
    let mut entry = MapEntry {
        first: word(&walk.value, layout.first as usize & (MAX_VALUE - 8)),
        second: word(&walk.value, layout.second as usize & (MAX_VALUE - 8)),
        key_len: 0,
        texts: 0,
    };
    let start = chunk.used as usize & (MAP_CHUNK - 8);
    let mut at = start + size_of::<MapEntry>();
    if walk.with_texts != 0 {
        let length = word(&walk.group, key + 8);
        let kept = least(length, TEXT_LEN);
        // SAFETY: `TEXT_LEN` bytes from a masked offset are within the array.
        let to = unsafe { data.add(at & (MAP_CHUNK - 8)) };
        if read_bytes(word(&walk.group, key), to, kept) {
            entry.key_len = least(length, u32::MAX as usize) as u32;
            at += kept.next_multiple_of(8);
        } else {
            count(Counter::ReadFault);
        }
        let texts = layout.texts as usize & (MAX_VALUE - 8);
        let number = least(word(&walk.value, texts + 8), MAX_VALUE_TEXTS);
        let headers = (&raw mut walk.headers).cast();
        if read_bytes(word(&walk.value, texts), headers, number * size_of::<[u64; 2]>()) {
            for place in 0..MAX_VALUE_TEXTS {
                if place >= number {
                    break;
                }
                at = append_text(walk, data, at, place);
                entry.texts += 1;
            }
        }
    }
    // SAFETY: `TEXT_LEN` bytes from a masked offset are within the array.
    unsafe { data.add(start).cast::<MapEntry>().write_unaligned(entry) };
    chunk.used = at as u32;
    chunk.len += 1;
}

/// Appends a text of the current value, without its bytes if they were sent before. Returns the offset behind it.
#[inline(always)]
fn append_text(walk: &mut Walk, data: *mut u8, at: usize, place: usize) -> usize {
    let [address, length] = walk.headers[place];
    let known = &mut walk.known[(address >> 4) as usize & (KNOWN - 1)];
    let mut kept = 0;
    if *known != [address, length] {
        kept = least(length, TEXT_LEN);
        // SAFETY: `TEXT_LEN` bytes from a masked offset are within the array.
        let to = unsafe { data.add((at + size_of::<ValueText>()) & (MAP_CHUNK - 8)) };
        if read_bytes(address, to, kept) {
            *known = [address, length];
        } else {
            count(Counter::ReadFault);
            kept = 0;
        }
    }
    let text = ValueText { address, length: least(length, u32::MAX as usize) as u32, kept: kept as u32 };
    // SAFETY: as above.
    unsafe { data.add(at & (MAP_CHUNK - 8)).cast::<ValueText>().write_unaligned(text) };
    at + size_of::<ValueText>() + kept.next_multiple_of(8)
}

/// The lesser of a number and a limit.
#[inline(always)]
fn least(number: u64, limit: usize) -> usize {
    if number > limit as u64 { limit } else { number as usize }
}

/// The word at an offset: of eight bytes from there, none is behind the last.
#[inline(always)]
fn word<const LENGTH: usize>(bytes: &[u8; LENGTH], at: usize) -> u64 {
    // SAFETY: the caller masks the offset.
    unsafe { bytes.as_ptr().add(at).cast::<u64>().read_unaligned() }
}

/// Reads this many bytes. The kernel writes zeros if it cannot read.
#[inline(always)]
fn read_bytes(from: u64, to: *mut u8, size: usize) -> bool {
    // SAFETY: the caller has room for `size` bytes.
    unsafe { bpf_probe_read_user_buf(from as *const u8, core::slice::from_raw_parts_mut(to, size)).is_ok() }
}

/// The kernel writes zeros if it cannot read.
#[inline(always)]
fn read_word_or_zero(address: u64, out: &mut u64) {
    read_bytes(address, (&raw mut *out).cast(), 8);
}
