//! The records and tables that schedspan's eBPF programs and its daemon share.
//!
//! The daemon describes each probe site as data ([`Site`]). The eBPF program reads what the site names and sends one
//! record per hit: a [`Hit`] of words, a [`TextHit`] or [`LongTextHit`] with strings, a [`TopHit`] with the greatest
//! elements of a slice, or a [`MapHit`] for a map, whose entries precede it in [`MapChunk`]s.
//!
//! Beside the hits there are samples: several times a second, where each traced process spends its CPU time. The daemon
//! names ranges of code ([`CodeRange`]) and their classes; a [`Sample`] has the classes that its stack met.
//!
//! In a [`window`], calls that are too many for records are timed and added up in the kernel.
//!
//! # Design constraints
//!
//! - No knowledge of any traced program: a site says what to read, the daemon knows what it means.
//! - `no_std`, because the eBPF programs use this crate too.
//! - Every length is a constant, because the verifier has to bound every access.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(not(feature = "user"), forbid(unsafe_code))]

/// Maximum number of plans that are attached at once: one for each executable and program.
pub const MAX_PLANS: u32 = 16;
/// Maximum number of sites of a plan. A scheduler needs about 110.
pub const SITES_PER_PLAN: u32 = 256;
/// Maximum number of attached sites. No plan takes another one's share.
pub const MAX_SITES: u32 = MAX_PLANS * SITES_PER_PLAN;
/// Maximum number of traced processes on a node.
pub const MAX_TARGETS: u32 = 64;
/// Maximum number of PID namespaces of traced processes.
pub const MAX_PID_NAMESPACES: u32 = 8;
/// Maximum number of reads at one site.
pub const MAX_READS: usize = 10;
/// Maximum number of pointers that one read follows.
pub const MAX_STEPS: usize = 4;
/// Words in a record.
pub const MAX_WORDS: usize = 8;
/// Strings in a [`TextHit`].
pub const MAX_TEXTS: usize = 4;
/// Bytes kept of a string. A DNS name has at most 253.
pub const TEXT_LEN: usize = 256;
/// Bytes kept of a long string, such as an error message.
pub const LONG_TEXT_LEN: usize = 2048;
/// Default size of the ring buffer: 15,000 hits a second, one in seven with strings, fill it in about a second. The daemon
/// maps it twice in a row.
pub const RING_BYTES: u32 = 4 << 20;

/// Maximum number of code ranges of an executable: a power of two. A scheduler needs about 500.
pub const RANGES_PER_TABLE: u32 = 2048;
/// Maximum number of code ranges: each executable has its own part.
pub const MAX_RANGES: u32 = MAX_PLANS * RANGES_PER_TABLE;
/// Frames of a stack that are looked at, from the innermost on.
pub const MAX_FRAMES: usize = 64;
/// Default number of samples per second and CPU. Not a divisor of usual timers' rates.
pub const SAMPLE_HZ: u32 = 199;
/// The word of a [`Sample`] where a [`Hit`] has its site.
pub const NO_SITE: u32 = u32::MAX;

/// [`CodeRange::rank`]: one part of a whole. Of several on a stack, the outermost that is inside the whole counts.
pub const PART: u16 = 0;
/// [`CodeRange::rank`]: a whole. The innermost ends the walk.
pub const WHOLE: u16 = 1;
/// [`CodeRange::rank`]: counts as the whole if the stack has none. The innermost counts.
pub const HINT: u16 = 2;
/// No class.
pub const NO_CLASS: u16 = 0;

/// [`Sample::flags`]: the innermost frame is not in the executable's Go code, so the rest of the stack is not believed:
/// a call of C code, whose frames have no pointers.
pub const OUTSIDE: u32 = 1;
/// [`Sample::flags`]: the stack has more than [`MAX_FRAMES`] frames, and no whole among them.
pub const CUT: u32 = 2;
/// [`Sample::flags`]: the stack cannot be read.
pub const UNREADABLE: u32 = 4;

/// Index into the sequence of integer registers of Go's ABIInternal
/// (<https://github.com/golang/go/blob/go1.26.5/src/cmd/compile/abi-internal.md#architecture-specifics>).
pub type Register = u8;
/// The [`Register`] that stands for the stack pointer. It takes the place of the sixteenth register on arm64; amd64 has
/// nine.
pub const STACK_POINTER: Register = 15;
/// The [`Register`] that stands for the address of the current `runtime.g`. It takes the place of the fifteenth register on
/// arm64.
pub const GOROUTINE: Register = 14;
/// The [`Register`] that stands for the return address where a call leaves it in a register, as on arm64. It takes the place of the
/// fourteenth register there.
pub const LINK: Register = 13;

/// Bits of [`MapLayout::base`] for the register.
pub const BASE_BITS: u32 = 8;
/// The largest offset in [`MapLayout::base`].
pub const MAX_BASE_OFFSET: u32 = u32::MAX >> BASE_BITS;

/// [`Read::kind`]: the value itself goes into a word.
pub const READ_WORD: u8 = 0;
/// [`Read::kind`]: a string header is [`Read::last`] bytes behind the value.
pub const READ_TEXT: u8 = 1;
/// [`Read::kind`]: the string's pointer is in [`Read::base`], its length in the next register.
pub const READ_TEXT_IN_REGISTERS: u8 = 2;

/// [`Site::texts`]: no strings; the record is a [`Hit`].
pub const NO_TEXTS: u32 = 0;
/// [`Site::texts`]: strings; the record is a [`TextHit`].
pub const TEXTS: u32 = 1;
/// [`Site::texts`]: strings, unless the first word is one of [`Site::unless`]. The record is a [`TextHit`] or a
/// [`Hit`].
pub const TEXTS_UNLESS: u32 = 2;
/// [`Site::texts`]: one string, which may be long; the record is a [`LongTextHit`].
pub const LONG_TEXT: u32 = 3;
/// [`Site::texts`]: the elements of a slice that have the greatest keys; [`Site::layout`] is a [`TopLayout`] and the
/// record a [`TopHit`].
pub const TOP: u32 = 4;
/// [`Site::texts`]: the entries of a map; [`Site::layout`] is a [`MapLayout`], and the record a [`MapHit`] behind
/// [`MapChunk`]s.
pub const MAP_WALK: u32 = 5;

/// [`Site::time`]: taken before anything is read. For a site where a call ends: the probe's own time is not part of the
/// call.
pub const FIRST: u32 = 0;
/// [`Site::time`]: taken after everything is read. For a site where a call begins.
pub const LAST: u32 = 1;
/// [`Site::time`]: both, for a site where a call ends and the next one begins. See [`Hit::took`].
pub const FIRST_AND_LAST: u32 = 2;

/// Numbers in [`Site::layout`].
pub const LAYOUT_LEN: usize = 12;

/// Elements in a [`TopHit`].
pub const MAX_TOP: usize = 5;
/// Parts kept of an element.
pub const MAX_PARTS: usize = 16;
/// Bytes of a part in the process: a string header and an `int64`.
pub const PART_SIZE: usize = 24;
/// Bytes kept of a part's name.
pub const PART_NAME_LEN: usize = 48;
/// Bytes of a slice that are read at once. They are read into the ring buffer, whose next pages are not in the CPU's
/// caches: the more of them, the longer the process waits.
pub const TOP_CHUNK: usize = 1024;
/// Maximum number of chunks. Together they hold 896 elements of 72 bytes.
pub const MAX_TOP_CHUNKS: usize = 64;
/// Maximum number of elements in a chunk: an element has a key, a string header and a slice header, 48 bytes.
pub const MAX_PER_CHUNK: usize = TOP_CHUNK / 48;

/// Entries of a map that are read with their texts. They keep the process waiting for about 0.5 us each.
pub const MAX_MAP_ENTRIES: u32 = 1024;
/// Entries of a map that are read without texts, after a walk that took long: see [`Target::texts_after`].
pub const MAX_PLAIN_ENTRIES: u32 = 256;
/// After a walk with texts, the texts of the next maps are left out for this multiple of its time: maps of one process
/// take at most one part in so many of its time.
pub const TEXTS_PAUSE: u64 = 20;
/// Maximum number of tables of a map that are walked.
pub const MAX_TABLES: usize = 16;
/// Maximum number of slots that are looked at for one [`MapChunk`], used or not.
pub const MAX_SLOTS: u32 = 4096;
/// Maximum size of a group in bytes.
pub const MAX_GROUP: usize = 256;
/// Maximum size of the struct that a map's value points to, in bytes.
pub const MAX_VALUE: usize = 128;
/// Texts kept of a value.
pub const MAX_VALUE_TEXTS: usize = 4;
/// Bytes of entries in a [`MapChunk`].
pub const MAP_CHUNK: usize = 8192;
/// Maximum number of [`MapChunk`]s of a map.
pub const MAX_MAP_CHUNKS: u32 = 16;
/// Maximum size of an entry in a [`MapChunk`].
pub const MAX_ENTRY_BYTES: usize =
    size_of::<MapEntry>() + TEXT_LEN + MAX_VALUE_TEXTS * (size_of::<ValueText>() + TEXT_LEN);

/// One value to read: start at a register, follow pointers, keep the last word.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The register to start from.
    pub base: Register,
    /// Length of the used part of [`Read::offsets`].
    pub steps: u8,
    /// [`READ_WORD`], [`READ_TEXT`] or [`READ_TEXT_IN_REGISTERS`].
    pub kind: u8,
    /// Index of the record's word or string that takes the value.
    pub slot: u8,
    /// Each step replaces the value by the word at value + offset. A null pointer ends the walk with the value 0.
    pub offsets: [u32; MAX_STEPS],
    /// For [`READ_TEXT`]: offset of the string header from the value.
    pub last: u32,
}

/// What to read at one probe site. The program has the first four fields from the [`Cookie`] as well: the map's memory
/// is rarely in the CPU's caches, and waiting for it takes a third of the time of a hit.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Offset of `goid` in the executable's `runtime.g`.
    pub goid_offset: u32,
    /// Length of the used part of [`Site::reads`].
    pub reads_len: u32,
    /// The kind of record: one of [`NO_TEXTS`], [`TEXTS`], [`TEXTS_UNLESS`], [`LONG_TEXT`], [`TOP`], [`MAP_WALK`].
    pub texts: u32,
    /// When the time of a hit is taken: [`FIRST`], [`LAST`] or [`FIRST_AND_LAST`].
    pub time: u32,
    /// For [`TEXTS_UNLESS`]: bit n is set if the strings are not read when the first word is n. The first read is then
    /// that of the first word.
    pub unless: u32,
    /// What to read.
    pub reads: [Read; MAX_READS],
    /// A [`TopLayout`] or [`MapLayout`], as [`Site::texts`] says.
    pub layout: [u32; LAYOUT_LEN],
}

/// The value that the kernel hands to the program with each hit: the site, and what most hits need of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Index of the [`Site`] in the map.
    pub site: u16,
    /// [`Site::goid_offset`].
    pub goid_offset: u16,
    /// [`Site::reads_len`].
    pub reads_len: u8,
    /// [`Site::texts`].
    pub texts: u8,
    /// [`Site::time`].
    pub time: u8,
    /// The register that all reads of the site start from and dereference. If it is null, every read gives 0 and the
    /// [`Site`] is not needed. [`NO_POINTER`] if there is no such register.
    pub pointer: Register,
}

/// [`Cookie::pointer`] of a site whose reads do not all start from one pointer.
pub const NO_POINTER: Register = Register::MAX;

impl Cookie {
    /// The cookie of the site at this index; `None` if a number does not fit.
    #[must_use]
    pub fn of(site: &Site, index: u32) -> Option<Self> {
        let reads = site.reads.get(..site.reads_len as usize)?;
        // A null pointer gives the first word 0.
        let plain = site.texts == NO_TEXTS || site.texts == TEXTS_UNLESS && site.unless & 1 != 0;
        let pointer = match reads {
            [first, ..]
                if plain
                    && reads.iter().all(|read| {
                        read.base == first.base && (read.kind != READ_WORD || read.steps > 0)
                    }) =>
            {
                first.base
            }
            _ => NO_POINTER,
        };
        Some(Self {
            site: u16::try_from(index).ok()?,
            goid_offset: u16::try_from(site.goid_offset).ok()?,
            reads_len: u8::try_from(site.reads_len).ok()?,
            texts: u8::try_from(site.texts).ok()?,
            time: u8::try_from(site.time).ok()?,
            pointer,
        })
    }
}

impl From<Cookie> for u64 {
    fn from(cookie: Cookie) -> Self {
        let Cookie { site, goid_offset, reads_len, texts, time, pointer } = cookie;
        let [s0, s1] = site.to_le_bytes();
        let [g0, g1] = goid_offset.to_le_bytes();
        Self::from_le_bytes([s0, s1, g0, g1, reads_len, texts, time, pointer])
    }
}

impl From<u64> for Cookie {
    fn from(word: u64) -> Self {
        let [s0, s1, g0, g1, reads_len, texts, time, pointer] = word.to_le_bytes();
        Self {
            site: u16::from_le_bytes([s0, s1]),
            goid_offset: u16::from_le_bytes([g0, g1]),
            reads_len,
            texts,
            time,
            pointer,
        }
    }
}

/// Layout of a slice, held in two registers, whose elements have a key, a label and parts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopLayout {
    /// The register with the slice's pointer; its length is in the next.
    pub base: u32,
    /// Size of an element.
    pub stride: u32,
    /// Offset of the key, an `int64`.
    pub key: u32,
    /// Offset of the label, a string.
    pub label: u32,
    /// Offset of the parts, a slice of [`PART_SIZE`]d structs: a string and an `int64`.
    pub parts: u32,
    /// Elements in a [`TOP_CHUNK`].
    pub per_chunk: u32,
}

/// Layout of a map from strings to pointers to structs, and of two words and a list of strings in these structs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapLayout {
    /// In the lowest [`BASE_BITS`], the register with the map's address, or with that of its holder; above them 0, or, if that address
    /// is in memory, its offset from what is in the register.
    pub base: u32,
    /// 1 if there is a holder: a struct of the map and, behind it, the value of every key that the map does not have.
    pub has_holder: u32,
    /// 1 for a Swiss map (Go 1.24 and later), 0 for a hash table of buckets.
    pub swiss: u32,
    /// Size of a group (bucket).
    pub group: u32,
    /// Offset of the first value in a group.
    pub values: u32,
    /// Distance between two values.
    pub stride: u32,
    /// Offset of the first key in a group.
    pub keys: u32,
    /// Distance between two keys.
    pub key_stride: u32,
    /// Size of the struct.
    pub size: u32,
    /// Offset of the first word in the struct.
    pub first: u32,
    /// Offset of the second word in the struct.
    pub second: u32,
    /// Offset of the list of strings in the struct.
    pub texts: u32,
}

impl From<TopLayout> for [u32; LAYOUT_LEN] {
    fn from(layout: TopLayout) -> Self {
        let TopLayout { base, stride, key, label, parts, per_chunk } = layout;
        [base, stride, key, label, parts, per_chunk, 0, 0, 0, 0, 0, 0]
    }
}

impl From<[u32; LAYOUT_LEN]> for TopLayout {
    fn from([base, stride, key, label, parts, per_chunk, ..]: [u32; LAYOUT_LEN]) -> Self {
        Self { base, stride, key, label, parts, per_chunk }
    }
}

impl From<MapLayout> for [u32; LAYOUT_LEN] {
    fn from(layout: MapLayout) -> Self {
        let MapLayout {
            base,
            has_holder,
            swiss,
            group,
            values,
            stride,
            keys,
            key_stride,
            size,
            first,
            second,
            texts,
        } = layout;
        [base, has_holder, swiss, group, values, stride, keys, key_stride, size, first, second, texts]
    }
}

impl From<[u32; LAYOUT_LEN]> for MapLayout {
    fn from(
        [base, has_holder, swiss, group, values, stride, keys, key_stride, size, first, second, texts]: [u32; LAYOUT_LEN],
    ) -> Self {
        Self { base, has_holder, swiss, group, values, stride, keys, key_stride, size, first, second, texts }
    }
}

/// A traced process, and what the programs keep of it. Key and number are in one word, which the daemon writes at once.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// See [`Target::key`]; 0 ends the list.
    pub key: u32,
    /// The daemon's number for the process.
    pub number: u32,
    /// Identifies the last loss of one of its records: see [`Hit::last_loss`].
    pub last_loss: u64,
    /// The window in which its last share began: `CLOCK_MONOTONIC`, shifted by [`WINDOW_SHIFT`].
    pub window: u64,
    /// The ring buffer's producer position at that time: all that the process sent before is in front of it.
    pub share: u64,
    /// Bytes of its records since then, sent or not. CPUs that add at once may lose one addition.
    pub spent: u64,
    /// Bytes of earlier windows beyond what they allow, up to [`BURST`] windows' worth.
    pub owed: u64,
    /// Records that were lost to its limit.
    pub over_limit: u64,
    /// When texts of maps are read again: `CLOCK_MONOTONIC`, nanoseconds.
    pub texts_after: u64,
}

/// [`Target::key`] of a place in the list that is free.
pub const FREE: u32 = u32::MAX;
/// The limits are for windows of `1 << WINDOW_SHIFT` nanoseconds, 134 ms: shorter than the interval of the daemon's reads.
pub const WINDOW_SHIFT: u32 = 27;
/// Windows' worth of records, about a second's, that a process may send at once after it was quiet: work comes in bursts.
pub const BURST: u64 = 8;
/// Default limit of a process: bytes of records per second. A scheduler that schedules 1,000 Pods a second needs 14 MB.
pub const RECORD_LIMIT: u64 = 32 << 20;

impl Target {
    /// Index into the map of [`PidNamespace`]s, and the process's id there, which is below 2²²
    /// (<https://github.com/torvalds/linux/blob/v6.18/include/linux/threads.h>, `PID_MAX_LIMIT`).
    #[must_use]
    pub const fn key(namespace: u32, pid: u32) -> u32 {
        namespace << 24 | pid
    }
}

/// Inode of the initial PID namespace, that of the host
/// (<https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/nsfs.h>, `PID_NS_INIT_INO`).
pub const INITIAL_PID_NAMESPACE: u64 = 0xeffffffc;

/// [`PidNamespace::inode`] of a place in the list that is free: no namespace has it.
pub const NO_NAMESPACE: u64 = 1;

/// A PID namespace, as `/proc/PID/ns/pid` names it. It is the host's if the daemon runs in that, else the one that the
/// traced process is in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PidNamespace {
    /// Device number in the kernel's own encoding: `major << 20 | minor`.
    pub device: u64,
    /// Inode number; 0 ends the list.
    pub inode: u64,
}

/// One firing of a probe.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// `runtime.g.goid`, unique within the process.
    pub goroutine: u64,
    /// Bytes from the stack pointer to the top of the goroutine's stack. It stays the same when Go moves the stack.
    pub depth: u64,
    /// Index of the [`Site`].
    pub site: u32,
    /// [`Target::number`].
    pub target: u32,
    /// Bit n is set if read n of the site met memory that is not mapped or not resident.
    pub faults: u32,
    /// For [`FIRST_AND_LAST`]: nanoseconds from `time_ns` to the end of the program, when the next call begins.
    pub took: u32,
    /// Identifies the last loss of a record of this process, on any CPU, before this hit. If it differs from that of the
    /// process's record before, an entry may be without its end.
    pub last_loss: u64,
    /// Values of the site's reads.
    pub words: [u64; MAX_WORDS],
}

/// A hit at a site that reads strings.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextHit {
    /// Common part.
    pub hit: Hit,
    /// Lengths of the strings in the process; `texts` has at most [`TEXT_LEN`] bytes of each.
    pub lengths: [u32; MAX_TEXTS],
    /// First bytes of the strings.
    pub texts: [[u8; TEXT_LEN]; MAX_TEXTS],
}

/// A hit at a site that reads a long string.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongTextHit {
    /// Common part.
    pub hit: Hit,
    /// Length of the string in the process; `text` has at most [`LONG_TEXT_LEN`] bytes of it.
    pub length: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// First bytes of the string.
    pub text: [u8; LONG_TEXT_LEN],
}

/// An element of a slice.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopElement {
    /// The elements with the greatest keys are kept.
    pub key: i64,
    /// Index in the slice.
    pub index: u32,
    /// Length of the label in the process.
    pub label_length: u32,
    /// First bytes of the label.
    pub label: [u8; TEXT_LEN],
    /// Number of parts in the process; `parts` has at most [`MAX_PARTS`] of them.
    pub parts_len: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// Parts: address and length of the name, value.
    pub parts: [[u64; 3]; MAX_PARTS],
}

/// A hit at a site that reads the top elements of a slice.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopHit {
    /// Common part.
    pub hit: Hit,
    /// Length of the slice.
    pub len: u32,
    /// Number of elements compared: less than `len` for a very long slice.
    pub compared: u32,
    /// How many of these have the greatest key.
    pub ties: u32,
    /// Length of the used part of `top`.
    pub top_len: u32,
    /// Elements in descending order of key; equal ones in the slice's order.
    pub top: [TopElement; MAX_TOP],
    /// Lengths of the part names in the process.
    pub name_lengths: [u32; MAX_PARTS],
    /// Names of the parts of the first element. A part of another element has the same name if it has the same address.
    pub names: [[u8; PART_NAME_LEN]; MAX_PARTS],
}

/// An entry of a map. In a [`MapChunk`], its key is behind it, and then [`MapEntry::texts`] times a [`ValueText`] with
/// its text. Each text ends at a multiple of 8 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapEntry {
    /// The word at [`MapLayout::first`].
    pub first: u64,
    /// The word at [`MapLayout::second`].
    pub second: u64,
    /// Length of the key in the process, of which at most [`TEXT_LEN`] bytes are kept; 0 if it was not read.
    pub key_len: u32,
    /// Number of texts, at most [`MAX_VALUE_TEXTS`].
    pub texts: u32,
}

/// A text of a map's value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueText {
    /// Its address in the process.
    pub address: u64,
    /// Its length there.
    pub length: u32,
    /// Bytes that are kept, at most [`TEXT_LEN`]; 0 if a text of the same walk has the same address and length, or if it
    /// cannot be read.
    pub kept: u32,
}

/// Entries of a map, in front of its [`MapHit`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapChunk {
    /// Common part. It has no words.
    pub hit: Hit,
    /// [`MapHit::walk`].
    pub walk: u64,
    /// Number of entries.
    pub len: u32,
    /// Bytes used of `data`.
    pub used: u32,
    /// The entries, in no order. An entry that begins within [`MAP_CHUNK`] bytes is whole.
    pub data: [u8; MAP_CHUNK + TEXT_LEN],
}

/// A hit at a site that walks a map.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapHit {
    /// Common part.
    pub hit: Hit,
    /// Number of entries in the map.
    pub entries_in_map: u64,
    /// Identifies the walk among those of the process.
    pub walk: u64,
    /// The value of all absent keys; zeros if there is none.
    pub absent: MapEntry,
}

/// A range of code and its class. The ranges of an executable are sorted, and do not overlap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeRange {
    /// Offset of the first byte from the start of the executable's Go code.
    pub start: u32,
    /// Offset of the first byte behind it.
    pub end: u32,
    /// The class, from 1: its meaning is the daemon's business.
    pub class: u16,
    /// [`PART`], [`WHOLE`] or [`HINT`].
    pub rank: u16,
}

/// The code of a traced process, at the place of its [`Target`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// Address of the executable's Go code in the process.
    pub text: u64,
    /// Its length; 0 if the process is not sampled.
    pub text_len: u32,
    /// Index of its first [`CodeRange`].
    pub first: u32,
    /// Number of its ranges.
    pub len: u32,
    /// 1 if frames outside the Go code are believed: the executable has no C code, so that they are the vDSO's.
    pub believes_outside: u32,
}

/// Where a process was at one tick of the CPU's clock.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// [`Target::number`].
    pub target: u32,
    /// Class of the whole, or [`NO_CLASS`].
    pub whole: u16,
    /// Class of the part, or [`NO_CLASS`].
    pub part: u16,
    /// [`OUTSIDE`], [`CUT`], [`UNREADABLE`].
    pub flags: u32,
    /// Number of frames of the stack, at most [`MAX_FRAMES`].
    pub frames: u32,
    /// [`NO_SITE`].
    pub site: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// Return address of the innermost function if that has no frame, which hides its caller from the stack; else 0.
    pub caller: u64,
}

/// A sample with its stack, where a profile is asked for. It has no classes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSample {
    /// Common part.
    pub sample: Sample,
    /// Addresses of instructions, innermost first; [`Sample::frames`] of them.
    pub stack: [u64; MAX_FRAMES],
}

/// Per-CPU counters of the eBPF programs; the value is the index into their map.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Hits in traced processes, and [`MapChunk`]s. Each one is a record or a loss.
    Hits = 0,
    /// Loss: the ring buffer was full.
    RingFull = 1,
    /// Loss: the goroutine could not be read, so the hit cannot be paired with others.
    GoroutineFault = 2,
    /// Loss: the cookie names a site that is not in the map.
    UnknownSite = 3,
    /// Reads of memory that is not resident. The record is sent without the value.
    ReadFault = 4,
    /// Loss: the process had sent more than its limit, or more than its share while the ring buffer was nearly full.
    OverLimit = 5,
    /// Samples in traced processes. Each one is a record or a loss.
    Samples = 6,
    /// Loss: the ring buffer had no room for a sample.
    SampleRingFull = 7,
    /// Samples whose stack cannot be read. The record is sent without classes.
    SampleFault = 8,
    /// Hits whose program was timed: one of [`TIMED_HITS`], of those that read no list and no map.
    TimedHits = 9,
    /// Time of these programs, nanoseconds.
    TimedNs = 10,
    /// Time of all programs that read a list or a map, nanoseconds.
    WalkNs = 11,
    /// Time of the program of all samples in traced processes, nanoseconds.
    SampleNs = 12,
    /// Programs that any process of this machine executed.
    Executions = 13,
}

/// One hit of so many is timed by its program, on each CPU: a power of two.
pub const TIMED_HITS: u64 = 16;

impl Counter {
    /// All counters, in the order of their indices.
    pub const ALL: [Self; 14] = [
        Self::Hits,
        Self::RingFull,
        Self::GoroutineFault,
        Self::UnknownSite,
        Self::ReadFault,
        Self::OverLimit,
        Self::Samples,
        Self::SampleRingFull,
        Self::SampleFault,
        Self::TimedHits,
        Self::TimedNs,
        Self::WalkNs,
        Self::SampleNs,
        Self::Executions,
    ];
}

#[cfg(feature = "user")]
mod user;
pub mod window;

// The daemon decodes records by these sizes.
const _: () = assert!(size_of::<Read>() == 24);
const _: () = assert!(size_of::<Site>() == 20 + 24 * MAX_READS + 4 * LAYOUT_LEN);
const _: () = assert!(size_of::<Hit>() == 48 + 8 * MAX_WORDS);
const _: () = assert!(size_of::<Target>() == 64);
const _: () = assert!(size_of::<Sample>() == 40 && size_of::<Sample>() < size_of::<Hit>());
const _: () = assert!(size_of::<StackSample>() == size_of::<Sample>() + 8 * MAX_FRAMES);
// A record's site is read before its kind is known.
const _: () = assert!(core::mem::offset_of!(Sample, site) == core::mem::offset_of!(Hit, site));
const _: () = assert!(RANGES_PER_TABLE.is_power_of_two());
const _: () = assert!(MAX_SITES <= 1 << u16::BITS);
const _: () = assert!(size_of::<TextHit>() == size_of::<Hit>() + 4 * MAX_TEXTS + TEXT_LEN * MAX_TEXTS);
const _: () = assert!(size_of::<LongTextHit>() == size_of::<Hit>() + 8 + LONG_TEXT_LEN);
// A record's kind is known by its length.
const _: () = assert!(size_of::<MapHit>() == size_of::<Hit>() + 40 && size_of::<MapEntry>() == 24);
const _: () = assert!(MAX_ENTRY_BYTES < MAP_CHUNK && size_of::<ValueText>() == 16);
// The programs bound an index by a mask.
const _: () = assert!(
    TEXT_LEN.is_power_of_two()
        && MAX_TABLES.is_power_of_two()
        && MAX_VALUE.is_power_of_two()
        && MAP_CHUNK.is_power_of_two()
        && MAX_GROUP.is_power_of_two()
        && TOP_CHUNK.is_power_of_two()
        && MAX_FRAMES.is_power_of_two()
        && MAX_WORDS.is_power_of_two()
        && MAX_TEXTS.is_power_of_two()
        && TIMED_HITS.is_power_of_two()
);

#[cfg(test)]
mod tests;
