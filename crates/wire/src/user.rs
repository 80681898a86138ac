use aya::Pod;

use crate::{
    Code, CodeRange, PidNamespace, Site, Target,
    window::{Caller, OpenCall, Sum, SumKey, Window},
};

// SAFETY: `repr(C)`, made of integers, without implicit padding: any bytes are a valid value.
unsafe impl Pod for Site {}
// SAFETY: as above.
unsafe impl Pod for PidNamespace {}
// SAFETY: as above.
unsafe impl Pod for Target {}
// SAFETY: as above.
unsafe impl Pod for CodeRange {}
// SAFETY: as above.
unsafe impl Pod for Code {}
// SAFETY: as above.
unsafe impl Pod for Window {}
// SAFETY: as above.
unsafe impl Pod for SumKey {}
// SAFETY: as above.
unsafe impl Pod for Sum {}
// SAFETY: as above.
unsafe impl Pod for Caller {}
// SAFETY: as above.
unsafe impl Pod for OpenCall {}

#[cfg(test)]
mod tests {
    use core::{ptr, slice};

    use super::*;
    use crate::{
        LAYOUT_LEN, MAX_READS, Read,
        window::{MAX_MARKS, Mark, SLOTS},
    };

    /// The bytes of a value, as aya hands them to the kernel.
    fn bytes<T: Pod>(value: &T) -> &[u8] {
        // SAFETY: the pointer is valid for as many bytes as long as the value is borrowed. None of them is uninitialized if the
        // promises above hold: `cargo xtask miri` reads them where a byte of padding is an error.
        unsafe { slice::from_raw_parts(ptr::from_ref(value).cast(), size_of::<T>()) }
    }

    #[test]
    fn every_byte_that_the_kernel_gets_is_a_field_s() {
        let read = Read { base: 1, steps: 2, kind: 3, slot: 4, ..Read::default() };
        let site = Site {
            goid_offset: 1,
            reads_len: 2,
            texts: 3,
            time: 4,
            unless: 5,
            reads: [read; MAX_READS],
            layout: [6; LAYOUT_LEN],
        };
        let words = [site.goid_offset, site.reads_len, site.texts, site.time, site.unless];
        let (head, rest) = bytes(&site).split_at(size_of_val(&words));
        let (reads, layout) = rest.split_at(size_of_val(&site.reads));
        assert_eq!(head, words.map(u32::to_ne_bytes).as_flattened());
        assert_eq!(layout, site.layout.map(u32::to_ne_bytes).as_flattened());
        assert!(reads.chunks(size_of::<Read>()).all(|bytes| bytes == &reads[..size_of::<Read>()]));

        let namespace = PidNamespace { device: 1, inode: 2 };
        assert_eq!(bytes(&namespace), [1, 2].map(u64::to_ne_bytes).as_flattened());

        let target = Target {
            key: 1,
            number: 2,
            last_loss: 3,
            window: 4,
            share: 5,
            spent: 6,
            owed: 7,
            over_limit: 8,
            texts_after: 9,
        };
        let (head, rest) = bytes(&target).split_at(8);
        assert_eq!(head, [1, 2].map(u32::to_ne_bytes).as_flattened());
        assert_eq!(rest, [3, 4, 5, 6, 7, 8, 9].map(u64::to_ne_bytes).as_flattened());

        let range = CodeRange { start: 1, end: 2, class: 3, rank: 4 };
        let (head, rest) = bytes(&range).split_at(8);
        assert_eq!(head, [1, 2].map(u32::to_ne_bytes).as_flattened());
        assert_eq!(rest, [3, 4].map(u16::to_ne_bytes).as_flattened());

        let window = Window {
            target: 1,
            state: 2,
            begin_ns: 3,
            end_ns: 4,
            lost: 5,
            marks_len: 6,
            begin_more_ns: 7,
            marks: [Mark { time_ns: 8, function: 9 }; MAX_MARKS],
        };
        let (head, rest) = bytes(&window).split_at(8);
        let (times, rest) = rest.split_at(24);
        let (len, marks) = rest.split_at(8);
        assert_eq!([head, len].concat(), [1, 2, 6, 7].map(u32::to_ne_bytes).as_flattened());
        assert_eq!(times, [3, 4, 5].map(u64::to_ne_bytes).as_flattened());
        assert_eq!(marks, [[8, 9].map(u64::to_ne_bytes); MAX_MARKS].as_flattened().as_flattened());

        let key = SumKey { begin: 1, end: 2, function: 3, marks: 4 };
        let (head, rest) = bytes(&key).split_at(16);
        assert_eq!(head, [1, 2].map(u64::to_ne_bytes).as_flattened());
        assert_eq!(rest, [3, 4].map(u32::to_ne_bytes).as_flattened());

        let sum = Sum { calls: 1, total_ns: 2, probes_ns: 4, slots: [3; SLOTS] };
        let (head, rest) = bytes(&sum).split_at(24);
        assert_eq!(head, [1, 2, 4].map(u64::to_ne_bytes).as_flattened());
        assert_eq!(rest, [3; SLOTS].map(u32::to_ne_bytes).as_flattened());

        let caller = Caller { g: 1, function: 2 };
        assert_eq!(bytes(&caller), [1, 2].map(u64::to_ne_bytes).as_flattened());
        let call = OpenCall { begin_ns: 1, begin: 2, depth: 3, probe_ns: 4, program_ns: 5 };
        assert_eq!(bytes(&call), [1, 2, 3, 4, 5].map(u64::to_ne_bytes).as_flattened());

        let code = Code { text: 1, text_len: 2, first: 3, len: 4, believes_outside: 5 };
        let (head, rest) = bytes(&code).split_at(8);
        assert_eq!(head, 1_u64.to_ne_bytes());
        assert_eq!(rest, [2, 3, 4, 5].map(u32::to_ne_bytes).as_flattened());
    }
}
