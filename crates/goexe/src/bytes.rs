//! Bounds-checked little-endian reads.

pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    array(bytes, at).map(i32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// Reads an unsigned LEB128 number of at most 32 bits, as in Go's varints. Returns it with its length in bytes.
pub(crate) fn varint(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let mut value = 0u32;
    for (i, shift) in (0..35).step_by(7).enumerate() {
        let byte = *bytes.get(at.checked_add(i)?)?;
        value |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((value, i + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_past_the_end_give_nothing() {
        assert_eq!(u32_at(&[1, 2, 3], 0), None);
        assert_eq!(u64_at(&[0; 8], usize::MAX), None);
        assert_eq!(u16_at(&[1, 2], 0), Some(0x0201));
    }

    #[test]
    fn an_endless_varint_gives_nothing() {
        assert_eq!(varint(&[0x80; 16], 0), None);
        assert_eq!(varint(&[0xac, 0x02], 0), Some((300, 2)));
    }
}
