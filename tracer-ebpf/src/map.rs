//! The values of a Go map.

use aya_ebpf::{bindings::BPF_RB_NO_WAKEUP, cty::c_long, helpers::bpf_probe_read_user_buf};
use wire::{
    Cookie, Counter, MAX_GROUP, MAX_GROUPS, MAX_MAP_ENTRIES, MAX_TABLES, MapEntry, MapHit, MapLayout,
};

use crate::{Head, begin, count, end, fault, read_word, regs::REGISTERS, repeat, reserve, site, store_word};

/// Slots of a group or bucket. It begins with a control byte for each.
const SLOTS: usize = 8;
/// Bit of the control byte of an unused slot in a Swiss map.
/// <https://github.com/golang/go/blob/go1.26.5/src/internal/runtime/maps/group.go#L16-L29>
const SWISS_UNUSED: u8 = 0x80;
/// Least control byte of a used slot in a bucket.
/// <https://github.com/golang/go/blob/go1.23.4/src/runtime/map.go#L88-L99>
const BUCKET_USED: u8 = 5;

/// Sends a [`MapHit`].
#[inline(always)]
pub(crate) fn map(cookie: Cookie, registers: &[u64; REGISTERS], head: Head) -> Result<(), Counter> {
    let site = site(cookie)?;
    let layout = MapLayout::from(site.layout);
    let mut entry = reserve::<MapHit>(head.target)?;
    // SAFETY: the entry is a reserved MapHit. Each field is written before it is sent, or outside the lengths sent.
    let record = unsafe { &mut *entry.as_mut_ptr() };
    // SAFETY: reserved memory of the ring buffer.
    unsafe { begin(&raw mut record.hit, cookie, head) };
    store_word(&mut record.hit, &site.reads[0], 0, registers);
    record.entries_in_map = 0;
    record.len = 0;
    record.reserved = 0;
    record.absent = MapEntry { first: 0, second: 0 };
    record.tables = [[0; 2]; MAX_TABLES];
    record.table = 0;
    record.next = 0;
    record.overflow = 0;
    let base = registers[layout.base as usize & (REGISTERS - 1)];
    if tables(record, &layout, base).is_none() {
        fault(&mut record.hit, 0);
    }
    let mut context = Walk { record, layout };
    repeat(MAX_GROUPS as u32, walk_group, &mut context);
    // SAFETY: as above; `context`, which held it, is not used any more.
    let record = unsafe { &mut *entry.as_mut_ptr() };
    end(&mut record.hit, cookie);
    entry.submit(BPF_RB_NO_WAKEUP.into());
    Ok(())
}

/// Finds the tables of the map. Returns `None` if memory cannot be read.
#[inline(always)]
fn tables(record: &mut MapHit, layout: &MapLayout, base: u64) -> Option<()> {
    if base == 0 {
        return Some(());
    }
    let map = if layout.has_holder == 0 {
        base
    } else {
        read_entry(layout, read_word(base + 8)?, &mut record.absent);
        read_word(base)?
    };
    if map == 0 {
        return Some(());
    }
    record.entries_in_map = read_word(map)?;
    if layout.swiss == 0 {
        // `hmap`: behind the count are the flags and the binary logarithm of the number of buckets.
        // <https://github.com/golang/go/blob/go1.23.4/src/runtime/map.go#L116-L130>
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
        // A table may fill several entries of the directory, in a row.
        let table = read_word(directory + 8 * number as u64)?;
        if table != last {
            record.tables[number] = [read_word(table + 16)?, read_word(table + 24)? + 1];
        }
        last = table;
    }
    Some(())
}

/// State of the walk; the rest is in the record.
#[repr(C)]
struct Walk {
    record: *mut MapHit,
    layout: MapLayout,
}

/// Reads the next group. Returns 1 behind the last.
unsafe extern "C" fn walk_group(_: u32, context: *mut Walk) -> c_long {
    // SAFETY: `repeat` passes on its context, whose pointer is to reserved memory of the ring buffer.
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
        count(Counter::ReadFault);
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
        if !used || record.len as usize >= MAX_MAP_ENTRIES {
            continue;
        }
        // Pointers are aligned to 8 bytes.
        let at = (layout.values as usize + slot * layout.stride as usize) & (MAX_GROUP - 8);
        // SAFETY: eight bytes from there are within the array.
        let value = unsafe { group.add(at).cast::<u64>().read_unaligned() };
        read_entry(layout, value, &mut record.entries[record.len as usize & (MAX_MAP_ENTRIES - 1)]);
        record.len += 1;
    }
    0
}

/// Reads the two words of a struct: zeros if its address is null or cannot be read.
#[inline(always)]
fn read_entry(layout: &MapLayout, address: u64, out: &mut MapEntry) {
    read_word_or_zero(address + u64::from(layout.first), &mut out.first);
    read_word_or_zero(address + u64::from(layout.second), &mut out.second);
}

/// The kernel writes zeros if it cannot read.
#[inline(always)]
fn read_word_or_zero(address: u64, out: &mut u64) {
    // SAFETY: the slice is the word's own bytes.
    let _zeros = unsafe {
        let room = core::slice::from_raw_parts_mut((&raw mut *out).cast::<u8>(), 8);
        bpf_probe_read_user_buf(address as *const u8, room)
    };
}
