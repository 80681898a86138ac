//! The length of texts that are kept.

/// Most bytes of a text, such as an image's name.
pub(super) const MAX_TEXT: usize = 256;

/// Cuts a text to [`MAX_TEXT`] bytes, and counts it if it was longer.
pub(super) fn short(text: &str, shortened: &mut u64) -> String {
    *shortened += u64::from(text.len() > MAX_TEXT);
    text[..text.floor_char_boundary(MAX_TEXT)].to_owned()
}
