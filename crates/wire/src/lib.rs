//! What crosses the border between schedspan's eBPF programs and its daemon.
//!
//! The daemon writes down what to read at each probe site as data ([`Site`]), the eBPF program carries it out and
//! answers with one record per hit ([`Hit`], [`TextHit`] where the site reads strings, [`LongTextHit`] where it reads a
//! long one, [`ScoresHit`] and [`StatusesHit`] where it goes through all Nodes). Both sides use this crate, so a layout can only change in one place.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(not(feature = "user"), forbid(unsafe_code))]

/// Most sites that can be attached at once; about 90 are needed for one executable.
pub const MAX_SITES: u32 = 1024;
/// Most scheduler processes traced at once on a node.
pub const MAX_TARGETS: u32 = 64;
/// Most PID namespaces that the traced processes may live in.
pub const MAX_PID_NAMESPACES: u32 = 8;
/// Most reads at one site.
pub const MAX_READS: usize = 10;
/// Most pointers followed by one read.
pub const MAX_STEPS: usize = 4;
/// Words that a record carries.
pub const MAX_WORDS: usize = 8;
/// Strings that a [`TextHit`] carries.
pub const MAX_TEXTS: usize = 4;
/// Bytes kept of one string. Pod names end at 253, namespaces at 63; both by the API server's validation.
pub const TEXT_LEN: usize = 256;
/// Bytes kept of a long string: the message of a failure, which names each reason once, whatever the number of Nodes.
pub const LONG_TEXT_LEN: usize = 2048;
/// Bytes of the ring buffer: a busy scheduler (300 Pods/s, 51 hits each) fills it in about a second. The daemon has it mapped
/// twice in a row.
pub const RING_BYTES: u32 = 4 << 20;

/// The place of a register in Go's ABIInternal sequence of integer registers
/// (<https://github.com/golang/go/blob/go1.26.5/src/cmd/compile/abi-internal.md#architecture-specifics>).
pub type Register = u8;
/// Stands for the stack pointer where a [`Register`] is asked for. On arm64 that is at the cost of the sixteenth
/// register of the sequence; amd64 has nine.
pub const STACK_POINTER: Register = 15;

/// A [`Read`] that takes the value itself into a word.
pub const READ_WORD: u8 = 0;
/// A [`Read`] whose value is the address that [`Read::last`] bytes further holds a string header.
pub const READ_TEXT: u8 = 1;
/// A [`Read`] whose string is in two registers: pointer in [`Read::base`], length in the next.
pub const READ_TEXT_IN_REGISTERS: u8 = 2;

/// [`Site::texts`] of a site that reads no string.
pub const NO_TEXTS: u32 = 0;
/// [`Site::texts`] of a site that always reads its strings.
pub const TEXTS: u32 = 1;
/// [`Site::texts`] of a site whose first word is the code of a `framework.Status`: the strings are read unless it says
/// Success or Skip, which tell nothing more.
pub const TEXTS_OF_FAILURES: u32 = 2;
/// [`Site::texts`] of a site that reads one string, which may be long.
pub const LONG_TEXT: u32 = 3;
/// [`Site::texts`] of a site that goes through the scores of all Nodes: [`Site::layout`] is a [`ScoresLayout`].
pub const SCORES: u32 = 4;
/// [`Site::texts`] of a site that goes through the statuses of the Nodes that would not do: [`Site::layout`] is a
/// [`StatusesLayout`].
pub const STATUSES: u32 = 5;
/// [`Site::time`] of an end: what the program does is not measured as part of the call.
pub const FIRST: u32 = 0;
/// [`Site::time`] of a beginning.
pub const LAST: u32 = 1;
/// [`Site::time`] of an end behind which the next call begins.
pub const FIRST_AND_LAST: u32 = 2;
/// Numbers that a layout is made of.
pub const LAYOUT_LEN: usize = 8;

/// Candidates that a [`ScoresHit`] carries: those with the highest totals.
pub const MAX_CANDIDATES: usize = 5;
/// Plugins whose scores it carries.
pub const MAX_SCORED_PLUGINS: usize = 16;
/// Bytes kept of a plugin's name.
pub const PLUGIN_NAME_LEN: usize = 48;
/// Bytes of scores that are looked at in one go, and how often at most: 800 Nodes and more. A scheduler of 5,000 Nodes
/// scores 500 of them. Memory that nobody has touched for long is waited for, so there is little of it.
pub const SCORES_CHUNK: usize = 1024;
/// How many chunks at most.
pub const MAX_SCORES_CHUNKS: usize = 64;
/// Nodes per chunk, at most: the smallest layout is 48 bytes.
pub const MAX_NODES_PER_CHUNK: usize = SCORES_CHUNK / 48;
/// Nodes whose status a [`StatusesHit`] carries.
pub const MAX_STATUSES: usize = 256;
/// Tables of a map that are looked at.
pub const MAX_TABLES: usize = 4;
/// Groups of 8 slots of these tables, together, that are looked at.
pub const MAX_GROUPS: usize = 64;
/// Bytes of a group, at most.
pub const MAX_GROUP: usize = 256;

/// `framework.Success` and `framework.Skip`
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/kube-scheduler/framework/interface.go#L51-L78>).
pub const UNTOLD_CODES: [u64; 2] = [0, 5];

/// One value to read: start at a register, follow pointers, keep the last.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Where to start.
    pub base: Register,
    /// How many of [`Read::offsets`] are used.
    pub steps: u8,
    /// [`READ_WORD`], [`READ_TEXT`] or [`READ_TEXT_IN_REGISTERS`].
    pub kind: u8,
    /// Which word or string of the record receives it.
    pub slot: u8,
    /// Each step replaces the value by the word at value + offset. A null pointer ends the walk with the value 0:
    /// that is how a nil `*Status` reads as the code 0, Success.
    pub offsets: [u32; MAX_STEPS],
    /// Offset of a string's header from the value, for [`READ_TEXT`].
    pub last: u32,
}

/// What to do at one probe site. The program has the first four fields from the uprobe's [`Cookie`]: the map's memory has left
/// the CPU's caches since the last hit, and to wait for it is a third of what a hit costs the program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Offset of `goid` in the executable's `runtime.g`.
    pub goid_offset: u32,
    /// How many of [`Site::reads`] are used.
    pub reads_len: u32,
    /// Whether there are strings among the reads, which decides about the kind of record: [`NO_TEXTS`], [`TEXTS`],
    /// [`TEXTS_OF_FAILURES`] or [`LONG_TEXT`].
    pub texts: u32,
    /// When the time of a hit is taken: [`FIRST`], [`LAST`] or [`FIRST_AND_LAST`].
    pub time: u32,
    /// What to read.
    pub reads: [Read; MAX_READS],
    /// What [`Site::texts`] says.
    pub layout: [u32; LAYOUT_LEN],
}

/// What the program is told with each hit: which site it is, and what most hits can be served with.
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
    /// The register that all of the site's reads go on from: where it holds a null pointer, each of them brings 0, and the
    /// site need not be looked at. [`NO_POINTER`] where there is no such register.
    pub pointer: Register,
}

/// [`Cookie::pointer`] of a site that is always looked at.
pub const NO_POINTER: Register = Register::MAX;

impl Cookie {
    /// That of a site at this index; nothing if its numbers are larger than any that occur.
    #[must_use]
    pub fn of(site: &Site, index: u32) -> Option<Self> {
        let reads = site.reads.get(..site.reads_len as usize)?;
        let told = site.texts == NO_TEXTS || site.texts == TEXTS_OF_FAILURES;
        let pointer = match reads {
            [first, ..]
                if told
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

/// Where the scores of the Nodes are: a slice of `NodePluginScores`, in two registers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScoresLayout {
    /// The register with the slice's pointer; its length is in the next.
    pub base: u32,
    /// Bytes from one Node's scores to the next one's.
    pub stride: u32,
    /// Offset of `TotalScore`.
    pub total: u32,
    /// Offset of `Name`, the Node's.
    pub name: u32,
    /// Offset of `Scores`, a slice of `PluginScore`, which is 24 bytes: name, score.
    pub scores: u32,
    /// Nodes per [`SCORES_CHUNK`].
    pub per_chunk: u32,
}

/// Where the statuses of the Nodes are: a map from the Node's name to its `*Status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusesLayout {
    /// The register with the map's address, or with that of a `NodeToStatus` which begins with it.
    pub base: u32,
    /// Whether it is a `NodeToStatus`: behind the map is the status of all Nodes that are not in it.
    pub within_struct: u32,
    /// Whether it is a Swiss map, as from Go 1.24 on, and no hash table of buckets.
    pub swiss: u32,
    /// Bytes of a group (bucket).
    pub group: u32,
    /// Offset of the first value in a group.
    pub values: u32,
    /// Bytes from one value to the next.
    pub stride: u32,
    /// Offset of `Status.code`.
    pub code: u32,
    /// Offset of `Status.plugin`.
    pub plugin: u32,
}

impl From<ScoresLayout> for [u32; LAYOUT_LEN] {
    fn from(layout: ScoresLayout) -> Self {
        let ScoresLayout { base, stride, total, name, scores, per_chunk } = layout;
        [base, stride, total, name, scores, per_chunk, 0, 0]
    }
}

impl From<[u32; LAYOUT_LEN]> for ScoresLayout {
    fn from([base, stride, total, name, scores, per_chunk, ..]: [u32; LAYOUT_LEN]) -> Self {
        Self { base, stride, total, name, scores, per_chunk }
    }
}

impl From<StatusesLayout> for [u32; LAYOUT_LEN] {
    fn from(layout: StatusesLayout) -> Self {
        let StatusesLayout { base, within_struct, swiss, group, values, stride, code, plugin } = layout;
        [base, within_struct, swiss, group, values, stride, code, plugin]
    }
}

impl From<[u32; LAYOUT_LEN]> for StatusesLayout {
    fn from([base, within_struct, swiss, group, values, stride, code, plugin]: [u32; LAYOUT_LEN]) -> Self {
        Self { base, within_struct, swiss, group, values, stride, code, plugin }
    }
}

/// A process to trace, in a word: a list of them is gone through more quickly than a hash table is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Of [`Target::key`].
    pub key: u32,
    /// What the daemon calls it.
    pub number: u32,
}

impl Target {
    /// How the kernel's helper names a process: index into the map of [`PidNamespace`]s, and its id there, which is below
    /// 2²² (<https://github.com/torvalds/linux/blob/v6.18/include/linux/threads.h>, `PID_MAX_LIMIT`).
    #[must_use]
    pub const fn key(namespace: u32, pid: u32) -> u32 {
        namespace << 24 | pid
    }
}

impl From<Target> for u64 {
    fn from(target: Target) -> Self {
        Self::from(target.key) << 32 | Self::from(target.number)
    }
}

impl From<u64> for Target {
    fn from(word: u64) -> Self {
        Self { key: (word >> 32) as u32, number: word as u32 }
    }
}

/// Inode of the kernel's first PID namespace, that of the host
/// (<https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/nsfs.h>, `PID_NS_INIT_INO`).
pub const INITIAL_PID_NAMESPACE: u64 = 0xeffffffc;

/// A PID namespace in which a traced process has its id, as `/proc/PID/ns/pid` names it: the host's, where the daemon
/// sees the host's ids, else the one that the process lives in.
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
    /// `runtime.g.goid`, unique for the life of the process.
    pub goroutine: u64,
    /// Bytes between the stack pointer and the top of the goroutine's stack: unlike the pointer itself, it stays
    /// the same when Go moves the stack.
    pub depth: u64,
    /// Index of the [`Site`].
    pub site: u32,
    /// The value that the daemon stored for the process in the map of targets.
    pub target: u32,
    /// Bit n is set when read n of the site met memory that is not resident or not mapped.
    pub faults: u32,
    /// Nanoseconds that the program has taken, where the time is taken [`FIRST_AND_LAST`]: what the process did next began so
    /// much later.
    pub took: u32,
    /// Names the last loss of a record, anywhere, before this one. When it differs from the record before, nothing
    /// that was open then can be trusted to pair with what comes now.
    pub last_loss: u64,
    /// What the site's reads brought.
    pub words: [u64; MAX_WORDS],
}

/// A hit at a site that reads strings.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextHit {
    /// What every hit has.
    pub hit: Hit,
    /// Lengths in bytes of the strings in the process; only the first [`TEXT_LEN`] bytes are in `texts`.
    pub lengths: [u32; MAX_TEXTS],
    /// The strings' first bytes.
    pub texts: [[u8; TEXT_LEN]; MAX_TEXTS],
}

/// A hit at a site that reads a long string.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongTextHit {
    /// What every hit has.
    pub hit: Hit,
    /// Length in bytes of the string in the process; only the first [`LONG_TEXT_LEN`] bytes are in `text`.
    pub length: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// The string's first bytes.
    pub text: [u8; LONG_TEXT_LEN],
}

/// A Node among the best.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its total score.
    pub total: i64,
    /// Its place in the list of all.
    pub index: u32,
    /// Length in bytes of its name in the process.
    pub name_length: u32,
    /// The name's first bytes.
    pub name: [u8; TEXT_LEN],
    /// How many plugins there are, in the process.
    pub plugins: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// `PluginScore`s: address and length of the plugin's name, score.
    pub scores: [[u64; 3]; MAX_SCORED_PLUGINS],
}

/// A hit at a site that goes through scores.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoresHit {
    /// What every hit has.
    pub hit: Hit,
    /// How many Nodes have been scored.
    pub nodes: u32,
    /// How many of them were looked at.
    pub looked_at: u32,
    /// How many of these have the highest total.
    pub ties: u32,
    /// How many of `best` are used.
    pub best_len: u32,
    /// By total, the highest first.
    pub best: [Candidate; MAX_CANDIDATES],
    /// Lengths of the plugins' names.
    pub name_lengths: [u32; MAX_SCORED_PLUGINS],
    /// The plugins' names: their order is the same for all Nodes.
    pub names: [[u8; PLUGIN_NAME_LEN]; MAX_SCORED_PLUGINS],
}

/// A Node's status.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStatus {
    /// `Status.code`.
    pub code: u64,
    /// Address of the plugin's name, a constant of the executable.
    pub plugin: u64,
}

/// A hit at a site that goes through statuses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusesHit {
    /// What every hit has.
    pub hit: Hit,
    /// How many Nodes are in the map.
    pub nodes: u64,
    /// How many of `statuses` are used.
    pub len: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// The status of the Nodes that are not in the map.
    pub absent: NodeStatus,
    /// Room for the program: each table's first group and number of groups, the table and the group that come next.
    pub tables: [[u64; 2]; MAX_TABLES],
    /// See `tables`.
    pub table: u64,
    /// See `tables`.
    pub next: u64,
    /// See `tables`: a bucket that the last one overflowed into.
    pub overflow: u64,
    /// Room for the group that is looked at.
    pub group: [u8; MAX_GROUP],
    /// The statuses, in no order.
    pub statuses: [NodeStatus; MAX_STATUSES],
}

/// What the eBPF program counts, per CPU: an index into its map of counters.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Hits in traced processes. Each is a record or one of the losses.
    Hits = 0,
    /// Loss: the ring buffer was full.
    RingFull = 1,
    /// Loss: the goroutine could not be read, so that the hit cannot be told from others.
    GoroutineFault = 2,
    /// Loss: the uprobe's cookie names no site.
    UnknownSite = 3,
    /// Reads that met memory that is not resident; the record went out without that value.
    ReadFault = 4,
}

impl Counter {
    /// All of them, in the order of their indices.
    pub const ALL: [Self; 5] =
        [Self::Hits, Self::RingFull, Self::GoroutineFault, Self::UnknownSite, Self::ReadFault];
}

#[cfg(feature = "user")]
mod user {
    use aya::Pod;

    use crate::{PidNamespace, Site};

    // SAFETY: `repr(C)`, made of integers, padding explicit: any bytes are a value and there are no others.
    unsafe impl Pod for Site {}
    // SAFETY: as above.
    unsafe impl Pod for PidNamespace {}
}

// The verifier and the daemon both rely on these.
const _: () = assert!(size_of::<Read>() == 24);
const _: () = assert!(size_of::<Site>() == 16 + 24 * MAX_READS + 4 * LAYOUT_LEN);
const _: () = assert!(size_of::<Hit>() == 48 + 8 * MAX_WORDS);
const _: () = assert!(size_of::<TextHit>() == size_of::<Hit>() + 4 * MAX_TEXTS + TEXT_LEN * MAX_TEXTS);
const _: () = assert!(size_of::<LongTextHit>() == size_of::<Hit>() + 8 + LONG_TEXT_LEN);
const _: () = assert!(
    TEXT_LEN.is_power_of_two()
        && MAX_TABLES.is_power_of_two()
        && MAX_STATUSES.is_power_of_two()
        && MAX_GROUP.is_power_of_two()
        && SCORES_CHUNK.is_power_of_two()
        && MAX_WORDS.is_power_of_two()
        && MAX_TEXTS.is_power_of_two()
);

#[cfg(test)]
mod tests {
    use super::*;

    fn site(texts: u32, reads: &[Read]) -> Site {
        let mut site =
            Site { goid_offset: 152, reads_len: reads.len() as u32, texts, time: LAST, ..Site::default() };
        site.reads[..reads.len()].copy_from_slice(reads);
        site
    }

    #[test]
    fn a_cookie_survives_its_word() {
        let code = Read { base: 3, steps: 1, ..Read::default() };
        let cookie = Cookie::of(&site(NO_TEXTS, &[code]), MAX_SITES - 1).unwrap();
        assert_eq!(
            cookie,
            Cookie { site: 1023, goid_offset: 152, reads_len: 1, texts: 0, time: 1, pointer: 3 }
        );
        assert_eq!(Cookie::from(u64::from(cookie)), cookie);
        let target = Target { key: Target::key(7, (1 << 22) - 1), number: 9 };
        assert_eq!(Target::from(u64::from(target)), target);
    }

    #[test]
    fn a_site_is_skipped_for_a_null_pointer_only_where_all_its_reads_follow_that_one() {
        let pointer = |texts, reads: &[Read]| Cookie::of(&site(texts, reads), 0).unwrap().pointer;
        let code = Read { base: 3, steps: 1, ..Read::default() };
        let reason = Read { base: 3, steps: 2, kind: READ_TEXT, ..Read::default() };
        assert_eq!(pointer(TEXTS_OF_FAILURES, &[code, reason]), 3);
        assert_eq!(pointer(TEXTS, &[code, reason]), NO_POINTER);
        assert_eq!(pointer(NO_TEXTS, &[code, Read { base: 4, ..code }]), NO_POINTER);
        // The register's own value is what it brings.
        assert_eq!(pointer(NO_TEXTS, &[code, Read { steps: 0, ..code }]), NO_POINTER);
        assert_eq!(pointer(NO_TEXTS, &[]), NO_POINTER);
    }
}
