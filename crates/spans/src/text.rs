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
