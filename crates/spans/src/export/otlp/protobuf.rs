//! A writer of protobuf's wire format: <https://protobuf.dev/programming-guides/encoding/>.

/// Room for the length of a message that is still being written. Most have 128 bytes to 16 KiB.
const LENGTH_ROOM: usize = 2;

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const FIXED32: u32 = 5;

/// Appends fields to a buffer in one pass. Fields with their default value are for the caller to leave out.
#[derive(Debug)]
pub(super) struct Writer<'a>(pub(super) &'a mut Vec<u8>);

impl Writer<'_> {
    #[inline]
    pub(super) fn uint(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.varint(value);
    }

    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed32(&mut self, field: u32, value: u32) {
        self.key(field, FIXED32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A string, or bytes.
    #[inline]
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.head(field, value.len());
        self.0.extend_from_slice(value);
    }

    /// A string of two parts.
    pub(super) fn texts(&mut self, field: u32, [first, rest]: [&str; 2]) {
        self.head(field, first.len() + rest.len());
        self.0.extend_from_slice(first.as_bytes());
        self.0.extend_from_slice(rest.as_bytes());
    }

    /// A message whose length is known once it is written.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.key(field, BYTES);
        let start = self.0.len();
        self.0.extend_from_slice(&[0; LENGTH_ROOM]);
        write(self);
        let length = self.0.len() - start - LENGTH_ROOM;
        if length < 1 << 7 {
            self.0[start] = length as u8;
            self.0.copy_within(start + LENGTH_ROOM.., start + 1);
            self.0.pop();
        } else if length < 1 << 14 {
            self.0[start..start + LENGTH_ROOM].copy_from_slice(&[length as u8 | 0x80, (length >> 7) as u8]);
        } else {
            let mut varint = Vec::new();
            Writer(&mut varint).varint(length as u64);
            drop(self.0.splice(start..start + LENGTH_ROOM, varint));
        }
    }

    /// What stands before the content of a string or message.
    #[inline]
    pub(super) fn head(&mut self, field: u32, length: usize) {
        if field < 1 << 4 && length < 1 << 7 {
            // Most are: both take a byte.
            self.0.extend_from_slice(&[(field << 3 | BYTES) as u8, length as u8]);
        } else {
            self.key(field, BYTES);
            self.varint(length as u64);
        }
    }

    #[inline]
    fn key(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// Bytes of a string or message with what stands before it.
#[inline]
pub(super) fn length_with_head(field: u32, length: usize) -> usize {
    varint_length(u64::from(field << 3)) + varint_length(length as u64) + length
}

/// Bytes of a number with what stands before it.
pub(super) fn length_of_uint(field: u32, value: u64) -> usize {
    varint_length(u64::from(field << 3)) + varint_length(value)
}

#[inline]
fn varint_length(value: u64) -> usize {
    // Most numbers are small.
    if value < 1 << 7 { 1 } else { (value.ilog2() / 7 + 1) as usize }
}

/// The length of the first field of `bytes`, which a [`Writer`] wrote as a string or message; 0 if there is none.
pub(super) fn first_length(bytes: &[u8]) -> usize {
    let mut position = 0;
    let mut varint = || {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *bytes.get(position)?;
            position += 1;
            value |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    };
    let Some((_, length)) = varint().zip(varint()) else { return 0 };
    position + length
}

#[cfg(test)]
mod tests {
    use prost::encoding;

    use super::*;

    /// Values at which a key, a number or a length takes another byte.
    const FIELDS: [u32; 6] = [1, 15, 16, 17, 2_047, 2_048];
    const NUMBERS: [u64; 6] = [0, 127, 128, 16_383, 16_384, u64::MAX];
    const LENGTHS: [usize; 5] = [0, 127, 128, 16_383, 16_384];

    #[test]
    fn a_number_is_written_as_prost_does_and_as_long_as_it_is_said_to_be() {
        for field in FIELDS {
            for number in NUMBERS {
                let (mut written, mut expected) = (Vec::new(), Vec::new());
                Writer(&mut written).uint(field, number);
                encoding::uint64::encode(field, &number, &mut expected);
                assert_eq!(written, expected);
                assert_eq!(written.len(), length_of_uint(field, number));
            }
        }
    }

    #[test]
    fn bytes_and_messages_are_written_as_prost_does_and_as_long_as_they_are_said_to_be() {
        for field in FIELDS {
            for length in LENGTHS {
                let content = vec![7; length];
                let (mut bytes, mut message, mut expected) = (Vec::new(), Vec::new(), Vec::new());
                Writer(&mut bytes).bytes(field, &content);
                Writer(&mut message).message(field, |message| message.0.extend_from_slice(&content));
                encoding::bytes::encode(field, &content, &mut expected);
                assert!(bytes == expected && message == expected, "field {field}, {length} bytes");
                assert_eq!(expected.len(), length_with_head(field, length));
            }
        }
    }
}
