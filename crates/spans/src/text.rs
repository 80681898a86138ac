//! Text: of names and attributes, and foreign text as people read it.

use std::{borrow::Cow, fmt, ops::Deref, sync::Arc};

/// Text that costs no allocation where many spans have the same.
#[derive(Clone)]
pub enum Text {
    /// A constant.
    Static(&'static str),
    /// Has several owners.
    Shared(Arc<str>),
    /// Has one owner.
    Owned(Box<str>),
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Static(text) => text,
            Self::Shared(text) => text,
            Self::Owned(text) => text,
        }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text {}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self::Static(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Owned(text.into())
    }
}

impl From<Arc<str>> for Text {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

impl From<Text> for Cow<'static, str> {
    fn from(text: Text) -> Self {
        match text {
            Text::Static(text) => Self::Borrowed(text),
            Text::Shared(text) => Self::Owned(text.as_ref().to_owned()),
            Text::Owned(text) => Self::Owned(text.into()),
        }
    }
}

/// Name of a span: a constant, and what follows it, such as `plugin: ` and the plugin's name. Most names cost no allocation.
#[derive(Clone)]
pub struct Name {
    first: &'static str,
    rest: Text,
}

impl Name {
    /// The name that begins with `first`.
    #[must_use]
    pub fn new(first: &'static str, rest: impl Into<Text>) -> Self {
        Self { first, rest: rest.into() }
    }

    /// The name as a whole.
    #[must_use]
    pub fn as_str(&self) -> Cow<'_, str> {
        if self.first.is_empty() { Cow::Borrowed(&self.rest) } else { Cow::Owned(self.to_string()) }
    }

    /// Its parts, one after the other.
    pub(crate) fn parts(&self) -> [&str; 2] {
        [self.first, &self.rest]
    }

    /// What follows this constant; `None` if it does not begin with it.
    #[must_use]
    pub fn after(&self, first: &str) -> Option<&str> {
        if self.first.is_empty() {
            self.rest.strip_prefix(first)
        } else {
            (self.first == first).then_some(&self.rest)
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.parts()
            .iter()
            .flat_map(|part| part.bytes())
            .eq(other.parts().iter().flat_map(|part| part.bytes()))
    }
}

impl Eq for Name {}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        other.strip_prefix(self.first).is_some_and(|rest| self.rest == *rest)
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.as_str(), f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first.is_empty() { f.pad(&self.rest) } else { f.pad(&[self.first, &self.rest].concat()) }
    }
}

impl<T: Into<Text>> From<T> for Name {
    fn from(text: T) -> Self {
        Self::new("", text)
    }
}

impl From<Name> for Cow<'static, str> {
    fn from(name: Name) -> Self {
        if name.first.is_empty() { name.rest.into() } else { Self::Owned(name.to_string()) }
    }
}

/// Bytes in hexadecimal, as ids are written.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first characters of a text, so many at most.
#[must_use]
pub fn cut(text: &str, most: usize) -> &str {
    // It has no more characters than bytes.
    let end = if text.len() <= most { None } else { text.char_indices().nth(most) };
    end.map_or(text, |(end, _)| &text[..end])
}

/// An error and its causes as one line. A cause that the error's own message contains is not repeated.
#[must_use]
pub fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    for cause in causes.map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Foreign text for a terminal: without control characters and without characters of unknown width.
#[must_use]
pub fn clean(text: &str) -> String {
    let safe = |c: char| if c.is_whitespace() { ' ' } else { '?' };
    text.chars().map(|c| if c.is_ascii_graphic() { c } else { safe(c) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let cuts = |text| [0, 2, 3, 9].map(|most| cut(text, most));
        assert_eq!(cuts("abc"), ["", "ab", "abc", "abc"]);
        assert_eq!(cuts("äöü"), ["", "äö", "äöü", "äöü"]);
    }

    #[test]
    fn texts_are_equal_if_they_say_the_same() {
        let same = [Text::Static("a"), Text::Shared("a".into()), Text::Owned("a".into())];
        for (one, other) in same.iter().flat_map(|one| same.iter().map(move |other| (one, other))) {
            assert_eq!(one, other);
        }
        for text in &same {
            assert!(*text == "a" && *text != "b" && *text == *"a");
            assert_eq!(format!("{text:?}"), "\"a\"");
        }
        assert_ne!(same[0], Text::Shared("b".into()));
        assert_ne!(same[1], Text::Owned("".into()));
    }

    #[test]
    fn a_name_is_the_same_however_it_is_kept() {
        let parts = Name::new("plugin: ", Arc::<str>::from("Fit"));
        let whole = Name::from("plugin: Fit".to_owned());
        assert_eq!(parts, whole);
        for name in [&parts, &whole] {
            assert!(*name == "plugin: Fit");
            assert_eq!(name.as_str(), "plugin: Fit");
            assert_eq!(format!("{name:<12}|{name:?}"), "plugin: Fit |\"plugin: Fit\"");
            assert_eq!(Cow::<str>::from(name.clone()), "plugin: Fit");
            assert_eq!((name.after("plugin: "), name.after("queue: ")), (Some("Fit"), None));
        }
        assert_ne!(parts, Name::new("plugin: ", "Fi"));
        assert_ne!(parts, Name::from("Fit"));
        assert!(parts != "plugin:" && parts != "Fit");
    }
}
